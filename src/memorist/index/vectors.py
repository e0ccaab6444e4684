"""Vectors in one piece of memory, so that a scope is searched by one product."""

from __future__ import annotations

import threading

import numpy as np

from ..ports import Vectors

_FEW = 4  # vectors, up to which a BLAS is not faster
_SPARE = 0.125  # room for rows to come, as a share of those there


class Matrix:
    """Rows that are only ever added. A snapshot sees the first n of them, so adding more disturbs none."""

    def __init__(self, dimensions: int, capacity: int = 0) -> None:
        self._rows = np.empty((capacity, dimensions), np.float32)
        self._used = 0
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes held, the room to spare included: the same for every snapshot that shares this matrix."""
        return int(self._rows.nbytes)

    def first(self, n: int) -> Vectors:
        """The first n rows, without copying them."""
        return self._rows[:n]

    def products(self, n: int, asked: Vectors) -> Vectors:
        """Of each of the first n rows with one vector, or with each column of several.

        Few are summed up here: the threads of a BLAS would spin for tens of milliseconds after each question, on cores
        that the other parts of a recall need.
        """
        if asked.ndim > 1 and asked.shape[1] > _FEW:
            return self.first(n) @ asked
        made: Vectors = np.einsum("ij,...j->i...", self.first(n), np.ascontiguousarray(asked.T))
        return made

    def added(self, n: int, new: Vectors, *, expected: int = 0) -> Matrix:
        """A matrix with `new` after the first n rows: this one if they fit and nobody else took the place, else a copy.

        `expected` is how many rows there will be in the end, where that is known.
        """
        total = n + len(new)
        with self._lock:
            if self._used == n and total <= len(self._rows):
                self._rows[n:total] = new
                self._used = total
                return self
        room = expected if expected >= total else total + int(_SPARE * total) if n else total
        larger = Matrix(self._rows.shape[1], room)
        larger._rows[:n] = self._rows[:n]
        larger._rows[n:total] = new
        larger._used = total
        return larger
