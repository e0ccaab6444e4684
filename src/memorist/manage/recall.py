"""Recall, and what surrounds it: the query, why a memory was left out, and the record of its use."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from textwrap import shorten
from typing import TypedDict, Unpack

import numpy as np

from ..context import Context, Place, access_scores, observed
from ..errors import InvalidInput, ProviderFailed
from ..ingest import validation
from ..ingest.validation import Where
from ..retrieve import pipeline, score
from ..retrieve.profiles import Profile
from ..storage import Event
from ..storage.store import MemoryAccess, record_access
from ..text import normalize
from ..types import REPLACES, Filter, Memory, Query, Reason, Recall
from . import privacy, updates

NO_MATCH = "it shares no word with the question, and its meaning is not similar"
MOST_SHOWN = 120  # characters of a text in a reason
UNLIMITED = 1 << 20  # tokens: more than any look-up returns


class RecallOptions(TypedDict, total=False):
    """How to answer a question; the profile decides what is left out."""

    limit: int | None
    budget: int | None  # tokens of the rendered text
    max_chars: int | None  # of the rendered text
    profile: str | Profile | None
    where: Where | None
    as_of: datetime | str | None  # answer from what was valid then
    include_compressed: bool
    rerank: bool | None  # None: as the profile says
    min_confidence: float | None  # below it, nothing is returned; at 0, everything that matches


@observed("recall", len)
async def recall_memories(
    place: Place,
    query: str,
    *,
    since: int | None = None,
    **options: Unpack[RecallOptions],
) -> Recall:
    """Return the memories that answer a question: at most `limit`, within `budget` tokens.

    Other options are `max_chars`, `profile`, `where`, `as_of`, `include_compressed`, `rerank`
    and `min_confidence`: an answer below this confidence is empty; 0 returns all that matches,
    and None leaves it to the profile. If a component is unavailable, the others answer and
    `legs` says so. With `since`, the text begins with what changed in this thread after that
    revision, as `delta` returns it. Raises InvalidInput.
    """
    asked, by = build_query(place, query, options)
    ctx = place.ctx
    session = place.labels.session
    disabled, checks = await ctx.load_disabled(ctx.store, place.scope, [session])
    if disabled:
        legs = {"memory": disabled[session]}
        return Recall(query=asked, profile=by.name, hits=(), text="", tokens=0, legs=legs)
    changed = None
    fitted = asked
    if since is not None:
        changed, fitted = await updates.reserve_header(ctx, asked, since)
    now = ctx.clock()
    revision = None if checks is None else checks.revision
    find = place.recall_offline or pipeline.recall
    answer = await find(ctx, fitted, by, now, revision=revision)
    await record_use(ctx, asked, by, answer, now)
    if ctx.extractor is not None:
        ctx.extractor.start()
    return answer if changed is None else updates.add_header(ctx, asked, changed, answer)


def build_query(
    place: Place,
    text: str,
    options: RecallOptions,
    *,
    verb: str = "recall",
) -> tuple[Query, Profile]:
    """Return a checked query and the profile that ranks it. Raises InvalidInput."""
    validation.options(verb, options, RecallOptions)
    if not isinstance(text, str):
        raise InvalidInput(f"A question is text, not {type(text).__name__}")
    ctx = place.ctx
    limit, budget = options.get("limit"), options.get("budget")
    max_chars = options.get("max_chars")
    validation.limits(limit=limit, budget=budget, max_chars=max_chars)
    profile = options.get("profile")
    if not isinstance(profile, Profile):
        profile = ctx.profiles[profile or ctx.settings.profile]
    rerank = options.get("rerank")
    if rerank is not None:
        profile = replace(profile, rerank=rerank)
    query = Query(
        scope=place.scope,
        limit=limit or (profile.limit if budget is None else profile.most),
        budget=budget or profile.budget,
        max_chars=max_chars,
        where=validation.where(options.get("where")),
        as_of=validation.moment(options.get("as_of")),
        labels=place.labels,
        include_compressed=options.get("include_compressed", False),
        min_confidence=validation.share("min_confidence", options.get("min_confidence")),
        text=normalize.storable(text[: ctx.settings.max_query_chars]),
    )
    return query, profile


async def look_up(
    place: Place,
    text: str,
    limit: int,
    where: Where | None = None,
    *,
    as_of: datetime | None = None,
) -> tuple[Memory, ...]:
    """Return what matches, also while memory is off, because the person asked for it."""
    answer = await search(place, text, limit, where, as_of=as_of)
    return answer.memories


async def search(
    place: Place,
    text: str,
    limit: int,
    where: Where | None = None,
    *,
    as_of: datetime | None = None,
    min_confidence: float | None = None,
    outdated: bool = False,
) -> Recall:
    """Return an answer to the person, also while memory is off; its use is not recorded.

    With `outdated`, what was replaced is found as if it were still true. The question of an
    incognito session is not embedded.
    """
    options = RecallOptions(
        limit=limit,
        budget=UNLIMITED,
        where=where,
        as_of=as_of,
        include_compressed=True,
        min_confidence=min_confidence,
    )
    query, profile = build_query(place, text, options)
    if outdated:
        profile = replace(profile, current_first=False)
    ctx = replace(place.ctx, verifier=None)  # a topic is not a question
    profile = replace(profile, by_period=False)
    if await privacy.find_disabled_reason(place) == privacy.INCOGNITO:
        ctx = replace(ctx, embedder=None)
    return await pipeline.recall(ctx, query, profile, ctx.clock())


async def explain(
    ctx: Context,
    query: Query,
    memory: Memory,
    profile: Profile,
    now: datetime,
) -> Reason:
    """Return how one memory ranks for a question, and why it was returned or left out."""
    id = memory.id
    answer = await pipeline.recall(ctx, query, profile, now)
    for rank, hit in enumerate(answer.hits, 1):
        if hit.memory.id == id:
            return Reason(
                id=id,
                returned=True,
                reason="it was returned",
                rank=rank,
                score=hit.score,
                parts=hit.parts,
            )
    search, legs = await pipeline.prepare(ctx, query, profile, now)
    profile = search.profile
    found = score.select(search, query.limit, everything=True)
    if profile.features & {"lexical", "related"}:
        found = await pipeline.read(found, search, query, ctx.store, legs)
    parts, total = score.score_all(profile, found)
    rows = await ctx.store.rows_where(query.scope, Filter(ids=(id,), states=()))
    found_rows = search.snapshot.row[found.positions]
    places = np.flatnonzero(np.isin(found_rows, rows))
    if not len(places):
        why = _why_absent(memory, query, sources_only=profile.sources_only)
        if search.in_period is not None and why == NO_MATCH:
            why = "it was not said in the time that the question names, and names no date in it"
        return Reason(id=id, returned=False, reason=why)
    i = int(places[0])
    better = int((total > total[i]).sum())
    value = float(total[i])
    shown = {name: float(column[i]) for name, column in parts.items() if column[i]}
    cuts = [cut for cut in answer.cut if cut.id == id]
    is_verified = answer.legs.get("verifier") == "ok" and not profile.rerank
    if cuts and is_verified:  # the only part that needs the whole answer
        shown["verdict"] = cuts[0].score - value
        value = cuts[0].score
    reasons = [await _name_newer(ctx, memory, cut.reason) for cut in cuts]
    if not answer.hits:
        reasons += [cut.reason for cut in answer.cut]
    if better:
        reasons.append(f"{better} memories match the question better")
    return Reason(
        id=id,
        returned=False,
        reason=[*reasons, "others match the question equally well"][0],
        rank=better + 1,
        score=value,
        parts=shown,
    )


async def _name_newer(ctx: Context, memory: Memory, reason: str) -> str:
    """Return the reason, with the text of the memory that it names as the newer one."""
    pairs = await ctx.store.links(memory.scope, [memory.id], REPLACES)
    ids = [pair.from_id for pair in pairs if pair.from_id in reason]
    for newer in await ctx.store.get(memory.scope, ids):
        text = shorten(newer.text, MOST_SHOWN, placeholder=" …")
        reason = reason.replace(newer.id, f'"{text}" ({newer.id})')
    return reason


def _why_absent(memory: Memory, query: Query, *, sources_only: bool) -> str:
    states = query.where.states
    then = query.as_of
    if then is not None:
        begins = memory.valid_from is None or memory.valid_from <= then
        ends = memory.valid_to is not None and memory.valid_to <= then
        if not begins or ends:
            return f"it was not valid at {then.isoformat()}"
    elif states and memory.state not in states:
        return f"it is {memory.state}; only {', '.join(states)} memories were requested"
    if not pipeline.has_only_states(query.where):
        return "it does not pass the filter"
    if memory.evidence_text and memory.evidence_ids and sources_only:
        return f"it was extracted from {memory.evidence_ids[0]}, which is searched in its place"
    return NO_MATCH


async def record_use(
    ctx: Context,
    query: Query,
    profile: Profile,
    answer: Recall,
    now: datetime,
) -> None:
    """Record a search and which memories it returned.

    The caller waits until the scores are stored only if the profile says so.
    """
    scope = query.scope
    uses = []
    for hit in answer.hits:
        scores = access_scores(hit.memory, hit.relevance, now)
        use = MemoryAccess(memory_id=hit.memory.id, at=now, scores=scores)
        uses.append(use)
    if uses and profile.scores_first:
        with suppress(ProviderFailed):  # an answer does not fail because of its statistics
            async with ctx.store.transaction(scope) as tx:
                await record_access(tx, uses)
    else:
        ctx.access_log.note(scope, uses)
    best = max([hit.relevance for hit in answer.hits], default=None)
    thread = query.labels.thread or query.labels.session
    event = Event(node="context", op="search", at=now, thread=thread, sim=best)
    ctx.access_log.note(scope, [event])
