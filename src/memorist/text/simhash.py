"""A 64-bit fingerprint that changes little when a text changes little.

Words and pairs of neighbouring words are hashed with blake2b, so the fingerprint is the same on every machine. Words
alone would not see a changed order; longer shingles would miss small edits. A small distance is a hint and no proof:
`values.agree` looks at what must not differ.
"""

from collections import Counter
from functools import lru_cache
from hashlib import blake2b
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from memorist.text.normalize import for_hash, one_line
from memorist.text.tokens import words

NEAR = 3  # bits that may differ between two fingerprints of one text
_BATCH = 65_536  # features counted at a time: bounds the memory that a long text needs


def simhash64(text: str) -> int:
    """Return the fingerprint of a text as an unsigned 64-bit number.

    >>> simhash64("I like tea.") == simhash64("i LIKE  tea! https://tea.example")
    True
    >>> distance(simhash64("I like tea"), simhash64("The train leaves at noon")) > 3
    True
    """
    features = _features(text)
    votes = np.zeros(64, dtype=np.int64)
    for start in range(0, len(features), _BATCH):
        votes += _votes(features[start : start + _BATCH])
    return int.from_bytes(np.packbits(votes > 0).tobytes(), "big")


def _features(text: str) -> list[tuple[str, int]]:
    found = words(for_hash(text))
    if not found:  # an emoji or a bare link still has to differ from the next one
        return [(one_line(text).lower(), 1)]
    return list(Counter(chain(found, map(" ".join, pairwise(found)))).items())


def _votes(features: list[tuple[str, int]]) -> NDArray[np.int64]:
    digests = b"".join([_digest(feature) for feature, _ in features])
    bits = np.unpackbits(np.frombuffer(digests, dtype=np.uint8).reshape(-1, 8), axis=1)
    counts = np.array([count for _, count in features], dtype=np.int64)
    votes: NDArray[np.int64] = 2 * (counts @ bits) - counts.sum()
    return votes


@lru_cache(maxsize=1 << 14)
def _digest(feature: str) -> bytes:
    return blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def distance(a: int, b: int) -> int:
    """Count the bits in which two fingerprints differ.

    >>> distance(0b1011, 0b0010)
    2
    """
    return (a ^ b).bit_count()


def near(hashes: NDArray[np.uint64], value: int, limit: int = NEAR) -> NDArray[np.intp]:
    """Return the positions of the fingerprints that differ from a value in at most `limit` bits.

    >>> near(np.array([0b1111, 0b0000, 0b0111], dtype=np.uint64), 0b0000).tolist()
    [1, 2]
    """
    return np.flatnonzero(np.bitwise_count(hashes ^ np.uint64(value)) <= limit)


def to_signed(value: int) -> int:
    """Return the fingerprint as the signed 64-bit number that a database keeps.

    >>> to_signed(2**64 - 1), to_signed(5)
    (-1, 5)
    """
    return value - (1 << 64) if value >= 1 << 63 else value


def to_unsigned(value: int) -> int:
    """Return the fingerprint that a database kept as a signed number.

    >>> to_unsigned(-1) == 2**64 - 1, to_unsigned(5)
    (True, 5)
    """
    return value % (1 << 64)
