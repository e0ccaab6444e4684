"""A scope at one revision, as arrays, and the cache of scopes. The store is the source of truth."""

from __future__ import annotations

import asyncio
import ctypes
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ..errors import StoreDamaged
from ..ports import ChangeSource, IndexRow, Vectors
from ..text import clock
from ..text.tokens import ENDS_ASKING, FLAGS
from ..types import KINDS, STATES, Scope
from .arrays import (
    Bools,
    Bytes,
    Floats,
    Ints,
    Longs,
    Matrix,
    Neighbors,
    PartialVectors,
    Positions,
    Segment,
    add_segment,
    products,
)

NO_TIME = clock.NO_TIME
ACTIVE, COMPRESSED, SUPERSEDED = (STATES.index(s) for s in ("active", "compressed", "superseded"))
WORKING = KINDS.index("working")
TOGETHER = 32  # vectors compared at a time: bounds the memory that it needs
PAGE = 2048  # rows read from the store at a time
_MICROS_A_DAY = 86_400_000_000
_LAST = 2**31 - 1  # place in a session
_NAMES = {"state": STATES, "kind": KINDS}  # columns whose numbers stand for names
_MISSING = {"sequence": -1, "occurred": NO_TIME, "valid_from": NO_TIME, "valid_to": 2**63 - 1}
_UNIT = 0.01  # how far the square of a vector's length may be from 1


@dataclass(frozen=True, kw_only=True)
class Columns:
    """One value per position."""

    row: Longs  # number of the row in the store
    state: Bytes
    kind: Bytes
    flags: Bytes  # as `text.index` sets them
    pinned: Bools
    embedded: Bools
    session: Ints  # codes; -1 means none
    sequence: Ints
    speaker: Ints
    channel: Ints
    occurred: Longs  # microseconds since 1970, or NO_TIME
    created: Longs
    updated: Longs
    valid_from: Longs
    valid_to: Longs
    importance: Floats
    confidence: Floats
    simhash: NDArray[np.uint64]
    length: Floats  # terms of the text


_DTYPES: dict[str, type[np.generic]] = {
    name: get_args(get_args(hint)[1])[0] for name, hint in get_type_hints(Columns).items()
}


@dataclass(frozen=True, kw_only=True)
class Snapshot(Columns):
    """A scope at one revision, by positions 0 … n - 1. A changed memory gets a new position."""

    model: str
    dimensions: int
    revision: int
    matrix: Matrix | None  # of all vectors; None if another index holds them and `partial` some
    segments: tuple[Segment, ...]
    present: Bools  # not replaced, not gone
    alive: Bools  # counts for this question
    codes: Mapping[str, Mapping[str, int]]  # of sessions, speakers and channels
    partial: PartialVectors
    sum: NDArray[np.float64]  # of the active vectors; without a matrix, of all that were ever added

    @staticmethod
    def empty(model: str, dimensions: int, *, lean: bool = False) -> Snapshot:
        """Return a snapshot of nothing yet; a lean one will hold no vectors."""
        nothing = np.empty(0, np.bool_)
        columns: dict[str, Any] = {name: np.empty(0, dtype) for name, dtype in _DTYPES.items()}
        return Snapshot(
            **columns,
            model=model,
            dimensions=dimensions,
            revision=0,
            matrix=None if lean else Matrix(dimensions),
            segments=(),
            present=nothing,
            alive=nothing,
            codes={"session": {}, "speaker": {}, "channel": {}},
            partial=PartialVectors(np.empty(0, np.intp), np.empty((0, dimensions), np.float32)),
            sum=np.zeros(dimensions),
        )

    @property
    def is_lean(self) -> bool:
        return self.matrix is None

    @cached_property
    def n(self) -> int:
        return len(self.present)

    @cached_property
    def count(self) -> int:
        return int(self.alive.sum())

    @cached_property
    def unembedded(self) -> int:
        """How many memories alive the dense leg cannot see."""
        return int((self.alive & ~self.embedded).sum())

    @property
    def mean_length(self) -> float:
        return float(self.length[self.alive].mean()) if self.count else 0.0

    @cached_property
    def length_share(self) -> Floats:
        """The length of each text as a share of the mean."""
        return self.length / max(self.mean_length, 1e-9)

    @property
    def size(self) -> int:
        """Bytes held."""
        arrays: list[NDArray[Any]] = [self.present, self.alive]
        arrays += [getattr(self, name) for name in _DTYPES]
        for segment in self.segments:
            arrays += segment
        if self.matrix is not None:
            arrays.append(self.matrix.rows)
        return sum(array.nbytes for array in arrays)

    @cached_property
    def marked(self) -> Mapping[int, Bools]:
        """Which positions have each flag."""
        return {flag: self.flags & flag != 0 for flag in FLAGS}

    @cached_property
    def replies(self) -> Positions:
        """The positions of turns whose turn before ends in a question."""
        asking = np.append(self.marked[ENDS_ASKING], False)
        return np.flatnonzero(asking[self.neighbors.before])

    def code(self, column: str, name: str | None) -> int:
        """Return the number of a session, speaker or channel; -1 for None, -2 if unknown."""
        return -1 if name is None else self.codes[column].get(name, -2)

    def postings(self, term: int) -> tuple[Ints, Floats]:
        """Return where a term occurs among what is alive, and how often."""
        wanted = np.uint32(term)
        found = [np.empty(0, np.int32)]
        often = [np.empty(0, np.uint8)]
        for each in self.segments:
            start = each.terms.searchsorted(wanted)
            stop = each.terms.searchsorted(wanted, side="right")
            found.append(each.positions[start:stop])
            often.append(each.counts[start:stop])
        where = np.concatenate(found)
        counts = np.concatenate(often).astype(np.float32)
        if self.count == self.n:
            return where, counts
        is_alive = self.alive[where]
        return where[is_alive], counts[is_alive]

    def similarity(self, vector: Vectors) -> Floats:
        """Return the cosine of every position to a vector, or to each column of several."""
        if self.matrix is None:
            return self.partial.similarity(vector, self.n)
        return products(self.matrix.rows[: self.n], vector)

    def similarities(self, vectors: Iterable[Vectors | None]) -> Iterator[Floats]:
        """Yield the cosines of every position to each vector; 0 if either is missing."""
        nothing = np.zeros(self.dimensions, np.float32)
        known = [nothing if each is None else each for each in vectors]
        for start in range(0, len(known), TOGETHER):
            few = np.stack(known[start : start + TOGETHER], axis=1)
            yield from np.ascontiguousarray(self.similarity(few).T)

    def vectors(self, positions: Positions) -> Vectors:
        """Return the vectors at these positions, zero where there is none."""
        if self.matrix is None:
            return self.partial.at(positions)
        return self.matrix.rows[positions]

    def with_vectors(self, vectors: Mapping[int, bytes]) -> Snapshot:
        """Return the scope with the vectors of these rows; rows of other scopes are left out."""
        positions = self.positions(list(vectors))
        made = self._unit([vectors[row] for row in self.row[positions].tolist()])
        return replace(self, partial=PartialVectors(positions, made))

    @cached_property
    def neighbors(self) -> Neighbors:
        """What is alive by session, place in it, and row."""
        positions = np.flatnonzero(self.alive).astype(np.int32)
        session = self.session[positions]
        sequence = self.sequence[positions]
        order = np.lexsort((self.row[positions], sequence, session))
        return Neighbors.of(positions[order], self.session)

    @cached_property
    def days(self) -> Floats:
        """When each was said, in days since 1970; minus infinity where that is unknown."""
        known = np.where(self.occurred == NO_TIME, -np.inf, self.occurred.astype(np.float64))
        return (known / _MICROS_A_DAY).astype(np.float32)

    @cached_property
    def centroid(self) -> Vectors | None:
        """The mean direction of what is active, or None where nothing is embedded."""
        if self.matrix is None:
            return self.sum.astype(np.float32) if self.sum.any() else None
        count = int(np.count_nonzero(self.alive & self.embedded))
        return (self.sum / count).astype(np.float32) if count else None

    def positions(self, rows: Sequence[int]) -> Positions:
        """Return the current positions of the given rows; those that are gone are left out."""
        return np.flatnonzero(np.isin(self.row, np.asarray(rows, np.int64)) & self.present)

    def view(self, states: Sequence[str], as_of: datetime | None = None) -> Snapshot:
        """Return the scope with other memories alive: those in these states, or valid at a time."""
        wanted = np.isin(self.state, [STATES.index(s) for s in states or STATES if s in STATES])
        if as_of is not None:
            then = clock.micros(as_of)
            wanted = np.isin(self.state, [ACTIVE, COMPRESSED, SUPERSEDED])
            wanted &= (self.valid_from <= then) & (then < self.valid_to)
        return replace(self, alive=self.present & wanted)

    def extend(
        self, rows: Sequence[IndexRow], gone: Sequence[int], revision: int, *, expected: int = 0
    ) -> Snapshot:
        """Return the snapshot after some rows changed and others went.

        `expected` is how many rows it will have in the end, where that is known.
        """
        stale = self.positions([*(row.row for row in rows), *gone])
        present = np.concatenate([self.present, np.ones(len(rows), np.bool_)])
        present[stale] = False
        values: dict[str, Any] = dict.fromkeys(IndexRow._fields, ())
        if rows:
            values |= zip(IndexRow._fields, zip(*rows, strict=True), strict=True)
        codes = {}
        for column, held in self.codes.items():
            known = dict(held)  # a snapshot in use keeps its own
            for name in dict.fromkeys(values[column]):
                if name is not None:
                    known.setdefault(name, len(known))
            values[column] = [known.get(name, -1) for name in values[column]]
            codes[column] = known
        vectors = self._unit(values["vector"])
        values["embedded"] = vectors.any(axis=1)
        values["length"] = [sum(packed[len(packed) // 5 * 4 :]) for packed in values["terms"]]
        columns: dict[str, Any] = {}
        for name, dtype in _DTYPES.items():
            added = np.array(_numbers(name, values[name]), dtype)
            columns[name] = np.concatenate([getattr(self, name), added])
        alive = present & (columns["state"] == ACTIVE)
        matrix = self.matrix
        total = self.sum
        counted = vectors
        if matrix is not None:
            lost = stale[self.alive[stale]]  # what has no vector adds zeros
            total = total - matrix.rows[lost].sum(axis=0, dtype=np.float64)
            counted = vectors[alive[self.n :]]
            matrix = matrix.add(self.n, vectors, expected=expected)
        postings = Segment.of(values["terms"], self.n)
        return replace(
            self,
            **columns,
            codes=codes,
            revision=revision,
            matrix=matrix,
            sum=total + counted.sum(axis=0, dtype=np.float64),
            segments=add_segment(self.segments, postings),
            present=present,
            alive=alive,
        )

    def _unit(self, found: Sequence[bytes | None]) -> Vectors:
        """Return the vectors; zero where there is none, or one whose length is not 1."""
        size = 4 * self.dimensions
        nothing = bytes(4 * self.dimensions)
        blobs = (each if each is not None and len(each) == size else nothing for each in found)
        made = np.frombuffer(b"".join(blobs), "<f4").reshape(-1, self.dimensions)
        with np.errstate(all="ignore"):
            is_unit = np.abs(np.einsum("ij,ij->i", made, made) - 1) < _UNIT
        return made if is_unit.all() else np.where(is_unit[:, None], made, np.float32(0))


def _numbers(column: str, values: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a column as the snapshot holds them. Raises StoreDamaged."""
    if names := _NAMES.get(column):
        for name in values:
            if name not in names:
                wrong = f"{name!r:.60} is none of {', '.join(names)}"
                raise StoreDamaged(f"A memory was altered on disk: {wrong}")
        return [names.index(name) for name in values]
    if column in _MISSING:
        values = [_MISSING[column] if value is None else value for value in values]
    if column == "sequence":
        return [max(-1, min(place, _LAST)) for place in values]
    return values


class SnapshotCache:
    """The snapshots of the scopes in use, within a bound of bytes."""

    def __init__(
        self, *, model: str, dimensions: int, limit_bytes: int, lean_from: int | None = None
    ) -> None:
        self.model = model
        self.dimensions = dimensions
        self._lean_from = lean_from  # rows of a scope whose vectors are left to another index
        self._limit = limit_bytes
        self._size = 0
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
    since = snapshot.revision
    first = delta.revision
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
