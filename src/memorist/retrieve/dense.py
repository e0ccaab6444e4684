"""The dense leg: how near the meaning of each memory is to the question's."""

import numpy as np
from numpy.typing import NDArray

from ..index import Corpus


def cosine(corpus: Corpus, vector: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """The cosine of each position with the question, never below 0; 0.0 where there is no vector."""
    if vector is None:
        return np.zeros(corpus.n, dtype=np.float32)
    return np.maximum(corpus.similarity(vector), np.float32(0.0))
