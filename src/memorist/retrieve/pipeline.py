"""The recall pipeline, from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import numpy as np

from ..context import ROW, Context, compute
from ..embedders import encode_by_both
from ..errors import Misconfigured, ProviderFailed, StoreDamaged
from ..index import WORKING
from ..ports import Vectors
from ..storage.queries import Reader
from ..text import clock
from ..types import Cut, Filter, Hit, Memory, Query, Recall
from . import confidence, optional, period, replaced, score, verification
from .features import SnapshotSearch
from .profiles import Profile
from .question import understand
from .render import RENDERERS, Caps, fit
from .score import Candidate, Candidates

# For a scope whose vectors are in another index:
PROPOSED = 200  # rows that the index proposes
BY_WORDS = 200  # best matches by words, which are also compared
EXACT = 2_000  # if no more memories than this pass the filter, all of them are compared


async def recall(
    ctx: Context,
    query: Query,
    profile: Profile,
    now: datetime,
    *,
    revision: int | None = None,
) -> Recall:
    """Answer a question from memory. Pass the `revision` of the scope if it was just read."""
    if not query.text.strip():
        return Recall(query=query, profile=profile.name, hits=(), text="", tokens=0)
    search, legs = await prepare(ctx, query, profile, now, revision)
    profile = search.profile
    candidates = score.select(search, query.limit)
    found = await read(candidates, search, query, ctx.store, legs)
    rank = lambda: confidence.judge(search, score.rank(profile, found))  # noqa: E731
    sure, ranked = await compute(ROW * len(found.memories), rank)
    if ctx.verifier and sure is not None and confidence.is_uncertain(search, ranked, sure):
        verified = verification.verify(ctx.verifier, search, ranked, sure, ctx.store)
        sure, ranked, legs["verifier"] = await verified
    is_semantic = found.has_semantic
    if profile.rerank and ranked:
        reranked = optional.rerank(query.text, profile, ctx.reranker, ranked, semantic=is_semantic)
        ranked, legs["rerank"] = await reranked
    ranked, weak = score.keep(profile, ranked, semantic=is_semantic)
    outdated: list[Cut] = []
    if profile.current_first and ranked and query.as_of is None:
        is_open = has_only_states(query.where)  # other memories may be added
        ranked, outdated = await replaced.put_current_first(ranked, query, ctx.store, is_open)
    least = query.min_confidence
    ranked, unlikely = confidence.select(
        search,
        ranked,
        sure,
        least,
        verified=legs.get("verifier") == "ok",
        whole=profile.rerank,
    )
    if profile.diversity is not None:
        ranked = await compute(
            ROW * len(ranked),
            optional.diversify,
            ranked,
            search.snapshot,
            profile.diversity,
            k=4 * query.limit,
        )
    if profile.preferences_first:
        ranked = await optional.put_preferences_first(ranked, query, ctx.store, now)
    size = ROW * len(ranked)
    hits, cut, text = await compute(size, _select_fitting, ranked, profile, query, ctx.count_tokens)
    related: tuple[Memory, ...] = ()
    if profile.related and hits and query.as_of is None:
        related, text = await optional.add_related(ctx, profile, query, hits, text)
    return Recall(
        query=query,
        profile=profile.name,
        hits=hits,
        text=text,
        tokens=ctx.count_tokens(text) if text else 0,
        cut=(*cut, *outdated, *weak, *unlikely),
        confidence=sure,
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
    """Parse the question against the current scope. Return the search and the status of its legs."""
    where = query.where
    is_plain = has_only_states(where)
    snapshot = await ctx.index.current(query.scope, ctx.store, revision)
    states = where.states
    if query.include_compressed:
        states = (*states, "compressed")
    if states != ("active",) or query.as_of is not None:
        snapshot = snapshot.view(states, query.as_of)
    if profile.sources_only and is_plain:
        snapshot = snapshot.without_repeats
    usable = snapshot.alive
    if not is_plain:
        rows = await ctx.store.rows_where(query.scope, replace(where, states=()))
        is_found = np.isin(snapshot.row, np.array(rows, np.int64))
        usable = usable & is_found
        if profile.sources_only:
            usable = usable & ~snapshot.find_repeats(usable)
    if snapshot.has_expiring:
        usable = usable & (snapshot.expires > clock.micros(now))
    if not profile.working_elsewhere and query.labels.session is not None:
        session = snapshot.code("session", query.labels.session)
        is_elsewhere = (snapshot.kind == WORKING) & (snapshot.session != session)
        usable = usable & ~is_elsewhere
    multilingual = ctx.multilingual
    if snapshot.second is None or "multilingual" not in profile.features:
        multilingual = None
    needs_second = multilingual is not None and snapshot.lacks_second
    unembedded = snapshot.unembedded
    speakers = tuple(snapshot.codes["speaker"])
    search = SnapshotSearch(
        profile=profile,
        snapshot=snapshot,
        channel=snapshot.code("channel", query.labels.channel),
        question=understand(query.text, speakers, now, ctx.settings.language, query.scope.user),
        usable=usable,
        now=now,
    )
    if profile.by_period and search.question.asks_period:
        return await period.restrict(search, query.scope, ctx.store), {"time": "ok"}
    legs = {"sparse": "ok"}
    by_meaning = profile.candidates in ("blend", "fused", "dense")
    by_meaning |= profile.semantic_weight is not None
    by_meaning |= not profile.weights.keys().isdisjoint(("semantic", "relevance"))
    if not by_meaning or len(query.text.strip()) < profile.shortest:
        return search, legs
    try:
        if ctx.embedder is None:
            raise ProviderFailed("no embedding model is configured")
        if needs_second and ctx.filler is not None:
            ctx.filler.start()  # adds the missing vectors in the background
        text = search.question.dense_text
        made, others, problem = await encode_by_both(ctx.embedder, multilingual, [text])
    except ProviderFailed as error:
        legs["dense"] = str(error)
        return search, legs
    vector = made[0]
    search = replace(search, vector=vector, second=None if others is None else others[0])
    if problem:
        legs["multilingual"] = problem
    legs["dense"] = "ok"
    if snapshot.matrix is None:
        search, legs["dense"] = await _load_nearest(ctx, query, search, vector)
    if unembedded:
        missing = f"{unembedded} of {snapshot.count} memories have no vector yet"
        legs["dense"] = f"{missing}: run `memorist index`"
        if "unembedded" in profile.weights:
            legs["dense"] += "; until then, their words count again (`unembedded`)"
    return search, legs


def has_only_states(where: Filter) -> bool:
    """Return whether a filter restricts only states, so that the snapshot can answer alone."""
    return where == Filter(states=where.states)


async def _load_nearest(
    ctx: Context,
    query: Query,
    search: SnapshotSearch,
    vector: Vectors,
) -> tuple[SnapshotSearch, str]:
    """Add the vectors near the question, for a scope whose vectors are in another index.

    Return the search, and "ok" or what is wrong. The index only proposes rows: rows outside the
    scope are dropped, and every cosine is computed from the vectors in the store. The best matches
    by words are also compared, so that without the index, or with a stale one, an answer is poorer
    but never wrong.
    """
    snapshot = search.snapshot
    compared = np.flatnonzero(search.usable)
    rows: Sequence[int] = ()
    status = "ok"
    if len(compared) > min(EXACT, snapshot.count - 1):
        scope = query.scope
        try:
            if ctx.external_index is None:
                near = await ctx.store.nearest(
                    scope,
                    vector,
                    model=snapshot.model,
                    limit=PROPOSED,
                )
                rows = [row for row, _ in near]
            else:
                rows, status = await ctx.external_index.nearest(
                    scope,
                    vector,
                    limit=PROPOSED,
                    revision=snapshot.revision,
                )
        except Misconfigured:
            status = "no vector index is configured for a scope of this size"
        except ProviderFailed as error:
            status = str(error)
            if search.profile.semantic_weight is not None:  # its scale needs the best by meaning
                return replace(search, vector=None), status
        scores, _ = search.bm25
        matching = compared[scores[compared] > 0]
        order = np.argsort(-scores[matching], kind="stable")
        compared = matching[order[:BY_WORDS]]
    distinct = dict.fromkeys([*rows, *snapshot.row[compared].tolist()])
    vectors = await ctx.store.vectors(query.scope, list(distinct), model=snapshot.model)
    extended = snapshot.with_vectors(vectors)
    return replace(search, snapshot=extended), status


async def read(
    found: Candidates,
    search: SnapshotSearch,
    query: Query,
    store: Reader,
    legs: dict[str, str],
) -> Candidates:
    """Load the memories, and add the features of the profile that need them.

    Memories that were just erased or are damaged on disk are left out; damage is reported in
    `legs`.
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
    there = [i for i, row in enumerate(rows) if row in memories]
    if len(there) < len(rows):
        found = found.pick(there)
    loaded = [memories[rows[i]] for i in there]
    found = replace(found, memories=loaded)
    features = search.profile.features
    if "lexical" in features:
        size = sum(len(memory.text) for memory in loaded)
        shares = await compute(size, score.lexical, search.profile, query.text, loaded)
        found.features["lexical"] = shares
    if "related" in features:
        strongest = {memory.id: 0.0 for memory in loaded}
        links = await store.links(query.scope, list(strongest)) if strongest else []
        for link in links:
            for end in {link.from_id, link.to_id} & strongest.keys():
                strongest[end] = max(strongest[end], link.strength)
        found.features["related"] = np.array(list(strongest.values()))
    return found


def _select_fitting(
    ranked: list[Candidate],
    profile: Profile,
    query: Query,
    count: Callable[[str], int],
) -> tuple[tuple[Hit, ...], list[Cut], str]:
    """Return the hits that fit into the budget, what was cut, and the rendered text."""
    caps = Caps(limit=query.limit, tokens=query.budget, chars=query.max_chars)
    cost: Callable[[Memory], int] | None = None
    if profile.budget_of == "content":
        cost = lambda memory: max(1, count(memory.text))  # noqa: E731
    memories = [each.memory for each in ranked]
    fitted = fit(memories, caps, RENDERERS[profile.render], count, cost=cost)
    cut = [ranked[i].cut(reason, fits=False) for i, reason in fitted.cut.items()]
    hits = []
    for i in fitted.taken:
        each = ranked[i]
        hit = Hit(
            memory=each.memory,
            score=each.score,
            parts=each.parts,
            relevance=each.relevance,
            confidence=each.confidence,
            tokens=count(each.memory.text),
        )
        hits.append(hit)
    return tuple(hits), cut, fitted.text
