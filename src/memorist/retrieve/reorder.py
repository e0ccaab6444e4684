"""Reorder the best candidates: by a reranker, for diversity, or with preferences first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..errors import ProviderFailed
from ..index.snapshot import Snapshot
from ..ports import Reranker, Vectors
from ..storage.queries import Reader
from ..types import Query
from .features import Column
from .profiles import Profile
from .score import Candidate

SIMILARITY = 0.8  # the mix that replaces a reranker: this much of similarity
IMPORTANCE = 0.2  # and this much of importance
MOST_PREFERENCES = 100  # that are read, where all of them come first
_TIE = 1e-9


async def rerank(
    question: str,
    profile: Profile,
    reranker: Reranker | None,
    candidates: list[Candidate],
    *,
    semantic: bool,
) -> tuple[list[Candidate], str]:
    """Return the candidates in the order of the reranker, and "ok" or why it could not rank them.

    Without a reranker, a profile that would rank by it alone mixes similarity and importance; the
    others stay as they are. Equals are ordered by the newer change.
    """
    try:
        if reranker is None:
            raise ProviderFailed("no re-ranker is configured: set `reranker`")
        scores = await reranker.score(question, [each.memory.text for each in candidates])
        parts = [{"rerank": value} for value in scores.tolist()]
        status = "ok"
    except ProviderFailed as error:
        status = str(error)
        if profile.candidates == "blend":
            return candidates, status
        leg = "semantic" if semantic else "sparse"
        parts = []
        for each in candidates:
            similarity = SIMILARITY * each.features[leg]
            parts.append({leg: similarity, "importance": IMPORTANCE * each.memory.importance})
    scored = []
    for each, named in zip(candidates, parts, strict=True):
        nonzero = {name: part for name, part in named.items() if part}
        scored.append(replace(each, parts=nonzero, score=sum(named.values())))
    scored.sort(key=lambda c: (-c.score, -c.memory.updated_at.timestamp(), c.memory.id))
    return scored, status


def diversify(
    candidates: list[Candidate],
    snapshot: Snapshot,
    trade: float,
    *,
    k: int,
) -> list[Candidate]:
    """Return the best k candidates in the order of maximal marginal relevance."""
    if len(candidates) < 2:
        return candidates
    values = np.array([each.score for each in candidates])
    tags = [frozenset(each.memory.tags) for each in candidates]
    positions = np.array([each.position for each in candidates], np.intp)
    chosen = order(values, snapshot.vectors(positions), tags, trade=trade, k=k)
    return [candidates[i] for i in chosen]


def order(
    values: Column,
    vectors: Vectors,
    tags: Sequence[frozenset[str]],
    *,
    trade: float,
    k: int,
) -> list[int]:
    """Choose k places, each for its value and against what was chosen before.

    Of two memories that say the same, the second is worth less. `trade` is λ: 1 counts value alone,
    0 difference alone. A row of zeros has no vector and is compared by tags. Of equals the one that
    shares the fewest tags with those chosen comes first, then the one that came first.

    >>> unit = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], np.float32)
    >>> order(np.array([1.0, 0.9, 0.5]), unit, [frozenset()] * 3, trade=0.5, k=2)
    [0, 2]
    """
    if not len(values):
        return []
    similar: Column = np.clip(vectors @ vectors.T, 0, 1).astype(np.float64)
    for i in np.flatnonzero(~vectors.any(axis=1)).tolist():
        similar[i] = similar[:, i] = [tag_overlap(tags[i], other) for other in tags]
    low = values.min()
    spread = values.max() - low
    worth = (values - low) / spread if spread else np.ones(len(values))
    left = list(range(len(values)))
    chosen: list[int] = []
    chosen_tags: set[str] = set()
    nearest = np.zeros(len(values))
    while left and len(chosen) < k:
        marginal = trade * worth[left] - (1 - trade) * nearest[left]
        tied = [left[i] for i in np.flatnonzero(marginal >= marginal.max() - _TIE)]
        pick = min(tied, key=lambda i: (len(tags[i] & chosen_tags), -values[i], i))
        chosen.append(pick)
        chosen_tags |= tags[pick]
        left.remove(pick)
        nearest = np.maximum(nearest, similar[pick])
    return chosen


def tag_overlap(a: frozenset[str], b: frozenset[str]) -> float:
    """Return shared tags over all tags.

    >>> tag_overlap(frozenset("ab"), frozenset("bc"))
    0.3333333333333333
    """
    return len(a & b) / (len(a | b) or 1)


async def put_preferences_first(
    ranked: list[Candidate],
    query: Query,
    store: Reader,
) -> list[Candidate]:
    """Put all preferences before everything else, newest first, whether they match or not."""
    kinds = query.where.kinds
    if kinds and "procedural" not in kinds:
        return ranked
    found = {each.memory.id: each for each in ranked}
    there = [each.memory for each in ranked if each.memory.kind == "procedural"]
    if query.as_of is None:
        where = replace(query.where, kinds=("procedural",))
        most = max(query.limit, MOST_PREFERENCES)
        there = [*await store.page(query.scope, where, limit=most)]
    there.sort(key=lambda memory: memory.updated_at, reverse=True)
    wanted = [memory for memory in there if memory.procedural_form != "workflow"]
    first = [found.get(memory.id) or Candidate(memory=memory) for memory in wanted]
    return first + [each for each in ranked if each.memory.kind != "procedural"]
