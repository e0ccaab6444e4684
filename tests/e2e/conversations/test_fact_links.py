"""Facts that are extracted from the turns of several sessions are linked to each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memorist import aio
from memorist.client import Client
from memorist.dialects.supervisor import Supervisor
from memorist.scoped import ScopedClient
from memorist.storage import Relation
from memorist.types import RELATED, Memory

TABBY, TUNA = "My cat Miso is an orange tabby.", "My cat Miso loves tuna."
NUTS = "I'm allergic to walnuts."
QUESTION = "What color is the tabby?"


@pytest.fixture(params=["default", "supervisor"])
async def memory(
    request: pytest.FixtureRequest, place: str, tmp_path: Path
) -> AsyncIterator[Client]:
    options = {"policy": request.param, "extract": "rules", "run_jobs": False}
    async with aio.open(place, state_dir=tmp_path, **options) as opened:
        yield opened


@pytest.fixture
def ana(memory: Client) -> ScopedClient:
    return memory.scope("ana")


async def talk(memory: Client, *texts: str, first: int = 1) -> list[str]:
    """Tell each text in a session of its own, and have its facts extracted; return the turns."""
    ids = []
    for number, text in enumerate(texts, first):
        turns = [
            {"role": "user", "content": text},
            {"role": "assistant", "content": "I see, thank you for telling me."},
        ]
        chat = memory.scope("ana", session=f"chat {number}")
        ids.append((await chat.remember(turns)).ids[0])
    await memory.run_jobs(only=["extract"])
    return ids


async def facts(ana: ScopedClient, turns: list[str]) -> list[Memory]:
    """Return the one fact of each turn."""
    by_turn: dict[str, Memory] = {}
    for memory in await ana.list(limit=100):
        for id in memory.evidence_ids:
            assert by_turn.setdefault(id, memory) is memory
    return [by_turn[id] for id in turns]


async def edges(ana: ScopedClient) -> list[Relation]:
    return await ana.ctx.store.relations(ana.scope, RELATED, limit=10_000)


@pytest.mark.spec("IMP-19", "IMP-22")
async def test_a_link_between_facts_of_two_sessions_raises_the_score_of_both(
    memory: Client, ana: ScopedClient
) -> None:
    tabby, tuna, nuts = await facts(ana, await talk(memory, TABBY, TUNA, NUTS))
    (edge,) = await edges(ana)
    assert {edge.from_id, edge.to_id} == {tabby.id, tuna.id}, "not to the turns they come from"
    assert 0.6 <= edge.strength < 1
    question = "What do I have to know about Miso and nuts?"
    found = await ana.recall(question, profile="imp.bullets", limit=20)
    parts = {hit.memory.id: hit.parts for hit in found}
    for id in (tabby.id, tuna.id):
        assert parts[id]["related"] == pytest.approx(0.05 * edge.strength, abs=1e-6)
    assert "related" not in parts[nuts.id]
    (near,) = await ana.related(tabby.id)
    assert (near.memory.id, near.strength) == (tuna.id, pytest.approx(edge.strength))


@pytest.mark.spec("IMP-20", "IMP-23")
async def test_a_fact_of_another_session_comes_along_as_a_related_bullet(
    memory: Client, ana: ScopedClient
) -> None:
    tabby, tuna, _ = await facts(ana, await talk(memory, TABBY, TUNA, NUTS))
    chat = memory.scope("ana", session="today")
    bullets = [f"[relationships] {tabby.text}", f"[relationships] {tuna.text} (related)"]
    text = await Supervisor(chat).context(QUESTION, limit=1)
    assert text.splitlines()[-2:] == [f"- {bullet}" for bullet in bullets]
    assert text.count("(related)") == 1
    asked = {"agent": "supervisor", "query": QUESTION, "top_k": 1}
    assert [item["text"] for item in await Supervisor(chat).query(asked)] == bullets
    found = await chat.recall(QUESTION, profile="imp.bullets", limit=1)
    assert [each.id for each in (*found.memories, *found.related)] == [tabby.id, tuna.id]


@pytest.mark.spec("IMP-20")
async def test_at_most_two_related_bullets_come_along(memory: Client, ana: ScopedClient) -> None:
    said = [f"My cat Miso loves {food}." for food in ("tuna", "cod", "shrimp", "trout")]
    await talk(memory, *said)
    found = await memory.scope("ana", session="today").recall(
        "Does Miso love cod?", profile="imp.bullets", limit=1
    )
    assert (len(found.memories), len(found.related)) == (1, 2)
    assert found.text.count("(related)") == 2


@pytest.mark.spec("IMP-22")
async def test_whatever_the_sessions_say_again_there_is_one_edge_for_two_facts(
    memory: Client, ana: ScopedClient
) -> None:
    said = (TABBY, TUNA, "My cat Miso loves cod.")
    tabby, *_ = await facts(ana, await talk(memory, *said))
    await talk(memory, *said, *said, first=10)
    await ana.edit(tabby.id, "My cat Miso is a gray tabby.")
    await ana.edit(tabby.id, TABBY)
    await talk(memory, "My cat Miso loves shrimp.", *said, first=20)
    pairs = [frozenset((edge.from_id, edge.to_id)) for edge in await edges(ana)]
    assert len(pairs) == len(set(pairs)) >= 4
    assert all(len(pair) == 2 for pair in pairs), "nothing is related to itself"


@pytest.mark.spec("IMP-21")
async def test_no_edge_is_made_while_the_person_waits_and_each_is_one_statement(
    tmp_path: Path, statements: list[str]
) -> None:
    options = {"policy": "supervisor", "extract": "rules", "run_jobs": False}
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path, **options) as memory:
        ana = memory.scope("ana")
        counts = []
        for number, text in enumerate((TABBY, TUNA, "My cat Miso has green eyes.", NUTS), 1):
            chat = memory.scope("ana", session=f"chat {number}")
            before = len(await edges(ana))
            await chat.remember([{"role": "user", "content": text}])
            waited = len(await edges(ana)) - before
            del statements[:]
            await memory.run_jobs(only=["extract"])
            writes = sum("INTO relations" in sql for sql in statements)
            counts.append((waited, writes, len(await edges(ana)) - before))
    assert counts == [(0, 0, 0), (0, 1, 1), (0, 2, 2), (0, 0, 0)]
