"""Metadata of the caller's own, filters on it, and memories that end on a date, on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from clocks import Clock
from memorist import Filter, aio
from memorist.client import Client
from memorist.context import Voice
from memorist.errors import InvalidInput, NotAllowed
from memorist.scoped import ScopedClient

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
TEA = {"topic": "tea", "rank": 1, "user": {"level": 3, "access-level": "high"}, "open": True}
JAZZ = {"topic": "jazz", "rank": 2.5, "labels": ["night", 7, "city"], "open": False}
RAIN = {"topic": "rain", "rank": "2", "gone": None, "when": "2026-04-30"}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "m.db")
    address: str = request.getfixturevalue("ready_database")
    return address


@pytest.fixture
async def engine(url: str, tmp_path: Path) -> AsyncIterator[Client]:
    async with aio.open(url, state_dir=tmp_path, extract="off") as opened:
        opened.ctx.clock = Clock(NOW)
        yield opened


@pytest.fixture
async def ana(engine: Client) -> ScopedClient:
    """Three memories with metadata, and one without."""
    scope = engine.scope("ana")
    await scope.remember("Green tea is best in the morning.", metadata=TEA)
    await scope.remember("The trio plays jazz on Fridays.", metadata=JAZZ)
    await scope.remember("Rain is expected on the coast.", metadata=RAIN)
    await scope.remember("The keys are in the blue bowl.")
    return scope


async def topics(scope: ScopedClient, where: Any) -> set[str]:
    found = {memory.metadata.get("topic", "keys") for memory in await scope.list(where)}
    asked = await scope.recall("tea jazz rain keys", where=where, min_confidence=0, limit=9)
    assert {memory.metadata.get("topic", "keys") for memory in asked.memories} == found
    return found


CASES: list[tuple[dict[str, Any], str]] = [
    ({"topic": "tea"}, "tea"),
    ({"topic": ["tea", "rain"]}, "tea rain"),
    ({"topic": {"in": ["jazz"]}}, "jazz"),
    ({"topic": {"nin": ["jazz"]}}, "tea rain keys"),
    ({"topic": {"$ne": "tea"}}, "jazz rain keys"),
    ({"rank": 1}, "tea"),
    ({"rank": 2.5}, "jazz"),
    ({"rank": "2"}, "rain"),
    ({"rank": 2}, ""),
    ({"rank": {"gt": 1}}, "jazz"),
    ({"rank": {"gte": 1, "lt": 2.5}}, "tea"),
    ({"rank": {"lte": "3"}}, "rain"),
    ({"when": {"lt": "2026-05-01"}}, "rain"),
    ({"open": True}, "tea"),
    ({"open": False}, "jazz"),
    ({"open": 1}, ""),
    ({"user.level": 3}, "tea"),
    ({"user.access-level": "high"}, "tea"),
    ({"user": {"level": {"gte": 3}}}, "tea"),
    ({"user": "high"}, ""),
    ({"labels": "city"}, "jazz"),
    ({"labels": {"gt": 5}}, "jazz"),
    ({"labels": {"lt": 5}}, ""),
    ({"labels": ["night", "day"]}, "jazz"),
    ({"labels": {"exists": True}}, "jazz"),
    ({"labels": {"exists": False}}, "tea rain keys"),
    ({"gone": {"exists": True}}, ""),
    ({"gone": None, "topic": {"exists": True}}, "tea jazz rain"),
    ({"topic": ["tea", None]}, "tea keys"),
    ({"topic": "tea' OR 1=1 --"}, ""),
    ({"it's": 1}, ""),
    ({"topic": "tea", "rank": {"gt": 1}}, ""),
]


async def test_filters_on_metadata(ana: ScopedClient) -> None:
    for where, found in CASES:
        assert await topics(ana, {"metadata": where}) == set(found.split()), where


async def test_filters_are_combined(ana: ScopedClient) -> None:
    either = [{"metadata": {"topic": "tea"}}, {"metadata": {"labels": "city"}}]
    assert await topics(ana, {"any_of": either}) == {"tea", "jazz"}
    assert await topics(ana, {"none_of": either}) == {"rain", "keys"}
    mixed = {"any_of": either, "metadata": {"open": True}, "created_after": "2026-04-01"}
    assert await topics(ana, mixed) == {"tea"}
    assert await topics(ana, Filter(metadata={"topic": "tea"})) == {"tea"}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"topic": "tea"}, "Unknown filter 'topic': put keys of your own into 'metadata'"),
    ({"metadata": {"topic": {"$like": "t%"}}}, "needs one of eq, exists, gt"),
    ({"metadata": {"topic": {"gt": True}}}, "takes text or a number"),
    ({"metadata": {"topic": {"in": "tea"}}}, "takes a list"),
    ({"metadata": {"topic": {"exists": 1}}}, "takes True or False"),
    ({"metadata": {"topic": {}}}, "needs one of"),
    ({"metadata": {'a"b': 1}}, "cannot be filtered by"),
    ({"metadata": {"a..b": 1}}, "cannot be filtered by"),
    ({"metadata": "tea"}, "must be a dict"),
    ({"any_of": ["tea"]}, "is a memorist.Filter or a dict"),
    ({"created_after": "soon"}, "is not a time"),
]


async def test_a_filter_that_is_not_understood_is_refused(ana: ScopedClient) -> None:
    for where, why in REFUSED:
        with pytest.raises(InvalidInput, match=why):
            await ana.list(where)
        with pytest.raises(InvalidInput, match=why):
            await ana.recall("tea", where=where)


async def test_tags_are_listed_without_a_filter(ana: ScopedClient) -> None:
    await ana.remember("Sourdough needs a day.", tags=["bread"])
    assert [memory.text for memory in await ana.list(tags=["Bread"])] == ["Sourdough needs a day."]


async def test_metadata_that_json_cannot_keep_is_refused(ana: ScopedClient) -> None:
    wrong: list[Any] = ["tea", {1: "a"}, {"": 1}, {"at": NOW}, {"a": float("nan")}, {"a": 2**63}]
    for metadata in [*wrong, {"a": "x" * 16_000}]:
        with pytest.raises(InvalidInput, match="metadata"):
            await ana.remember("Something new.", metadata=metadata)


async def test_metadata_is_returned_edited_and_undone(ana: ScopedClient) -> None:
    (tea,) = await ana.list({"metadata": {"topic": "tea"}})
    assert tea.metadata == TEA
    edited = await ana.edit(tea.id, metadata={"topic": "tea", "rank": 9})
    assert (await ana.get(tea.id)).metadata == edited.metadata == {"topic": "tea", "rank": 9}
    assert await topics(ana, {"metadata": {"rank": 9}}) == {"tea"}
    operation = (await ana.history(tea.id))[0].meta["operation"]
    await ana.undo(operation)
    assert (await ana.get(tea.id)).metadata == TEA
    assert (await ana.edit(tea.id, metadata={})).metadata == {}


async def test_a_repetition_adds_its_metadata(ana: ScopedClient) -> None:
    receipt = await ana.remember("Green tea is best in the morning.", metadata={"rank": 4, "b": 1})
    assert receipt.outcomes[0].status == "merged"
    assert (await ana.get(receipt.ids[0])).metadata == {**TEA, "rank": 4, "b": 1}


async def test_metadata_survives_an_export_and_is_erased_with_its_memory(
    ana: ScopedClient, engine: Client
) -> None:
    (tea,) = await ana.list({"metadata": {"topic": "tea"}})
    await ana.edit(tea.id, expires_at="2026-06-01")
    records = [json.loads(json.dumps(record)) async for record in ana.export()]
    other = engine.scope("bo")
    await other.import_(records, restore=True)
    (copy,) = await other.list({"metadata": {"topic": "tea"}})
    assert (copy.metadata, copy.expires_at) == (TEA, datetime(2026, 6, 1, tzinfo=UTC))
    await other.forget(copy.id)
    assert "access-level" not in json.dumps([record async for record in other.export()])


async def test_an_expired_memory_is_not_recalled_and_then_erased(url: str, tmp_path: Path) -> None:
    clock = Clock(NOW)
    async with aio.open(url, state_dir=tmp_path) as engine:
        engine.ctx.clock = clock
        ana = engine.scope("ana")
        ends = NOW + timedelta(days=3)
        receipt = await ana.remember("The guest code is 7781.", expires_at=ends, pinned=True)
        await ana.remember("The guest room is upstairs.")
        assert len((await ana.recall("guest code", min_confidence=0)).hits) == 2
        clock.now += timedelta(days=3)
        (hit,) = (await ana.recall("guest code", min_confidence=0)).hits
        assert hit.memory.text == "The guest room is upstairs."
        assert [memory.text for memory in await ana.list()] == [hit.memory.text]
        assert "7781" not in (await ana.context("What is the guest code?")).text
        assert (await ana.purge(dry_run=True)).purged == receipt.ids
        assert (await ana.purge()).purged == receipt.ids
        assert [memory.text for memory in await ana.list({"states": []})] == [hit.memory.text]


async def test_said_again_without_an_end_it_stays(ana: ScopedClient) -> None:
    ends = NOW + timedelta(days=3)
    (id,) = (await ana.remember("The pool opens at nine.", expires_at=ends)).ids
    await ana.remember("The pool opens at nine.", expires_at=ends + timedelta(days=1))
    assert (await ana.get(id)).expires_at == ends + timedelta(days=1)
    await ana.remember("The pool opens at nine.")
    assert (await ana.get(id)).expires_at is None


async def test_the_validity_of_a_memory_is_edited(ana: ScopedClient) -> None:
    (tea,) = await ana.list({"metadata": {"topic": "tea"}})
    edited = await ana.edit(tea.id, valid_from="2025-01-01", valid_to="2026-01-01")
    assert edited.valid_from == datetime(2025, 1, 1, tzinfo=UTC)
    found = await ana.recall("green tea", as_of="2025-06-01", min_confidence=0)
    assert [hit.memory.id for hit in found] == [tea.id]
    assert not (await ana.recall("green tea", as_of="2024-06-01", min_confidence=0)).hits
    assert (await ana.edit(tea.id, valid_to="never")).valid_to is None
    with pytest.raises(InvalidInput, match="valid_to must not be before valid_from"):
        await ana.edit(tea.id, valid_to="2024-01-01")
    with pytest.raises(InvalidInput, match="is not a time"):
        await ana.edit(tea.id, valid_from="never")


async def test_everything_in_a_scope_is_forgotten(ana: ScopedClient, engine: Client) -> None:
    await engine.scope("ana", session="s1").remember("The train leaves at six.")
    await engine.scope("bo").remember("Bo plays the cello.")
    session = engine.scope("ana", session="s1")
    assert len((await session.forget_all()).ids) == 1
    assert len((await ana.forget_all()).ids) == 5, "a dry run forgets nothing"
    assert len((await ana.list()).memories) == 5
    assert len((await session.forget_all(dry_run=False)).ids) == 1
    assert len((await ana.forget_all(dry_run=False, reason="asked")).ids) == 4
    assert (await ana.stats())["memories"] == 0
    assert len((await engine.scope("bo").list()).memories) == 1
    bo = engine.scope("bo")
    bo.voice = Voice(is_owner=False)
    with pytest.raises(NotAllowed, match="Forgetting everything"):
        await bo.forget_all(dry_run=False)


async def test_nothing_lasting_is_made_of_what_ends(ana: ScopedClient, engine: Client) -> None:
    ends = NOW + timedelta(days=3)
    for number in range(3):
        session = engine.scope("ana", session=f"s{number}")
        things = ("garden door", "garage", "cellar", "attic", "shed", "gate")
        said = [
            {
                "role": "user",
                "content": f"The code of the {thing} in house {number} is 77{number}1.",
            }
            for thing in things
        ]
        await session.remember(said, expires_at=ends if number == 0 else None)
    report = await ana.compress(threshold=1, sessions=3)
    assert report.groups == 2
    states = {memory.text: memory.state for memory in await ana.list({"states": []})}
    kept = {text for text, state in states.items() if "house 0" in text and state == "active"}
    assert len(kept) == 6
