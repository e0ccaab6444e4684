"""The estimate: how likely a memory has what is asked for, judged by two vectors.

A cosine tells whether two texts are about the same. A small network over the vectors of the second
model tells more: that "Our dog is called Balu" answers "What's my dog's name?", and not "How old is
my dog?". It was trained on English texts and works in all languages of the model, which places the
same statement of two languages at about the same point. See ADR-021.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from ..embedders.local import MULTILINGUAL
from ..index.arrays import Floats, Positions
from ..ports import Vectors
from .features import Column, SnapshotSearch

ESTIMATED = 40  # best candidates that have an estimate
CERTAIN = 4.0  # log odds from which an estimate counts fully
NEUTRAL = 0.5  # as likely as not


class Network(NamedTuple):
    """The weights. The first two layers have a row for each of two kinds of comparison."""

    question: Floats
    question_bias: Floats
    memory: Floats
    hidden: Floats
    hidden_bias: Floats
    out: Floats
    out_bias: Floats


@cache
def load() -> Network:
    """Read the packaged weights."""
    with np.load(MULTILINGUAL / "estimate.npz") as arrays:
        return Network(*(arrays[name].astype(np.float32) for name in Network._fields))


def estimate(network: Network, question: Vectors, memories: Vectors) -> Floats:
    """Return the log odds that each memory has what is asked for, given their vectors."""
    asked = np.vecdot(network.question, question) + network.question_bias
    stated = np.vecdot(memories[:, None], network.memory)
    half = len(asked) // 2
    added = np.maximum(asked[:half] + stated[:, :half], 0)
    multiplied = np.tanh(asked[half:]) * np.tanh(stated[:, half:])
    cosine = np.vecdot(memories, question)[:, None]
    compared = np.concatenate([cosine, added, multiplied], axis=1)
    hidden = np.maximum(np.vecdot(compared[:, None], network.hidden) + network.hidden_bias, 0)
    return np.asarray(np.vecdot(hidden, network.out) + network.out_bias)


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
    odds = estimate(load(), asked, rows)
    scaled = NEUTRAL + np.clip(odds, -CERTAIN, CERTAIN) / (2 * CERTAIN)
    has_vector = search.snapshot.has_second[positions[best]]
    highest = scaled.max(where=has_vector, initial=0.0)
    found[best] = np.where(has_vector, scaled, highest)
    return found
