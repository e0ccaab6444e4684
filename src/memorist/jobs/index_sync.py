"""Keeping a vector index in step with the store.

The store's change log is the outbox: each scope has a revision, each row the revision that changed
it last, and the index a position among them that moves only after the index has accepted everything
before it. So nothing is lost when either of them is down, and applying the same changes twice does
no harm.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import blake2b

import numpy as np

from ..errors import IndexUnavailable
from ..ports import IndexEntry, VectorIndex, Vectors
from ..storage.store import Store
from ..types import Scope

PAGE = 1024  # rows read from the store and put into the index at a time
LOCKS = 16
WAIT_SECONDS = 5.0  # that a search waits for the index to catch up; loading a library takes some
REST_SECONDS = 5.0  # during which an index that failed is not asked again
POLL_SECONDS = 0.05


class IndexSync:
    """Copies the vectors of the store into an index, scope by scope."""

    def __init__(self, store: Store, index: VectorIndex, *, model: str, dimensions: int) -> None:
        self.index = index
        self._store = store
        self._model = model
        self._dimensions = dimensions
        self._synced: dict[Scope, int] = {}  # revisions that the index surely has
        self._tasks: dict[Scope, asyncio.Task[bool]] = {}
        self._error = ""  # of the last failure
        self._resumes_at = 0.0  # monotonic

    def notify(self, scope: Scope) -> None:
        """Start to copy the changes of a scope in the background."""
        # A failure is retried by the next change, search or worker.
        self._start(scope).add_done_callback(lambda task: task.cancelled() or task.exception())

    async def nearest(
        self,
        scope: Scope,
        vector: Vectors,
        *,
        limit: int,
        revision: int,
    ) -> tuple[list[int], str]:
        """Search the index once it has caught up with `revision`; if that takes long, search it as
        it is and say so.

        Raises IndexUnavailable.
        """
        now = time.monotonic()
        if now < self._resumes_at:
            raise IndexUnavailable(self._error)
        deadline = now + WAIT_SECONDS
        status = "ok"
        try:
            while self._synced.get(scope, -1) < revision:
                left = deadline - time.monotonic()
                if left <= 0:
                    status = "the vector index is still being filled"
                    break
                done, _ = await asyncio.wait({self._start(scope)}, timeout=left)
                if done and not done.pop().result():  # another process is copying
                    await asyncio.sleep(min(left, POLL_SECONDS))
            return await self.index.nearest(scope, vector, limit=limit), status
        except IndexUnavailable as error:
            self._error = str(error)
            self._resumes_at = time.monotonic() + REST_SECONDS
            raise

    def _start(self, scope: Scope) -> asyncio.Task[bool]:
        task = self._tasks.get(scope)
        if task is None or task.done():
            task = asyncio.get_running_loop().create_task(self.sync(scope))
            self._tasks[scope] = task
        return task

    async def sync(self, scope: Scope) -> bool:
        """Copy the changes up to the newest revision of a scope; return False if another process is
        doing it.

        Raises IndexUnavailable, StoreUnavailable.
        """
        # Scopes share a few locks, so that a store need not keep one for each.
        key = repr((self.index.name, scope.tenant, scope.user, scope.space))
        digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=1).digest()
        async with self._store.try_lock(f"index-{digest[0] % LOCKS:x}") as is_alone:
            if is_alone:
                await self._copy(scope)
        return is_alone

    async def rebuild(self, progress: Callable[[int], None] = lambda done: None) -> int:
        """Empty the index and fill it from the store; return the number of its entries."""
        await self.index.clear()
        for done, scope in enumerate(await self._store.scopes(), 1):
            await self._store.set_index_position(scope, self.index.name, 0)
            self._synced.pop(scope, None)
            await self.sync(scope)
            progress(done)
        return await self.index.count()

    async def close(self) -> None:
        """Finish what is in progress, then close the index."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self.index.close()

    async def _copy(self, scope: Scope) -> None:
        since = await self._store.index_position(scope, self.index.name)
        revision: int | None = None
        after: int | None = 0
        while after is not None:
            delta = await self._store.changed_since(
                scope,
                since,
                model=self._model,
                limit=PAGE,
                after=after,
            )
            if revision is None:
                revision = delta.revision  # of the first page
            entries: list[IndexEntry] = []
            deleted = list(delta.gone)
            for row in delta.rows:
                if row.vector is None or len(row.vector) != 4 * self._dimensions:
                    deleted.append(row.row)
                    continue
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
                vector = np.frombuffer(row.vector, "<f4").astype(np.float32)
                entries.append(IndexEntry(row=row.row, vector=vector, about=about))
            if deleted:
                await self.index.delete(scope, deleted)
            if entries:
                await self.index.put(scope, entries)
            after = delta.next
        assert revision is not None
        if revision != since:
            await self._store.set_index_position(scope, self.index.name, revision)
        self._synced[scope] = revision


class StoreSearch:
    """Searches the vectors in the store itself, which are always in step."""

    def __init__(self, store: Store, model: str) -> None:
        self._store = store
        self._model = model

    async def nearest(
        self,
        scope: Scope,
        vector: Vectors,
        *,
        limit: int,
        revision: int,
    ) -> tuple[list[int], str]:
        found = await self._store.nearest(scope, vector, model=self._model, limit=limit)
        return [row for row, _ in found], "ok"

    def notify(self, scope: Scope) -> None:
        """Do nothing: the store is its own index."""

    async def sync(self, scope: Scope) -> bool:
        return True

    async def close(self) -> None:
        """Do nothing: the store is closed by the client."""
