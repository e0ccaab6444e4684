"""Reorder the best candidates: what is current first, with a reranker, for diversity, or with
preferences first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from ..errors import ProviderFailed
from ..index import Snapshot
from ..index.arrays import products
from ..ports import Reranker, Vectors
from ..storage.queries import Reader
from ..text.changes import asks_for_another_part, says_more
from ..types import REPLACES, Cut, Query
from .features import Column
from .profiles import Profile
from .score import Candidate

SIMILARITY = 0.8  # weight of similarity in the score without a reranker
IMPORTANCE = 0.2  # weight of importance in it
MOST_PREFERENCES = 100  # preferences that are read at most, where all of them come first
_TIE = 1e-9


async def put_current_first(
    ranked: list[Candidate],
    query: Query,
    store: Reader,
) -> tuple[list[Candidate], list[Cut]]:
    """Put what may replace a candidate before it; if that is certain, in its place.

    A turn such as "it is ten now" may not match the question: it takes over the score and the
    confidence of what it replaces, unless the question is about another part of that. A candidate
    that says more than what was replaced stays, unless a fact that was extracted from it and is
    still valid is found, too. A pinned one is always returned with what may replace it.
    """
    by_id = {each.memory.id: each for each in ranked}
    restated: set[str] = set()
    for each in ranked:
        if each.memory.valid_to is None:
            restated.update(each.memory.evidence_ids)
    pairs = await store.links(query.scope, list(by_id), REPLACES)
    newer = {pair.from_id for pair in pairs} - by_id.keys()
    added = []
    if newer and query.where.is_plain:
        added = await store.get(query.scope, sorted(newer))
    memories = {memory.id: memory for memory in added}
    cut: dict[str, Cut] = {}
    for pair in sorted(pairs, key=lambda pair: pair.at):
        old = by_id[pair.to_id]
        new = by_id.get(pair.from_id)
        memory = memories.get(pair.from_id) if new is None else new.memory
        if memory is None:
            continue
        is_certain = old.memory.valid_to is not None
        if new is None and not is_certain and not old.memory.pinned:
            continue
        if asks_for_another_part(query.text, old.memory.text, memory.text):
            continue
        if new is None:
            new = replace(old, memory=memory, parts={}, features={}, score=0.0)
        if new.score <= old.score:
            score = old.score + _TIE
            parts = {**new.parts, "current": score - new.score}
            new = replace(new, parts=parts, score=score, confidence=old.confidence)
        by_id[pair.from_id] = new
        if is_certain and (pair.to_id in restated or not says_more(old.memory.text)):
            reason = f"it was replaced by {pair.from_id}"
            cut[pair.to_id] = Cut(id=pair.to_id, reason=reason, score=old.score)
    kept = [each for id, each in by_id.items() if id not in cut]
    return sorted(kept, key=lambda each: -each.score), list(cut.values())


async def rerank(
    question: str,
    profile: Profile,
    reranker: Reranker | None,
    candidates: list[Candidate],
    *,
    semantic: bool,
) -> tuple[list[Candidate], str]:
    """Return the candidates in the order of the reranker, and "ok" or why it failed.

    Without a reranker, the default ranking stays; other profiles mix similarity and importance. Of
    equals, the most recently changed comes first.
    """
    leg = "semantic" if semantic else "sparse"
    texts = [each.memory.text for each in candidates]
    reranked: list[float] | None = None
    status = "ok"
    try:
        if reranker is None:
            raise ProviderFailed("no reranker is configured: set `reranker`")
        scores = await reranker.score(question, texts)
        reranked = scores.tolist()
    except ProviderFailed as error:
        status = str(error)
        if profile.candidates == "blend":
            return candidates, status
    scored = []
    for i, each in enumerate(candidates):
        if reranked is not None:
            parts = {"rerank": reranked[i]}
        else:
            parts = {
                leg: SIMILARITY * each.features[leg],
                "importance": IMPORTANCE * each.memory.importance,
            }
        nonzero = {name: part for name, part in parts.items() if part}
        changed = replace(each, parts=nonzero, score=sum(parts.values()))
        scored.append(changed)
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
    values = []
    tags = []
    positions = []
    for each in candidates:
        values.append(each.score)
        tags.append(frozenset(each.memory.tags))
        positions.append(each.position)
    chosen = order(
        np.array(values),
        snapshot.vectors(np.array(positions, np.intp)),
        tags,
        trade=trade,
        k=k,
    )
    return [candidates[i] for i in chosen]


def order(
    values: Column,
    vectors: Vectors,
    tags: Sequence[frozenset[str]],
    *,
    trade: float,
    k: int,
) -> list[int]:
    """Choose k indices by maximal marginal relevance (MMR).

    Each is chosen by its value, minus its similarity to those chosen before. `trade` is λ: 1 uses
    the value alone, 0 the difference alone. A row of zeros is a missing vector and is compared by
    tags. Of equals, the one that shares the fewest tags with those chosen comes first, then the
    first in the list.

    >>> unit = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], np.float32)
    >>> order(np.array([1.0, 0.9, 0.5]), unit, [frozenset()] * 3, trade=0.5, k=2)
    [0, 2]
    """
    if not len(values):
        return []
    similar: Column = np.clip(products(vectors, vectors.T), 0, 1).astype(np.float64)
    for i in np.flatnonzero(~vectors.any(axis=1)).tolist():
        similar[i] = similar[:, i] = [tag_overlap(tags[i], other) for other in tags]
    low = values.min()
    spread = values.max() - low
    worth = np.ones(len(values))
    if spread:
        worth = (values - low) / spread
    is_left = np.ones(len(values), np.bool_)
    chosen: list[int] = []
    chosen_tags: set[str] = set()
    nearest = np.zeros(len(values))
    while len(chosen) < min(k, len(values)):
        marginal = np.where(is_left, trade * worth - (1 - trade) * nearest, -np.inf)
        tied = np.flatnonzero(marginal >= marginal.max() - _TIE).tolist()
        pick = min(tied, key=lambda i: (len(tags[i] & chosen_tags), -values[i], i))
        chosen.append(pick)
        chosen_tags |= tags[pick]
        is_left[pick] = False
        nearest = np.maximum(nearest, similar[pick])
    return chosen


def tag_overlap(a: frozenset[str], b: frozenset[str]) -> float:
    """Return the Jaccard similarity of two sets of tags.

    >>> tag_overlap(frozenset("ab"), frozenset("bc"))
    0.3333333333333333
    """
    return len(a & b) / (len(a | b) or 1)


async def put_preferences_first(
    ranked: list[Candidate],
    query: Query,
    store: Reader,
    now: datetime,
) -> list[Candidate]:
    """Put all preferences before everything else, newest first, whether they match or not."""
    kinds = query.where.kinds
    if kinds and "procedural" not in kinds:
        return ranked
    found: dict[str, Candidate] = {}
    others = []
    for each in ranked:
        if each.memory.kind == "procedural":
            found[each.memory.id] = each
        else:
            others.append(each)
    candidates = list(found.values())
    if query.as_of is None:
        where = replace(query.where, kinds=("procedural",), unexpired_at=now)
        most = max(query.limit, MOST_PREFERENCES)
        page = await store.page(query.scope, where, limit=most)
        candidates = [found.get(memory.id) or Candidate(memory=memory) for memory in page]
    candidates.sort(key=lambda each: each.memory.updated_at, reverse=True)
    preferences = [each for each in candidates if each.memory.procedural_form != "workflow"]
    return preferences + others
