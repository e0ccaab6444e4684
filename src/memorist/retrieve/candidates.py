"""Find the memories that a question is compared with, and read them from the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import StoreDamaged
from ..ports import Reading
from ..types import Memory, Scope
from .features import Column, SnapshotSearch, at, compute

T = TypeVar("T")
PER_LEG = 100  # of each leg's ranking, where rankings are fused


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The candidates of one question as columns, with their memories once they are read."""

    positions: NDArray[np.intp]  # in the snapshot
    relevance: Column  # similarity, as a hit reports it
    features: Mapping[str, Column]
    memories: Sequence[Memory] = ()

    @property
    def has_semantic(self) -> bool:
        """Whether the dense leg found anything at all: one switch for all candidates."""
        return "semantic" in self.features and bool((self.features["semantic"] > 0).any())

    def pick(self, order: NDArray[np.intp]) -> Candidates:
        """Return some of the candidates, before they are read, in the given order."""
        return Candidates(
            positions=self.positions[order],
            relevance=self.relevance[order],
            features={name: column[order] for name, column in self.features.items()},
        )

    def with_feature(self, name: str, column: Column) -> Candidates:
        """Return the candidates with one more feature."""
        return replace(self, features={**self.features, name: column})


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One memory with its score and the parts that add up to it."""

    memory: Memory
    score: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    features: Mapping[str, float] = field(default_factory=dict)
    relevance: float = 0.0
    position: int = -1  # in the snapshot; -1 if it was not found there


async def read(
    found: Candidates, search: SnapshotSearch, scope: Scope, store: Reading, legs: dict[str, str]
) -> Candidates:
    """Read the memories; one that was just erased or altered on disk is left out.

    `legs` then tells about the damage.
    """
    rows = search.snapshot.row[found.positions].tolist()
    try:
        memories = await store.at_rows(scope, rows)
    except StoreDamaged as error:
        legs["store"] = str(error)
        memories = {}
        for row in rows:
            with suppress(StoreDamaged):
                memories |= await store.at_rows(scope, [row])
    if len(memories) < len(rows):
        there = [i for i, row in enumerate(rows) if row in memories]
        found, rows = found.pick(np.array(there, np.intp)), [rows[i] for i in there]
    return replace(found, memories=[memories[row] for row in rows])


def select(search: SnapshotSearch, *, limit: int, pool: int) -> Candidates:
    """Choose candidates by one leg, both, or the calendar, as the profile says."""
    kind, snapshot = search.profile.candidates, search.snapshot
    fused: dict[int, float] = {}
    scores, _ = search.bm25
    if kind == "fused":
        most = max(pool, PER_LEG)
        legs = (_rank(search, scores, most), _rank(search, search.semantic, most))
        fused = reciprocal_rank([leg.tolist() for leg in legs], k=search.profile.rrf_k)
        positions = np.array(list(fused), np.intp)
    elif kind == "dense":
        leg = search.semantic if (search.semantic * search.usable).any() else scores
        positions = _rank(search, leg, max(pool, 4 * limit))
    else:
        positions = np.flatnonzero(search.usable)
        if kind == "recent":
            newest = np.lexsort((snapshot.row[positions], -snapshot.updated[positions]))
            positions = positions[newest][: max(pool, min(180, 12 * limit))]
    features = at(positions, compute(search, {"sparse", "semantic", "relevance"}))
    features["fused"] = np.array([fused.get(each, 0.0) for each in positions.tolist()])
    return Candidates(positions=positions, features=features, relevance=features["relevance"])


def _rank(search: SnapshotSearch, scores: NDArray[np.float32], most: int) -> NDArray[np.intp]:
    """Return usable positions with a score above 0, best first, equals by row."""
    found = np.flatnonzero(search.usable & (scores > 0))
    if len(found) > most:
        least = np.partition(scores[found], -most)[-most]
        found = found[scores[found] >= least]
    return found[np.lexsort((search.snapshot.row[found], -scores[found]))][:most]


def reciprocal_rank(rankings: Sequence[Sequence[T]], *, k: int = 60) -> dict[T, float]:
    """Score items by how high they stand in each ranking.

    >>> reciprocal_rank([["a", "b"], ["b"]], k=1)
    {'b': 0.8333333333333333, 'a': 0.5}
    """
    scores: dict[T, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, 1):
            scores[item] = scores.get(item, 0.0) + 1.0 / (k + rank)
    return dict(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])))
