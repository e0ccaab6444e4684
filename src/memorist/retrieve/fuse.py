"""From the scores of several legs to one."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def reciprocal_rank(rankings: Sequence[Sequence[str]], *, k: int = 60) -> dict[str, float]:
    """Score ids by how high they stand in each ranking.

    >>> reciprocal_rank([["a", "b"], ["b"]], k=1)
    {'b': 0.8333333333333333, 'a': 0.5}
    """
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, 1):
            scores[item] = scores.get(item, 0.0) + 1.0 / (k + rank)
    return dict(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])))


def absolute(scores: NDArray[np.float32], bound: float) -> NDArray[np.float32]:
    """Scores as a share of what they could be, so that a weak leg stays weak.

    >>> absolute(np.array([0.0, 2.0], dtype=np.float32), 8.0).tolist()
    [0.0, 0.25]
    """
    return scores / np.float32(bound) if bound > 0 else np.zeros_like(scores)
