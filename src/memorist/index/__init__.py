"""The in-process index of a scope, so that a question is answered by a few array operations.

A `Snapshot` is immutable: vectors in one matrix, postings in sorted segments, everything else in
columns. `SnapshotCache` keeps the snapshots of recently used scopes and evicts the longest unused
when there are too many. The store is the source of truth.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ports import ChangeSource, IndexRow, Vectors
from ..text import clock
from ..text.cues import ENDS_ASKING, FLAGS, IS_FOREIGN, MESSAGE
from ..types import KINDS, STATES, Scope
from .arrays import (
    DTYPES,
    NEVER,
    Bools,
    Columns,
    Floats,
    Ints,
    Matrix,
    Neighbors,
    PartialVectors,
    Positions,
    Segment,
    add_segment,
    products,
    release_memory,
    to_columns,
    to_vectors,
)

PAGE = 2048  # rows read from the store at a time
ACTIVE, COMPRESSED, SUPERSEDED = map(STATES.index, ("active", "compressed", "superseded"))
WORKING = KINDS.index("working")
TOGETHER = 32  # vectors compared at a time, to limit the memory needed


@dataclass(frozen=True, kw_only=True)
class Snapshot(Columns):
    """A scope at one revision, by positions 0 … n - 1. A changed memory gets a new position."""

    model: str
    dimensions: int
    revision: int
    matrix: Matrix | None  # all vectors; None if they are in another index, and `partial` has some
    second: Matrix | None  # vectors of the second model; None if there is none or they are not held
    segments: tuple[Segment, ...]
    present: Bools  # neither replaced nor erased
    alive: Bools  # can be an answer
    codes: Mapping[str, Mapping[str, int]]  # numbers of the sessions, speakers and channels
    partial: PartialVectors
    sum: NDArray[np.float64]  # of the active vectors; without a matrix, of all vectors ever added

    @staticmethod
    def empty(model: str, dimensions: int, *, lean: bool = False, second: int = 0) -> Snapshot:
        """Return an empty snapshot; a lean one does not hold vectors. `second` is the number of
        dimensions of the second model."""
        nothing = np.empty(0, np.bool_)
        columns: dict[str, Any] = {name: np.empty(0, dtype) for name, dtype in DTYPES.items()}
        no_vectors = np.empty((0, dimensions), np.float32)
        return Snapshot(
            **columns,
            model=model,
            dimensions=dimensions,
            revision=0,
            matrix=None if lean else Matrix(dimensions),
            second=None if lean or not second else Matrix(second),
            segments=(Segment.of([], 0),),
            present=nothing,
            alive=nothing,
            codes={"session": {}, "speaker": {}, "channel": {}},
            partial=PartialVectors(np.empty(0, np.intp), no_vectors),
            sum=np.zeros(dimensions),
        )

    @cached_property
    def n(self) -> int:
        return len(self.present)

    @cached_property
    def count(self) -> int:
        return int(self.alive.sum())

    @cached_property
    def unembedded(self) -> int:
        """Number of memories alive without a vector."""
        return int((self.alive & ~self.embedded).sum())

    @cached_property
    def mean_length(self) -> float:
        return float(self.length[self.alive].mean()) if self.count else 0.0

    @cached_property
    def marked(self) -> Mapping[int, Bools]:
        """Which positions have each flag."""
        return {flag: self.flags & flag != 0 for flag in FLAGS}

    @cached_property
    def size(self) -> int:
        """Bytes held."""
        arrays: list[NDArray[Any]] = [self.present, self.alive]
        arrays += [getattr(self, name) for name in DTYPES]
        for segment in self.segments:
            arrays += [segment.terms, segment.positions, segment.counts]
        arrays += [matrix.rows for matrix in (self.matrix, self.second) if matrix is not None]
        return sum(array.nbytes for array in arrays)

    @cached_property
    def has_second(self) -> Bools:
        """Which positions have a vector of the second model."""
        if self.second is None:
            return np.zeros(self.n, np.bool_)
        return np.asarray(self.second.rows[: self.n, 0] != 0)

    @cached_property
    def foreign(self) -> Bools | None:
        """Which positions have such a vector and are not English; None if there are none."""
        is_foreign = self.has_second & self.marked[IS_FOREIGN]
        return is_foreign if is_foreign.any() else None

    @cached_property
    def lacks_second(self) -> bool:
        """Whether some memory still needs a vector of the second model."""
        return self.second is not None and bool((self.alive & ~self.has_second).any())

    @cached_property
    def has_expiring(self) -> bool:
        """Whether some memory has an end."""
        return bool((self.expires < NEVER).any())

    @cached_property
    def message_length(self) -> Floats:
        """The terms of the whole message that each position is a chunk of."""
        return self.neighbors.sum_messages(self.flags >> MESSAGE, self.length)

    @cached_property
    def without_repeats(self) -> Snapshot:
        """The snapshot in which a fact is not alive if the turn it was extracted from is."""
        if (self.source < 0).all():
            return self
        repeats = self.find_repeats(self.alive)
        if not repeats.any():
            return self
        total = self.sum
        if self.matrix is not None:
            lost = np.flatnonzero(repeats)
            total = total - self.matrix.rows[lost].sum(axis=0, dtype=np.float64)
        return replace(self, alive=self.alive & ~repeats, sum=total)

    def code(self, column: str, name: str | None) -> int:
        """Return the number of a session, speaker or channel; -1 for None, -2 if unknown."""
        return -1 if name is None else self.codes[column].get(name, -2)

    def last_turn(self, session: str | None, before: int | None = None) -> tuple[bool, str | None]:
        """Return whether the last turn of a session (before another) asks, and who said it."""
        is_here = self.alive & (self.session == self.code("session", session))
        if before is not None:
            is_here &= self.sequence < before
        if not is_here.any():
            return False, None
        latest = int(np.argmax(np.where(is_here, self.sequence, -2)))
        names = {number: name for name, number in self.codes["speaker"].items()}
        return bool(self.flags[latest] & ENDS_ASKING), names.get(int(self.speaker[latest]))

    def postings(self, terms: Sequence[int]) -> Iterator[tuple[Ints, Floats]]:
        """Yield for each term the positions alive at which it occurs, and how often."""
        wanted = np.array(terms, np.uint32)
        places = []
        for each in self.segments:
            starts = each.terms.searchsorted(wanted).tolist()
            stops = each.terms.searchsorted(wanted, side="right").tolist()
            places.append(map(slice, starts, stops))
        for slices in zip(*places, strict=True):
            pairs = list(zip(self.segments, slices, strict=True))
            where = np.concatenate([each.positions[part] for each, part in pairs])
            counts = np.concatenate([each.counts[part] for each, part in pairs], dtype=np.float32)
            if self.count < self.n:
                is_alive = self.alive[where]
                where, counts = where[is_alive], counts[is_alive]
            yield where, counts

    def similarity(self, vector: Vectors) -> Floats:
        """Return the cosine of every position to a vector."""
        if self.matrix is None:
            return self.partial.similarity(vector, self.n)
        return np.asarray(np.vecdot(self.matrix.rows[: self.n], vector))

    def second_similarity(self, vector: Vectors, wanted: Bools, other: Floats) -> Floats:
        """Return the cosine to a vector of the second model where it is wanted, else the other."""
        positions = np.flatnonzero(wanted)
        if self.second is None or not len(positions):
            return other
        if len(positions) > self.n // 4:  # copying many rows takes longer than multiplying all
            return np.where(wanted, np.vecdot(self.second.rows[: self.n], vector), other)
        found = other.copy()
        found[positions] = np.vecdot(self.second.rows.take(positions, axis=0), vector)
        return found

    def similarities(self, vectors: Iterable[Vectors | None], usable: Bools) -> Iterator[Floats]:
        """Yield the cosines of the usable positions to each vector; 0 if either is missing."""
        nothing = np.zeros(self.dimensions, np.float32)
        known = [nothing if each is None else each for each in vectors]
        positions = np.flatnonzero(usable)
        if len(known) == 1 and len(positions) < self.n // 8:
            compared = PartialVectors(positions, self.vectors(positions))
            yield compared.similarity(known[0], self.n)
            return
        if len(known) == 1:
            yield self.similarity(known[0])
            return
        for start in range(0, len(known), TOGETHER):
            few = np.stack(known[start : start + TOGETHER], axis=1)
            if self.matrix is None:
                cosines = self.partial.similarity(few, self.n)
            else:
                cosines = products(self.matrix.rows[: self.n], few)
            yield from np.ascontiguousarray(cosines.T)

    def vectors(self, positions: Positions) -> Vectors:
        """Return the vectors at these positions, zero where there is none."""
        if self.matrix is None:
            return self.partial.at(positions)
        return self.matrix.rows[positions]

    def with_vectors(self, vectors: Mapping[int, bytes]) -> Snapshot:
        """Return the scope with the vectors of these rows; rows of other scopes are ignored."""
        positions = self.positions(list(vectors))
        rows = self.row[positions].tolist()
        made = to_vectors([vectors[row] for row in rows], self.dimensions)
        return replace(self, partial=PartialVectors(positions, made))

    @cached_property
    def neighbors(self) -> Neighbors:
        """The memories alive, ordered by session, sequence and row."""
        positions = np.flatnonzero(self.alive).astype(np.int32)
        session = self.session[positions]
        sequence = self.sequence[positions]
        order = np.lexsort((self.row[positions], sequence, session))
        return Neighbors.of(positions[order], self.session)

    @cached_property
    def centroid(self) -> Vectors | None:
        """The mean direction of the active vectors; None if there are none."""
        if self.matrix is None:
            return self.sum.astype(np.float32) if self.sum.any() else None
        count = int(np.count_nonzero(self.alive & self.embedded))
        return (self.sum / count).astype(np.float32) if count else None

    def positions(self, rows: Sequence[int]) -> Positions:
        """Return the current positions of the given rows; rows without one are left out."""
        wanted = np.asarray(rows, np.int64)
        wanted = wanted[wanted <= self.row.max(initial=0)]  # new ones are not there yet
        is_found = np.isin(self.row, wanted)
        return np.flatnonzero(is_found & self.present)

    def view(self, states: Sequence[str], as_of: datetime | None = None) -> Snapshot:
        """Return the scope with other memories alive: in these states, or valid at a time."""
        names = states or STATES
        known = [number for number, name in enumerate(STATES) if name in names]
        wanted = np.isin(self.state, known)
        if as_of is not None:
            then = clock.micros(as_of)
            wanted = np.isin(self.state, [ACTIVE, COMPRESSED, SUPERSEDED])
            wanted &= (self.valid_from <= then) & (then < self.valid_to)
            return replace(self, alive=self.present & wanted, valid_to=np.full(self.n, NEVER))
        return replace(self, alive=self.present & wanted)

    def extend(
        self, rows: Sequence[IndexRow], gone: Sequence[int], revision: int, *, expected: int = 0
    ) -> Snapshot:
        """Return the snapshot after some rows changed and others were erased.

        `expected` is the final number of rows, if known.
        """
        values: dict[str, Any] = dict.fromkeys(IndexRow._fields, ())
        if rows:
            values |= zip(IndexRow._fields, zip(*rows, strict=True), strict=True)
        stale = self.positions([*values["row"], *gone])
        new = np.ones(len(rows), np.bool_)
        present = np.concatenate([self.present, new])
        present[stale] = False
        vectors = to_vectors(values["vector"], self.dimensions)
        second = self.second
        if second is not None:
            made = to_vectors(values["second"], second.rows.shape[1])
            second = second.add(self.n, made, expected=expected)
        values["embedded"] = vectors.any(axis=1)
        values["length"] = [sum(packed[len(packed) // 5 * 4 :]) for packed in values["terms"]]
        columns, codes = to_columns(values, self.codes)
        for name, added in columns.items():
            columns[name] = np.concatenate([getattr(self, name), added])
        alive = present & (columns["state"] == ACTIVE)
        matrix = self.matrix
        total = self.sum
        counted = vectors
        if matrix is not None:
            lost = stale[self.alive[stale]]  # missing vectors are zero
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
            second=second,
            sum=total + counted.sum(axis=0, dtype=np.float64),
            segments=add_segment(self.segments, postings),
            present=present,
            alive=alive,
        )


@dataclass(eq=False, repr=False, kw_only=True)
class SnapshotCache:
    """The snapshots of the scopes in use, up to a number of bytes."""

    model: str
    dimensions: int
    limit_bytes: int
    lean_from: int | None = None  # scopes with so many rows have their vectors in another index
    second: tuple[str, int] | None = None  # the second model and its number of dimensions
    _size: int = field(default=0, init=False)
    _held: OrderedDict[Scope, Snapshot] = field(default_factory=OrderedDict, init=False)

    @property
    def models(self) -> tuple[str, ...]:
        """The models whose vectors are used."""
        return (self.model,) if self.second is None else (self.model, self.second[0])

    async def current(
        self, scope: Scope, source: ChangeSource, revision: int | None = None
    ) -> Snapshot:
        """Return the current snapshot of the scope. Pass its `revision` if it was just read."""
        snapshot = self._held.get(scope)
        if snapshot is not None and snapshot.revision == revision:
            self._held.move_to_end(scope)
            return snapshot
        if snapshot is None or snapshot.n > 1024 + 1.5 * snapshot.present.sum():
            lean = self.lean_from == 0  # most rows are replaced: rebuild
            _, width = self.second or ("", 0)
            snapshot = Snapshot.empty(self.model, self.dimensions, lean=lean, second=width)
        latest = await self._catch_up(snapshot, scope, source)
        if self._held.get(scope) is not latest:
            self.drop(scope)
            self._held[scope] = latest
            self._size += latest.size
        self._held.move_to_end(scope)
        while len(self._held) > 1 and self._size > self.limit_bytes:
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
        read = partial(source.changed_since, scope, snapshot.revision, model=self.model, limit=PAGE)
        if snapshot.second is not None:
            read.keywords["second"] = self.models[-1]
        delta = await read()
        if delta.revision == snapshot.revision:
            return snapshot
        rows = snapshot.n + delta.total
        lean_from = self.lean_from
        if lean_from is not None and snapshot.matrix is not None and rows >= max(lean_from, 1):
            lean = Snapshot.empty(self.model, self.dimensions, lean=True)
            return await self._catch_up(lean, scope, source)  # it is too large now: rebuild
        first = delta.revision
        expected = rows if delta.next is not None else 0
        while True:
            # Concurrent changes are newer than the first page, so they are read again next time.
            extend = partial(snapshot.extend, delta.rows, delta.gone, first, expected=expected)
            snapshot = await asyncio.to_thread(extend) if len(delta.rows) > 512 else extend()
            if delta.next is None:
                if expected:
                    await asyncio.to_thread(release_memory)
                return snapshot
            delta = await read(after=delta.next)
