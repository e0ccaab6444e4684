"""The terms of a text, packed: what the sparse leg keeps of each memory instead of its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

ANALYSIS = 2  # grows when stored terms, marks or fingerprints have to be made anew, which happens on opening
_MOST = 255  # a term counts at most this often in one text


def pack(terms: Iterable[int]) -> bytes:
    """Each term's 32-bit number, sorted, then how often each occurs, one byte each.

    >>> unpack(pack([7, 3, 7]))
    (array([3, 7], dtype=uint32), array([1, 2], dtype=uint8))
    """
    counts = sorted(Counter(terms).items())
    numbers = np.array([term for term, _ in counts], dtype="<u4")
    return numbers.tobytes() + bytes(min(often, _MOST) for _, often in counts)


def unpack(packed: bytes) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """The reverse of `pack`."""
    n = len(packed) // 5
    return np.frombuffer(packed, dtype="<u4", count=n), np.frombuffer(
        packed, dtype=np.uint8, offset=4 * n
    )
