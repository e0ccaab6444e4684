"""What surrounds one recall: building the query, writing back what was used, and feedback."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from ..context import Context
from ..errors import InvalidInput, ProviderFailed
from ..ingest import trim, validation
from ..retrieve import pipeline, profiles, render
from ..retrieve.profiles import Profile
from ..storage import access_log
from ..storage.access_log import MemoryAccess
from ..storage.changes import Event
from ..text import compare, normalize
from ..types import Filter, Labels, Memory, Query, Recall, Scope
from . import privacy

OVERVIEW = 40  # memories that an overview shows
UNLIMITED = 1 << 20  # tokens: more than any look-up returns


def build_query(
    ctx: Context,
    scope: Scope,
    labels: Labels,
    text: str,
    *,
    limit: int | None = None,
    budget: int | None = None,
    max_chars: int | None = None,
    profile: str | Profile | None = None,
    where: Filter | None = None,
    as_of: datetime | str | None = None,
    include_compressed: bool = False,
    rerank: bool | None = None,
) -> tuple[Query, Profile]:
    """Return a checked query and the profile that ranks it. Raises InvalidInput."""
    if not isinstance(text, str):
        raise InvalidInput(f"A question is text, not {type(text).__name__}")
    for name, value in (("limit", limit), ("budget", budget), ("max_chars", max_chars)):
        if value is not None:
            validation.number(name, value)
    if not isinstance(profile, Profile):
        profile = profiles.find(ctx.profiles, profile or ctx.settings.profile)
    if rerank is not None:
        profile = replace(profile, rerank=rerank)
    query = Query(
        text=normalize.storable(text[: ctx.settings.max_query_chars]),
        scope=scope,
        limit=limit or (profile.limit if budget is None else profile.most),
        budget=budget or profile.budget,
        max_chars=max_chars,
        where=validation.where(where),
        as_of=validation.moment(as_of),
        labels=labels,
        include_compressed=include_compressed,
    )
    return query, profile


async def look_up(
    ctx: Context, scope: Scope, labels: Labels, text: str, limit: int, where: Filter | None = None
) -> tuple[Memory, ...]:
    """Return what matches, also while memory is off: this is the person looking.

    An incognito session leaves no vector of its question.
    """
    query, profile = build_query(
        ctx,
        scope,
        labels,
        text,
        limit=limit,
        budget=UNLIMITED,
        where=where,
        include_compressed=True,
    )
    if await privacy.disabled_reason(ctx, scope, labels.session) == privacy.INCOGNITO:
        ctx = replace(ctx, embedder=None)
    return (await pipeline.recall(ctx, query, profile, ctx.clock())).memories


async def write_back(ctx: Context, query: Query, profile: Profile, answer: Recall) -> None:
    """Record which memories were returned: before the caller has them only if the profile says so."""
    now = ctx.clock()
    uses = []
    for hit in answer.hits:
        scores = trim.scores(hit.memory, hit.relevance, now)
        uses.append(MemoryAccess(memory_id=hit.memory.id, at=now, scores=scores))
    if not uses:
        return
    if not profile.scores_first:
        ctx.access_log.note(query.scope, uses)
        return
    with suppress(ProviderFailed):  # an answer does not fail because of its statistics
        async with ctx.store.transaction(query.scope) as tx:
            await access_log.record(tx, uses)


def log_search(ctx: Context, query: Query, answer: Recall) -> None:
    """Count a search, with the similarity of its best hit."""
    best = max((hit.relevance for hit in answer.hits), default=None)
    thread = query.labels.thread or query.labels.session
    event = Event(node="context", op="search", at=ctx.clock(), thread=thread, sim=best)
    ctx.access_log.note(query.scope, [event])


async def record_feedback(
    ctx: Context,
    scope: Scope,
    labels: Labels,
    recalled: Recall | Sequence[str],
    used: Sequence[str] | None,
    reply: str | None,
) -> dict[str, str]:
    """Return which recalled memories were used and how that is known, and count it."""
    if (used is None) == (reply is None):
        raise InvalidInput("Pass either `used` (ids) or `reply` (the text of the reply)")
    question = ""
    if isinstance(recalled, Recall):
        memories, question = [*recalled.memories], recalled.query.text
    else:
        validation.texts("recalled", recalled)
        memories = await ctx.store.get(scope, recalled)
    found: dict[str, str] = {}
    if reply is not None:
        validation.fields({"reply": reply})
        validation.size(reply, ctx.settings.max_text_chars)
        language = ctx.settings.language
        found = compare.find_used(reply, memories, asked=question, language=language)
    else:
        validation.texts("used", used)
        found = {memory.id: "told" for memory in memories if memory.id in (used or ())}
    if not await privacy.disabled_reason(ctx, scope, labels.session):
        event: dict[str, Any] = {"status": "ok" if found else "skipped"}
        event["thread"] = labels.thread or labels.session
        ctx.access_log.note(scope, [Event(node="context", op="use", at=ctx.clock(), **event)])
    return found


async def overview(ctx: Context, scope: Scope) -> str:
    """Return what is stored, for people to read: counts, pinned memories, then the newest."""
    pinned = await ctx.store.page(scope, Filter(pinned=True), limit=OVERVIEW)
    rest = await ctx.store.page(scope, Filter(pinned=False), limit=OVERVIEW)
    states = (await ctx.store.stats(scope, ctx.index.model))["states"]
    counts = ", ".join(f"{states[state]} {state.replace('_', ' ')}" for state in sorted(states))
    memories = render.grouped((*pinned.memories, *rest.memories)[:OVERVIEW])
    title = f"# {render.safe(scope.space)}: {counts or 'nothing is remembered here'}"
    return f"{title}\n{memories}".strip()
