"""The arrays of a snapshot: columns, vectors, postings, and neighbors."""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ..errors import StoreDamaged
from ..ports import Vectors
from ..text import clock
from ..types import KINDS, STATES

Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float32]
Positions = NDArray[np.intp]  # in a snapshot
# Multiplications of one matrix product that OpenBLAS does in the calling thread. For larger ones it
# starts threads: they spin afterwards, and a fork elsewhere in the process makes the product hang.
_UNTHREADED = 200_000
_WIDTH = 32  # columns multiplied at a time
_FEW = 4  # up to this many vectors, one product per row is as fast as a matrix product
NEVER = 2**63 - 1  # end of what is still valid
_LAST = 2**31 - 1  # largest sequence number in a session
_NAMES = {"state": STATES, "kind": KINDS}  # columns whose numbers stand for names
_MISSING = {
    "sequence": -1,
    "occurred": clock.NO_TIME,
    "valid_from": clock.NO_TIME,
    "valid_to": NEVER,
    "expires": NEVER,
    "source": -1,
}
_UNIT = 0.01  # tolerance of the squared length of a vector, which should be 1
_SPARE = 0.125  # spare room for more rows, as a share of the existing rows


@dataclass(frozen=True, kw_only=True)
class Columns:
    """One value per position."""

    row: Longs  # number of the row in the store
    state: Bytes
    kind: Bytes
    flags: NDArray[np.uint32]  # as in `text.cues`
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
    expires: Longs
    importance: Floats
    confidence: Floats
    simhash: NDArray[np.uint64]
    length: Floats  # terms of the text
    source: Longs  # row of the turn that a fact was extracted from; -1 if there is none

    @cached_property
    def said(self) -> Longs:
        """When each was said, or else since when it is valid, in microseconds since 1970."""
        since = np.where(self.valid_from == clock.NO_TIME, self.created, self.valid_from)
        return np.where(self.occurred == clock.NO_TIME, since, self.occurred)

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


def _element_type(hint: Any) -> type[np.generic]:
    """Return the element type of an array. NumPy 2.5 nests it less deeply than 2.4."""
    while arguments := get_args(hint):
        hint = arguments[-1]
    found: type[np.generic] = hint
    return found


DTYPES = {name: _element_type(hint) for name, hint in get_type_hints(Columns).items()}


def to_columns(
    values: Mapping[str, Sequence[Any]],
    codes: Mapping[str, Mapping[str, int]],
) -> tuple[dict[str, Any], dict[str, dict[str, int]]]:
    """Return the values as columns, and the codes with those of new names. Raises StoreDamaged."""
    columns = {}
    known = {column: dict(held) for column, held in codes.items()}  # snapshots are immutable
    for column, dtype in DTYPES.items():
        found = values[column]
        if column in known:
            names = known[column]
            for name in dict.fromkeys(found):
                if name is not None:
                    names.setdefault(name, len(names))
            found = [names.get(name, -1) for name in found]
        columns[column] = np.array(to_numbers(column, found), dtype)
    return columns, known


def to_numbers(column: str, values: Sequence[Any]) -> Sequence[Any]:
    """Return the values of a column as numbers. Raises StoreDamaged."""
    if names := _NAMES.get(column):
        for name in values:
            if name not in names:
                wrong = f"{name!r:.60} is not one of {', '.join(names)}"
                raise StoreDamaged(f"A memory was altered on disk: {wrong}")
        return [names.index(name) for name in values]
    if column in _MISSING:
        values = [_MISSING[column] if value is None else value for value in values]
    if column == "sequence":
        return [max(-1, min(place, _LAST)) for place in values]
    return values


def to_vectors(found: Sequence[bytes | None], dimensions: int) -> Vectors:
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


class Matrix:
    """Rows that are only added. A snapshot uses the first n, so adding more does not change it.

    Rows that are zero, such as missing vectors, are not written: they take no memory until then.
    """

    def __init__(self, dimensions: int, capacity: int = 0) -> None:
        self.rows = np.zeros((capacity, dimensions), np.float32)  # spare room included
        self._used = 0
        self._written = 0  # all rows from here on are zero
        self._lock = threading.Lock()

    def add(self, n: int, new: Vectors, *, expected: int = 0) -> Matrix:
        """Return a matrix with `new` after the first n rows: this one if there is room.

        `expected` is the final number of rows, if known.
        """
        total = n + len(new)
        with self._lock:
            if self._used == n and total <= len(self.rows):
                self._write(n, new)
                return self
        room = total
        if expected >= total:
            room = expected
        elif n:
            room += int(_SPARE * total)
        larger = Matrix(self.rows.shape[1], room)
        larger._write(0, self.rows[: min(n, self._written)])
        larger._write(n, new)
        return larger

    def _write(self, n: int, new: Vectors) -> None:
        self._used = n + len(new)
        if new.any():
            self.rows[n : self._used] = new
            self._written = self._used


def lower_bound(scores: Floats, count: int) -> float:
    """Return a bound that at least `count` scores reach, and few more, without sorting all.

    >>> lower_bound(np.arange(100, dtype=np.float32), 2)
    98.0
    """
    if not 0 < count < len(scores):
        return -math.inf
    size = max(1, len(scores) // (10 * count))
    width = len(scores) // size
    best = scores[: size * width].reshape(size, width).max(axis=0)
    return float(np.partition(best, -count)[-count])


def mark_best(scores: Floats, count: int) -> Bools:
    """Mark the `count` highest scores, and those equal to the lowest of them.

    >>> mark_best(np.array([3, 1, 2, 2, 0], np.float32), 2).tolist()
    [True, False, True, True, False]
    """
    is_high = scores >= lower_bound(scores, count)
    high = scores[is_high]
    if len(high) > count:
        is_high = scores >= np.partition(high, -count)[-count]
    return np.asarray(is_high)


def release_memory() -> None:
    """Return freed memory to the operating system after reading a large scope."""
    with suppress(OSError, AttributeError, TypeError):  # only glibc has this
        ctypes.CDLL(None).malloc_trim(0)


def products(rows: Vectors, asked: Vectors) -> Vectors:
    """Multiply each row by one vector, or by each column of several, in this thread.

    >>> products(np.eye(2, dtype=np.float32), np.array([3, 4], np.float32)).tolist()
    [3.0, 4.0]
    """
    if asked.ndim == 1:
        return np.asarray(np.vecdot(rows, asked))
    vectors = np.ascontiguousarray(asked.T)
    if len(vectors) <= _FEW:
        return np.asarray(np.vecdot(rows[:, None], vectors))
    found = np.empty((len(rows), len(vectors)), np.float32)
    height = max(1, _UNTHREADED // (_WIDTH * rows.shape[1]))
    for left in range(0, len(vectors), _WIDTH):
        columns = slice(left, left + _WIDTH)
        few = vectors[columns]
        for top in range(0, len(rows), height):
            block = slice(top, top + height)
            part = rows[block]
            if len(part) > 1 and len(few) > 1:
                found[block, columns] = part @ few.T
            else:  # the product with one vector has another, lower limit
                found[block, columns] = np.vecdot(part[:, None], few)
    return found


@dataclass(frozen=True, slots=True)
class PartialVectors:
    """The vectors of some positions, ascending, of a scope that is too large to hold all."""

    positions: Positions
    vectors: Vectors

    def similarity(self, vector: Vectors, n: int) -> Floats:
        """Return the cosine of n positions to a vector or each column; 0 where unknown.

        >>> known = PartialVectors(np.array([2]), np.array([[0.6, 0.8]], np.float32))
        >>> known.similarity(np.array([1, 0], np.float32), 3).tolist()
        [0.0, 0.0, 0.6000000238418579]
        """
        near = np.zeros((n, *vector.shape[1:]), np.float32)
        near[self.positions] = products(self.vectors, vector)
        return near

    def at(self, positions: Positions) -> Vectors:
        """Return the vectors at these positions; zero where unknown."""
        shape = (len(positions), self.vectors.shape[1])
        found = np.zeros(shape, np.float32)
        if len(self.positions):
            last = len(self.positions) - 1
            places = np.searchsorted(self.positions, positions)
            places = np.minimum(places, last)
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
        """Build the postings of texts at the positions from `first` on; `tokens.pack` packed them."""
        sizes = np.array([len(each) // 5 for each in packed], np.intp)
        pairs = list(zip(packed, (4 * sizes).tolist(), strict=True))
        terms = np.frombuffer(b"".join(each[:end] for each, end in pairs), "<u4")
        counts = np.frombuffer(b"".join(each[end:] for each, end in pairs), np.uint8)
        positions = np.arange(first, first + len(packed), dtype=np.int32)
        return Segment.join([Segment(terms, positions.repeat(sizes), counts)])

    @staticmethod
    def join(parts: Sequence[Segment]) -> Segment:
        """Return the postings of all parts."""
        order = np.argsort(np.concatenate([part.terms for part in parts]), kind="stable")
        columns = zip(*parts, strict=True)  # one after the other, to limit the memory needed
        return Segment._make(np.concatenate(pieces)[order] for pieces in columns)


def add_segment(
    segments: tuple[Segment, ...],
    new: Segment,
) -> tuple[Segment, ...]:
    """Add a segment, and join segments of similar size.

    This keeps their number low and copies each posting rarely.
    """
    kept = list(segments)
    while kept and len(kept[-1].terms) <= 2 * len(new.terms):
        new = Segment.join([kept.pop(), new])
    return (*kept, new)


@dataclass(frozen=True, slots=True)
class Neighbors:
    """The sessions of the memories alive; a memory without a session is one of its own.

    `before`, `after` and `group` have one number per position; the number after the last means none.
    """

    order: Positions  # positions by session and sequence
    starts: Positions  # where in `order` each session begins
    before: Positions  # position of the previous turn in the same session
    after: Positions
    group: Positions  # index of the session

    @staticmethod
    def of(order: Ints, session: Ints) -> Neighbors:
        """Find the sessions of ordered positions, given the session code of each position.

        >>> found = Neighbors.of(np.array([2, 0, 1], np.int32), np.array([7, -1, 7], np.int32))
        >>> found.starts.tolist(), found.before.tolist(), found.group.tolist()
        ([0, 2], [2, 3, 3], [0, 1, 0])
        """
        none = len(session)
        ordered = session[order]
        is_same = ordered[1:] == ordered[:-1]
        joined = is_same & (ordered[1:] >= 0)
        breaks = np.flatnonzero(~joined) + 1
        starts = np.concatenate(([0], breaks))[: len(order)]
        earlier = order[:-1][joined]
        later = order[1:][joined]
        before, after = np.full((2, none), none, np.intp)
        before[later] = earlier
        after[earlier] = later
        sizes = np.diff(starts, append=len(order))
        group = np.full(none, len(starts), np.intp)
        group[order] = np.repeat(np.arange(len(starts)), sizes)
        return Neighbors(
            order.astype(np.intp),
            starts,
            before,
            after,
            group,
        )

    def sum_messages(self, message: NDArray[Any], length: Floats) -> Floats:
        """Return the length of the whole message that each position is a chunk of.

        Neighbors with the same number, which is not 0, are chunks of one message.
        """
        order = self.order
        numbers = message[order]
        is_new = np.append(True, (numbers[1:] != numbers[:-1]) | (numbers[1:] == 0))[: len(order)]
        is_new[self.starts] = True
        starts = np.flatnonzero(is_new)
        lengths = length.copy()
        if len(starts):
            sums = np.add.reduceat(length[order], starts)
            lengths[order] = np.repeat(sums, np.diff(starts, append=len(order)))
        return lengths
