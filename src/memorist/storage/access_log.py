"""Which memories were recalled, written back off the hot path: a recall does not wait for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from ..errors import MemoristError
from ..ports import Store
from ..types import Scope
from .changes import Happened, Used

AT_MOST = 256  # uses held back before they are written
SECONDS = 1.0


class AccessLog:
    """Collects uses and writes them a moment later; `flush` writes them now. Closed by whoever made it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[Scope, list[Used | Happened]] = {}
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def note(self, scope: Scope, uses: Sequence[Used | Happened]) -> None:
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
                    await tx.apply(uses)

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
