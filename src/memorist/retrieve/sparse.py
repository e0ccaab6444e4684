"""The sparse leg: BM25 over the terms of one scope, with the statistics of that scope alone."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..index import Snapshot

K1 = 1.2
B = 0.9


def bm25(
    snapshot: Snapshot, terms: Sequence[int], k1: float = K1, b: float = B
) -> tuple[NDArray[np.float32], float]:
    """The BM25 score of each position, and about the best that these terms could reach.

    The bound makes the scores of different questions comparable.
    """
    scores, total = np.zeros(snapshot.n, dtype=np.float32), 0.0
    for term in terms:
        where, often = snapshot.postings(term)
        weight = idf(snapshot.count, len(where))
        total += weight
        if len(where):
            norm = k1 * (1.0 - b + b * snapshot.length[where] / max(snapshot.mean_length, 1e-9))
            scores[where] += np.float32(weight * (k1 + 1.0)) * often / (often + norm)
    return scores, 0.6 * (k1 + 1.0) * total


def idf(count: int, holding: int) -> float:
    """How much a term says that `holding` of `count` memories have.

    >>> round(idf(1000, 10), 2), round(idf(1000, 1000), 4)
    (4.56, 0.0005)
    """
    return float(np.log1p((count - holding + 0.5) / (holding + 0.5)))
