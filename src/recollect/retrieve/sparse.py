"""The sparse leg: BM25 over the terms of one scope, with the statistics of that scope alone."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..corpus import Corpus

K1 = 1.2
B = 0.9


def bm25(corpus: Corpus, terms: Sequence[int], k1: float = K1, b: float = B) -> NDArray[np.float32]:
    """The BM25 score of each position; 0.0 where no term occurs."""
    scores = np.zeros(corpus.n, dtype=np.float32)
    for term in terms:
        where, often = corpus.postings(term)
        if len(where):
            norm = k1 * (1.0 - b + b * corpus.length[where] / max(corpus.mean_length, 1e-9))
            scores[where] += np.float32(idf(corpus.count, len(where)) * (k1 + 1.0)) * often / (often + norm)
    return scores


def bound(corpus: Corpus, terms: Sequence[int], k1: float = K1) -> float:
    """About the best score these terms could reach: it makes scores of different questions comparable."""
    total = sum(idf(corpus.count, len(corpus.postings(term)[0])) for term in terms)
    return 0.6 * (k1 + 1.0) * total


def idf(count: int, holding: int) -> float:
    """How much a term says that `holding` of `count` memories have.

    >>> round(idf(1000, 10), 2), round(idf(1000, 1000), 4)
    (4.56, 0.0005)
    """
    return float(np.log1p((count - holding + 0.5) / (holding + 0.5)))
