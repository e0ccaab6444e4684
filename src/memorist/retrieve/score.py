"""The `default` ranking: a weighted sum of features, so that a score can be taken apart again.

The two legs are compared on an absolute scale: BM25 as a share of what the question's terms could reach, cosine as it
is. What stands around a memory, who said it and when support it. The weights are round numbers set by hand and
checked on parts of LoCoMo and iKAT; no weight is fitted to data.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from ..index import Snapshot
from . import dense, features, fuse, sparse
from .profiles import DEFAULT
from .question import ParsedQuestion

DEFAULT_WEIGHTS = DEFAULT.weights
Features = dict[str, NDArray[np.float32]]  # by name, one number per position


def floor(count: int) -> float:
    """The evidence below which a scope of so many memories has nothing to say.

    The best of many unrelated memories looks better than the best of a few, and in a short list even a faint match
    may be meant; so the floor rises with the size of the scope, steeply at first. It is for both legs together: where
    there is no vector, a shared word is evidence enough.

    >>> [round(floor(n), 2) for n in (10, 34, 100, 600, 100_000)]
    [0.03, 0.12, 0.25, 0.25, 0.3]
    """
    size = max(count, 1)
    short = min(max(0.03 + 0.4 * math.log10(size / 20), 0.03), 0.25)
    return max(short, min(0.12 * math.log10(size / 8), 0.3))


@dataclass(frozen=True, slots=True)
class Blend:
    """The best positions, best first, and what each part of their scores is."""

    positions: NDArray[np.int32]
    parts: dict[str, NDArray[np.float64]]  # weight · feature, aligned with positions
    score: NDArray[np.float64]  # the sum of the parts

    @property
    def evidence(self) -> float:
        """How well the best match answers by its own words alone."""
        return float(np.max(self.parts["sparse"] + self.parts["semantic"], initial=0.0))


def blend(
    snapshot: Snapshot,
    question: ParsedQuestion,
    query_vector: NDArray[np.float32] | None,
    allowed: NDArray[np.bool_] | None = None,
    weights: Mapping[str, float] = DEFAULT_WEIGHTS,
    now: datetime | None = None,
    pool: int = 100,
) -> Blend:
    """The best `pool` memories for a question; equal scores are ordered by row."""
    usable = snapshot.alive if allowed is None else snapshot.alive & allowed
    found = _own_words(snapshot, question, query_vector, usable)
    own = _weighed(found, weights)
    found |= _surroundings(snapshot, question, own) | _circumstances(snapshot, question, now)
    is_supported = usable & (own + found["neighbours"] > 0)
    return _best(
        found,
        weights,
        np.where(is_supported, _weighed(found, weights), np.float32(-np.inf)),
        snapshot.row,
        pool,
    )


def _own_words(
    snapshot: Snapshot,
    question: ParsedQuestion,
    vector: NDArray[np.float32] | None,
    usable: NDArray[np.bool_],
) -> Features:
    """The two legs; what may not be returned does not support its neighbours either."""
    lexical = fuse.absolute(*sparse.bm25(snapshot, question.terms))
    return {"sparse": lexical * usable, "semantic": dense.cosine(snapshot, vector) * usable}


def _surroundings(
    snapshot: Snapshot, question: ParsedQuestion, own: NDArray[np.float32]
) -> Features:
    """How well the turns around each memory match."""
    place = snapshot.places
    return {
        "neighbours": features.neighbours(own, place),
        "answers": features.answers(snapshot, own, place, asks_assistant=question.asks_assistant),
        "session": features.session(own, place),
        "summary": features.summary(snapshot, own),
    }


def _circumstances(snapshot: Snapshot, question: ParsedQuestion, now: datetime | None) -> Features:
    """Who said it, when, and whether it tells or asks: only what matters to this question."""
    found = {
        "question": features.question(snapshot),
        "role": features.role(snapshot, asks_assistant=question.asks_assistant),
        "insight": features.insight(snapshot),
    }
    if len(question.speakers) == 1:
        found["speaker"] = features.speaker(snapshot, question.speakers[0])
    if question.intervals:
        found["time"] = features.time(snapshot, question.intervals)
    if question.asks_when:
        found["tells_when"] = features.tells_when(snapshot)
    if now is not None:
        found["recency"] = features.recency(snapshot, now)
    return found


def _weighed(found: Features, weights: Mapping[str, float]) -> NDArray[np.float32]:
    """The weighted sum of features."""
    total = np.zeros_like(found["sparse"])
    for name, feature in found.items():
        if weight := weights.get(name, 0.0):
            total += np.float32(weight) * feature
    return total


def _best(
    found: Features,
    weights: Mapping[str, float],
    total: NDArray[np.float32],
    rows: NDArray[np.int64],
    pool: int,
) -> Blend:
    """The best of all, with exact sums; features that do not matter to this question count 0."""
    at_least = np.partition(total, -pool)[-pool] if 0 < pool < len(total) else np.float32(-np.inf)
    chosen = np.flatnonzero((total >= at_least) & (total > -np.inf))
    parts = {
        name: weight * found[name][chosen].astype(np.float64)
        if name in found
        else np.zeros(len(chosen))
        for name, weight in weights.items()
    }
    score = np.sum(list(parts.values()), axis=0)
    best = np.lexsort((rows[chosen], -np.round(score, 7)))[
        :pool
    ]  # equals by row, which is the same in every process
    return Blend(
        chosen[best].astype(np.int32),
        {name: part[best] for name, part in parts.items()},
        score[best],
    )
