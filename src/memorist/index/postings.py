"""Postings: where each term occurs and how often, in sorted arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..text import derived


@dataclass(frozen=True, slots=True)
class Segment:
    """Postings of some positions, sorted by term."""

    terms: NDArray[np.uint32]
    positions: NDArray[np.int32]
    counts: NDArray[np.uint8]

    @staticmethod
    def of(packed: Sequence[bytes], first: int) -> Segment:
        """Build the postings of texts that stand at `first` and after."""
        numbers, counts = [np.empty(0, np.uint32)], [np.empty(0, np.uint8)]
        sizes = []
        for each in packed:
            found, often = derived.unpack(each)
            numbers.append(found)
            counts.append(often)
            sizes.append(len(found))
        positions = np.arange(first, first + len(sizes), dtype=np.int32)
        joined = Segment(
            np.concatenate(numbers), np.repeat(positions, sizes), np.concatenate(counts)
        )
        return joined.sort()

    def sort(self) -> Segment:
        order = np.argsort(self.terms, kind="stable")
        return Segment(self.terms[order], self.positions[order], self.counts[order])


def add_segment(segments: tuple[Segment, ...], new: Segment) -> tuple[Segment, ...]:
    """Join segments of like size, so that there are few of them and each posting is copied seldom."""
    kept = [*segments, new]
    while len(kept) > 1 and len(kept[-2].terms) <= 2 * len(kept[-1].terms):
        b, a = kept.pop(), kept.pop()
        joined = Segment(
            np.concatenate([a.terms, b.terms]),
            np.concatenate([a.positions, b.positions]),
            np.concatenate([a.counts, b.counts]),
        )
        kept.append(joined.sort())
    return tuple(kept)
