"""Whatever a roll-up could summarize is in a summary before it expires, whenever it was said."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clocks import Clock
from llm_server import Request, Server
from memorist import aio
from memorist.client import Client
from memorist.scoped import ScopedClient
from memorist.types import Filter, Memory

START = datetime(2026, 1, 1, 9, tzinfo=UTC)
JOBS = ["purge", "rollup"]
TOMATOES = (
    "My tomatoes got blight last August.",
    "I water the tomatoes twice a day in July.",
    "San Marzano is the tomato I grow every year.",
    "I tie the tomato plants to bamboo sticks.",
    "The greenhouse tomatoes ripen two weeks earlier.",
    "I made twelve jars of tomato sauce.",
    "Nettle tea keeps aphids off my tomatoes.",
)
BEES = (
    "The beehive by the shed swarmed in May.",
    "Two frames of the beehive were full of honey.",
    "Wasps attacked the beehive behind the shed.",
)
LATE_BEES = "The queen of the beehive was replaced."
LATER_BEES = (LATE_BEES, "The beehive has a new roof.", "The beehive survived the frost.")
OTHERS = (
    "Kim sings in a choir on Tuesdays.",
    "The dentist is on Rose Street.",
    "I read Middlemarch again.",
    "My Volvo failed its inspection.",
)


@asynccontextmanager
async def opened(place: str, **settings: Any) -> AsyncIterator[Client]:
    given = {"rollup_days": 90, **settings}
    async with aio.open(place, embedder="minilm", multilingual=False, **given) as memory:
        memory.ctx.clock = Clock(START)
        yield memory


async def say(memory: Client, texts: Sequence[str], *, hours: float = 6) -> dict[str, str]:
    """Store each text in a session of its own, some hours apart; return the ids by text."""
    clock = memory.ctx.clock
    ids: dict[str, str] = {}
    for text in texts:
        ana = memory.scope("ana", session=f"{clock():%m-%d %H}")
        (ids[text],) = (await ana.remember([{"role": "user", "content": text}])).ids
        clock.now += timedelta(hours=hours)  # type: ignore[attr-defined]
    return ids


async def pass_days(memory: Client, days: int) -> None:
    """Run the jobs every other day."""
    for _ in range(0, days, 2):
        await memory.run_jobs(only=JOBS)
        memory.ctx.clock.now += timedelta(days=2)  # type: ignore[attr-defined]


async def summaries(ana: ScopedClient) -> list[Memory]:
    found = await ana.list(Filter(compression_source=True), limit=100)
    return list(found.memories)


async def find_lost(memory: Client, ids: dict[str, str]) -> list[str]:
    """Return the texts that are no longer active, or stored, and in no summary."""
    ana = memory.scope("ana")
    summarized = {id for summary in await summaries(ana) for id in summary.evidence_ids}
    stored = await memory.ctx.store.get(ana.scope, list(ids.values()))
    summarized.update(each.id for each in stored if each.state == "active")
    return [text for text, id in ids.items() if id not in summarized]


@pytest.mark.spec("THE-96", "THE-119")
async def test_of_a_topic_that_becomes_due_in_parts_nothing_is_lost(place: str) -> None:
    said = [text for pair in zip(TOMATOES, (*OTHERS, *OTHERS), strict=False) for text in pair]
    async with opened(place) as memory:
        ids = await say(memory, list(dict.fromkeys(said)))
        await memory.run_jobs(only=["extract"])
        levels = {each.importance_level for each in await memory.scope("ana").list(limit=100)}
        assert min(levels) < memory.settings.ttl_level <= max(levels), "they expire, or never do"
        await pass_days(memory, 200)
        assert await find_lost(memory, {text: ids[text] for text in TOMATOES}) == []
        (summary,) = await summaries(memory.scope("ana"))
        assert {ids[text] for text in TOMATOES} <= set(summary.evidence_ids)


@pytest.mark.spec("THE-96")
async def test_what_is_said_later_is_added_to_the_summary_of_its_topic(place: str) -> None:
    async with opened(place, ttl_level=6, extract="off") as memory:
        await say(memory, [*BEES, *OTHERS])
        await pass_days(memory, 60)
        ana = memory.scope("ana")
        (before,) = await summaries(ana)
        late = await say(memory, [LATE_BEES, "Pia plays the oboe."])
        await pass_days(memory, 120)
        (after,) = await summaries(ana)
        assert (after.id, after.revision) == (before.id, before.revision + 1)
        assert after.evidence_ids == (*before.evidence_ids, late[LATE_BEES])
        assert LATE_BEES in after.text
        assert all(text in after.text for text in BEES)
        assert [each.text for each in (await ana.why(after.id)).memories] == [*BEES, LATE_BEES]
        (earlier,) = (await ana.list(Filter(states=("superseded",)), limit=9)).memories
        assert (earlier.text, earlier.superseded_by) == (before.text, before.id)
        (hit, *_) = (await ana.recall("What happened to the queen of the beehive?")).memories
        assert hit.id == after.id


@pytest.mark.spec("THE-96")
async def test_what_expires_waits_for_the_rest_of_its_topic(place: str) -> None:
    async with opened(place, ttl_level=6, extract="off") as memory:
        ids = await say(memory, [BEES[0], OTHERS[0]])
        memory.ctx.clock.now += timedelta(days=40)  # type: ignore[attr-defined]
        ids |= await say(memory, BEES[1:])
        memory.ctx.clock.now += timedelta(days=21)  # type: ignore[attr-defined]
        ana = memory.scope("ana")
        would = await ana.purge(dry_run=True)
        assert would == await ana.purge()
        assert would.expired == (ids[OTHERS[0]],)
        await pass_days(memory, 60)
        assert await find_lost(memory, {text: ids[text] for text in BEES}) == []


@pytest.mark.spec("THE-96")
async def test_a_full_run_leaves_the_rest_for_the_next_one(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memorist.jobs.rollup.MAX_MEMORIES", 4)
    async with opened(place, ttl_level=6, extract="off") as memory:
        await say(memory, OTHERS)
        ids = await say(memory, BEES)
        memory.ctx.clock.now += timedelta(days=70)  # type: ignore[attr-defined]
        ana = memory.scope("ana")
        assert len((await ana.purge()).expired) == len(OTHERS)
        assert (await ana.purge()).expired == ()
        assert await find_lost(memory, ids) == []


@pytest.mark.spec("THE-96")
async def test_nothing_expires_of_a_topic_that_changed_while_it_was_summarized(
    place: str, llm_server: Server
) -> None:
    asked, go = threading.Event(), threading.Event()

    def answer(_: Request) -> dict[str, str]:
        asked.set()
        go.wait(20)
        return {"summary": " ".join(BEES)}

    llm_server.answer = answer
    llm = {"llm": "openai:test-model", "llm_url": f"{llm_server.url}/v1", "llm_key": "k"}
    async with opened(place, ttl_level=6, extract="off", **llm) as memory:
        ids = await say(memory, BEES)
        memory.ctx.clock.now += timedelta(days=70)  # type: ignore[attr-defined]
        ana = memory.scope("ana")
        running = asyncio.create_task(ana.purge())
        assert await asyncio.to_thread(asked.wait, 20)
        await ana.pin(ids[BEES[0]])
        go.set()
        assert (await running).expired == ()
        assert await find_lost(memory, ids) == []


@pytest.mark.spec("THE-96")
async def test_a_summary_names_all_its_sources(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memorist.ingest.transitions.MOST_LISTED", 4)
    monkeypatch.setattr("memorist.jobs.rollup.FULL", 2, raising=False)
    async with opened(place, ttl_level=6, extract="off") as memory:
        ids = await say(memory, BEES)
        await pass_days(memory, 60)
        ids |= await say(memory, LATER_BEES)
        await pass_days(memory, 60)
        assert await find_lost(memory, ids) == []
        ana = memory.scope("ana")
        await ana.forget(ids[BEES[0]])
        found = [each.text for each in await summaries(ana)]
        assert sorted(found) == [" ".join(LATER_BEES), " ".join(BEES[1:])]


@pytest.mark.spec("THE-96")
async def test_who_forgets_a_summary_in_a_chat_forgets_what_it_stands_for(place: str) -> None:
    stored = Filter(states=("active", "compressed", "archived"))
    async with opened(place, ttl_level=6, extract="off") as memory:
        await say(memory, BEES)
        await pass_days(memory, 60)
        chat = memory.scope("ana", session="chat-1")
        await chat.command("forget everything about the beehive")
        reply = await chat.command("yes")
        assert reply is not None
        assert reply.say.startswith("Forgotten, and 3 more based on the same words.")
        assert (await chat.list(stored, limit=9)).memories == ()
        await chat.command("undo")
        found = [each.text for each in await chat.list(stored, limit=9)]
        assert sorted(found) == sorted([*BEES, " ".join(BEES)])


@pytest.mark.spec("THE-96")
async def test_a_turn_and_the_fact_from_it_are_in_a_summary_once(place: str) -> None:
    said = (
        "I collect old brass compasses.",
        "I bought another brass compass in Delft.",
        "My brass compasses are in the hall.",
    )
    async with opened(place, ttl_level=6) as memory:
        ids = await say(memory, [*said, *OTHERS])
        await memory.run_jobs(only=["extract"])
        ana = memory.scope("ana")
        facts = [each for each in await ana.list(limit=100) if ids[said[0]] in each.evidence_ids]
        assert [fact.text for fact in facts] == ["The user collects old brass compasses."]
        await pass_days(memory, 60)
        (summary,) = await summaries(ana)
        assert summary.text == " ".join(said)
        assert {*map(ids.get, said), facts[0].id} <= set(summary.evidence_ids)
        await ana.forget(ids[said[2]])
        assert (await ana.get(summary.id)).text == " ".join(said[:2])
