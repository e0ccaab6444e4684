"""Snapshots of scopes as arrays. The store is the source of truth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ports import IndexRow, Vectors
from ..text import clock
from ..text.cues import ASKING, ENDS_ASKING, FLAGS, IS_FOREIGN, MESSAGE, MOST_ASKING
from ..types import KINDS, STATES
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
    to_numbers,
)

ACTIVE = STATES.index("active")
COMPRESSED = STATES.index("compressed")
SUPERSEDED = STATES.index("superseded")
WORKING = KINDS.index("working")
TOGETHER = 32  # vectors compared at a time, to limit the memory needed
_MICROS_A_DAY = 86_400_000_000
K1, B = 1.2, 0.9  # of BM25
_UNIT = 0.01  # tolerance of the squared length of a vector, which should be 1


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
    def empty(
        model: str,
        dimensions: int,
        *,
        lean: bool = False,
        second: int = 0,
    ) -> Snapshot:
        """Return an empty snapshot; a lean one does not hold vectors.

        `second` is the number of dimensions of the second model.
        """
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
        """Number of memories alive without a vector."""
        return int((self.alive & ~self.embedded).sum())

    @property
    def mean_length(self) -> float:
        return float(self.length[self.alive].mean()) if self.count else 0.0

    @cached_property
    def length_norm(self) -> Floats:
        """How much the length of each text lowers its BM25."""
        share = self.length / max(self.mean_length, 1e-9)
        return K1 * (1.0 - B + B * share)

    @cached_property
    def size(self) -> int:
        """Bytes held."""
        size = self.present.nbytes + self.alive.nbytes
        for name in DTYPES:
            size += getattr(self, name).nbytes
        for segment in self.segments:
            for array in segment:
                size += array.nbytes
        for matrix in (self.matrix, self.second):
            if matrix is not None:
                size += matrix.rows.nbytes
        return size

    @cached_property
    def marked(self) -> Mapping[int, Bools]:
        """Which positions have each flag."""
        return {flag: self.flags & flag != 0 for flag in FLAGS}

    @cached_property
    def replies(self) -> Positions:
        """The positions of turns whose previous turn ends with a question."""
        asking = np.append(self.marked[ENDS_ASKING], False)
        return np.flatnonzero(asking[self.neighbors.before])

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
    def asking(self) -> Floats:
        """The share of each text that asks."""
        share = self.flags >> ASKING & MOST_ASKING
        return share.astype(np.float32) / np.float32(MOST_ASKING)

    @cached_property
    def message_length(self) -> Floats:
        """The terms of the whole message that each position is a chunk of."""
        order = self.neighbors.order
        message = (self.flags >> MESSAGE)[order]
        is_new = np.append(True, (message[1:] != message[:-1]) | (message[1:] == 0))[: len(order)]
        is_new[self.neighbors.starts] = True
        starts = np.flatnonzero(is_new)
        lengths = self.length.copy()
        if len(starts):
            sums = np.add.reduceat(self.length[order], starts)
            lengths[order] = np.repeat(sums, np.diff(starts, append=len(order)))
        return lengths

    @cached_property
    def without_repeats(self) -> Snapshot:
        """The snapshot in which a fact is not alive if the turn it was extracted from is."""
        repeats = self.find_repeats(self.alive)
        if not repeats.any():
            return self
        total = self.sum
        if self.matrix is not None:
            lost = np.flatnonzero(repeats)
            total = total - self.matrix.rows[lost].sum(axis=0, dtype=np.float64)
        return replace(self, alive=self.alive & ~repeats, sum=total)

    def find_repeats(self, usable: Bools) -> Bools:
        """Mark the facts that were extracted from one of the usable turns.

        A fact that is valid longer than its turn stands for itself.
        """
        repeats = self.source >= 0
        facts = np.flatnonzero(repeats)
        if len(facts):
            sources = self.source[facts]
            ended = self.row[usable & (self.valid_to < NEVER)]
            outlives = np.isin(sources, ended) & (self.valid_to[facts] == NEVER)
            repeats[facts] = np.isin(sources, self.row[usable]) & ~outlives
        return repeats

    @cached_property
    def has_expiring(self) -> bool:
        """Whether some memory has an end."""
        return bool((self.expires < NEVER).any())

    def code(self, column: str, name: str | None) -> int:
        """Return the number of a session, speaker or channel; -1 for None, -2 if unknown."""
        return -1 if name is None else self.codes[column].get(name, -2)

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
        """Return the cosine of every position to a vector, or to each column of several."""
        if self.matrix is None:
            return self.partial.similarity(vector, self.n)
        return products(self.matrix.rows[: self.n], vector)

    def second_similarity(self, vector: Vectors, wanted: Bools, other: Floats) -> Floats:
        """Return the cosine to a vector of the second model where it is wanted, else the other."""
        positions = np.flatnonzero(wanted)
        if self.second is None or not len(positions):
            return other
        if len(positions) > self.n // 4:  # copying many rows takes longer than multiplying all
            return np.where(wanted, products(self.second.rows[: self.n], vector), other)
        found = other.copy()
        found[positions] = products(self.second.rows.take(positions, axis=0), vector)
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
        for start in range(0, len(known), TOGETHER):
            few = known[start : start + TOGETHER]
            cosines = self.similarity(np.stack(few, axis=1))
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
        made = _unit([vectors[row] for row in rows], self.dimensions)
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
    def days(self) -> Floats:
        """When each was said, in days since 1970; minus infinity if unknown."""
        micros = self.occurred.astype(np.float64)
        micros[self.occurred == clock.NO_TIME] = -np.inf
        days = micros / _MICROS_A_DAY
        return days.astype(np.float32)

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
        self,
        rows: Sequence[IndexRow],
        gone: Sequence[int],
        revision: int,
        *,
        expected: int = 0,
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
        codes = {}
        for column, held in self.codes.items():
            known = dict(held)  # a copy, because snapshots are immutable
            for name in dict.fromkeys(values[column]):
                if name is not None:
                    known.setdefault(name, len(known))
            values[column] = [known.get(name, -1) for name in values[column]]
            codes[column] = known
        vectors = _unit(values["vector"], self.dimensions)
        second = self.second
        if second is not None:
            made = _unit(values["second"], second.rows.shape[1])
            second = second.add(self.n, made, expected=expected)
        values["embedded"] = vectors.any(axis=1)
        values["length"] = [sum(packed[len(packed) // 5 * 4 :]) for packed in values["terms"]]
        columns: dict[str, Any] = {}
        for name, dtype in DTYPES.items():
            added = np.array(to_numbers(name, values[name]), dtype)
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


def _unit(found: Sequence[bytes | None], dimensions: int) -> Vectors:
    """Return the vectors; zero where one is missing or its length is not 1."""
    nothing = bytes(4 * dimensions)
    blobs = []
    for each in found:
        if each is None or len(each) != len(nothing):
            each = nothing
        blobs.append(each)
    flat = np.frombuffer(b"".join(blobs), "<f4")
    made = flat.reshape(-1, dimensions)
    with np.errstate(all="ignore"):
        squares = np.einsum("ij,ij->i", made, made)
        is_unit = np.abs(squares - 1) < _UNIT
    return made if is_unit.all() else np.where(is_unit[:, None], made, np.float32(0))
