"""The `default` ranking: a weighted sum of features, so that a score can be taken apart again.

The two legs are compared on an absolute scale: BM25 as a share of what the question's terms could reach, cosine as it
is. What stands around a memory, who said it and when support it. Weights are round and hand-set; how they were
checked is in docs/concepts/ranking.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from ..corpus import Corpus
from . import dense, features, fuse, sparse
from .understand import Question

DEFAULT_WEIGHTS: dict[str, float] = {
    "sparse": 1.0,
    "semantic": 1.0,
    "neighbours": 0.3,
    "answers": 0.2,
    "session": 0.2,
    "speaker": 0.2,
    "time": 0.2,
    "tells_when": 0.1,
    "question": -0.15,
    "role": -0.3,
    "recency": 0.02,
}
Parts = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Blend:
    """The best positions, best first, and what each part of their scores is."""

    positions: NDArray[np.int32]
    parts: dict[str, NDArray[np.float64]]  # weight · feature, aligned with positions
    score: NDArray[np.float64]  # the sum of the parts


def blend(
    corpus: Corpus,
    question: Question,
    query_vector: NDArray[np.float32] | None,
    allowed: NDArray[np.bool_] | None = None,
    weights: Mapping[str, float] = DEFAULT_WEIGHTS,
    now: datetime | None = None,
    pool: int = 100,
) -> Blend:
    """The best `pool` memories for a question; equal scores are ordered by position."""
    usable = corpus.alive if allowed is None else corpus.alive & allowed
    parts = _own_words(corpus, question, query_vector, usable, weights)
    own = parts["sparse"] + parts["semantic"]
    around = _surroundings(corpus, question, own) | _circumstances(corpus, question, now)
    parts |= {name: np.float32(weights.get(name, 0.0)) * feature for name, feature in around.items()}
    return _best(parts, usable & (own + parts["neighbours"] > 0), pool)


def _own_words(
    corpus: Corpus,
    question: Question,
    vector: NDArray[np.float32] | None,
    usable: NDArray[np.bool_],
    weights: Mapping[str, float],
) -> Parts:
    """The two legs; what may not be returned does not support its neighbours either."""
    lexical = fuse.absolute(sparse.bm25(corpus, question.terms), sparse.bound(corpus, question.terms))
    return {
        "sparse": np.float32(weights.get("sparse", 0.0)) * lexical * usable,
        "semantic": np.float32(weights.get("semantic", 0.0)) * dense.cosine(corpus, vector) * usable,
    }


def _surroundings(corpus: Corpus, question: Question, own: NDArray[np.float32]) -> Parts:
    """How well the turns around each memory match."""
    place = features.places(corpus)
    return {
        "neighbours": features.neighbours(own, place),
        "answers": features.answers(corpus, own, place, asks_assistant=question.asks_assistant),
        "session": features.session(own, place),
    }


def _circumstances(corpus: Corpus, question: Question, now: datetime | None) -> Parts:
    """What does not depend on the words of the memory: who said it, when, and whether it tells or asks."""
    parts = {
        "speaker": features.speaker(corpus, question.speakers),
        "role": features.role(corpus, asks_assistant=question.asks_assistant),
        "time": features.time(corpus, question.intervals),
        "tells_when": features.tells_when(corpus, asked=question.asks_when),
        "question": features.question(corpus),
    }
    return parts if now is None else parts | {"recency": features.recency(corpus, now)}


def _best(parts: Parts, usable: NDArray[np.bool_], pool: int) -> Blend:
    total = np.where(usable, sum(parts.values()), np.float32(-np.inf))
    at_least = np.partition(total, -pool)[-pool] if 0 < pool < len(total) else -np.inf
    found = np.flatnonzero(usable & (total >= at_least))
    exact = {name: part[found].astype(np.float64) for name, part in parts.items()}
    score = np.sum(list(exact.values()), axis=0)
    best = np.argsort(-score, kind="stable")[:pool]  # stable: equal scores stay in the order of positions
    return Blend(found[best].astype(np.int32), {name: part[best] for name, part in exact.items()}, score[best])
