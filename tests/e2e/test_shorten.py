"""A long memory gets a short summary by itself, and lists show that instead of the text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from clocks import Clock
from memorist import aio
from memorist.client import Client
from memorist.retrieve import render
from memorist.types import Memory

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
STORY = (
    "So, how was your week? Mine was long and full of small things that nobody needs to hear. "
    "On Monday the landlord called and we talked for a while about this and that. "
    "In the end he raised the rent of the flat in Porto to 940 euros from 1 September. "
    "Then I went for a walk, it was warm, and there were many people on the streets. "
    "I signed the contract with Olga Pereira at the bank. "
    "Anyway, that was my week, nothing much happened apart from that, you know how it is."
)


@pytest.fixture
async def engine(place: str) -> AsyncIterator[Client]:
    async with aio.open(place, embedder="hashing") as engine:
        engine.ctx.clock = Clock(NOW)
        yield engine


async def told(engine: Client, text: str) -> Memory:
    ana = engine.scope("ana", session="s1")
    (id,) = (await ana.remember([{"role": "user", "content": text}])).ids
    return await ana.get(id)


@pytest.mark.spec("THE-69")
async def test_a_long_turn_of_a_conversation_is_shown_by_its_summary(engine: Client) -> None:
    before = await told(engine, STORY)
    short = await told(engine, "I like figs.")
    engine.ctx.clock.now += timedelta(days=1)  # type: ignore[attr-defined]
    assert (await engine.run_jobs(only=["shorten"]))["shorten"].changed == 1
    ana = engine.scope("ana")
    after = await ana.get(before.id)
    assert after.summary is not None
    assert len(after.summary) <= 280
    for word in ("940 euros", "1 September", "Olga Pereira"):
        assert word in after.summary
    assert all(part in STORY for part in after.summary.split(". ")), "in the words of the turn"
    assert render.bullets([after]) == f"- [{after.category or after.kind}] {after.summary}"
    assert (await ana.get(short.id)).summary is None
    assert after.text == STORY, "which stays as it is"
    assert (after.revision, after.updated_at) == (before.revision, before.updated_at)
    assert len(await ana.history(before.id)) == 1


async def test_another_text_gets_another_summary_and_a_given_one_stays(engine: Client) -> None:
    memory = await told(engine, STORY)
    given = await told(engine, STORY.replace("Porto", "Braga"))
    ana = engine.scope("ana")
    await ana.edit(given.id, summary="About the rent.")
    await engine.run_jobs(only=["shorten"])
    await ana.edit(memory.id, text=STORY.replace("940", "980"))
    assert (await ana.get(memory.id)).summary is None
    engine.ctx.clock.now += timedelta(days=1)  # type: ignore[attr-defined]
    await engine.run_jobs(only=["shorten"])
    assert "980 euros" in str((await ana.get(memory.id)).summary)
    assert (await ana.get(given.id)).summary == "About the rent."


async def test_no_summary_is_made_where_memory_is_off(engine: Client) -> None:
    memory = await told(engine, STORY)
    ana = engine.scope("ana")
    await ana.privacy.set(memory_enabled=False)
    assert (await engine.run_jobs(only=["shorten"]))["shorten"].skipped == 1
    assert (await ana.get(memory.id)).summary is None
