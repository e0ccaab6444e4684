"""An embedder without a model: words and their trigrams, hashed. For tests, and when nothing better is there.

It sees spelling and not meaning: "tea" and "teas" are near each other, "tea" and "coffee" are not.
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
        self._dimensions = dimensions

    @property
    def model(self) -> str:
        return f"hashing-{self._dimensions}"

    @property
    def dimensions(self) -> int:
        return self._dimensions

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        """One unit-length row per text, in order."""
        rows = [self._row(text) for text in texts]
        return np.array(rows, dtype=np.float32).reshape(len(texts), self._dimensions)

    async def close(self) -> None:
        """Nothing to give up."""

    def _row(self, text: str) -> Vectors:
        row = np.zeros(self._dimensions, dtype=np.float32)
        for feature, weight in features(text).items():
            place = hashed(feature)
            row[place % self._dimensions] += weight if place & 1 << 63 else -weight
        length = float(np.linalg.norm(row))
        return row / length if length else self._row("")


def features(text: str) -> dict[str, float]:
    """The words of a text and their trigrams with their weights; a word said four times weighs twice as much.

    >>> features("Tea")
    {'tea': 1.0, '#<te': 0.3, '#tea': 0.3, '#ea>': 0.3}
    >>> features(" ")
    {'': 1.0}
    """
    words = Counter(_WORD.findall(text.casefold()) or [""])
    trigrams = Counter(
        trigram for word, times in words.items() for trigram in _trigrams(word) * times
    )
    weights = {word: sqrt(times) for word, times in words.items()}
    return weights | {trigram: _TRIGRAM * sqrt(times) for trigram, times in trigrams.items()}


def _trigrams(word: str) -> list[str]:
    framed = f"<{word}>"
    return [f"#{framed[start : start + 3]}" for start in range(len(framed) - 2)]


@lru_cache(maxsize=65_536)
def hashed(feature: str) -> int:
    """A 64-bit number for a feature, the same in every process.

    >>> hashed("tea") == hashed("tea") != hashed("coffee")
    True
    """
    return int.from_bytes(
        blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )
