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
        pairs = [derived.unpack(each) for each in packed]
        sizes = [len(numbers) for numbers, _ in pairs]
        numbers = np.concatenate([p[0] for p in pairs]) if pairs else np.empty(0, np.uint32)
        counts = np.concatenate([p[1] for p in pairs]) if pairs else np.empty(0, np.uint8)
        return Segment(
            numbers, np.repeat(np.arange(first, first + len(sizes), dtype=np.int32), sizes), counts
        ).sorted()

    def sorted(self) -> Segment:
        order = np.argsort(self.terms, kind="stable")
        return Segment(self.terms[order], self.positions[order], self.counts[order])

    def find(self, term: int) -> slice:
        wanted = np.uint32(term)
        return slice(
            int(self.terms.searchsorted(wanted)), int(self.terms.searchsorted(wanted, side="right"))
        )


def _joined(a: Segment, b: Segment) -> Segment:
    return Segment(
        np.concatenate([a.terms, b.terms]),
        np.concatenate([a.positions, b.positions]),
        np.concatenate([a.counts, b.counts]),
    ).sorted()


def added(segments: tuple[Segment, ...], new: Segment) -> tuple[Segment, ...]:
    """Join segments of like size, so that there are few of them and each posting is copied seldom."""
    kept = [*segments, new]
    while len(kept) > 1 and len(kept[-2].terms) <= 2 * len(kept[-1].terms):
        kept[-2:] = [_joined(kept[-2], kept[-1])]
    return tuple(kept)
