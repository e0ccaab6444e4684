"""Forgetting for good: what goes, what goes with it, what may not come back, and what a person sees beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import memorist
from clocks import Clock
from memorist.errors import InvalidInput, NotFound
from memorist.interfaces.cli import app
from memorist.manage import records
from memorist.manage.forget import SOURCE_FORGOTTEN
from memorist.storage import person
from memorist.storage.person import Summary
from memorist.sync import Blocking
from memorist.types import STATES, Draft, Filter

NOW = datetime(2026, 3, 4, 9, 0, tzinfo=UTC)


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Blocking]:
    place = (
        tmp_path / "memory.db"
        if request.param == "sqlite"
        else request.getfixturevalue("ready_database")
    )
    with memorist.open(place, embedder="hashing") as opened:
        opened._inner.ctx.clock = Clock(NOW)
        yield opened


@pytest.fixture
def ana(memory: Blocking) -> Any:
    return memory.scope("ana", session="s1")


def kept(ana: Any, text: str, **given: Any) -> str:
    (id,) = ana.remember(text, **given).ids
    return str(id)


def derived(ana: Any, text: str, *ids: str) -> str:
    (id,) = ana.remember_drafts([Draft(text=text, evidence_ids=ids, kind="semantic")]).ids
    return str(id)


def is_gone(ana: Any, id: str) -> bool:
    try:
        ana.get(id)
    except NotFound:
        return True
    return False


def test_what_rests_on_a_forgotten_memory_alone_goes_with_it(ana: Any) -> None:
    address = kept(ana, "I live at Quillback Lane 9 in Tavira.")
    summary = derived(ana, "The person has an address by the sea.", address)
    again = derived(ana, "Letters go to the coast.", summary)
    other = kept(ana, "The parrot is called Bosco.")
    done = ana.forget(address)
    assert (done.ids, set(done.derived), done.flagged) == ((address,), {summary, again}, ())
    assert all(is_gone(ana, id) for id in (address, summary, again))
    assert not is_gone(ana, other)


@pytest.mark.parametrize("memory", ["sqlite"], indirect=True)
def test_the_message_in_which_something_was_said_does_not_keep_it(ana: Any) -> None:
    address = kept(ana, "I live at Quillback Lane 9 in Tavira.")
    coast = Draft(
        text="Letters go to the coast.",
        message_id="m1",
        source_ids=("m1",),
        evidence_ids=(address,),
    )
    (letters,) = ana.remember_drafts([coast]).ids
    assert ana.forget(address).derived == (letters,)
    assert is_gone(ana, letters)


def test_what_rests_on_other_things_too_stays_marked_and_without_the_dead_reference(
    ana: Any,
) -> None:
    one, two = kept(ana, "I live in Tavira."), kept(ana, "The parrot is called Bosco.")
    both = derived(ana, "There is a parrot by the sea.", one, two)
    assert ana.forget(one).flagged == (both,)
    left = ana.get(both)
    assert left.evidence_ids == (two,)
    assert [memory.id for memory in ana.list(Filter(tags=(SOURCE_FORGOTTEN,)))] == [both]
    assert ana.why(both).missing == ()
    assert set(ana.forget(two).derived) == {both}, "nothing is left that it rests on"


def test_statements_that_were_replaced_go_with_the_one_that_stands(ana: Any) -> None:
    id = kept(ana, "The code word is Marabou.")
    ana.edit(id, "The code word is Hoopoe.")
    ana.edit(id, "The code word is Bittern.")
    ana.forget(id)
    assert len(ana.list(Filter(states=STATES), limit=10)) == 0
    for word in ("Marabou", "Hoopoe", "Bittern"):
        assert ana.remember(f"The code word is {word}.").count("refused") == 1


@pytest.mark.parametrize("alone", [True, False])
def test_a_long_term_record_rests_on_what_is_left(memory: Blocking, ana: Any, alone: bool) -> None:
    one, two = kept(ana, "I live in Tavira."), kept(ana, "I like parrots.")
    evidence = (one,) if alone else (one, two)
    data = {"facts": ["I live in Tavira.", "likes parrots"]}
    made = Summary(
        id="p1", record_type="user_profile", name="ana", data=data, evidence_ids=evidence, at=NOW
    )
    run, store = memory._loop.run, memory._inner.ctx.store
    run(records.add(store, ana.scope, made))
    ana.forget(one)
    left = run(person.load_summaries(store, ana.scope, "user_profile"))
    if alone:
        assert left == []
    else:
        assert left[0].evidence_ids == (two,)
        assert left[0].data == {"facts": ["likes parrots"], "source_forgotten": [one]}


def test_a_long_term_record_names_the_oldest_forgotten_source_first(
    memory: Blocking, ana: Any
) -> None:
    old, other = kept(ana, "I live in Tavira."), kept(ana, "I like parrots.")
    new = kept(ana, "Actually, I live in Porto now.")
    assert ana.get(old).superseded_by == new
    data, evidence = {"facts": ["lives in Porto"]}, (old, new, other)
    made = Summary(
        id="p1", record_type="user_profile", name="ana", data=data, evidence_ids=evidence, at=NOW
    )
    run, store = memory._loop.run, memory._inner.ctx.store
    run(records.add(store, ana.scope, made))
    ana.forget(new)
    (left,) = run(person.load_summaries(store, ana.scope, "user_profile"))
    assert left.data["source_forgotten"] == [old, new]


def test_a_dry_run_names_exactly_what_the_real_run_takes(ana: Any) -> None:
    porto = [kept(ana, f"Trip {n} to Porto went by train.", tags=["porto"]) for n in (1, 2, 3)]
    rests = derived(ana, "Trains are the usual way.", *porto)
    other = kept(ana, "The parrot is called Bosco.")
    seen = ana.forget_where(where=Filter(tags=("porto",)))
    assert seen.dry_run
    assert set(seen.ids) == set(porto)
    assert seen.derived == (rests,)
    assert len(ana.list(limit=10)) == 5, "a dry run is the usual, and changes nothing"
    done = ana.forget_where(where=Filter(ids=seen.ids), dry_run=False)
    assert (set(done.ids), done.derived) == (set(seen.ids), seen.derived)
    assert [each.id for each in ana.list(limit=10)] == [other]


def test_a_question_can_say_what_to_forget(ana: Any) -> None:
    address = kept(ana, "My old address was Quillback Lane 9.")
    kept(ana, "The parrot is called Bosco.")
    seen = ana.forget_where("old address at Quillback Lane")
    assert address in seen.ids
    ana.forget_where(where=Filter(ids=(address,)), dry_run=False)
    assert is_gone(ana, address)


@pytest.mark.parametrize("where", [None, Filter(), Filter(ids=()), Filter(states=("archived",))])
def test_nothing_in_particular_is_not_everything(ana: Any, where: Filter | None) -> None:
    kept(ana, "The parrot is called Bosco.")
    with pytest.raises(InvalidInput, match="Nothing selected"):
        ana.forget_where(where=where, dry_run=False)
    assert len(ana.list(limit=10)) == 1


def test_an_id_that_nobody_has_is_not_found_and_a_filter_takes_those_that_are_there(
    ana: Any,
) -> None:
    id = kept(ana, "The parrot is called Bosco.")
    with pytest.raises(NotFound):
        ana.forget("nobody")
    assert ana.forget_where(where=Filter(ids=(id, "nobody")), dry_run=False).ids == (id,)


@pytest.mark.spec("THE-84")
@pytest.mark.parametrize("keep_days", [0, 2])
def test_a_forgotten_text_comes_back_by_no_automatic_way_until_its_time_is_over(
    memory: Blocking, ana: Any, keep_days: int
) -> None:
    id = kept(ana, "The safe opens with Quagga 77.")
    exported = list(memory.export())
    ana.forget(id, keep_days=keep_days)
    assert ana.remember("The safe opens with Quagga 77.").count("refused") == 1
    assert (
        ana.remember([{"id": "m1", "content": "The safe opens with Quagga 77."}]).count("refused")
        == 1
    )
    memory.scope("ana").import_([each for each in exported if each["record_type"] == "memory"])
    assert len(ana.list(limit=10)) == 0
    clock = memory._inner.ctx.clock
    clock.now += timedelta(days=max(keep_days, 1), seconds=-1)
    assert ana.remember("The safe opens with Quagga 77.").count("refused") == 1
    clock.now += timedelta(seconds=2)
    assert ana.remember("The safe opens with Quagga 77.").count("created") == 1


def test_a_text_can_be_forgotten_for_ever_and_still_be_saved_on_purpose(
    memory: Blocking, ana: Any
) -> None:
    ana.forget(kept(ana, "The safe opens with Quagga 77."), never_again=True)
    memory._inner.ctx.clock.now += timedelta(days=20_000)
    assert ana.remember("The safe opens with Quagga 77.").count("refused") == 1
    assert ana.remember("The safe opens with Quagga 77.", manually_saved=True).count("created") == 1
    ana.forget(ana.list(limit=1).memories[0].id, keep_days=1)
    assert ana.remember("The safe opens with Quagga 77.").count("refused") == 1


def test_what_is_only_hidden_takes_along_what_rests_on_it_and_can_be_said_again_once_restored(
    ana: Any,
) -> None:
    id = kept(ana, "The safe opens with Quagga 77.")
    rests = derived(ana, "There is a safe.", id)
    done = ana.forget(id, keep_days=5, reason="not now")
    assert done.derived == (rests,)
    assert len(ana.list(limit=10)) == 0
    ana.restore(id)
    assert ana.remember("The safe opens with Quagga 77.").count("merged") == 1


def test_the_words_of_a_message_do_not_come_back_with_an_import(memory: Blocking, ana: Any) -> None:
    said = "  The safe opens with Quagga 77.\n\n\n\nBosco knows."
    (id, *rest) = ana.remember([{"id": "m1", "content": said}]).ids
    ana.edit(id, "The safe opens with Quagga 78.", summary="Quagga")
    exported = list(memory.export())
    for each in (id, *rest):
        ana.forget(each)
    memory.import_(exported)
    assert "Quagga" not in str(list(memory.export()))


def test_the_command_line_shows_what_would_go_and_then_forgets_exactly_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORIST_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("MEMORIST_EMBEDDER", "hashing")

    def run(*words: str) -> str:
        answer = CliRunner().invoke(app, ["--db", str(tmp_path / "m.db"), "--user", "ana", *words])
        assert answer.exit_code == 0, answer.output
        return answer.stdout

    run("remember", "My old address was Quillback Lane 9.", "--tag", "home")
    run("remember", "The parrot is called Bosco.")
    shown = run("forget", "--query", "old address Quillback Lane", "--dry-run")
    assert "Quillback" in shown
    assert "would forget  1 memory" in shown
    assert "Quillback" in run("list")
    assert "forgotten" in run("forget", "--tag", "home", "--yes", "--never-again")
    assert "Quillback" not in run("list")
    assert "Bosco" in run("list")
