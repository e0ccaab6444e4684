"""The estimate: how likely a memory has what is asked for, judged by two vectors.

A cosine tells whether two texts are about the same. A small network over the vectors of the second
model tells more: that "Our dog is called Balu" answers "What's my dog's name?", and not "How old is
my dog?". It was trained on English texts and works in all languages of the model, which places the
same statement of two languages at about the same point. See ADR-021.
"""

from __future__ import annotations

import numpy as np

from ..embedders.network import compare, load
from ..index.arrays import Positions
from .features import Column, SnapshotSearch

ESTIMATED = 40  # best candidates that have an estimate
CERTAIN = 4.0  # log odds from which an estimate counts fully
NEUTRAL = 0.5  # as likely as not


def estimate_best(search: SnapshotSearch, positions: Positions, order: Positions) -> Column:
    """Return the estimates of the best candidates, from 0 to 1; 0 for the others.

    What has no vector of the second model yet gets the best one, so that nothing overtakes it for that.
    `order` has the places of the candidates in `positions`, best first.
    """
    found = np.zeros(len(positions))
    best = order[:ESTIMATED]
    matrix, asked = search.snapshot.second, search.second
    assert matrix is not None
    assert asked is not None
    rows = matrix.rows.take(positions[best], axis=0)
    odds = compare(load("answers"), asked, rows)
    scaled = NEUTRAL + np.clip(odds, -CERTAIN, CERTAIN) / (2 * CERTAIN)
    has_vector = search.snapshot.has_second[positions[best]]
    highest = scaled.max(where=has_vector, initial=0.0)
    found[best] = np.where(has_vector, scaled, highest)
    return found
