"""What recall reads while the store is away: the same filters, and only texts that are still the right ones."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from memorist.offline.proxy import MOST_TEXTS, Texts
from memorist.offline.standby import passes
from memorist.storage.changes import Forget, Save
from memorist.types import Filter, Labels, Memory, Scope
from stores import open_sqlite

NOW = datetime(2026, 5, 31, tzinfo=UTC)
ANA = Scope(user="ana")


def memory(number: int, chance: random.Random) -> Memory:
    then = NOW + timedelta(days=chance.randint(-5, 5))
    return Memory(
        id=f"m{number}", scope=ANA, text=f"Number {number}.", kind=chance.choice(["semantic", "episodic"]),
        created_at=then, updated_at=then + timedelta(days=1), labels=Labels(session=chance.choice([None, "s", "t"])),
        category=chance.choice([None, "Fact", "goals"]), item_type=chance.choice([None, "fact"]),
        importance=chance.choice([0.2, 0.5, 0.8]), tags=tuple(chance.sample(["Tea", "milk", "ÄRGER"], 2)),
        source_ids=("x",) if chance.random() < 0.3 else (), pinned=chance.random() < 0.5,
        speaker=chance.choice([None, "user"]), occurred_at=chance.choice([None, then]),
        state=chance.choice(["active", "archived"]), needs_embedding=chance.random() < 0.5,
    )  # fmt: skip


def where(chance: random.Random) -> Filter:
    choices = {
        "ids": ("m1", "m2", "m3"), "kinds": ("semantic",), "states": chance.choice([("active",), ()]),
        "categories": ("fact",), "item_types": ("fact",), "tags": ("ärger", "none"), "pinned": True,
        "needs_embedding": False, "importance_min": 0.5, "importance_max": 0.5, "created_after": NOW,
        "created_before": NOW, "updated_after": NOW, "occurred_before": NOW, "occurred_after": NOW, "speaker": "user",
        "source_id": "x", "labels": Labels(session="s"), "versions_of": "m1",
    }  # fmt: skip
    names = chance.sample(sorted(choices), chance.randint(0, 3))
    return Filter(**{name: choices[name] for name in names})


async def test_a_filter_lets_through_what_the_store_would() -> None:
    chance = random.Random(3)
    made = {each.id: each for each in (memory(number, chance) for number in range(60))}
    store = await open_sqlite(":memory:")
    async with store.transaction(ANA) as tx:
        await tx.apply([Save(memory=each, event="created") for each in made.values()])
    for _ in range(300):
        asked = where(chance)
        found = await store.at_rows(ANA, await store.rows_where(ANA, asked))
        wanted = {each.id for each in found.values()}
        assert {id for id, each in made.items() if passes(asked, each)} == wanted, asked
    await store.close()


def test_forgotten_texts_leave_with_their_versions_and_few_are_held() -> None:
    texts, one = Texts(), memory(1, random.Random(1))
    version = replace(one, id="old", state="superseded", superseded_by="m1")
    texts.follow(ANA, [Save(memory=one, event="created"), Save(memory=version, event=None)])
    assert len(texts.of(ANA)) == 2
    texts.follow(ANA, [Forget(memory_id="m1", at=NOW, until=None)])
    assert texts.of(ANA) == []
    texts.learn(replace(one, id=str(number)) for number in range(MOST_TEXTS + 5))
    assert next(each.id for each in texts.of(ANA)) == "5"
