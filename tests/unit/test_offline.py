"""What is answered while the store is down: all filters work, and only texts that are still the right ones return."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memorist import aio
from memorist.index import SnapshotCache
from memorist.offline import MOST_RECENT, Recent
from memorist.storage import Forget, Save
from memorist.types import Filter, Labels, Memory, Scope

NOW = datetime(2026, 5, 31, tzinfo=UTC)
ENDS = datetime(2199, 5, 31, tzinfo=UTC)
ANA = Scope(user="ana")


def memory(number: int, chance: random.Random) -> Memory:
    then = NOW + timedelta(days=chance.randint(-5, 5))
    state = chance.choice(["active", "active", "archived", "superseded"])
    return Memory(
        id=f"m{number}",
        scope=ANA,
        text=f"Number {number}.",
        kind=chance.choice(["semantic", "episodic", "procedural"]),
        state=state,
        superseded_by="m1" if state == "superseded" else None,
        created_at=then,
        updated_at=then + timedelta(days=1),
        labels=Labels(session=chance.choice([None, "s", "t"]), subject=chance.choice([None, "x"])),
        category=chance.choice([None, "Fact", "goals"]),
        item_type=chance.choice([None, "fact"]),
        importance=chance.choice([0.2, 0.5, 0.8]),
        tags=tuple(chance.sample(["Tea", "milk", "ÄRGER"], 2)),
        source_ids=("x",) if chance.random() < 0.3 else (),
        evidence_ids=("e",) if chance.random() < 0.3 else (),
        pinned=chance.random() < 0.5,
        manually_saved=chance.random() < 0.5,
        needs_embedding=chance.random() < 0.5,
        speaker=chance.choice([None, "user"]),
        occurred_at=chance.choice([None, then]),
        procedural_form=chance.choice([None, "workflow"]),
        content_hash=chance.choice(["a", "b"]),
        compression_source=chance.random() < 0.5,
        last_accessed=chance.choice([None, then]),
        purge_at=chance.choice([None, then]),
        metadata=chance.choice([{}, {"a": {"b": 1}}, {"a": {"b": 2}}]),
        expires_at=chance.choice([None, ENDS, ENDS + timedelta(days=1)]),
    )


FILTERS: dict[str, Any] = {
    "ids": ("m1", "m2", "m3", "m4", "m5"),
    "id_part": "m1",
    "kinds": ("semantic",),
    "states": ("archived",),
    "categories": ("fact",),
    "item_types": ("fact",),
    "subjects": ("x",),
    "tags": ("ärger", "none"),
    "pinned": True,
    "manually_saved": True,
    "needs_embedding": False,
    "importance_min": 0.5,
    "importance_max": 0.5,
    "created_after": NOW,
    "created_before": NOW,
    "updated_after": NOW,
    "updated_before": NOW,
    "occurred_after": NOW,
    "occurred_before": NOW,
    "speaker": "user",
    "source_id": "x",
    "procedural_form": "workflow",
    "content_hash": "a",
    "versions_of": "m1",
    "used_before": NOW,
    "purge_before": NOW,
    "compression_source": True,
    "derived_from": ("e",),
    "labels": Labels(session="s"),
    "metadata": {"a.b": {"gte": 2}},
    "expired_by": ENDS,
    "unexpired_at": ENDS,
    "all_of": (Filter(pinned=True), Filter(kinds=("semantic",))),
    "any_of": (Filter(pinned=True), Filter(kinds=("semantic",))),
    "none_of": (Filter(pinned=True), Filter(kinds=("semantic",))),
}


@pytest.mark.parametrize("name", [field.name for field in fields(Filter)])
async def test_every_filter_works_while_the_store_is_down(name: str, tmp_path: Path) -> None:
    chance = random.Random(3)
    given = {name: FILTERS[name]}
    if name == "versions_of":
        given["states"] = ("superseded",)
    where = Filter(**given)
    async with aio.open(tmp_path / "m.db", embedder="none", spool_dir=tmp_path) as client:
        store, offline = client.ctx.store, client.offline
        assert offline is not None
        async with store.transaction(ANA) as tx:
            made = [memory(number, chance) for number in range(60)]
            await tx.apply([Save(memory=each, event="created") for each in made])
        rows = await store.rows_where(ANA, where)
        wanted = {each.id for each in (await store.at_rows(ANA, rows)).values()}
        assert 0 < len(wanted) < 60
        offline.down["reading"] = "the cable is out"
        answer = await client.scope("ana").recall("number", limit=100, where=where)
        found = {each.id for each in (*answer.memories, *answer.cut)}
        assert (found, answer.legs["store"]) == (wanted, "the cable is out")


def test_forgotten_texts_leave_with_their_versions_and_few_are_held(tmp_path: Path) -> None:
    recent = Recent(SnapshotCache(model="", dimensions=1, limit_bytes=1), tmp_path)
    one = memory(1, random.Random(1))
    version = replace(one, id="old", state="superseded", superseded_by="m1")
    saves = [Save(memory=one, event="created"), Save(memory=version, event=None)]
    recent.note_commit(ANA, saves, 1)
    assert recent.current(ANA) == saves
    recent.note_commit(ANA, [Forget(memory_id="m1", at=NOW, until=None)], 2)
    assert recent.of(ANA) == []
    recent.note_read(replace(one, id=str(number)) for number in range(MOST_RECENT + 5))
    assert next(each.memory.id for each in recent.of(ANA)) == "5"
