"""The dense leg: how near the meaning of each memory is to the question's."""

import numpy as np
from numpy.typing import NDArray

from ..index import Snapshot


def cosine(snapshot: Snapshot, vector: NDArray[np.float32] | None) -> NDArray[np.float32]:
    """The cosine of each position with the question, never below 0; 0.0 where there is no vector."""
    if vector is None:
        return np.zeros(snapshot.n, dtype=np.float32)
    return np.maximum(snapshot.similarity(vector), np.float32(0.0))
