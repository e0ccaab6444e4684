"""The vectors of some positions, where a scope is too large to hold the vectors of all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..ports import Vectors


@dataclass(frozen=True, slots=True)
class PartialVectors:
    """Positions that may be near to a question, in ascending order, and their vectors."""

    positions: NDArray[np.intp]
    vectors: Vectors

    def similarity(self, vector: Vectors, n: int) -> NDArray[np.float32]:
        """Cosine to each of n positions; 0 where no vector is known.

        >>> known = PartialVectors(np.array([2]), np.array([[0.6, 0.8]], np.float32))
        >>> known.similarity(np.array([1, 0], np.float32), 3).tolist()
        [0.0, 0.0, 0.6000000238418579]
        """
        near = np.zeros(n, np.float32)
        near[self.positions] = self.vectors @ vector
        return near

    def at(self, positions: NDArray[np.intp]) -> Vectors:
        """The vectors at these positions, zero where none is known."""
        found = np.zeros((len(positions), self.vectors.shape[1]), np.float32)
        if len(self.positions):
            places = np.minimum(np.searchsorted(self.positions, positions), len(self.positions) - 1)
            known = self.positions[places] == positions
            found[known] = self.vectors[places[known]]
        return found

    @staticmethod
    def none(dimensions: int) -> PartialVectors:
        return PartialVectors(np.empty(0, np.intp), np.empty((0, dimensions), np.float32))
