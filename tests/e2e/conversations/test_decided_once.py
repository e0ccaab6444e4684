"""A change that a person decides about: it is listed once, and the extracted facts follow the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memorist import aio
from memorist.client import Client
from memorist.manage.chat_list import Reply
from memorist.scoped import ScopedClient

LISBON, PORTO = "I live in Lisbon.", "I live in Porto now."
IN_LISBON, IN_PORTO = "The user lives in Lisbon.", "The user lives in Porto."
NEW, OLD, BOTH = "yes, the new one", "no, keep the old one", "both are true"
LEFT = {NEW: [IN_PORTO], OLD: [IN_LISBON], BOTH: [IN_PORTO, IN_LISBON]}
KEPT = {NEW: [PORTO], OLD: [LISBON], BOTH: [PORTO, LISBON]}


@pytest.fixture
async def engine(place: str, tmp_path: Path) -> AsyncIterator[Client]:
    """Yield a memory with all default settings."""
    async with aio.open(place, state_dir=tmp_path) as opened:
        yield opened


@pytest.fixture
def ana(engine: Client) -> ScopedClient:
    return engine.scope("ana", session="chat")


async def tell(engine: Client, *texts: str, jobs: str = "") -> None:
    """Store each text in a session of its own, with the jobs "between" and "after" them."""
    for text in texts:
        session = engine.scope("ana", session=text)
        await session.remember([{"role": "user", "content": text}])
        if "between" in jobs:
            await extract(engine)
    if "after" in jobs:
        await extract(engine)


async def extract(engine: Client) -> None:
    await engine.run_jobs(only=["extract"])


async def say(scope: ScopedClient, text: str) -> Reply:
    reply = await scope.command(text)
    assert reply is not None, text
    return reply


async def listed(ana: ScopedClient) -> list[tuple[str, str]]:
    return [(pair.old.text, pair.new.text) for pair in await ana.conflicts()]


async def known(ana: ScopedClient) -> list[str]:
    """Return what the context of a greeting and the list of what is known agree on."""
    lines = (await ana.context("hello", min_confidence=0.99)).lines
    told = [line.text.partition(": ")[2] for line in lines]
    shown = (await say(ana, "what do you know about me?")).say.splitlines()[1:]
    assert [line.partition(". ")[2] for line in shown] == told
    return told


@pytest.mark.parametrize("jobs", ["before", "between", "after"])
@pytest.mark.parametrize("answer", [NEW, OLD, BOTH])
async def test_one_answer_settles_a_change_whenever_the_facts_are_extracted(
    engine: Client, ana: ScopedClient, answer: str, jobs: str
) -> None:
    await tell(engine, LISBON, PORTO, jobs={"before": "", "after": "after"}.get(jobs, "between"))
    assert await listed(ana) == [(LISBON, PORTO)]
    reply = await say(ana, answer)
    assert reply.done
    lines = [f"{place}. {text}" for place, text in enumerate(KEPT[answer], 1)]
    assert reply.say.splitlines() == ["I will keep this:", *lines]
    await extract(engine)
    assert await listed(ana) == []
    assert await known(ana) == LEFT[answer]


@pytest.mark.parametrize("decide", ["confirm", "reject", "keep_both"])
async def test_a_decision_by_id_holds_for_the_facts_too(
    engine: Client, ana: ScopedClient, decide: str
) -> None:
    await tell(engine, LISBON, PORTO, jobs="after")
    (pair,) = await ana.conflicts()
    await getattr(ana, decide)(pair.new.id)
    await extract(engine)
    assert await listed(ana) == []
    answer = {"confirm": NEW, "reject": OLD, "keep_both": BOTH}[decide]
    assert await known(ana) == LEFT[answer]


@pytest.mark.parametrize("jobs", ["before", "since"])
@pytest.mark.parametrize("again", [NEW, OLD, BOTH])
@pytest.mark.parametrize("answer", [NEW, OLD, BOTH])
async def test_a_decision_can_be_undone_and_made_again(
    engine: Client, ana: ScopedClient, answer: str, again: str, jobs: str
) -> None:
    await tell(engine, LISBON, PORTO, jobs="after" if jobs == "before" else "")
    await say(ana, answer)
    await extract(engine)
    await say(ana, "undo that")
    assert await listed(ana) == [(LISBON, PORTO)]
    assert await known(ana) == [IN_PORTO]
    await say(ana, again)
    assert await listed(ana) == []
    assert await known(ana) == LEFT[again]


async def test_an_undo_of_a_decision_can_be_undone(engine: Client, ana: ScopedClient) -> None:
    await tell(engine, LISBON, PORTO, jobs="after")
    await say(ana, OLD)
    await say(ana, "undo that")
    await say(ana, "undo the undo")
    assert await listed(ana) == []
    assert await known(ana) == [IN_LISBON]
    assert (await ana.recall("Which city do I live in?")).memories[0].text == LISBON


@pytest.mark.parametrize("answer", [NEW, OLD, BOTH])
async def test_facts_follow_each_undo_of_an_undo(
    engine: Client, ana: ScopedClient, answer: str
) -> None:
    await tell(engine, LISBON, PORTO)
    await say(ana, answer)
    await extract(engine)
    for _ in range(2):
        await say(ana, "undo that")
        assert await listed(ana) == [(LISBON, PORTO)]
        assert await known(ana) == [IN_PORTO]
        await say(ana, "undo the undo")
        assert await listed(ana) == []
        assert await known(ana) == LEFT[answer]


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("Ich wohne in Kiel.", "Ich wohne jetzt in Bremen.", "Der Nutzer wohnt in Kiel."),
        ("Vivo en Quito.", "Ahora vivo en Cali.", "El usuario vive en Quito."),
        ("I work at Tidewater.", "I work at Lumen now.", "The user works at Tidewater."),
    ],
)
@pytest.mark.parametrize("jobs", ["", "after"])
async def test_the_old_value_of_anything_can_be_kept(
    engine: Client, ana: ScopedClient, old: str, new: str, left: str, jobs: str
) -> None:
    await tell(engine, old, new, jobs=jobs)
    assert await listed(ana) == [(old, new)]
    await say(ana, OLD)
    await extract(engine)
    assert await listed(ana) == []
    assert await known(ana) == [left]


@pytest.mark.parametrize("answer", [NEW, OLD, BOTH])
async def test_a_fact_that_was_said_twice_is_part_of_the_change(
    engine: Client, ana: ScopedClient, answer: str
) -> None:
    await tell(engine, LISBON, "As you know, I live in Lisbon.", PORTO, jobs="between")
    assert len(await listed(ana)) == 1
    await say(ana, answer)
    await extract(engine)
    assert await listed(ana) == []
    assert await known(ana) == LEFT[answer]


@pytest.mark.parametrize("answer", [NEW, OLD, BOTH])
async def test_what_was_pinned_stays_until_the_person_decides(
    engine: Client, ana: ScopedClient, answer: str
) -> None:
    await tell(engine, LISBON)
    (turn,) = await ana.list()
    await ana.pin(turn.id)
    await tell(engine, PORTO, jobs="after")
    assert await listed(ana) == [(LISBON, PORTO)]
    facts = {each.text: each.valid_to for each in await ana.list() if each.evidence_ids}
    assert facts == {IN_LISBON: None, IN_PORTO: None}
    await say(ana, answer)
    assert await listed(ana) == []
    valid = {each.text for each in await ana.list() if each.valid_to is None}
    assert valid & {IN_LISBON, IN_PORTO} == set(LEFT[answer])


@pytest.mark.parametrize(
    ("answer", "left"),
    [
        ("both", {"The user works at Lumen.", "The user works at Tidewater."}),
        ("the second one", {"The user works at Tidewater."}),
        ("1", {"The user works at Lumen."}),
        ("the new one", {"The user works at Lumen."}),
    ],
)
async def test_of_two_changes_the_one_that_was_shown_is_decided(
    engine: Client, ana: ScopedClient, answer: str, left: set[str]
) -> None:
    await tell(engine, LISBON, PORTO, "I work at Tidewater.", "I work at Lumen now.", jobs="after")
    asked = await say(ana, BOTH)
    assert asked.say.endswith("\nNew: I work at Lumen now.\nOld: I work at Tidewater.")
    assert (await say(ana, answer)).done
    assert await listed(ana) == [(LISBON, PORTO)]
    assert set(await known(ana)) == {IN_PORTO, *left}
