"""What is read beside the memories themselves stays behind the wall of a scope too, on every engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memorist.storage import Forget, Relation, Save, tasks
from memorist.storage.history import shown_revision, thread_changes
from memorist.storage.store import Store
from memorist.storage.tasks import Embedding
from memorist.text.clock import parse
from memorist.types import RELATED, Labels, Memory, Scope
from stores import open_sqlite

ANA, BOB = Scope(user="ana"), Scope(user="bob")
NOW = parse("2026-05-31T14:00:00Z")


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "sqlite":
        opened: Store = await open_sqlite(tmp_path / "memory.db")
    else:
        from stores import open_postgres

        opened = await open_postgres(request.getfixturevalue("ready_database"))
    yield opened
    await opened.close()


def memory(scope: Scope, name: str, **fields: Any) -> Memory:
    return Memory(
        id=f"{scope.user}-{name}",
        scope=scope,
        text=name,
        kind="episodic",
        created_at=NOW,
        updated_at=NOW,
        **fields,
    )


async def filled(store: Store, scope: Scope) -> None:
    """A scope with an earlier version, a vector, something forgotten and something hidden."""
    kept, gone, hidden = (memory(scope, name) for name in ("tea", "milk", "ship"))
    version = memory(scope, "an older tea", state="superseded", superseded_by=kept.id)
    cup = memory(scope, "cup", labels=Labels(thread="t"))
    async with store.transaction(scope) as tx:
        await tx.apply(
            [Save(memory=each, event="created") for each in (kept, gone, hidden, version, cup)]
        )
        await tasks.save_embeddings(
            tx, [Embedding(memory_id=kept.id, model="m", vector=[1.0, 0.0])]
        )
        await tx.apply(
            [Relation(from_id=kept.id, to_id=version.id, type="similar", strength=0.5, at=NOW)]
        )
        await tx.apply([Relation(from_id=kept.id, to_id=cup.id, type=RELATED, at=NOW)])
        await tx.mark_shown("t", 1)
        await tx.record_comparisons([(cup.id, kept.id, 0.5)], NOW)
    await store.set_index_position(scope, "index", 7)
    async with store.transaction(scope) as tx:
        hide = replace(hidden, state="soft_deleted")
        forget = Forget(memory_id=gone.id, at=NOW, until=NOW + timedelta(hours=24))
        await tx.apply([forget, Save(memory=hide, event="soft_deleted")])


@pytest.mark.spec("THE-109")
async def test_versions_vectors_relations_erased_rows_and_tombstones_are_seen_from_their_own_scope_alone(
    store: Store,
) -> None:
    await filled(store, ANA)
    async with store.transaction(BOB) as tx:
        await tx.apply([Save(memory=memory(BOB, "theirs"), event="created")])
        await tx.apply([Save(memory=memory(BOB, "gone"), event="created")])
    async with store.transaction(BOB) as tx:
        await tx.apply([Forget(memory_id="bob-gone", at=NOW, until=NOW + timedelta(hours=24))])
    rows = [row.row for row in (await store.changed_since(ANA, 0, model="m", limit=100)).rows]
    assert await store.versions(ANA, "ana-tea") == ["an older tea", "tea"]
    assert await store.versions(BOB, "ana-tea") == []
    assert len(await store.vectors(ANA, rows, model="m")) == 1
    assert await store.vectors(BOB, rows, model="m") == {}
    assert len((await store.changed_since(ANA, 1, model="m", limit=100)).gone) == 2
    assert len((await store.changed_since(BOB, 1, model="m", limit=100)).gone) == 1
    assert await store.tombstones(ANA, ["milk", "gone"], NOW) == {"milk"}
    assert await store.tombstones(BOB, ["milk", "gone"], NOW) == {"gone"}
    assert len(await store.relations(ANA, "similar", limit=9)) == 1
    assert await store.relations(BOB, "similar", limit=9) == []
    assert (await store.index_position(ANA, "index"), await store.index_position(BOB, "index")) == (
        7,
        0,
    )
    assert [len(await store.links(who, ["ana-tea", "ana-cup"])) for who in (ANA, BOB)] == [1, 0]
    assert [len(await thread_changes(store, who, "t", 0)) for who in (ANA, BOB)] == [1, 0]
    assert [await shown_revision(store, who, "t") for who in (ANA, BOB)] == [1, 0]
    assert [len(await store.compared_since(who, NOW)) for who in (ANA, BOB)] == [1, 0]
