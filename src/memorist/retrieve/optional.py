"""Steps that only some profiles take: a reranker, diversity, preferences first, and memories that
are related to the hits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from ..context import Context
from ..errors import ProviderFailed
from ..index import Snapshot
from ..index.arrays import products
from ..ports import Reranker, Vectors
from ..storage.queries import Reader
from ..types import Hit, Memory, Query
from .features import Column
from .profiles import Profile
from .render import IS_RELATED, RENDERERS, Caps, fit
from .replaced import repeats_any
from .score import Candidate

SIMILARITY = 0.8  # weight of similarity in the score without a reranker
IMPORTANCE = 0.2  # weight of importance in it
MOST_PREFERENCES = 100  # preferences that are read at most, where all of them come first
_TIE = 1e-9


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
    scores = np.array([each.score for each in candidates])
    positions = np.array([each.position for each in candidates], np.intp)
    tags = [frozenset(each.memory.tags) for each in candidates]
    chosen = order(scores, snapshot.vectors(positions), tags, trade=trade, k=k)
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


async def add_related(
    ctx: Context,
    profile: Profile,
    query: Query,
    hits: Sequence[Hit],
    text: str,
) -> tuple[tuple[Memory, ...], str]:
    """Return the memories linked to the hits that fit, nearest first, and the text with them.

    They have to pass the filter. Workflows, what is outdated and facts that only repeat a hit are
    left out.
    """
    returned = {hit.memory.id: hit.memory for hit in hits}
    ends: dict[str, None] = {}
    for link in await ctx.store.links(query.scope, list(returned)):
        ends |= {link.from_id: None, link.to_id: None}
    for id in returned:
        ends.pop(id, None)
    ids = tuple(ends)
    if not ids:
        return (), text
    where = replace(query.where, ids=ids, unexpired_at=ctx.clock())
    page = await ctx.store.page(query.scope, where, limit=len(ids))
    current = [memory for memory in page.memories if memory.valid_to is None]
    others = [memory for memory in current if memory.procedural_form != "workflow"]
    near = [memory for memory in others if not repeats_any(memory, returned)]
    near.sort(key=lambda memory: ids.index(memory.id))
    near = near[: profile.related]

    def render(memories: Sequence[Memory]) -> str:
        lines = [text]
        for memory in memories:
            line = RENDERERS[profile.render]([memory])
            lines.append(line + IS_RELATED)
        return "\n".join(lines)

    caps = Caps(tokens=query.budget, chars=query.max_chars)
    fitted = fit(near, caps, render, ctx.count_tokens)
    if not fitted.taken:
        return (), text
    return tuple(near[i] for i in fitted.taken), fitted.text
