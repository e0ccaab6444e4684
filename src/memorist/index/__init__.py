"""The in-process index of a scope, so that a question is answered by a few array operations.

A `Snapshot` is immutable: vectors in one matrix, postings in sorted segments, everything else in
columns. `SnapshotCache` keeps the snapshots of recently used scopes and evicts the longest unused
when there are too many.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial

from ..ports import ChangeSource
from ..types import Scope
from .arrays import release_memory
from .snapshot import Snapshot

__all__ = ["Snapshot", "SnapshotCache"]
PAGE = 2048  # rows read from the store at a time


class SnapshotCache:
    """The snapshots of the scopes in use, up to a number of bytes."""

    def __init__(
        self,
        *,
        model: str,
        dimensions: int,
        limit_bytes: int,
        lean_from: int | None = None,
        second: tuple[str, int] | None = None,  # the second model and its number of dimensions
    ) -> None:
        self.model = model
        self.dimensions = dimensions
        self.second = second
        self._lean_from = (
            lean_from  # scopes with this many rows have their vectors in another index
        )
        self._limit = limit_bytes
        self._size = 0
        self._held: OrderedDict[Scope, Snapshot] = OrderedDict()

    @property
    def models(self) -> tuple[str, ...]:
        """The models whose vectors are used."""
        return (self.model,) if self.second is None else (self.model, self.second[0])

    async def current(
        self,
        scope: Scope,
        source: ChangeSource,
        revision: int | None = None,
    ) -> Snapshot:
        """Return the current snapshot of the scope. Pass its `revision` if it was just read."""
        snapshot = self._held.get(scope)
        if snapshot is not None and snapshot.revision == revision:
            self._held.move_to_end(scope)
            return snapshot
        if snapshot is None or snapshot.n > 1024 + 1.5 * snapshot.present.sum():
            lean = self._lean_from == 0  # most rows are replaced: rebuild
            _, width = self.second or ("", 0)
            snapshot = Snapshot.empty(self.model, self.dimensions, lean=lean, second=width)
        latest = await self._catch_up(snapshot, scope, source)
        if self._held.get(scope) is not latest:
            self.drop(scope)
            self._held[scope] = latest
            self._size += latest.size
        self._held.move_to_end(scope)
        while len(self._held) > 1 and self._size > self._limit:
            self.drop(next(iter(self._held)))
        return latest

    def peek(self, scope: Scope) -> Snapshot | None:
        """Return the cached snapshot of the scope, which may be stale; None if it is not cached."""
        return self._held.get(scope)

    def drop(self, scope: Scope) -> None:
        """Remove a scope from the cache."""
        dropped = self._held.pop(scope, None)
        if dropped is not None:
            self._size -= dropped.size

    async def _catch_up(self, snapshot: Snapshot, scope: Scope, source: ChangeSource) -> Snapshot:
        read = partial(
            source.changed_since,
            scope,
            snapshot.revision,
            model=self.model,
            limit=PAGE,
        )
        if snapshot.second is not None and self.second is not None:
            read.keywords["second"] = self.second[0]
        delta = await read()
        if delta.revision == snapshot.revision:
            return snapshot
        rows = snapshot.n + delta.total
        lean_from = self._lean_from
        if lean_from is not None and not snapshot.is_lean and rows >= max(lean_from, 1):
            lean = Snapshot.empty(self.model, self.dimensions, lean=True)
            return await self._catch_up(lean, scope, source)  # it is too large now: rebuild
        first = delta.revision
        expected = rows if delta.next is not None else 0
        while True:
            # Concurrent changes are newer than the first page, so they are read again next time.
            extend = partial(
                snapshot.extend,
                delta.rows,
                delta.gone,
                first,
                expected=expected,
            )
            snapshot = await asyncio.to_thread(extend) if len(delta.rows) > 512 else extend()
            if delta.next is None:
                if expected:
                    await asyncio.to_thread(release_memory)
                return snapshot
            delta = await read(after=delta.next)
