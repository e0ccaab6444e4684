"""Who stands beside whom in the conversations of a scope."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Places:
    """The positions in the order of their sessions; a memory without a session stands alone."""

    order: NDArray[np.intp]
    joined: NDArray[
        np.float32
    ]  # 1 where the next in `order` is of the same session, else 0; one shorter than `order`
    starts: NDArray[np.intp]  # where in `order` each session begins

    @staticmethod
    def of(order: NDArray[np.int32], session: NDArray[np.int32]) -> Places:
        """The places of positions that are already in order, by the session of each position.

        >>> Places.of(np.array([2, 0, 1], np.int32), np.array([7, -1, 7], np.int32)).starts.tolist()
        [0, 2]
        """
        ordered = session[order]
        joined = (ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0)
        starts = np.concatenate(([0], np.flatnonzero(~joined) + 1))[: len(order)]
        return Places(order.astype(np.intp), joined.astype(np.float32), starts)
