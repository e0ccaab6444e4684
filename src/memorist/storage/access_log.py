"""Which memories were recalled, written back off the hot path: a recall does not wait for a
disk."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..errors import MemoristError
from ..text import clock
from ..types import Scope
from .changes import Event
from .history import dump_json
from .store import Store
from .transaction import Transaction

AT_MOST = 256  # uses held back before they are written
SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAccess:
    """A memory was recalled: no new revision, no history."""

    memory_id: str
    at: datetime
    scores: Mapping[str, Any]
    accessed: bool = True


class AccessLog:
    """Collects uses and writes them a moment later; `flush` writes them now. Closed by whoever
    made it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[Scope, list[MemoryAccess | Event]] = {}
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def note(self, scope: Scope, uses: Sequence[MemoryAccess | Event]) -> None:
        """Remember to write these."""
        if not uses:
            return
        self._waiting.setdefault(scope, []).extend(uses)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._later())
        if sum(map(len, self._waiting.values())) >= AT_MOST:
            self._hurry.set()

    async def flush(self) -> None:
        """Write what is waiting; a failure loses statistics, never a memory."""
        waiting, self._waiting = self._waiting, {}
        for scope, uses in waiting.items():
            with suppress(MemoristError):
                async with self._store.transaction(scope) as tx:
                    await tx.apply([each for each in uses if isinstance(each, Event)])
                    await record(tx, [each for each in uses if isinstance(each, MemoryAccess)])

    async def close(self) -> None:
        """Write what is waiting; a write that is under way is not interrupted."""
        self._hurry.set()
        if self._task is not None:
            await self._task
        await self.flush()

    async def _later(self) -> None:
        while self._waiting:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), SECONDS)
            self._hurry.clear()
            await self.flush()


async def record(tx: Transaction, uses: Sequence[MemoryAccess]) -> None:
    """Store when memories were recalled, and with which scores."""
    number = await tx.number(tx.scope)
    values = []
    for use in uses:
        scores = dump_json(use.scores)
        at = clock.iso(use.at)
        values.append((scores, use.accessed, at, int(use.accessed), number, use.memory_id))
    sql = (
        "UPDATE memories SET last_scores = ?, last_accessed = CASE WHEN ? THEN ? ELSE "
        "last_accessed END, "
        "access_count = access_count + ? WHERE scope = ? AND id = ?"
    )
    await tx.write([(sql, values)])
