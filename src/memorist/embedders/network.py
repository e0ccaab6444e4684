"""Small networks over the vectors of two texts, which tell more than a cosine does.

The second model places the same statement of two languages at about the same point, so networks over
its vectors work in all its languages. See ADR-021 and ADR-022.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..ports import Vectors
from .local import MINILM, MULTILINGUAL

Name = Literal["answers", "changes", "changes_english"]
FILES = {
    "answers": MULTILINGUAL / "answers.npz",  # has a memory what is asked for
    "changes": MULTILINGUAL / "changes.npz",  # does a text replace another
    "changes_english": MINILM / "changes.npz",  # the same, over vectors of MiniLM
}


class Network(NamedTuple):
    """The weights. The first two layers have a row for each of two kinds of comparison."""

    first: Vectors
    first_bias: Vectors
    second: Vectors
    hidden: Vectors
    hidden_bias: Vectors
    out: Vectors
    out_bias: Vectors


@cache
def load(name: Name) -> Network:
    """Read the packaged weights."""
    with np.load(FILES[name]) as arrays:
        return Network(*(arrays[each].astype(np.float32) for each in Network._fields))


def compare(network: Network, first: Vectors, others: Vectors) -> NDArray[Any]:
    """Return the log odds that what the network tells is true of a vector and each of the others."""
    one = np.vecdot(network.first, first) + network.first_bias
    two = np.vecdot(others[:, None], network.second)
    half = len(one) // 2
    added = np.maximum(one[:half] + two[:, :half], 0)
    multiplied = np.tanh(one[half:]) * np.tanh(two[:, half:])
    cosine = np.vecdot(others, first)[:, None]
    compared = np.concatenate([cosine, added, multiplied], axis=1)
    hidden = np.maximum(np.vecdot(compared[:, None], network.hidden) + network.hidden_bias, 0)
    return np.asarray(np.vecdot(hidden, network.out) + network.out_bias)
