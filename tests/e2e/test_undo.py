"""Undo: each operation of the history can be taken back, shown beforehand, and brought back again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import memorist
from memorist.errors import InvalidInput, NotFound, RevisionConflict
from memorist.interfaces.cli import app
from memorist.sync import Blocking
from memorist.types import STATES, Draft, Filter, Memory

NOW = datetime(2026, 3, 4, 9, 0, tzinfo=UTC)
TEA, MINT = "I drink green tea in the morning.", "I drink mint tea in the morning."


class Clock:
    """A clock on which each look takes a second."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Blocking]:
    place = (
        tmp_path / "memory.db"
        if request.param == "sqlite"
        else request.getfixturevalue("ready_database")
    )
    with memorist.open(place, embedder="hashing") as opened:
        opened._inner.ctx.clock = Clock()
        yield opened


@pytest.fixture
def ana(memory: Blocking) -> Any:
    return memory.scope("ana")


def kept(ana: Any, text: str, **given: Any) -> str:
    (id,) = ana.remember(text, **given).ids
    return str(id)


def last(ana: Any) -> str:
    """What the operation that came last is called."""
    return str(ana.history(limit=1)[0].meta["operation"])


def content(memory: Memory) -> Memory:
    """A memory without what every change moves."""
    return replace(
        memory, updated_at=NOW, revision=0, last_accessed=None, access_count=0, last_scores=None
    )


CHANGES = {
    "edit": lambda ana, id: ana.edit(id, MINT, tags=["tea"], importance=0.9),
    "edit of the tags": lambda ana, id: ana.edit(id, tags=["tea"]),
    "pin": lambda ana, id: ana.pin(id),
    "merge": lambda ana, id: ana.remember(TEA, tags=["again"], source_ids=["note-7"]),
    "soft forget": lambda ana, id: ana.forget(id, keep_days=3),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_was_changed_is_as_it_was_before_and_as_it_was_changed_after_undoing_that(
    ana: Any, name: str
) -> None:
    id = kept(ana, TEA, tags=["drink"])
    before = content(ana.get(id))
    CHANGES[name](ana, id)
    after = content(ana.get(id))
    assert after != before
    done = ana.undo(last(ana))
    assert [each.id for each in done.memories] == [id]
    assert content(ana.get(id)) == before
    assert [hit.memory.text for hit in ana.recall("tea in the morning")] == [TEA]
    ana.undo(last(ana))
    assert content(ana.get(id)) == after


def test_what_was_remembered_disappears_and_can_come_back(ana: Any) -> None:
    id = kept(ana, TEA)
    made = last(ana)
    ana.undo(made)
    assert ana.get(id).state == "soft_deleted"
    assert not ana.recall("tea in the morning").hits
    ana.undo(last(ana))
    assert [hit.memory.id for hit in ana.recall("tea in the morning")] == [id]


def test_an_operation_is_undone_whole(ana: Any) -> None:
    ids = ana.remember([{"content": TEA}, {"content": "The parrot is called Bosco."}]).ids
    made = ana.undo(last(ana))
    assert {each.id for each in made.memories} == set(ids)
    assert len(ana.list(limit=10)) == 0


def test_a_dry_run_shows_how_it_would_stand_and_changes_nothing(ana: Any) -> None:
    id = kept(ana, TEA)
    ana.edit(id, MINT)
    shown = ana.undo(last(ana), dry_run=True)
    assert shown.dry_run
    assert [each.text for each in shown.memories] == [TEA]
    assert ana.get(id).text == MINT
    assert len(ana.history(id)) == 2


def test_undoing_is_in_the_history_with_who_did_it(ana: Any) -> None:
    id = kept(ana, TEA)
    ana.pin(id)
    pinned = last(ana)
    ana.undo(pinned, actor="mia")
    entry = ana.history(id)[0]
    assert (entry.actor, entry.meta["undoes"]) == ("mia", [pinned])


def test_a_change_that_something_was_built_on_is_not_undone_under_it(ana: Any) -> None:
    id = kept(ana, TEA)
    ana.edit(id, MINT)
    first = last(ana)
    ana.edit(id, "I drink rooibos.")
    second = last(ana)
    with pytest.raises(RevisionConflict, match="undo the later change first"):
        ana.undo(first)
    ana.undo(second)
    ana.undo(first)
    assert ana.get(id).text == TEA
    with pytest.raises(RevisionConflict):
        ana.undo(first)


def test_changes_of_different_fields_are_undone_in_any_order(ana: Any) -> None:
    id = kept(ana, TEA)
    ana.edit(id, category="drinks")
    first = last(ana)
    ana.pin(id)
    ana.undo(first)
    assert (ana.get(id).pinned, ana.get(id).category != "drinks") == (True, True)


def test_a_repeat_is_undone_although_the_text_was_changed_later(ana: Any) -> None:
    id = kept(ana, "zorbel quintam mavrik plunth")
    ana.edit(id, "wexley fandrop ulminto keshar")
    changed = last(ana)
    ana.remember("wexley fandrop ulminto keshar")  # which also gives it tags
    repeated = last(ana)
    ana.edit(id, "drenvol hustic apalme yorrin")
    ana.undo(repeated)
    assert (ana.get(id).text, ana.get(id).repeat_count) == ("drenvol hustic apalme yorrin", 0)
    with pytest.raises(RevisionConflict):
        ana.undo(changed)


def test_a_pin_is_undone_and_a_later_repeat_still_counts(ana: Any) -> None:
    id = kept(ana, TEA)
    assert ana.get(id).importance == pytest.approx(0.6)
    ana.pin(id)
    pinned = last(ana)
    ana.remember(TEA)
    assert ana.get(id).importance == pytest.approx(1.0)
    ana.undo(pinned)
    assert (ana.get(id).pinned, ana.get(id).importance) == (False, pytest.approx(0.7))


def test_a_session_is_undone_and_what_others_did_stays(memory: Blocking, ana: Any) -> None:
    id, other = kept(ana, TEA), kept(ana, "The parrot is called Bosco.")
    chat = memory.scope("ana", session="chat-7")
    made = kept(chat, "The bicycle is blue.")
    chat.edit(id, MINT)
    chat.pin(id)
    chat.edit(id, "I drink rooibos.")
    ana.pin(other)
    assert len(ana.undo(session="chat-7", dry_run=True).operations) == 4
    ana.undo(session="chat-7")
    assert (ana.get(id).text, ana.get(id).pinned, ana.get(made).state) == (
        TEA,
        False,
        "soft_deleted",
    )
    assert ana.get(other).pinned
    ana.undo(last(ana))
    assert (ana.get(id).text, ana.get(id).pinned, ana.get(made).state) == (
        "I drink rooibos.",
        True,
        "active",
    )


@pytest.mark.parametrize("decide", ["confirm", "reject", "keep_both"])
def test_a_decision_about_a_conflict_is_open_again(ana: Any, decide: str) -> None:
    kept(ana, "My dentist appointment is on Tuesday at ten.")
    new = kept(ana, "My dentist appointment is on Friday at ten.")
    assert [each.id for each in ana.conflicts()] == [new]
    getattr(ana, decide)(new)
    assert ana.conflicts() == []
    ana.undo(last(ana))
    assert [each.id for each in ana.conflicts()] == [new]
    ana.undo(last(ana))
    assert ana.conflicts() == []


def test_a_conflict_that_never_was_leaves_the_older_statement(ana: Any) -> None:
    old = kept(ana, "My dentist appointment is on Tuesday at ten.")
    new = kept(ana, "My dentist appointment is on Friday at ten.")
    ana.undo(last(ana))
    assert (ana.get(old).state, ana.get(new).state) == ("active", "soft_deleted")
    assert ana.conflicts() == []


def test_what_was_trimmed_comes_back(memory: Blocking) -> None:
    lab = memory.scope("lab")
    probes = [Draft(text=f"Probe {n} was weighed twice.") for n in range(200)]
    ids = [
        *lab.remember_drafts(probes, policy="theoria").ids,
        kept(lab, "Probe 200 was weighed twice.", policy="theoria"),
    ]
    gone = [id for id in ids if lab.get(id).state == "soft_deleted"]
    assert len(gone) == 1
    entry = lab.history(gone[0])[0]
    lab.undo(entry.meta["operation"])
    assert lab.get(gone[0]).is_active


def test_an_earlier_time_is_answered_once(ana: Any, memory: Blocking) -> None:
    id = kept(ana, TEA)
    then = memory._inner.ctx.clock.now
    ana.edit(id, MINT)
    ana.undo(last(ana))
    answer = [hit.memory.text for hit in ana.recall("tea in the morning", as_of=then)]
    assert answer == [TEA]


def test_a_forget_is_for_good(ana: Any) -> None:
    one, two = kept(ana, TEA), kept(ana, "The parrot is called Bosco.")
    made = last(ana)
    (both,) = ana.remember_drafts([Draft(text="A parrot and tea.", evidence_ids=(one, two))]).ids
    ana.edit(two, "The parrot is called Basko.")
    edited = last(ana)
    ana.forget(two)
    for operation in (made, edited):
        with pytest.raises(NotFound, match="forgotten"):
            ana.undo(operation)
    marked = ana.history(both)[0].meta["operation"]
    with pytest.raises(InvalidInput, match="cannot be undone"):
        ana.undo(marked)
    assert len(ana.list(Filter(states=STATES), limit=10)) == 2


def test_what_is_in_another_scope_is_not_undone(memory: Blocking, ana: Any) -> None:
    id = kept(ana, TEA)
    with pytest.raises(NotFound):
        memory.scope("bob").undo(last(ana))
    assert ana.get(id).is_active


@pytest.mark.parametrize("given", [{}, {"operation": "x", "session": "y"}, {"operation": 7}])
def test_undo_takes_one_thing(ana: Any, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        ana.undo(**given)


def test_a_preference_that_was_said_again_meanwhile_does_not_collide(memory: Blocking) -> None:
    cole = memory.scope("cole")
    id = kept(cole, "I prefer tea over coffee.", policy="vault")
    cole.forget(id, keep_days=3)
    hidden = last(cole)
    again = kept(cole, "I prefer tea over coffee.", policy="vault", manually_saved=True)
    assert again != id
    cole.undo(hidden)
    assert (cole.get(id).state, cole.get(again).state) == ("active", "active")


def test_the_command_line_undoes_what_the_history_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORIST_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("MEMORIST_EMBEDDER", "hashing")

    def run(*words: str) -> str:
        answer = CliRunner().invoke(app, ["--db", str(tmp_path / "m.db"), "--user", "ana", *words])
        assert answer.exit_code == 0, answer.output
        return answer.stdout

    id = json.loads(run("--json", "remember", TEA))["outcomes"][0]["ids"][0]
    run("edit", id, MINT)
    operation = json.loads(run("--json", "history", "--limit", "1"))["meta"]["operation"]
    assert operation[-8:] in run("history")
    assert TEA in run("undo", operation, "--dry-run")
    assert MINT in run("show", id)
    assert TEA in run("undo", operation)
    assert TEA in run("show", id)


def test_undoing_reads_through_its_own_transaction() -> None:
    """A database in memory has one lock for all: a second reader would wait for it in vain."""
    with memorist.open(":memory:", embedder="hashing") as opened:
        ana = opened.scope("ana")
        id = kept(ana, TEA)
        ana.edit(id, MINT)
        ana.undo(last(ana))
        assert ana.get(id).text == TEA


async def test_the_last_of_many_repeats_is_undone_with_the_sources_as_they_were(
    tmp_path: Path,
) -> None:
    async with memorist.aio.open(tmp_path / "m.db", embedder="hashing") as memory:
        ana = memory.scope("ana")
        for n in range(205):
            await ana.remember([{"id": f"m{n}", "content": "The nightly backup ended well."}])
        (backup,) = await ana.list()
        assert backup.source_ids == tuple(f"m{n}" for n in range(5, 205))
        last = (await ana.history())[0]
        assert last.meta["before"]["source_ids"] == {"dropped": ["m4"], "added": ["m204"]}
        await ana.undo(last.meta["operation"])
        (backup,) = await ana.list()
        assert backup.source_ids == tuple(f"m{n}" for n in range(4, 204))
        assert backup.repeat_count == 203
