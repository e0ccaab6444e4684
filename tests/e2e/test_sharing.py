"""Two spaces of one person are apart, unless the person shares and a memory was tagged for the other one."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import memorist
from memorist.errors import InvalidInput
from memorist.interfaces.cli import app
from memorist.sync import Blocking, BlockingScope

TEA = "I drink green tea in the morning."


@pytest.fixture
def memory(place: str, tmp_path: Path) -> Iterator[Blocking]:
    with memorist.open(place, embedder="hashing", state_dir=tmp_path) as opened:
        yield opened


def shared(scope: BlockingScope) -> list[tuple[str, str]]:
    """What comes from elsewhere, with the space it comes from."""
    found = scope.recall_shared("Who drinks green tea?")
    return [(hit.memory.scope.space, hit.memory.text) for answer in found for hit in answer]


@pytest.mark.spec("THE-109", "THE-118")
@pytest.mark.parametrize(
    ("opted_in", "tag"), list(itertools.product((True, False), ("share:work", "work", None)))
)
def test_it_takes_both_the_persons_word_and_an_explicit_tag(
    memory: Blocking, opted_in: bool, tag: str | None
) -> None:
    home, work = memory.scope("ana", "home"), memory.scope("ana", "work")
    home.remember(TEA, tags=[tag] if tag else [])
    home.remember("Bo drinks green tea, too.")
    work.remember("The invoices are in the folder that is shared with work.")
    assert shared(work) == [], "nobody was asked yet"
    home.privacy.set(sharing=opted_in, actor="ana")
    assert shared(work) == ([("home", TEA)] if opted_in and tag == "share:work" else [])
    assert all(hit.memory.scope.space == "work" for hit in work.recall("Who drinks green tea?"))
    assert shared(home) == []
    assert dict(home.history("settings")[0].meta) == {"sharing": opted_in}


@pytest.mark.spec("THE-118")
def test_nothing_is_shared_with_another_person_tenant_or_space(memory: Blocking) -> None:
    home = memory.scope("ana", "home")
    home.privacy.set(sharing=True)
    home.remember(TEA, tags=["share:work"])
    for other in (("bo", "work", None), ("ana", "work", "acme"), ("ana", "club", None)):
        there = memory.scope(*other)
        there.privacy.set(sharing=True)
        there.remember("The invoices are in the blue folder.")
        assert shared(there) == []
    assert shared(memory.scope("ana", "work")) == [("home", TEA)], "which holds nothing itself"


@pytest.mark.spec("THE-118")
def test_an_edit_shares_its_new_words_only_if_it_says_so(memory: Blocking) -> None:
    home, work = memory.scope("ana", "home"), memory.scope("ana", "work")
    home.privacy.set(sharing=True)
    (id,) = home.remember(TEA, tags=["share:work", "drinks"]).ids
    home.edit(id, importance=0.9)
    assert shared(work) == [("home", TEA)]
    edited = home.edit(id, "I drink green tea with a lot of rum.")
    assert (edited.tags, shared(work)) == (("drinks",), [])
    home.edit(id, "I drink green tea at noon.", tags=["share:work"])
    assert shared(work) == [("home", "I drink green tea at noon.")]


@pytest.mark.spec("THE-118")
def test_a_summary_is_not_shared_because_a_part_of_it_is(memory: Blocking) -> None:
    home, work = memory.scope("ana", "home"), memory.scope("ana", "work")
    home.privacy.set(sharing=True)
    for name in ("monday", "tuesday"):
        chat = memory.scope("ana", "home", session=name)
        chat.remember([{"content": f"On {name} we drank green tea."}], tags=["share:work"])
        chat.remember([{"content": f"The green tea of {name} was my secret."}])
    assert home.compress(threshold=1, sessions=1).summaries
    (answer,) = work.recall_shared("Who drinks green tea?")
    assert "secret" not in answer.text


@pytest.mark.spec("THE-118")
def test_a_space_that_shares_nothing_gives_no_answer(memory: Blocking) -> None:
    home, work = memory.scope("ana", "home"), memory.scope("ana", "work")
    home.privacy.set(sharing=True)
    home.remember(TEA)
    assert work.recall_shared("Who drinks green tea?") == []


@pytest.mark.spec("THE-118")
def test_an_end_of_sharing_and_any_off_end_it_at_once(memory: Blocking) -> None:
    home, work = memory.scope("ana", "home"), memory.scope("ana", "work", session="chat-1")
    home.remember(TEA, tags=["share:work"])
    for turn, back in (
        (lambda: home.privacy.set(sharing=False), lambda: home.privacy.set(sharing=True)),
        (
            lambda: home.privacy.set(memory_enabled=False),
            lambda: home.privacy.set(memory_enabled=True),
        ),
        (
            lambda: work.privacy.set(memory_enabled=False),
            lambda: work.privacy.set(memory_enabled=True),
        ),
        (work.privacy.start_incognito, work.privacy.end_incognito),
    ):
        home.privacy.set(sharing=True)
        assert shared(work) == [("home", TEA)]
        turn()
        assert shared(work) == []
        back()
    (tea,) = home.list()
    home.edit(tea.id, tags=[])
    assert shared(work) == []
    with pytest.raises(InvalidInput):
        work.recall_shared("tea", limit=0)


def test_the_tag_is_not_handed_on_to_what_is_near(tmp_path: Path) -> None:
    with memorist.open(tmp_path / "m.db", state_dir=tmp_path) as memory:
        home, work = memory.scope("ana", "home"), memory.scope("ana", "work")
        home.privacy.set(sharing=True)
        home.remember(
            "My physiotherapist wants me to stretch my back every morning.",
            tags=["share:work", "health"],
        )
        (id,) = home.remember("The physiotherapist showed me three stretches for my back.").ids
        assert home.get(id).tags == ("physiotherapist", "stretches", "health")
        (seen,) = work.recall_shared("What does the physiotherapist want for my back?")
        assert [hit.memory.text for hit in seen] == [
            "My physiotherapist wants me to stretch my back every morning."
        ]


def test_the_command_line_shares_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "DB": tmp_path / "m.db",
        "EMBEDDER": "hashing",
        "USER": "ana",
        "STATE_DIR": tmp_path,
    }.items():
        monkeypatch.setenv(f"MEMORIST_{name}", str(value))
    run = CliRunner().invoke
    run(app, ["remember", TEA, "--space", "home", "--tag", "share:work"])
    assert (
        json.loads(run(app, ["privacy", "set", "--sharing", "--space", "home", "--json"]).stdout)[
            "sharing"
        ]
        is True
    )
    done = run(app, ["recall", "green tea", "--space", "work", "--shared", "--json"])
    assert json.loads(done.stdout)["hits"][0]["memory"]["text"] == TEA
