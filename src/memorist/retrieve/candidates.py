"""Choose candidates by one leg, both, or the calendar, for profiles that do not rank everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .features import SnapshotSearch, at, compute
from .score import Candidates

T = TypeVar("T")
PER_LEG = 100  # of each leg's ranking, where rankings are fused


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
