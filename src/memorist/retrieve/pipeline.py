"""Recall, from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import numpy as np

from ..context import Context
from ..embedders import encode
from ..errors import ProviderFailed, StoreDamaged
from ..index.snapshot import WORKING
from ..ports import Vectors
from ..storage.queries import Reader
from ..text.tokens import IS_EXTRACTED
from ..types import Cut, Hit, Memory, Query, Recall
from . import features, reorder, score
from .features import SnapshotSearch, understand
from .profiles import Profile
from .render import RENDERERS, Caps, fit
from .score import Candidate, Candidates

# Of a scope whose vectors another index holds:
PROPOSED = 200  # rows that the index proposes
BY_WORDS = 200  # best matches by words, which are compared, too
EXACT = 2_000  # if a filter lets through no more than this, all of it is compared


async def recall(
    ctx: Context,
    query: Query,
    profile: Profile,
    now: datetime,
    *,
    revision: int | None = None,
) -> Recall:
    """Answer a question from memory; `revision` is that of the scope, if it was read just now."""
    if not query.text.strip():
        return Recall(query=query, profile=profile.name)
    search, legs = await prepare(ctx, query, profile, now, revision)
    candidates = select(search, query)
    found = await read(candidates, search, query, ctx.store, legs)
    ranked = score.rank(profile, found)
    is_semantic = found.has_semantic
    is_chance = score.is_chance(search, ranked)
    if profile.rerank and ranked:
        ranked, legs["rerank"] = await reorder.rerank(
            query.text, profile, ctx.reranker, ranked, semantic=is_semantic
        )
    ranked, weak = score.keep(profile, ranked, semantic=is_semantic, chance=is_chance)
    if profile.diversity is not None:
        most = 4 * query.limit
        ranked = reorder.diversify(ranked, search.snapshot, profile.diversity, k=most)
    if profile.sources_first:
        ranked = score.put_repeats_last(ranked, query.limit)
    if profile.preferences_first:
        ranked = await reorder.put_preferences_first(ranked, query, ctx.store)
    hits, cut, text = _select_fitting(ranked, profile, query, ctx.count_tokens)
    related: tuple[Memory, ...] = ()
    if profile.related and hits and query.as_of is None:
        related, text = await _add_related(ctx, profile, query, hits, text)
    return Recall(
        query=query,
        profile=profile.name,
        hits=hits,
        text=text,
        tokens=ctx.count_tokens(text) if text else 0,
        cut=(*cut, *weak),
        related=related,
        legs=legs,
    )


async def prepare(
    ctx: Context,
    query: Query,
    profile: Profile,
    now: datetime,
    revision: int | None = None,
) -> tuple[SnapshotSearch, dict[str, str]]:
    """Read the question against the scope as it is now, and tell which legs can answer."""
    snapshot = await ctx.index.current(query.scope, ctx.store, revision)
    states = query.where.states
    if query.include_compressed:
        states = (*states, "compressed")
    if states != ("active",) or query.as_of is not None:
        snapshot = snapshot.view(states, query.as_of)
    usable = snapshot.alive
    if not query.where.is_plain:
        where = replace(query.where, states=())
        rows = await ctx.store.rows_where(query.scope, where)
        usable = usable & np.isin(snapshot.row, np.array(rows, np.int64))
    if not profile.working_elsewhere:
        here = snapshot.session == snapshot.code("session", query.labels.session)
        usable = usable & ((snapshot.kind != WORKING) | here)
    speakers = tuple(snapshot.codes["speaker"])
    question = understand(query.text, speakers, now, ctx.settings.language)
    search = SnapshotSearch(
        profile=profile,
        snapshot=snapshot,
        question=question,
        usable=usable,
        now=now,
        channel=snapshot.code("channel", query.labels.channel),
    )
    legs = {"sparse": "ok"}
    if profile.needs_vector and len(query.text.strip()) >= profile.shortest:
        search, legs["dense"] = await _embed(ctx, search)
        if snapshot.is_lean and search.vector is not None:
            search, status = await _load_nearest(ctx, query, search, search.vector)
            if legs["dense"] == "ok":
                legs["dense"] = status
    return search, legs


async def _embed(ctx: Context, search: SnapshotSearch) -> tuple[SnapshotSearch, str]:
    """Add the question's vector, and return "ok" or why the dense leg does not see everything."""
    if ctx.embedder is None:
        return search, "no embedding model is configured"
    try:
        vectors = await encode(ctx.embedder, [search.question.dense_text])
    except ProviderFailed as error:
        return search, str(error)
    status = "ok"
    snapshot = search.snapshot
    if snapshot.unembedded:
        missing = f"{snapshot.unembedded} of {snapshot.count} memories have no vector yet"
        status = f"{missing}: run `memorist index`"
    return replace(search, vector=vectors[0]), status


async def _load_nearest(
    ctx: Context,
    query: Query,
    search: SnapshotSearch,
    vector: Vectors,
) -> tuple[SnapshotSearch, str]:
    """Add the vectors near the question, and return "ok" or what is wrong.

    For a scope whose vectors another index holds. The index only proposes rows: what is not in the
    scope is dropped, and every cosine is computed again from the store's own vectors. The best
    matches by words are compared, too, so that without the index, or with a stale one, an answer is
    poorer but never wrong.
    """
    snapshot = search.snapshot
    usable = search.usable
    if int(usable.sum()) <= min(EXACT, snapshot.count - 1):
        rows = snapshot.row[usable].tolist()
        status = "ok"
    else:
        rows = []
        status = "no vector index is configured for a scope of this size"
        if ctx.external_index is not None:
            try:
                rows, status = await ctx.external_index.nearest(
                    query.scope, vector, limit=PROPOSED, revision=snapshot.revision
                )
            except ProviderFailed as error:
                status = str(error)
        scores, _ = search.bm25
        matching = np.flatnonzero(usable & (scores > 0))
        order = np.argsort(-scores[matching], kind="stable")
        best = matching[order[:BY_WORDS]]
        rows = [*rows, *snapshot.row[best].tolist()]
    distinct = list(dict.fromkeys(rows))
    vectors = await ctx.store.vectors(query.scope, distinct, model=snapshot.model)
    return replace(search, snapshot=snapshot.with_vectors(vectors)), status


def select(search: SnapshotSearch, query: Query, *, everything: bool = False) -> Candidates:
    """Find candidates: a few more than are wanted, or everything that matches."""
    profile = search.profile
    limit = query.limit
    pool = max(30, 4 * limit)
    if everything:
        pool = search.snapshot.n
    elif profile.candidates in ("dense", "recent"):
        pool = 0  # these specifications say how many
    elif profile.candidates == "blend" and not profile.rerank and profile.diversity is None:
        pool = limit + 2
    if profile.sources_first and search.snapshot.marked[IS_EXTRACTED].any():
        pool *= 2  # some will be put last
    if profile.candidates == "blend":
        return score.select_best(search, pool=pool)
    return score.select_by_legs(search, limit=limit, pool=pool)


async def read(
    found: Candidates,
    search: SnapshotSearch,
    query: Query,
    store: Reader,
    legs: dict[str, str],
) -> Candidates:
    """Read the memories, and add the features that need them, where the profile uses such.

    A memory that was just erased or altered on disk is left out; `legs` then tells about the
    damage.
    """
    rows = search.snapshot.row[found.positions].tolist()
    try:
        memories = await store.at_rows(query.scope, rows)
    except StoreDamaged as error:
        legs["store"] = str(error)
        memories = {}
        for row in rows:
            with suppress(StoreDamaged):
                memories |= await store.at_rows(query.scope, [row])
    if len(memories) < len(rows):
        there = [i for i, row in enumerate(rows) if row in memories]
        found = found.pick(there)
    in_order = [memories[row] for row in rows if row in memories]
    found = replace(found, memories=in_order)
    if "lexical" in search.used:
        shares = features.lexical(search.profile, query.text, found.memories)
        found = found.with_feature("lexical", shares)
    if "related" in search.used:
        ids = [memory.id for memory in found.memories]
        strongest: dict[str, float] = {}
        links = await store.links(query.scope, ids) if ids else ()
        for link in links:
            for end in (link.from_id, link.to_id):
                known = strongest.get(end, 0.0)
                strongest[end] = max(known, link.strength)
        strengths = np.array([strongest.get(id, 0.0) for id in ids])
        found = found.with_feature("related", strengths)
    return found


def _select_fitting(
    ranked: list[Candidate],
    profile: Profile,
    query: Query,
    count: Callable[[str], int],
) -> tuple[tuple[Hit, ...], list[Cut], str]:
    """Return the hits that fit into the budget, what was cut, and the text."""
    caps = Caps(limit=query.limit, tokens=query.budget, chars=query.max_chars)
    cost = None if profile.budget_of == "rendered" else lambda memory: max(1, count(memory.text))
    memories = [each.memory for each in ranked]
    render = RENDERERS[profile.render]
    fitted = fit(memories, caps, render, count, cost=cost)
    cut = []
    for i, reason in fitted.cut.items():
        each = ranked[i]
        cut.append(Cut(id=each.memory.id, reason=reason, score=each.score))
    hits = []
    for i in fitted.taken:
        each = ranked[i]
        hit = Hit(
            memory=each.memory,
            score=each.score,
            parts=dict(each.parts),
            relevance=each.relevance,
            tokens=count(each.memory.text),
        )
        hits.append(hit)
    return tuple(hits), cut, fitted.text


async def _add_related(
    ctx: Context,
    profile: Profile,
    query: Query,
    hits: Sequence[Hit],
    text: str,
) -> tuple[tuple[Memory, ...], str]:
    """Return what the hits are linked to, nearest first, as far as it fits, and the text with it.

    Only what the filter lets through, and no how-to.
    """
    own = [hit.memory.id for hit in hits]
    ends: dict[str, None] = {}
    for link in await ctx.store.links(query.scope, own):
        ends |= {link.from_id: None, link.to_id: None}
    ids = tuple(id for id in ends if id not in own)
    if not ids:
        return (), text
    where = replace(query.where, ids=ids)
    page = await ctx.store.page(query.scope, where, limit=len(ids))
    found: dict[str, Memory] = {}
    for memory in page.memories:
        if memory.procedural_form != "workflow":
            found[memory.id] = memory
    near = [found[id] for id in ids if id in found]
    near = near[: profile.related]

    def render(memories: Sequence[Memory]) -> str:
        lines = [f"{RENDERERS[profile.render]([memory])} (related)" for memory in memories]
        return "\n".join([text, *lines])

    caps = Caps(tokens=query.budget, chars=query.max_chars)
    fitted = fit(near, caps, render, ctx.count_tokens)
    if not fitted.taken:
        return (), text
    return tuple(near[i] for i in fitted.taken), fitted.text
