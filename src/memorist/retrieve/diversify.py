"""Maximal marginal relevance: of two memories that say the same, the second is worth less."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_TIE = 1e-9


def order(
    values: NDArray[np.float64],
    vectors: NDArray[np.float32],
    tags: Sequence[frozenset[str]],
    *,
    trade: float,
    k: int,
) -> list[int]:
    """The best k, each chosen for its value and against what was chosen before.

    `trade` is λ: 1 looks at value alone, 0 at difference alone. A row of zeros has no vector; it is compared by tags.
    Of equals the one that shares the fewest tags with those chosen comes first, then the one that stood first.

    >>> unit = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], np.float32)
    >>> order(np.array([1.0, 0.9, 0.5]), unit, [frozenset()] * 3, trade=0.5, k=2)
    [0, 2]
    """
    if not len(values):
        return []
    similar = _similarity(vectors, tags)
    worth = _stretched(values)
    left = list(range(len(values)))
    chosen: list[int] = []
    nearest = np.zeros(len(values))
    while left and len(chosen) < k:
        marginal = trade * worth[left] - (1 - trade) * nearest[left]
        best = float(marginal.max())
        tied = [left[i] for i in np.flatnonzero(marginal >= best - _TIE)]
        taken = frozenset(tag for i in chosen for tag in tags[i])
        pick = min(tied, key=lambda i: (len(tags[i] & taken), -values[i], i))
        chosen.append(pick)
        left.remove(pick)
        nearest = np.maximum(nearest, similar[pick])
    return chosen


def _stretched(values: NDArray[np.float64]) -> NDArray[np.float64]:
    low, high = (values.min(), values.max()) if len(values) else (0.0, 0.0)
    return (values - low) / (high - low) if high > low else np.ones(len(values))


def _similarity(
    vectors: NDArray[np.float32], tags: Sequence[frozenset[str]]
) -> NDArray[np.float64]:
    similar: NDArray[np.float64] = np.clip(vectors @ vectors.T, 0, 1).astype(np.float64)
    for i in np.flatnonzero(~vectors.any(axis=1)).tolist():
        similar[i] = similar[:, i] = [tag_overlap(tags[i], other) for other in tags]
    return similar


def tag_overlap(a: frozenset[str], b: frozenset[str]) -> float:
    """Shared tags over all tags.

    >>> tag_overlap(frozenset("ab"), frozenset("bc"))
    0.3333333333333333
    """
    return len(a & b) / len(a | b) if a or b else 0.0
