"""A scope at one revision, as arrays. Nothing here is the truth: the store is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StoreDamaged
from ..ports import IndexRow, Vectors
from ..text import clock
from ..types import KINDS, STATES
from . import postings as segment
from .neighbors import Places
from .partial import PartialVectors
from .postings import Segment
from .vectors import Matrix

NO_TIME = clock.NO_TIME
ACTIVE, COMPRESSED, SUPERSEDED = (STATES.index(s) for s in ("active", "compressed", "superseded"))
WORKING = KINDS.index("working")
FOREVER = 2**63 - 1
_MICROS_A_DAY = 86_400_000_000
_LAST = 2**31 - 1  # place in a session
_UNIT = 0.01  # how far the square of a vector's length may be from 1


@dataclass(frozen=True, kw_only=True)
class Columns:
    """One value per position."""

    row: NDArray[np.int64]  # number of the row in the store
    state: NDArray[np.uint8]
    kind: NDArray[np.uint8]
    flags: NDArray[np.uint8]  # as `text.index` sets them
    pinned: NDArray[np.bool_]
    embedded: NDArray[np.bool_]
    session: NDArray[np.int32]  # codes; -1 means none
    sequence: NDArray[np.int32]
    speaker: NDArray[np.int32]
    channel: NDArray[np.int32]
    occurred: NDArray[np.int64]  # microseconds since 1970, or NO_TIME
    created: NDArray[np.int64]
    updated: NDArray[np.int64]
    valid_from: NDArray[np.int64]
    valid_to: NDArray[np.int64]
    importance: NDArray[np.float32]
    confidence: NDArray[np.float32]
    simhash: NDArray[np.uint64]
    length: NDArray[np.float32]  # terms of the text


_DTYPES = dict(
    zip(
        (f.name for f in fields(Columns)),
        (
            np.int64,
            np.uint8,
            np.uint8,
            np.uint8,
            np.bool_,
            np.bool_,
            np.int32,
            np.int32,
            np.int32,
            np.int32,
            np.int64,
            np.int64,
            np.int64,
            np.int64,
            np.int64,
            np.float32,
            np.float32,
            np.uint64,
            np.float32,
        ),
        strict=True,
    )
)


@dataclass(frozen=True, kw_only=True)
class Snapshot(Columns):
    """A scope at one revision. Positions run from 0 to n - 1; a changed memory moves to a new position."""

    model: str
    dimensions: int
    revision: int
    matrix: (
        Matrix | None
    )  # of all vectors; None where another index holds them, and `near` some of them
    segments: tuple[Segment, ...]
    present: NDArray[np.bool_]  # not replaced, not gone
    alive: NDArray[np.bool_]  # counts for this question
    codes: Mapping[str, Mapping[str, int]]  # of sessions, speakers and channels
    near: PartialVectors
    sum: Vectors  # of all vectors that were ever added

    @staticmethod
    def empty(model: str, dimensions: int, *, lean: bool = False) -> Snapshot:
        """Nothing yet; a lean snapshot will hold no vectors."""
        nothing = np.empty(0, np.bool_)
        nowhere: dict[str, Any] = {name: np.empty(0, dtype) for name, dtype in _DTYPES.items()}
        return Snapshot(
            **nowhere,
            model=model,
            dimensions=dimensions,
            revision=0,
            matrix=None if lean else Matrix(dimensions),
            segments=(),
            present=nothing,
            alive=nothing,
            codes={"session": {}, "speaker": {}, "channel": {}},
            near=PartialVectors.none(dimensions),
            sum=np.zeros(dimensions, np.float32),
        )

    @property
    def is_lean(self) -> bool:
        return self.matrix is None

    @property
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
    def is_embedded(self) -> bool:
        return self.unembedded == 0

    @cached_property
    def mean_length(self) -> float:
        return float(self.length[self.alive].mean()) if self.count else 0.0

    @cached_property
    def speakers(self) -> tuple[str, ...]:
        return tuple(self.codes["speaker"])

    @property
    def size(self) -> int:
        """Bytes held."""
        held = [*(getattr(self, name) for name in _DTYPES), self.present, self.alive]
        held += [
            array
            for segment in self.segments
            for array in (segment.terms, segment.positions, segment.counts)
        ]
        return (self.matrix.nbytes if self.matrix else 0) + sum(int(array.nbytes) for array in held)

    def code(self, column: str, name: str | None) -> int:
        """The number that stands for a session, speaker or channel; -2 if the scope has never seen it."""
        return -1 if name is None else self.codes[column].get(name, -2)

    def postings(self, term: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Where a term occurs among what is alive, and how often."""
        found = [
            (s.positions[where], s.counts[where])
            for s in self.segments
            if (where := s.find(term)).stop > where.start
        ]
        if not found:
            return np.empty(0, np.int32), np.empty(0, np.float32)
        positions, counts = (np.concatenate(part) for part in zip(*found, strict=True))
        keep = self.alive[positions]
        return positions[keep], counts[keep].astype(np.float32)

    def similarity(self, vector: Vectors) -> NDArray[np.float32]:
        """Cosine of every position to a vector, or to each column of several; 0 where there is no vector."""
        return (
            self.near.similarity(vector, self.n)
            if self.matrix is None
            else self.matrix.products(self.n, vector)
        )

    def vectors(self, positions: NDArray[np.intp]) -> Vectors:
        """The vectors at these positions, zero where there is none."""
        return (
            self.near.at(positions) if self.matrix is None else self.matrix.first(self.n)[positions]
        )

    def with_near(self, vectors: Mapping[int, bytes]) -> Snapshot:
        """The same scope, where the vectors of these rows are known; rows of other scopes are left out."""
        positions = self.positions(list(vectors))
        made = self._unit([vectors[row] for row in self.row[positions].tolist()])
        return replace(self, near=PartialVectors(positions, made))

    @cached_property
    def places(self) -> Places:
        """What is alive by session, place in it, and row."""
        positions = np.flatnonzero(self.alive).astype(np.int32)
        session, sequence = self.session[positions], self.sequence[positions]
        return Places.of(
            positions[np.lexsort((self.row[positions], sequence, session))], self.session
        )

    @cached_property
    def days(self) -> NDArray[np.float32]:
        """When each was said, in days since 1970; infinitely long ago where that is unknown."""
        known = np.where(self.occurred == NO_TIME, -np.inf, self.occurred.astype(np.float64))
        return (known / _MICROS_A_DAY).astype(np.float32)

    @cached_property
    def centroid(self) -> Vectors | None:
        """The mean direction of what is alive, or None where nothing is embedded."""
        if self.matrix is None:
            return self.sum if self.sum.any() else None
        counted = (self.alive & self.embedded).astype(np.float32)
        if not counted.any():
            return None
        mean: Vectors = (counted @ self.matrix.first(self.n)) / np.float32(counted.sum())
        return mean

    def positions(self, rows: Sequence[int]) -> NDArray[np.intp]:
        """Where the given rows stand now; those that are gone are left out."""
        return np.flatnonzero(np.isin(self.row, np.asarray(rows, np.int64)) & self.present)

    def seen_as(self, states: Sequence[str], as_of: datetime | None = None) -> Snapshot:
        """The same scope with other memories alive: those in these states, or those that held at a time."""
        wanted = np.isin(self.state, [STATES.index(s) for s in states or STATES if s in STATES])
        if as_of is not None:
            then = clock.micros(as_of)
            wanted = np.isin(self.state, [ACTIVE, COMPRESSED, SUPERSEDED])
            wanted &= (self.valid_from <= then) & (then < self.valid_to)
        return replace(self, alive=self.present & wanted)

    def extended(
        self, rows: Sequence[IndexRow], gone: Sequence[int], revision: int, *, expected: int = 0
    ) -> Snapshot:
        """The snapshot after some rows changed and others went; `expected` is how many rows it will have at last."""
        stale = self.positions([*(row.row for row in rows), *gone])
        present = np.concatenate([self.present, np.ones(len(rows), np.bool_)])
        present[stale] = False
        codes = {
            name: _numbered(known, (getattr(row, name) for row in rows))
            for name, known in self.codes.items()
        }
        vectors = self._unit([row.vector for row in rows])
        new = {**_columns(rows, codes), "embedded": vectors.any(axis=1)}
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), new[name]]) for name in _DTYPES
        }
        return replace(
            self,
            **columns,
            codes=codes,
            revision=revision,
            matrix=self.matrix.added(self.n, vectors, expected=expected)
            if self.matrix is not None
            else None,
            sum=self.sum + vectors.sum(axis=0),
            segments=segment.added(self.segments, Segment.of([row.terms for row in rows], self.n)),
            present=present,
            alive=present & (columns["state"] == ACTIVE),
        )

    def _unit(self, found: Sequence[bytes | None]) -> Vectors:
        """Vectors; zero where there is none, or one whose length shows that it was altered on disk."""
        size, nothing = 4 * self.dimensions, bytes(4 * self.dimensions)
        blobs = (each if each is not None and len(each) == size else nothing for each in found)
        made = np.frombuffer(b"".join(blobs), "<f4").reshape(-1, self.dimensions)
        with np.errstate(all="ignore"):
            is_unit = np.abs(np.einsum("ij,ij->i", made, made) - 1) < _UNIT
        return made if is_unit.all() else np.where(is_unit[:, None], made, np.float32(0))


def _numbered(known: Mapping[str, int], names: Iterable[str | None]) -> Mapping[str, int]:
    """The codes with those of new names added; a snapshot in use keeps its own."""
    new = dict.fromkeys(name for name in names if name is not None and name not in known)
    return {**known, **{name: code for code, name in enumerate(new, len(known))}} if new else known


def _columns(
    rows: Sequence[IndexRow], codes: Mapping[str, Mapping[str, int]]
) -> dict[str, NDArray[np.generic]]:
    given: dict[str, Sequence[Any]] = (
        dict(zip(IndexRow._fields, zip(*rows, strict=True), strict=True)) if rows else {}
    )
    made: dict[str, Sequence[Any]] = {
        **given,
        "state": [_place(STATES, name) for name in given.get("state", ())],
        "kind": [_place(KINDS, name) for name in given.get("kind", ())],
        "sequence": [
            -1 if at is None else max(-1, min(at, _LAST)) for at in given.get("sequence", ())
        ],
        "occurred": [NO_TIME if at is None else at for at in given.get("occurred", ())],
        "valid_from": [NO_TIME if at is None else at for at in given.get("valid_from", ())],
        "valid_to": [FOREVER if at is None else at for at in given.get("valid_to", ())],
        "length": [sum(packed[len(packed) // 5 * 4 :]) for packed in given.get("terms", ())],
        **{
            name: [-1 if each is None else known[each] for each in given.get(name, ())]
            for name, known in codes.items()
        },
    }
    return {name: np.array(made.get(name, ()), dtype) for name, dtype in _DTYPES.items()}


def _place(names: Sequence[str], name: str) -> int:
    if name not in names:
        raise StoreDamaged(
            f"A memory was altered on disk: {name!r:.60} is none of {', '.join(names)}"
        )
    return names.index(name)
