"""An embedder without a model: words and their trigrams, hashed. For tests, and where no model can
run.

It compares spelling, not meaning: "tea" and "teas" are near each other, "tea" and "coffee" are not.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from math import sqrt

import numpy as np

from ..ports import Vectors

_WORD = re.compile(r"\w+")
_TRIGRAM = 0.3  # of a word's weight


class Hashing:
    """The same text gives the same vector on every machine. Needs nothing, never fails."""

    def __init__(self, dimensions: int = 384) -> None:
        self.dimensions = dimensions
        self.model = f"hashing-{dimensions}"

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        """Return one unit-length row per text, in order."""
        rows = [self._row(text) for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(texts), self.dimensions)

    async def close(self) -> None:
        """Release nothing."""

    def _row(self, text: str) -> Vectors:
        row = np.zeros(self.dimensions, dtype=np.float32)
        for feature, weight in features(text).items():
            place = hash_feature(feature)
            row[place % self.dimensions] += weight if place & 1 << 63 else -weight
        length = float(np.linalg.norm(row))
        return row / length if length else self._row("")


def features(text: str) -> dict[str, float]:
    """Return the words and trigrams of a text with their weights; four times a word weighs twice as
    much.

    >>> features("Tea")
    {'tea': 1.0, '#<te': 0.3, '#tea': 0.3, '#ea>': 0.3}
    >>> features(" ")
    {'': 1.0}
    """
    words = Counter(_WORD.findall(text.casefold()) or [""])
    trigrams: Counter[str] = Counter()
    for word, times in words.items():
        framed = f"<{word}>"
        for start in range(len(framed) - 2):
            trigrams[f"#{framed[start : start + 3]}"] += times
    weights = {word: sqrt(times) for word, times in words.items()}
    return weights | {trigram: _TRIGRAM * sqrt(times) for trigram, times in trigrams.items()}


@lru_cache(maxsize=65_536)
def hash_feature(feature: str) -> int:
    """Return a 64-bit number for a feature, the same in every process.

    >>> hash_feature("tea") == hash_feature("tea") != hash_feature("coffee")
    True
    """
    digest = blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")
