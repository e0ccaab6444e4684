"""The arrays of a snapshot beside its columns: vectors, postings of terms, and neighbors."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..ports import Vectors
from ..text import tokens

Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]
Positions = NDArray[np.intp]  # in a snapshot
_FEW = 4  # vectors, up to which one product per row is as fast as a matrix product
_SPARE = 0.125  # room for rows to come, as a share of those there


class Matrix:
    """Rows that are only ever added. A snapshot sees the first n, so adding more changes none."""

    def __init__(self, dimensions: int, capacity: int = 0) -> None:
        self.rows = np.empty((capacity, dimensions), np.float32)  # spare room included
        self._used = 0
        self._lock = threading.Lock()

    def add(self, n: int, new: Vectors, *, expected: int = 0) -> Matrix:
        """Return a matrix with `new` after the first n rows: this one if there is room.

        `expected` is how many rows there will be in the end, where that is known.
        """
        total = n + len(new)
        with self._lock:
            if self._used == n and total <= len(self.rows):
                self.rows[n:total] = new
                self._used = total
                return self
        room = total + int(_SPARE * total) if n else total
        if expected >= total:
            room = expected
        larger = Matrix(self.rows.shape[1], room)
        larger.rows[:n] = self.rows[:n]
        larger.rows[n:total] = new
        larger._used = total
        return larger


def products(rows: Vectors, asked: Vectors) -> Vectors:
    """Multiply each row with one vector, or with each column of several.

    Few vectors are multiplied row by row, in this thread: for a whole matrix the threads of a BLAS
    spin on for tens of milliseconds after each question, on cores that the other parts of a recall
    need.

    >>> products(np.eye(2, dtype=np.float32), np.array([3, 4], np.float32)).tolist()
    [3.0, 4.0]
    """
    if asked.ndim == 1:
        return np.asarray(np.vecdot(rows, asked))
    if asked.shape[1] > _FEW:
        return rows @ asked
    return np.asarray(np.vecdot(rows[:, None], np.ascontiguousarray(asked.T)))


@dataclass(frozen=True, slots=True)
class PartialVectors:
    """The vectors of some positions, ascending, where a scope is too large to hold all."""

    positions: Positions
    vectors: Vectors

    def similarity(self, vector: Vectors, n: int) -> Floats:
        """Return the cosine of n positions to a vector or each column; 0 where none is known.

        >>> known = PartialVectors(np.array([2]), np.array([[0.6, 0.8]], np.float32))
        >>> known.similarity(np.array([1, 0], np.float32), 3).tolist()
        [0.0, 0.0, 0.6000000238418579]
        """
        near = np.zeros((n, *vector.shape[1:]), np.float32)
        near[self.positions] = self.vectors @ vector
        return near

    def at(self, positions: Positions) -> Vectors:
        """Return the vectors at these positions, zero where none is known."""
        found = np.zeros((len(positions), self.vectors.shape[1]), np.float32)
        if len(self.positions):
            places = np.minimum(np.searchsorted(self.positions, positions), len(self.positions) - 1)
            known = self.positions[places] == positions
            found[known] = self.vectors[places[known]]
        return found


class Segment(NamedTuple):
    """Postings of some positions, sorted by term."""

    terms: NDArray[np.uint32]
    positions: Ints
    counts: Bytes

    @staticmethod
    def of(packed: Sequence[bytes], first: int) -> Segment:
        """Build the postings of texts that stand at `first` and after."""
        parts = [Segment(np.empty(0, np.uint32), np.empty(0, np.int32), np.empty(0, np.uint8))]
        for position, each in enumerate(packed, first):
            terms, counts = tokens.unpack(each)
            parts.append(Segment(terms, np.full(len(terms), position, np.int32), counts))
        return Segment.join(parts)

    @staticmethod
    def join(parts: Sequence[Segment]) -> Segment:
        """Return the postings of all parts."""
        arrays = [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
        order = np.argsort(arrays[0], kind="stable")
        return Segment._make(array[order] for array in arrays)


def add_segment(segments: tuple[Segment, ...], new: Segment) -> tuple[Segment, ...]:
    """Join segments of like size, so that there are few and each posting is copied seldom."""
    kept = [*segments, new]
    while len(kept) > 1 and len(kept[-2].terms) <= 2 * len(kept[-1].terms):
        kept[-2:] = [Segment.join(kept[-2:])]
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Neighbors:
    """The sessions of what is alive; a memory without a session stands alone.

    `before`, `after` and `group` have one number per position; one past the last stands for none.
    """

    order: Positions  # positions by session and place in it
    starts: Positions  # where in `order` each session begins
    before: Positions  # position of the turn before, in the same session
    after: Positions
    group: Positions  # which of the sessions

    @staticmethod
    def of(order: Ints, session: Ints) -> Neighbors:
        """Find the sessions among ordered positions, by the session of each position.

        >>> found = Neighbors.of(np.array([2, 0, 1], np.int32), np.array([7, -1, 7], np.int32))
        >>> found.starts.tolist(), found.before.tolist(), found.group.tolist()
        ([0, 2], [2, 3, 3], [0, 1, 0])
        """
        none = len(session)
        ordered = session[order]
        joined = (ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0)
        starts = np.concatenate(([0], np.flatnonzero(~joined) + 1))[: len(order)]
        before, after = np.full((2, none), none, np.intp)
        before[order[1:][joined]] = order[:-1][joined]
        after[order[:-1][joined]] = order[1:][joined]
        group = np.full(none, len(starts), np.intp)
        group[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
        return Neighbors(order.astype(np.intp), starts, before, after, group)
