"""Recall, from top to bottom."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from ..context import Context
from ..embedders import checked
from ..errors import ProviderFailed, StoreDamaged
from ..index import WORKING, Snapshot
from ..ports import Embedder, Vectors
from ..storage.queries import Reader
from ..text.tokens import IS_EXTRACTED
from ..types import Cut, Hit, Memory, Query, Recall, Scope
from . import budget, candidates, diversify, external_index, features, links, rerank, score
from .features import SnapshotSearch
from .profiles import Profile
from .question import ParsedQuestion, understand
from .render import RENDERERS
from .score import Candidate, Candidates

MOST_PREFERENCES = 100  # that are read, where all of them come first


async def recall(
    ctx: Context, query: Query, profile: Profile, now: datetime, *, revision: int | None = None
) -> Recall:
    """Answer a question from memory; `revision` is that of the scope, if it was read just now."""
    if not query.text.strip():
        return Recall(query=query, profile=profile.name, hits=(), text="", tokens=0)
    search, legs = await prepare(ctx, query, profile, now, revision)
    found = select(search, query)
    found = await read(found, search, query.scope, ctx.store, legs)
    found = await add_text_features(found, search, query, ctx.store)
    ranked = score.rank(profile, found)
    chance = score.is_chance(search, ranked)
    if profile.rerank and ranked:
        ranked, legs["rerank"] = await rerank.rerank(
            query.text, profile, ctx.reranker, ranked, semantic=found.has_semantic
        )
    ranked, weak = score.keep(profile, ranked, semantic=found.has_semantic, chance=chance)
    if profile.diversity is not None:
        ranked = diversify.diversify(ranked, search.snapshot, profile.diversity, k=4 * query.limit)
    if profile.sources_first:
        ranked = _put_sources_first(ranked, query.limit)
    if profile.preferences_first:
        ranked = await _put_preferences_first(ranked, query, ctx.store)
    hits, cut, text = _fit(ranked, profile, query, ctx.count_tokens)
    related: tuple[Memory, ...] = ()
    if profile.related and hits and query.as_of is None:
        related, text = await links.add_related(
            profile, query, hits, text, ctx.store, ctx.count_tokens
        )
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
    ctx: Context, query: Query, profile: Profile, now: datetime, revision: int | None = None
) -> tuple[SnapshotSearch, dict[str, str]]:
    """Read the question against the scope as it is now, and tell which legs can answer."""
    snapshot = await ctx.index.current(query.scope, ctx.store, revision)
    states = query.where.states
    if query.include_compressed:
        states = (*states, "compressed")
    if states != ("active",) or query.as_of is not None:
        snapshot = snapshot.view(states, query.as_of)
    usable = await _usable(snapshot, query, profile, ctx.store)
    question = understand(query.text, snapshot.speakers, now, ctx.settings.language)
    vector, legs = None, {"sparse": "ok"}
    if profile.needs_vector and len(query.text.strip()) >= profile.shortest:
        vector, legs["dense"] = await _embed(question, snapshot, ctx.embedder)
    if snapshot.is_lean and vector is not None:
        snapshot, status = await external_index.load_nearest(
            snapshot, question.terms, vector, usable, query.scope, ctx.store, ctx.external_index
        )
        if legs["dense"] == "ok":
            legs["dense"] = status
    search = SnapshotSearch(
        profile=profile,
        snapshot=snapshot,
        question=question,
        vector=vector,
        usable=usable,
        now=now,
        channel=snapshot.code("channel", query.labels.channel),
    )
    return search, legs


async def _usable(
    snapshot: Snapshot, query: Query, profile: Profile, store: Reader
) -> NDArray[np.bool_]:
    """Mark what the filter, asked of the store, and the profile let through."""
    usable = snapshot.alive
    if not query.where.is_plain:
        rows = await store.rows_where(query.scope, replace(query.where, states=()))
        usable = usable & np.isin(snapshot.row, np.array(rows, np.int64))
    if not profile.working_elsewhere:
        here = snapshot.session == snapshot.code("session", query.labels.session)
        usable = usable & ((snapshot.kind != WORKING) | here)
    return usable


async def _embed(
    question: ParsedQuestion, snapshot: Snapshot, embedder: Embedder | None
) -> tuple[Vectors | None, str]:
    """Return the question's vector, and "ok" or why the dense leg does not see everything."""
    if embedder is None:
        return None, "no embedding model is configured"
    try:
        vectors = await checked.encode(embedder, [question.dense_text])
    except ProviderFailed as error:
        return None, str(error)
    if snapshot.is_embedded:
        return vectors[0], "ok"
    missing = f"{snapshot.unembedded} of {snapshot.count} memories have no vector yet"
    return vectors[0], f"{missing}: run `memorist index`"


def select(search: SnapshotSearch, query: Query, *, everything: bool = False) -> Candidates:
    """Find candidates: a few more than are wanted, or everything that matches."""
    profile, limit, pool = search.profile, query.limit, max(30, 4 * query.limit)
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
    return candidates.select(search, limit=limit, pool=pool)


async def read(
    found: Candidates, search: SnapshotSearch, scope: Scope, store: Reader, legs: dict[str, str]
) -> Candidates:
    """Read the memories; one that was just erased or altered on disk is left out.

    `legs` then tells about the damage.
    """
    rows = search.snapshot.row[found.positions].tolist()
    try:
        memories = await store.at_rows(scope, rows)
    except StoreDamaged as error:
        legs["store"] = str(error)
        memories = {}
        for row in rows:
            with suppress(StoreDamaged):
                memories |= await store.at_rows(scope, [row])
    if len(memories) < len(rows):
        there = [i for i, row in enumerate(rows) if row in memories]
        found, rows = found.pick(np.array(there, np.intp)), [rows[i] for i in there]
    return replace(found, memories=[memories[row] for row in rows])


async def add_text_features(
    found: Candidates, search: SnapshotSearch, query: Query, store: Reader
) -> Candidates:
    """Add the features that need texts or links, where the profile uses them."""
    if "lexical" in search.used:
        words = features.lexical(search.profile, query.text, found.memories)
        found = found.with_feature("lexical", words)
    if "related" in search.used:
        found = found.with_feature("related", await links.strengths(query, found.memories, store))
    return found


def _put_sources_first(ranked: list[Candidate], limit: int) -> list[Candidate]:
    """Put a fact last if the turns it was extracted from are among the first themselves."""
    first = {each.memory.id for each in ranked[:limit]}

    def is_repeated(candidate: Candidate) -> bool:
        sources = candidate.memory.evidence_ids
        return bool(candidate.memory.evidence_text and sources) and first.issuperset(sources)

    return sorted(ranked, key=is_repeated)


async def _put_preferences_first(
    ranked: list[Candidate], query: Query, store: Reader
) -> list[Candidate]:
    """Put all preferences before everything else, newest first, whether they match or not."""
    kinds = query.where.kinds
    if kinds and "procedural" not in kinds:
        return ranked
    found = {each.memory.id: each for each in ranked}
    there = [each.memory for each in ranked if each.memory.kind == "procedural"]
    if query.as_of is None:
        where = replace(query.where, kinds=("procedural",))
        page = await store.page(query.scope, where, limit=max(query.limit, MOST_PREFERENCES))
        there = list(page.memories)
    there.sort(key=lambda memory: memory.updated_at, reverse=True)
    wanted = [memory for memory in there if memory.procedural_form != "workflow"]
    first = [found.get(memory.id) or Candidate(memory=memory) for memory in wanted]
    return first + [each for each in ranked if each.memory.kind != "procedural"]


def _fit(
    ranked: list[Candidate], profile: Profile, query: Query, count: Callable[[str], int]
) -> tuple[tuple[Hit, ...], list[Cut], str]:
    """Return the hits that fit into the budget, what was cut, and the text."""
    caps = budget.Caps(limit=query.limit, tokens=query.budget, chars=query.max_chars)
    cost = None if profile.budget_of == "rendered" else lambda memory: max(1, count(memory.text))
    memories = [each.memory for each in ranked]
    fitted = budget.fit(memories, caps, RENDERERS[profile.render], count, cost=cost)
    cut = []
    for i, reason in fitted.cut.items():
        cut.append(Cut(id=memories[i].id, reason=reason, score=ranked[i].score))
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
