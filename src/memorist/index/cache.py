"""The snapshots of the scopes in use, each brought up to the store's revision before it is used."""

from __future__ import annotations

import asyncio
import ctypes
from collections import OrderedDict
from contextlib import suppress
from functools import partial

from ..ports import ChangeSource
from ..types import Scope
from .snapshot import Snapshot

PAGE = 2048  # rows read from the store at a time


class SnapshotCache:
    """The snapshots of the scopes in use, within a bound of bytes."""

    def __init__(
        self, *, model: str, dimensions: int, limit_bytes: int, lean_from: int | None = None
    ) -> None:
        self.model, self.dimensions = model, dimensions
        self._lean_from = lean_from  # rows of a scope whose vectors are left to another index
        self._limit, self._size = limit_bytes, 0
        self._held: OrderedDict[Scope, Snapshot] = OrderedDict()

    async def current(
        self, scope: Scope, source: ChangeSource, revision: int | None = None
    ) -> Snapshot:
        """Return the scope as the source sees it now, or saw it at `revision`, just read."""
        snapshot = self._held.get(scope)
        if snapshot is not None and snapshot.revision == revision:
            self._held.move_to_end(scope)
            return snapshot
        if snapshot is None or snapshot.n > 1024 + 1.5 * snapshot.present.sum():
            lean = self._lean_from == 0  # mostly replaced rows: start over
            snapshot = Snapshot.empty(self.model, self.dimensions, lean=lean)
        latest = await _catch_up(snapshot, scope, source, self._lean_from)
        if self._held.get(scope) is not latest:
            self.drop(scope)
            self._held[scope] = latest
            self._size += latest.size
        self._held.move_to_end(scope)
        while len(self._held) > 1 and self._size > self._limit:
            self.drop(next(iter(self._held)))
        return latest

    def peek(self, scope: Scope) -> Snapshot | None:
        """Return the scope as it was when it was last read; None if it is not held."""
        return self._held.get(scope)

    def drop(self, scope: Scope) -> None:
        """Release a scope; it is read again when it is needed."""
        dropped = self._held.pop(scope, None)
        if dropped is not None:
            self._size -= dropped.size


async def _catch_up(
    snapshot: Snapshot, scope: Scope, source: ChangeSource, lean_from: int | None
) -> Snapshot:
    delta = await source.changed_since(scope, snapshot.revision, model=snapshot.model, limit=PAGE)
    if delta.revision == snapshot.revision:
        return snapshot
    rows = snapshot.n + delta.total
    if lean_from is not None and not snapshot.is_lean and rows >= max(lean_from, 1):
        lean = Snapshot.empty(snapshot.model, snapshot.dimensions, lean=True)
        return await _catch_up(lean, scope, source, lean_from)  # it grew too large: start over
    since, first = snapshot.revision, delta.revision
    expected = rows if delta.next is not None else 0
    while True:
        # What changes meanwhile is newer than the first page, so it is read again next time.
        extend = partial(snapshot.extend, delta.rows, delta.gone, first, expected=expected)
        snapshot = await asyncio.to_thread(extend) if len(delta.rows) > 512 else extend()
        if delta.next is None:
            if expected:
                await asyncio.to_thread(_release_memory)
            return snapshot
        delta = await source.changed_since(
            scope, since, after=delta.next, model=snapshot.model, limit=PAGE
        )


def _release_memory() -> None:
    """Return freed memory to the system after reading a large scope; the C library keeps it."""
    with suppress(OSError, AttributeError, TypeError):  # only glibc has this
        ctypes.CDLL(None).malloc_trim(0)
