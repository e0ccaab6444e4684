"""Said again, said with more, said otherwise: what becomes of it, on each engine."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memorist import aio
from memorist.client import Client
from memorist.errors import NotFound
from memorist.scoped import ScopedClient
from memorist.types import Draft, Filter, Labels, Memory

DATA = Path(__file__).parents[1] / "data"
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOTE = (
    "Theo keeps the notes of the research group in the shared folder and everybody reads them before the weekly "
    "meeting, where we talk about open questions, new results and plans for the next experiments in the small lab"
)
MORE = NOTE.replace("the shared folder", "the shared green folder")


class Clock:
    """A day later each time it is asked to move."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def next_day(self) -> datetime:
        before, self.now = self.now, self.now + timedelta(days=1)
        return before + timedelta(hours=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", "postgres"])
async def engine(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> AsyncIterator[Client]:
    where = (
        tmp_path / "memory.db"
        if request.param == "sqlite"
        else request.getfixturevalue("ready_database")
    )
    async with aio.open(where, state_dir=tmp_path) as opened:
        opened.ctx.clock = clock
        yield opened


@pytest.fixture
def ana(engine: Client) -> ScopedClient:
    return engine.scope("ana")


async def told(mine: ScopedClient, text: str, **more: object) -> str:
    """Remember a text, and say what became of it."""
    return (await mine.remember(text, **more)).outcomes[0].status  # type: ignore[arg-type]


async def texts(mine: ScopedClient, where: Filter | None = None) -> set[str]:
    return {memory.text for memory in await mine.list(where)}


async def moved(mine: ScopedClient, clock: Clock) -> tuple[Memory, Memory, datetime]:
    """Somebody lives in Berlin and later in Porto: the new memory, the old one, and a time between them."""
    old = (await mine.remember("I live in Berlin")).ids[0]
    between = clock.next_day()
    new = (await mine.remember("I moved to Porto")).ids[0]
    return await mine.get(new), await mine.get(old), between


# Said again


@pytest.mark.parametrize("name", ["repeat", "changed"])
async def test_repetitions_are_merged_and_changed_values_never(tmp_path: Path, name: str) -> None:
    pairs = [
        json.loads(line) for line in (DATA / f"pairs_{name}.jsonl").read_text("utf-8").splitlines()
    ]
    async with aio.open(tmp_path / "memory.db") as opened:
        statuses = Counter()
        for number, pair in enumerate(pairs):
            mine = opened.scope(f"{name} {number}")
            await mine.remember(pair["old"])
            statuses[await told(mine, pair["new"])] += 1
    merged = statuses["merged"] + statuses["updated"]
    assert merged >= 190 if name == "repeat" else merged == 0, statuses


async def test_the_same_in_other_words_is_counted_on_the_first(ana: ScopedClient) -> None:
    first = await ana.remember("I have two kids.", tags=["family"])
    again = await ana.remember(
        "Remember that I have 2 children!", tags=["home"], manually_saved=True
    )
    assert again.outcomes[0].status == "merged"
    kept = await ana.get(first.ids[0])
    assert (kept.text, kept.repeat_count, kept.manually_saved) == ("I have two kids.", 1, True)
    assert {"family", "home"} <= set(kept.tags)
    assert [entry.event for entry in await ana.history(kept.id)] == ["MERGE", "ADD"]


async def test_what_is_told_in_one_call_meets_itself(ana: ScopedClient) -> None:
    said = [
        Draft(text=text)
        for text in ("I love green tea", "I really like green tea", "I live in Rome")
    ]
    assert [outcome.status for outcome in (await ana.remember_drafts(said)).outcomes] == [
        "created",
        "merged",
        "created",
    ]


async def test_each_stage_can_be_switched_off(ana: ScopedClient) -> None:
    usual = ana.ctx.policies["default"]
    for policy in (
        replace(usual, name="no bands", bands=None),
        replace(usual, name="no conflicts", conflicts=False),
    ):
        ana.ctx.policies[policy.name] = policy
    await ana.remember("I have two kids")
    assert await told(ana, "I've got 2 children", policy="no bands") == "created"
    assert await told(ana, "I have three kids", policy="no conflicts") == "created"
    assert await ana.conflicts() == []


@pytest.mark.spec("CLK-11")
async def test_one_fact_about_one_subject_is_kept_once(ana: ScopedClient) -> None:
    fact = "Prefers dark roast"
    about = [Draft(text=fact, labels=Labels(subject=subject)) for subject in ("bob", "bob", "eve")]
    ids = [(await ana.remember_drafts([draft], policy="clanker")).ids[0] for draft in about]
    assert ids[0] == ids[1] != ids[2]
    assert len(await ana.list()) == 2


async def test_a_text_that_says_more_becomes_the_new_version(
    ana: ScopedClient, clock: Clock
) -> None:
    id = (await ana.remember(NOTE)).ids[0]
    between = clock.next_day()
    again = (await ana.remember(MORE)).outcomes[0]
    assert (again.status, again.ids) == ("updated", (id,))
    assert (await ana.get(id)).text == MORE
    assert await texts(ana, Filter(states=("superseded",), versions_of=id)) == {NOTE}
    assert [
        hit.memory.text for hit in await ana.recall("notes of the research group", as_of=between)
    ] == [NOTE]


async def test_recreating_makes_a_new_memory_and_keeps_the_old_one_readable(
    ana: ScopedClient,
) -> None:
    first = (
        await ana.remember("I have two kids", tags=["family"], pinned=True, policy="supervisor")
    ).ids[0]
    again = (
        await ana.remember("I've got 2 children", tags=["home"], policy="supervisor")
    ).outcomes[0]
    assert (again.status, again.supersedes) == ("created", first)
    new, old = await ana.get(again.ids[0]), await ana.get(first)
    assert (new.text, new.pinned, new.repeat_count) == ("I've got 2 children", True, 1)
    assert {"family", "home"} <= set(new.tags)
    assert (old.state, old.superseded_by, old.text) == ("superseded", new.id, "I have two kids")
    assert await ana.conflicts() == [], "it says the same, so there is nothing to decide"


# Said otherwise


async def test_another_value_takes_the_place_of_the_older_one(
    ana: ScopedClient, clock: Clock
) -> None:
    new, old, between = await moved(ana, clock)
    assert (new.state, old.state, old.superseded_by) == ("active", "superseded", new.id)
    assert old.valid_to == new.valid_from == clock.now
    assert await texts(ana) == {"I moved to Porto"}
    assert [hit.memory.text for hit in await ana.recall("Where do I live?")] == ["I moved to Porto"]
    assert [hit.memory.text for hit in await ana.recall("Where do I live?", as_of=between)] == [
        "I live in Berlin"
    ]


async def test_both_sides_of_a_contradiction_are_in_the_history(
    ana: ScopedClient, clock: Clock
) -> None:
    new, old, _ = await moved(ana, clock)
    assert [
        (entry.event, entry.meta.get("superseded_by")) for entry in await ana.history(old.id)
    ] == [
        ("UPDATE", new.id),
        ("ADD", None),
    ]
    (made,) = await ana.history(new.id)
    assert (made.event, made.meta["supersedes"]) == ("ADD", old.id)


async def test_a_contradiction_is_listed_until_it_is_confirmed(
    ana: ScopedClient, clock: Clock
) -> None:
    new, old, _ = await moved(ana, clock)
    (listed,) = await ana.conflicts()
    assert (listed.id, listed.new.text, listed.old.text) == (
        new.id,
        "I moved to Porto",
        "I live in Berlin",
    )
    assert (await ana.confirm(listed.id, actor="ana")).text == "I moved to Porto"
    assert await ana.conflicts() == []
    newest = (await ana.history(new.id))[0]
    assert (newest.actor, newest.meta["decision"]) == ("ana", "confirmed")
    assert (await ana.get(old.id)).state == "superseded"


async def test_rejecting_brings_the_older_one_back(ana: ScopedClient, clock: Clock) -> None:
    new, old, between = await moved(ana, clock)
    clock.next_day()
    assert (await ana.reject(new.id)).id == old.id
    assert await ana.conflicts() == []
    assert await texts(ana) == {"I live in Berlin"}
    gone = await ana.get(new.id)
    assert (gone.state, gone.superseded_by) == ("superseded", old.id)
    for when in (between, clock.now - timedelta(hours=1), None):
        assert [hit.memory.text for hit in await ana.recall("Where do I live?", as_of=when)] == [
            "I live in Berlin"
        ]


async def test_what_is_decided_cannot_be_decided_again(ana: ScopedClient, clock: Clock) -> None:
    new, old, _ = await moved(ana, clock)
    await ana.confirm(new.id)
    for decide in (ana.confirm, ana.reject):
        for id in (new.id, old.id, "nobody"):
            with pytest.raises(NotFound):
                await decide(id)


async def test_a_later_value_waits_before_an_earlier_decision(
    ana: ScopedClient, clock: Clock
) -> None:
    await moved(ana, clock)
    clock.next_day()
    rome = (await ana.remember("I live in Rome now")).ids[0]
    assert [conflict.new.text for conflict in await ana.conflicts()] == ["I live in Rome now"]
    await ana.reject(rome)
    assert [conflict.new.text for conflict in await ana.conflicts()] == ["I moved to Porto"]


async def test_a_forgotten_side_is_no_longer_listed(ana: ScopedClient, clock: Clock) -> None:
    _, old, _ = await moved(ana, clock)
    await ana.forget(old.id)
    assert await ana.conflicts() == []
    assert await texts(ana) == {"I moved to Porto"}


async def test_facts_about_others_retire_nothing(engine: Client, ana: ScopedClient) -> None:
    await ana.remember("I live in Berlin")
    await ana.remember_drafts([Draft(text="I live in Porto", labels=Labels(subject="bob"))])
    await ana.remember_drafts([Draft(text="I live in Rome", speaker="assistant")])
    await engine.scope("eve").remember("I live in Oslo")
    assert await told(ana, "I like coffee") == "created"
    assert await told(ana, "I like tea") == "created"
    assert await ana.conflicts() == []
    assert len(await ana.list()) == 5


async def test_what_is_told_late_about_an_earlier_time_retires_nothing(ana: ScopedClient) -> None:
    await ana.remember("I live in Berlin", at=START)
    assert await told(ana, "I live in Porto", at=START - timedelta(days=900)) == "created"
    assert await ana.conflicts() == []


@pytest.mark.spec("THE-32", "THE-37")
@pytest.mark.parametrize("at_once", [True, False], ids=["in one call", "one after the other"])
async def test_a_turn_is_merged_with_the_same_turn_of_any_session(
    ana: ScopedClient, at_once: bool
) -> None:
    said = [
        ("s1", "The ferry is late."),
        ("s1", "the ferry is  late."),
        ("s2", "The ferry is late."),
    ]
    said += [("s1", "Yes, of course."), ("s1", "Yes, of course.")]
    turns = [{"content": text, "session": session, "role": "user"} for session, text in said]
    for each in [turns] if at_once else [[turn] for turn in turns]:
        await ana.remember(each)
    kept = sorted(
        (memory.labels.session, memory.text, memory.repeat_count) for memory in await ana.list()
    )
    assert kept == [
        ("s1", "The ferry is late.", 2),
        ("s1", "Yes, of course.", 0),
        ("s1", "Yes, of course.", 0),
    ]


async def test_turns_merge_across_sessions_and_the_newer_value_comes_first(
    ana: ScopedClient,
) -> None:
    said = [
        ("s1", "I live in Berlin now"),
        ("s2", "i live in Berlin now!"),
        ("s3", "I live in Porto now"),
    ]
    await ana.remember(
        [{"content": text, "session": session, "role": "user"} for session, text in said]
    )
    kept = {memory.text: memory for memory in await ana.list()}
    assert {text: memory.repeat_count for text, memory in kept.items()} == {
        "I live in Berlin now": 1,
        "I live in Porto now": 0,
    }
    (conflict,) = await ana.conflicts()
    assert (conflict.new.text, conflict.old.text) == ("I live in Porto now", "I live in Berlin now")
    found = await ana.recall("Where do I live?")
    assert [hit.memory.text for hit in found] == ["I live in Porto now"]


async def test_a_pinned_value_stays_beside_another_one(ana: ScopedClient) -> None:
    pinned = (await ana.remember("My phone number is 555-0123", pinned=True)).ids[0]
    outcome = (await ana.remember("My phone number is 555-0199")).outcomes[0]
    assert (outcome.status, outcome.supersedes) == ("created", None)
    assert outcome.reason == f"it may replace {pinned}: confirm it, reject it, or keep both"
    assert [(await ana.get(id)).pinned for id in (pinned, *outcome.ids)] == [True, False]
    (conflict,) = await ana.conflicts()
    assert (conflict.new.id, conflict.old.id) == (outcome.ids[0], pinned)
    found = [hit.memory.text for hit in await ana.recall("What is my phone number?")]
    assert found == ["My phone number is 555-0199", "My phone number is 555-0123"]


@pytest.mark.parametrize(("decision", "kept"), [("confirm", "555-0199"), ("reject", "555-0123")])
async def test_a_decision_about_a_pinned_value_ends_the_conflict(
    ana: ScopedClient, decision: str, kept: str
) -> None:
    await ana.remember("My phone number is 555-0123", pinned=True)
    new = (await ana.remember("My phone number is 555-0199")).ids[0]
    await getattr(ana, decision)(new)
    assert await ana.conflicts() == []
    (hit,) = await ana.recall("What is my phone number?")
    assert hit.memory.text == f"My phone number is {kept}"
    context = await ana.context("What is my phone number?")
    assert [line.text.count("555-") for line in context.lines] == [1]
    assert kept in context.text


def test_a_person_decides_on_the_command_line(tmp_path: Path) -> None:
    from memorist.interfaces.cli import app

    def run(*words: str) -> str:
        done = CliRunner().invoke(
            app, ["--db", str(tmp_path / "memory.db"), "--user", "ana", *words]
        )
        assert done.exit_code == 0, done.output
        return done.stdout

    run("remember", "I live in Berlin")
    run("remember", "I moved to Porto")
    listed = run("conflicts")
    assert "I moved to Porto" in listed
    assert re.search(r"\n  replaces  I live in Berlin \(ended \d{4}-\d\d-\d\d\)\n", listed)
    id = listed.split()[0]
    run("conflicts", "reject", id)
    assert run("conflicts") == ""
    assert "I live in Berlin" in run("list")
    run("remember", "My phone number is 555-0123", "--pin")
    run("remember", "My phone number is 555-0199")
    listed = run("conflicts")
    assert "\n  may replace  My phone number is 555-0123 (still valid)\n" in listed
    run("conflicts", "both", listed.split()[0])
    assert run("conflicts") == ""
    assert run("list").count("My phone number is") == 2
