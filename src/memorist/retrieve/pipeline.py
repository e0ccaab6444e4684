"""The recall pipeline, from top to bottom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import numpy as np

from ..context import Context
from ..embedders import encode
from ..errors import Misconfigured, ProviderFailed, StoreDamaged
from ..index import WORKING
from ..ports import Vectors
from ..storage.queries import Reader
from ..text import clock
from ..text.offload import ROW, compute, length
from ..types import Cut, Hit, Memory, Query, Recall
from . import confidence, reorder, score
from .features import SnapshotSearch
from .profiles import Profile
from .question import understand
from .render import IS_RELATED, RENDERERS, Caps, fit
from .score import Candidate, Candidates

MEASURED = 10  # candidates by which confidence is judged
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
    candidates = select(search, query)
    found = await read(candidates, search, query, ctx.store, legs)
    size = ROW * len(found.memories)
    ranked = await compute(size, score.rank, profile, found)
    is_semantic = found.has_semantic
    sure, ranked = await compute(size, confidence.judge, search, ranked)
    if profile.rerank and ranked:
        ranked, legs["rerank"] = await reorder.rerank(
            query.text,
            profile,
            ctx.reranker,
            ranked,
            semantic=is_semantic,
        )
    ranked, weak = score.keep(
        profile,
        ranked,
        semantic=is_semantic,
    )
    outdated: list[Cut] = []
    if profile.current_first and ranked and query.as_of is None:
        ranked, outdated = await reorder.put_current_first(ranked, query, ctx.store)
    ranked, unlikely = confidence.select(
        search,
        ranked,
        sure,
        query.min_confidence,
        whole=profile.rerank,
    )
    if profile.diversity is not None:
        ranked = await compute(
            ROW * len(ranked),
            reorder.diversify,
            ranked,
            search.snapshot,
            profile.diversity,
            k=4 * query.limit,
        )
    if profile.preferences_first:
        ranked = await reorder.put_preferences_first(ranked, query, ctx.store, now)
    size = ROW * len(ranked)
    hits, cut, text = await compute(size, _select_fitting, ranked, profile, query, ctx.count_tokens)
    related: tuple[Memory, ...] = ()
    if profile.related and hits and query.as_of is None:
        related, text = await _add_related(ctx, profile, query, hits, text)
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
    snapshot = await ctx.index.current(query.scope, ctx.store, revision)
    states = query.where.states
    if query.include_compressed:
        states = (*states, "compressed")
    if states != ("active",) or query.as_of is not None:
        snapshot = snapshot.view(states, query.as_of)
    if profile.sources_only and query.where.is_plain:
        snapshot = snapshot.without_repeats
    usable = snapshot.alive
    if not query.where.is_plain:
        where = replace(query.where, states=())
        rows = await ctx.store.rows_where(query.scope, where)
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
    question = understand(
        query.text,
        tuple(snapshot.codes["speaker"]),
        now,
        ctx.settings.language,
    )
    search = SnapshotSearch(
        profile=profile,
        snapshot=snapshot,
        question=question,
        usable=usable,
        now=now,
        channel=snapshot.code("channel", query.labels.channel),
    )
    legs = {"sparse": "ok"}
    if not profile.needs_vector or len(query.text.strip()) < profile.shortest:
        return search, legs
    try:
        if ctx.embedder is None:
            raise ProviderFailed("no embedding model is configured")
        vectors, second = await asyncio.gather(
            encode(ctx.embedder, [question.dense_text]),
            _encode_second(ctx, search, legs),
        )
    except ProviderFailed as error:
        legs["dense"] = str(error)
        return search, legs
    search = replace(search, vector=vectors[0], second=second)
    legs["dense"] = "ok"
    if snapshot.is_lean:
        search, legs["dense"] = await _load_nearest(ctx, query, search, vectors[0])
    if snapshot.unembedded:
        missing = f"{snapshot.unembedded} of {snapshot.count} memories have no vector yet"
        legs["dense"] = f"{missing}: run `memorist index`"
    return search, legs


async def _encode_second(
    ctx: Context,
    search: SnapshotSearch,
    legs: dict[str, str],
) -> Vectors | None:
    """Return the question's vector by the second model, if the profile and the scope use it.

    Vectors that the scope lacks are added in the background.
    """
    snapshot = search.snapshot
    if ctx.multilingual is None or snapshot.second is None or "multilingual" not in search.used:
        return None
    if snapshot.lacks_second and ctx.filler is not None:
        ctx.filler.start()
    try:
        (vector,) = await encode(ctx.multilingual, [search.question.dense_text])
    except ProviderFailed as error:
        legs["multilingual"] = str(error)
        return None
    return np.asarray(vector)


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


def select(search: SnapshotSearch, query: Query, *, everything: bool = False) -> Candidates:
    """Select candidates: a few more than requested, or everything that matches."""
    profile = search.profile
    limit = query.limit
    pool = max(30, 4 * limit)
    if everything:
        pool = search.snapshot.n
    elif profile.candidates in ("dense", "recent"):
        pool = 0  # their specifications define the number
    elif profile.candidates == "blend" and not profile.rerank and profile.diversity is None:
        pool = max(limit, MEASURED) + 2  # confidence is judged by the same number for any limit
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
    there = []
    loaded = []
    for i, row in enumerate(rows):
        if row in memories:
            there.append(i)
            loaded.append(memories[row])
    if len(there) < len(rows):
        found = found.pick(there)
    found = replace(found, memories=loaded)
    if "lexical" in search.used:
        size = length(memory.text for memory in loaded)
        shares = await compute(size, score.lexical, search.profile, query.text, loaded)
        found.features["lexical"] = shares
    if "related" in search.used:
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

    def measure(memory: Memory) -> int:
        return max(1, count(memory.text))

    memories = [each.memory for each in ranked]
    fitted = fit(
        memories,
        caps,
        RENDERERS[profile.render],
        count,
        cost=None if profile.budget_of == "rendered" else measure,
    )
    cut = []
    for i, reason in fitted.cut.items():
        each = ranked[i]
        cut.append(Cut(id=each.memory.id, reason=reason, score=each.score, fits=False))
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


async def _add_related(
    ctx: Context,
    profile: Profile,
    query: Query,
    hits: Sequence[Hit],
    text: str,
) -> tuple[tuple[Memory, ...], str]:
    """Return the memories linked to the hits that fit, nearest first, and the text with them.

    They have to pass the filter. Workflows and what is outdated are left out.
    """
    own = [hit.memory.id for hit in hits]
    ends: dict[str, None] = {}
    for link in await ctx.store.links(query.scope, own):
        ends |= {link.from_id: None, link.to_id: None}
    for id in own:
        ends.pop(id, None)
    ids = tuple(ends)
    if not ids:
        return (), text
    where = replace(query.where, ids=ids, unexpired_at=ctx.clock())
    page = await ctx.store.page(query.scope, where, limit=len(ids))
    current = [memory for memory in page.memories if memory.valid_to is None]
    near = [memory for memory in current if memory.procedural_form != "workflow"]
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
