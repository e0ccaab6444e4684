"""Uses are written back off the hot path, and none that was noted is lost on the way out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from memorist import context
from memorist.context import AccessLog
from memorist.storage import Save
from memorist.storage.store import MemoryAccess, Store
from memorist.types import Memory, Scope
from stores import open_sqlite

NOW = datetime(2026, 5, 31, 14, 0, tzinfo=UTC)
ANA = Scope(user="ana")
TEA = Memory(id="m1", scope=ANA, text="tea", kind="episodic", created_at=NOW, updated_at=NOW)
USED = MemoryAccess(memory_id="m1", at=NOW, scores={"total": 1.0})


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    opened = await open_sqlite(":memory:")
    async with opened.transaction(ANA) as tx:
        await tx.apply([Save(memory=TEA, event="created")])
    yield opened
    await opened.close()


async def times(store: Store) -> int:
    return (await store.get(ANA, ["m1"]))[0].access_count


async def test_closing_writes_what_is_waiting(store: Store) -> None:
    uses = AccessLog(store)
    uses.note(ANA, [USED, USED])
    await uses.close()
    assert await times(store) == 2


@pytest.mark.parametrize("moment", range(8))
async def test_closing_interrupts_no_write(
    store: Store, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    monkeypatch.setattr(context, "FLUSH_SECONDS", 0.0)
    uses = AccessLog(store)
    uses.note(ANA, [USED] * 5)
    await asyncio.sleep(moment * 0.0005)
    await uses.close()
    assert await times(store) == 5


async def test_many_uses_are_written_without_waiting(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "FLUSH_SECONDS", 60.0)
    uses = AccessLog(store)
    for _ in range(context.MOST_ACCESSES):
        uses.note(ANA, [USED])
    assert uses._task is not None
    await asyncio.wait_for(uses._task, timeout=5)
    assert await times(store) == context.MOST_ACCESSES


async def test_a_store_that_is_away_loses_statistics_and_nothing_else(store: Store) -> None:
    uses = AccessLog(store)
    uses.note(ANA, [USED])
    await store.close()
    await uses.close()
