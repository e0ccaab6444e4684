"""Which memories a question is measured against, and what is known of each before any text is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..index import Snapshot
from ..text import clock
from . import dense, fuse, sparse
from . import score as blend
from .profiles import Profile
from .question import ParsedQuestion

Column = NDArray[np.float64]
PER_LEG = 100  # of each leg's ranking, where rankings are fused


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Positions with their features, and once they are scored, the score and the parts that add up to it."""

    positions: NDArray[np.intp]
    features: Mapping[str, Column]
    parts: Mapping[str, Column] = field(default_factory=dict)
    score: Column = field(default_factory=lambda: np.empty(0))
    is_chance: bool = (
        False  # the best match is no better than the best of so many unrelated memories would be
    )

    def taken(self, order: NDArray[np.intp]) -> Candidates:
        """The same for some of the positions, in the given order; -1 stands for one that was not found."""
        return Candidates(
            positions=_picked(self.positions, order),
            features={name: _picked(column, order) for name, column in self.features.items()},
            parts={name: _picked(column, order) for name, column in self.parts.items()},
            score=_picked(self.score, order) if len(self.score) else np.zeros(len(order)),
            is_chance=self.is_chance,
        )

    def parts_of(self, i: int) -> dict[str, float]:
        """What adds up to the score of one candidate."""
        return {name: float(column[i]) for name, column in self.parts.items() if column[i]}


def _picked(column: NDArray[Any], order: NDArray[np.intp]) -> NDArray[Any]:
    if not len(order) or order.min() >= 0:
        return column[order]
    return np.append(column, np.zeros(1, column.dtype))[order]


def find(
    profile: Profile,
    snapshot: Snapshot,
    question: ParsedQuestion,
    vector: NDArray[np.float32] | None,
    allowed: NDArray[np.bool_],
    *,
    channel: int,
    limit: int,
    pool: int,
    now: datetime,
) -> Candidates:
    """The candidates of a profile, with the features that need no text."""
    if profile.candidates == "blend":
        best = blend.blend(snapshot, question, vector, allowed, profile.weights, now, pool)
        positions = best.positions.astype(np.intp)
        near = np.zeros(len(positions)) if vector is None else snapshot.vectors(positions) @ vector
        return Candidates(
            positions=positions,
            features={"semantic": np.asarray(near, np.float64)},
            parts=best.parts,
            score=best.score,
            is_chance=vector is not None
            and snapshot.is_embedded
            and best.evidence < blend.floor(snapshot.count),
        )
    lexical, _ = sparse.bm25(snapshot, question.terms)
    semantic = dense.cosine(snapshot, vector)
    usable = allowed & snapshot.alive
    if profile.candidates == "fused":
        rankings = [
            _ranking(leg, usable, snapshot.row, max(pool, PER_LEG)).tolist()
            for leg in (lexical, semantic)
        ]
        fused = fuse.reciprocal_rank(rankings, k=profile.rrf_k)
        positions, ranks = np.array(list(fused), np.intp), np.array(list(fused.values()))
    else:
        positions = _chosen(profile, snapshot, lexical, semantic, usable, limit=limit, pool=pool)
        ranks = np.zeros(len(positions))
    features = _features(profile, snapshot, positions, lexical, semantic, channel, now)
    return Candidates(positions=positions, features={**features, "fused": ranks})


def _chosen(
    profile: Profile,
    snapshot: Snapshot,
    lexical: NDArray[np.float32],
    semantic: NDArray[np.float32],
    usable: NDArray[np.bool_],
    *,
    limit: int,
    pool: int,
) -> NDArray[np.intp]:
    if profile.candidates == "all":
        return np.flatnonzero(usable)
    if profile.candidates == "recent":
        found = np.flatnonzero(usable)
        return found[np.lexsort((snapshot.row[found], -snapshot.updated[found]))][
            : max(pool, min(180, 12 * limit))
        ]
    leg = semantic if (semantic * usable).any() else lexical
    return _ranking(leg, usable, snapshot.row, max(pool, 4 * limit))


def _ranking(
    scores: NDArray[np.float32], usable: NDArray[np.bool_], rows: NDArray[np.int64], most: int
) -> NDArray[np.intp]:
    """Positions with a score above 0, best first, equals by row."""
    found = np.flatnonzero(usable & (scores > 0))
    if len(found) > most:
        at_least = np.partition(scores[found], -most)[-most]
        found = found[scores[found] >= at_least]
    return found[np.lexsort((rows[found], -scores[found]))][:most]


def _features(
    profile: Profile,
    snapshot: Snapshot,
    positions: NDArray[np.intp],
    lexical: NDArray[np.float32],
    semantic: NDArray[np.float32],
    channel: int,
    now: datetime,
) -> dict[str, Column]:
    best = float(lexical.max()) if len(lexical) else 0.0
    share = (lexical[positions] / best if best > 0 else lexical[positions]).astype(np.float64)
    near = semantic[positions].astype(np.float64)
    importance = snapshot.importance[positions].astype(np.float64)
    return {
        "sparse": share,
        "semantic": near,
        "relevance": np.where(snapshot.embedded[positions] & semantic.any(), near, share),
        "recency": _recency(profile, snapshot, positions, now),
        "importance": importance,
        "level": np.clip(np.ceil(np.round(5 * importance, 6)), 1, 5) / 5,
        "confidence": snapshot.confidence[positions].astype(np.float64),
        "channel": _channel(snapshot, positions, channel),
        "pinned": snapshot.pinned[positions].astype(np.float64),
        "related": np.zeros(len(positions)),
    }


def _recency(
    profile: Profile, snapshot: Snapshot, positions: NDArray[np.intp], now: datetime
) -> Column:
    if profile.recency is None:
        return np.zeros(len(positions))
    age = (
        np.maximum(clock.micros(now) - snapshot.created[positions], 0) / 1e6
    )  # a date in the future is now
    if profile.recency.shape == "hyperbolic":
        return np.asarray(1.0 / (1.0 + age / profile.recency.scale))
    return np.asarray(np.exp(-age / profile.recency.scale))


def _channel(snapshot: Snapshot, positions: NDArray[np.intp], channel: int) -> Column:
    """1 in the channel of the question, 0.25 for what belongs to none, 0 elsewhere or if no channel is asked from."""
    if channel == -1:
        return np.zeros(len(positions))
    there = snapshot.channel[positions]
    return np.where(there == channel, 1.0, np.where(there == -1, 0.25, 0.0))
