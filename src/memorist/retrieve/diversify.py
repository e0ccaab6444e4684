"""Maximal marginal relevance: of two memories that say the same, the second is worth less."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..index import Snapshot
from .score import Candidate

_TIE = 1e-9


def diversify(
    candidates: list[Candidate], snapshot: Snapshot, trade: float, *, k: int
) -> list[Candidate]:
    """Return the best k candidates in the order of `order`."""
    if len(candidates) < 2:
        return candidates
    values = np.array([each.score for each in candidates])
    tags = [frozenset(each.memory.tags) for each in candidates]
    vectors = snapshot.vectors(np.array([each.position for each in candidates], np.intp))
    return [candidates[i] for i in order(values, vectors, tags, trade=trade, k=k)]


def order(
    values: NDArray[np.float64],
    vectors: NDArray[np.float32],
    tags: Sequence[frozenset[str]],
    *,
    trade: float,
    k: int,
) -> list[int]:
    """Choose k places, each for its value and against what was chosen before.

    `trade` is λ: 1 counts value alone, 0 difference alone. A row of zeros has no vector and is
    compared by tags. Of equals the one that shares the fewest tags with those chosen comes first,
    then the one that came first.

    >>> unit = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], np.float32)
    >>> order(np.array([1.0, 0.9, 0.5]), unit, [frozenset()] * 3, trade=0.5, k=2)
    [0, 2]
    """
    if not len(values):
        return []
    similar: NDArray[np.float64] = np.clip(vectors @ vectors.T, 0, 1).astype(np.float64)
    for i in np.flatnonzero(~vectors.any(axis=1)).tolist():
        similar[i] = similar[:, i] = [tag_overlap(tags[i], other) for other in tags]
    low, high = values.min(), values.max()
    worth = (values - low) / (high - low) if high > low else np.ones(len(values))
    left = list(range(len(values)))
    chosen: list[int] = []
    chosen_tags: set[str] = set()
    nearest = np.zeros(len(values))
    while left and len(chosen) < k:
        marginal = trade * worth[left] - (1 - trade) * nearest[left]
        best = float(marginal.max())
        tied = [left[i] for i in np.flatnonzero(marginal >= best - _TIE)]
        pick = min(tied, key=lambda i: (len(tags[i] & chosen_tags), -values[i], i))
        chosen.append(pick)
        chosen_tags |= tags[pick]
        left.remove(pick)
        nearest = np.maximum(nearest, similar[pick])
    return chosen


def tag_overlap(a: frozenset[str], b: frozenset[str]) -> float:
    """Return shared tags over all tags.

    >>> tag_overlap(frozenset("ab"), frozenset("bc"))
    0.3333333333333333
    """
    return len(a & b) / len(a | b) if a or b else 0.0
