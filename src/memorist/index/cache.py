"""The scopes in use, each brought up to the store's revision before it is used."""

from __future__ import annotations

import asyncio
import ctypes
from collections import OrderedDict
from contextlib import suppress
from functools import partial

from ..ports import Reading
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

    async def current(self, scope: Scope, source: Reading) -> Snapshot:
        """The scope as the source sees it now."""
        snapshot = self._held.get(scope)
        if (
            snapshot is None or snapshot.n > 1024 + 1.5 * snapshot.present.sum()
        ):  # mostly replaced rows: begin anew
            snapshot = Snapshot.empty(self.model, self.dimensions, lean=self._lean_from == 0)
        latest = await _caught_up(snapshot, scope, source, self._lean_from)
        self._keep(scope, latest)
        return latest

    def drop(self, scope: Scope) -> None:
        """Let go of a scope; it is read anew when it is needed."""
        self._size -= self._held.pop(scope).size if scope in self._held else 0

    def _keep(self, scope: Scope, snapshot: Snapshot) -> None:
        if self._held.get(scope) is not snapshot:
            self.drop(scope)
            self._held[scope] = snapshot
            self._size += snapshot.size
        self._held.move_to_end(scope)
        while len(self._held) > 1 and self._size > self._limit:
            self.drop(next(iter(self._held)))


async def _caught_up(
    snapshot: Snapshot, scope: Scope, source: Reading, lean_from: int | None
) -> Snapshot:
    delta = await source.changed_since(scope, snapshot.revision, model=snapshot.model, limit=PAGE)
    if delta.revision == snapshot.revision:
        return snapshot
    if (
        lean_from is not None
        and not snapshot.is_lean
        and snapshot.n + delta.total >= max(lean_from, 1)
    ):
        lean = Snapshot.empty(
            snapshot.model, snapshot.dimensions, lean=True
        )  # it grew too large: begin anew
        return await _caught_up(lean, scope, source, lean_from)
    since, first = snapshot.revision, delta.revision
    expected = snapshot.n + delta.total if delta.next is not None else 0
    while True:
        # What changes while the pages are read is newer than the first page, so it is read again next time.
        extend = partial(snapshot.extended, delta.rows, delta.gone, first, expected=expected)
        snapshot = await asyncio.to_thread(extend) if len(delta.rows) > 512 else extend()
        if delta.next is None:
            if expected:
                await asyncio.to_thread(_give_back)
            return snapshot
        delta = await source.changed_since(
            scope, since, after=delta.next, model=snapshot.model, limit=PAGE
        )


def _give_back() -> None:
    """Return to the system what reading a large scope needed in passing; the C library would keep it for later."""
    with suppress(OSError, AttributeError, TypeError):  # only glibc has this
        ctypes.CDLL(None).malloc_trim(0)
