"""Keeping a vector index up to the store.

The store's own record of changes is the outbox: each scope has a revision, each row the revision that changed it last,
and the index a position in them that moves only after the index has taken everything before it in. So nothing is lost
when either of them goes away, and going over the same changes twice does no harm.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b

import numpy as np

from ..errors import IndexUnavailable
from ..ports import IndexEntry, IndexRow, Searching, Store, VectorIndex, Vectors
from ..types import Scope

PAGE = 1024  # rows read from the store and put into the index at a time
LOCKS = 16
PATIENCE = 5.0  # seconds that a question waits for the index to follow; a library takes some of them to load
REST = 5.0  # seconds in which an index that failed is not asked again
_MOMENT = 0.05


class Mirror:
    """Follows the store, scope by scope. Closed by whoever made it."""

    def __init__(self, store: Store, index: VectorIndex, *, model: str, dimensions: int) -> None:
        self.index = index
        self._store, self._model, self._dimensions = store, model, dimensions
        self._seen: dict[Scope, int] = {}  # revisions that the index surely has
        self._tasks: dict[Scope, asyncio.Task[bool]] = {}
        self._failed, self._rested = (
            "",
            0.0,
        )  # what the index failed with, and until when it is left alone

    def note(self, scope: Scope) -> None:
        """Something changed there: the index follows in a moment."""
        self._under_way(scope).add_done_callback(
            _ignored
        )  # the next change, question or worker tries again

    async def nearest(
        self, scope: Scope, vector: Vectors, *, limit: int, revision: int
    ) -> tuple[list[int], str]:
        """Ask the index once it has followed so far; if that takes long, ask it as it is, and say so."""
        if time.monotonic() < self._rested:
            raise IndexUnavailable(self._failed)
        try:
            return await self._asked(scope, vector, limit, revision)
        except IndexUnavailable as error:
            self._failed, self._rested = str(error), time.monotonic() + REST
            raise

    async def _asked(
        self, scope: Scope, vector: Vectors, limit: int, revision: int
    ) -> tuple[list[int], str]:
        until = time.monotonic() + PATIENCE
        while self._seen.get(scope, -1) < revision and (left := until - time.monotonic()) > 0:
            done, _ = await asyncio.wait({self._under_way(scope)}, timeout=left)
            if done and not done.pop().result():  # another process is at it
                await asyncio.sleep(min(left, _MOMENT))
        is_behind = self._seen.get(scope, -1) < revision
        said = "the vector index is still being filled" if is_behind else "ok"
        return await self.index.nearest(scope, vector, limit=limit), said

    def _under_way(self, scope: Scope) -> asyncio.Task[bool]:
        if scope not in self._tasks or self._tasks[scope].done():
            self._tasks[scope] = asyncio.get_running_loop().create_task(self.follow(scope))
        return self._tasks[scope]

    async def follow(self, scope: Scope) -> bool:
        """Bring the index up to the scope's newest revision; False if another process is at it.

        Raises IndexUnavailable, StoreUnavailable.
        """
        async with self._store.alone(_lock_of(self.index.name, scope)) as alone:
            if alone:
                await self._catch_up(scope)
        return alone

    async def rebuild(self, progress: Callable[[int], None] = lambda done: None) -> int:
        """Empty the index and fill it from the store; how many entries it holds then."""
        await self.index.clear()
        for done, scope in enumerate(await self._store.scopes(), 1):
            await self._store.move(scope, self.index.name, 0)
            self._seen.pop(scope, None)
            await self.follow(scope)
            progress(done)
        return await self.index.count()

    async def close(self) -> None:
        """Finish what is under way, then close the index."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.index.close()

    async def _catch_up(self, scope: Scope) -> None:
        since = await self._store.position(scope, self.index.name)
        delta = await self._store.changed_since(scope, since, model=self._model, limit=PAGE)
        first = delta.revision
        while True:
            await self._put(scope, delta.rows, delta.gone)
            if delta.next is None:
                break
            delta = await self._store.changed_since(
                scope, since, model=self._model, limit=PAGE, after=delta.next
            )
        if first != since:
            await self._store.move(scope, self.index.name, first)
        self._seen[scope] = first

    async def _put(self, scope: Scope, rows: list[IndexRow], gone: list[int]) -> None:
        there = [
            row
            for row in rows
            if row.vector is not None and len(row.vector) == 4 * self._dimensions
        ]
        known = {row.row for row in there}
        out = [*gone, *(row.row for row in rows if row.row not in known)]
        if out:
            await self.index.delete(scope, out)
        if there:
            await self.index.put(scope, [_entry(row, scope) for row in there])


def _lock_of(index: str, scope: Scope) -> str:
    """One of a few locks: that of two scopes may be the same, and a store need not keep one for each."""
    named = repr((index, scope.tenant, scope.user, scope.space)).encode("utf-8", "surrogatepass")
    return f"index-{blake2b(named, digest_size=1).digest()[0] % LOCKS:x}"


class InStore:
    """The store itself is asked; it needs no following."""

    def __init__(self, store: Searching, model: str) -> None:
        self._store, self._model = store, model

    async def nearest(
        self, scope: Scope, vector: Vectors, *, limit: int, revision: int
    ) -> tuple[list[int], str]:
        return [
            row
            for row, _ in await self._store.nearest(scope, vector, model=self._model, limit=limit)
        ], "ok"

    def note(self, scope: Scope) -> None:
        """Do nothing: the store is its own index."""

    async def follow(self, scope: Scope) -> bool:
        return True

    async def close(self) -> None:
        """Do nothing: the store is closed by the client."""


def _ignored(task: asyncio.Task[bool]) -> None:
    if not task.cancelled():
        task.exception()


def _entry(row: IndexRow, scope: Scope) -> IndexEntry:
    created = datetime.fromtimestamp(row.created / 1e6, UTC)
    about: dict[str, str | float | bool] = {
        "tenant": scope.tenant,
        "user_id": scope.user,
        "space": scope.space,
        "session_id": row.session or "",
        "memory_type": row.kind,
        "importance": float(row.importance),
        "compressed": row.state == "compressed",
        "created_at": created.isoformat(timespec="microseconds"),
    }
    return IndexEntry(
        row=row.row, vector=np.frombuffer(row.vector or b"", "<f4").astype(np.float32), about=about
    )
