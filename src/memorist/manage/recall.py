"""What surrounds one recall: the query, what changed in the thread, use and feedback.

Each change of a thread has its own revision, so a header that stops after three lines continues
with the next change: nothing is reported twice or left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TypedDict

import numpy as np

from ..context import Context, Place
from ..errors import InvalidInput, ProviderFailed, StoreUnavailable
from ..ingest import validation
from ..retrieve import pipeline, profiles, render, score
from ..retrieve.profiles import Profile
from ..storage import Event
from ..storage.history import ThreadChange, Updates, shown_revision, thread_changes
from ..storage.queries import Reader
from ..storage.store import MemoryAccess, access_scores, record_access
from ..text import compare, normalize
from ..types import Filter, Memory, Query, Reason, Recall, Scope
from . import privacy

BULLETS = 3  # lines of a header
UNLIMITED = 1 << 20  # tokens: more than any look-up returns


class RecallOptions(TypedDict, total=False):
    """How to answer a question; the profile decides what is left out."""

    limit: int | None
    budget: int | None  # tokens of the rendered text
    max_chars: int | None  # of the rendered text
    profile: str | Profile | None
    where: Filter | None
    as_of: datetime | str | None  # answer from what was valid then
    include_compressed: bool
    rerank: bool | None  # None: as the profile says
    min_confidence: float | None  # below it, nothing is returned; at 0, everything that matches


def build_query(
    place: Place,
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
    min_confidence: float | None = None,
) -> tuple[Query, Profile]:
    """Return a checked query and the profile that ranks it. Raises InvalidInput."""
    ctx = place.ctx
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
        scope=place.scope,
        limit=limit or (profile.limit if budget is None else profile.most),
        budget=budget or profile.budget,
        max_chars=max_chars,
        where=validation.where(where),
        as_of=validation.moment(as_of),
        labels=place.labels,
        include_compressed=include_compressed,
        min_confidence=validation.share("min_confidence", min_confidence),
    )
    return query, profile


async def look_up(
    place: Place,
    text: str,
    limit: int,
    where: Filter | None = None,
) -> tuple[Memory, ...]:
    """Return what matches, also while memory is off, because the person asked for it.

    The question of an incognito session is not embedded.
    """
    query, profile = build_query(
        place,
        text,
        limit=limit,
        budget=UNLIMITED,
        where=where,
        include_compressed=True,
    )
    ctx = place.ctx
    if await privacy.find_disabled_reason(place) == privacy.INCOGNITO:
        ctx = replace(ctx, embedder=None)
    answer = await pipeline.recall(ctx, query, profile, ctx.clock())
    return answer.memories


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
    found = pipeline.select(search, query, everything=True)
    if search.used & {"lexical", "related"}:
        found = await pipeline.read(found, search, query, ctx.store, legs)
    parts, total = score.score_all(profile, found)
    rows = await ctx.store.rows_where(query.scope, Filter(ids=(id,), states=()))
    found_rows = search.snapshot.row[found.positions]
    places = np.flatnonzero(np.isin(found_rows, rows))
    if not len(places):
        return Reason(id=id, returned=False, reason=_why_absent(memory, query))
    i = int(places[0])
    better = int((total > total[i]).sum())
    reasons = [cut.reason for cut in answer.cut if cut.id == id]
    if not answer.hits:
        reasons += [cut.reason for cut in answer.cut]
    if better:
        reasons.append(f"{better} memories match the question better")
    return Reason(
        id=id,
        returned=False,
        reason=[*reasons, "others match the question equally well"][0],
        rank=better + 1,
        score=float(total[i]),
        parts={name: float(column[i]) for name, column in parts.items() if column[i]},
    )


def _why_absent(memory: Memory, query: Query) -> str:
    states = query.where.states
    then = query.as_of
    if then is not None:
        begins = memory.valid_from is None or memory.valid_from <= then
        ends = memory.valid_to is not None and memory.valid_to <= then
        if not begins or ends:
            return f"it was not valid at {then.isoformat()}"
    elif states and memory.state not in states:
        return f"it is {memory.state}; only {', '.join(states)} memories were requested"
    if not query.where.is_plain:
        return "it does not pass the filter"
    return "it shares no word with the question, and its meaning is not similar"


async def record_use(
    ctx: Context,
    query: Query,
    profile: Profile,
    answer: Recall,
) -> None:
    """Record a search and which memories it returned.

    The caller waits until the scores are stored only if the profile says so.
    """
    now = ctx.clock()
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
    event = Event(
        node="context",
        op="search",
        at=now,
        thread=thread,
        sim=best,
    )
    ctx.access_log.note(scope, [event])


async def read_updates(
    place: Place,
    since: int | None = None,
    *,
    thread: str | None = None,
) -> Updates:
    """Return what changed in a thread after a revision, in at most three lines.

    Without a revision it continues after the last change it returned. Raises InvalidInput.
    """
    ctx, scope, labels = place.parts
    validation.fields({"thread": thread})
    name = thread or labels.thread or labels.session
    if name is None or isinstance(since, bool) or not isinstance(since, int | None):
        raise InvalidInput(
            "Name the thread, here or with `scope(…, thread=…)`,"
            " and pass the revision as an integer"
        )
    if await privacy.find_disabled_reason(place, thread or None):
        return Updates(thread=name, since=since or 0, revision=since or 0, changes=(), text="")
    if since is not None:
        return await _collect(ctx.store, scope, name, since)
    async with ctx.store.transaction(scope) as tx:
        since = await shown_revision(tx, scope, name)
        updates = await _collect(tx, scope, name, since)
        await tx.mark_shown(name, updates.revision)
    return updates


async def _collect(reading: Reader, scope: Scope, thread: str, since: int) -> Updates:
    """Return the first changes after a revision, one line each, and the revision of the last.

    Of several changes of one kind to a memory only the last counts; what is new is not reported as
    changed.
    """
    log = await thread_changes(reading, scope, thread, since)
    ids = [change.memory_id for change in log]
    found = await reading.get(scope, ids)
    current: dict[str, Memory] = {}
    replaced: list[str] = []
    for memory in found:
        current[memory.id] = memory
        if memory.state == "superseded" and memory.superseded_by:
            replaced.append(memory.superseded_by)
    successors = await reading.get(scope, replaced)
    newer = {memory.id: memory for memory in successors}
    for id, memory in current.items():
        current[id] = newer.get(memory.superseded_by or "", memory)
    last: dict[tuple[str, str], ThreadChange] = {}
    for change in log:
        now = current.get(change.memory_id)
        id = change.memory_id if now is None else now.id
        key = (id, change.event)
        last.pop(key, None)  # so that it is in the order of the last ones
        last[key] = change
    lines: list[str] = []
    shown: list[ThreadChange] = []
    for (id, event), change in last.items():
        is_known = event in ("updated", "merged") and (id, "created") in last
        if is_known or len(shown) == BULLETS:
            continue
        line = render.update(event, current.get(change.memory_id))
        if line is not None:
            shown.append(change)
            lines.append(line)
    end = shown if len(shown) == BULLETS else log
    revision = end[-1].revision if end else since
    text = ""
    if lines:
        title = f"Memory updates since rev {since}:"
        text = "\n".join([title, *lines])
    return Updates(
        thread=thread,
        since=since,
        revision=revision,
        changes=tuple(shown),
        text=text,
        more=sum(change.revision > revision for change in log),
    )


async def reserve_header(ctx: Context, query: Query, since: int) -> tuple[Updates, Query]:
    """Return what changed in the thread after a revision, and the query with the room it leaves.

    What does not fit is reported the next time. While the store is unavailable nothing is reported.
    """
    try:
        updates = await read_updates(Place(ctx, query.scope, query.labels), since)
    except StoreUnavailable:
        updates = Updates(thread="", since=since, revision=since, changes=(), text="")
    caps = render.Caps(tokens=query.budget, chars=query.max_chars)
    room = caps.beside(updates.text, ctx.count_tokens)
    if room.tokens == 0 or room.chars == 0:
        updates = replace(updates, text="", revision=updates.since, changes=())
    if updates.text:
        query = replace(query, budget=room.tokens, max_chars=room.chars)
    return updates, query


def add_header(ctx: Context, query: Query, updates: Updates, answer: Recall) -> Recall:
    """Return the answer with the changes of the thread before its text."""
    texts = filter(None, (updates.text, answer.text))
    text = "\n".join(texts)
    tokens = ctx.count_tokens(text) if updates.text else answer.tokens
    return replace(
        answer,
        query=query,
        text=text,
        tokens=tokens,
        revision=updates.revision,
    )


async def record_feedback(
    place: Place,
    recalled: Recall | Sequence[str],
    *,
    used: Sequence[str] | None = None,
    reply: str | None = None,
) -> dict[str, str]:
    """Count a turn, and whether the reply used what was recalled for it.

    Pass the ids that were `used`, or the `reply`, which is searched for ids and echoed words.
    Returns the used ids and how that is known: `told`, `cited` or `echoed`. An echo is an estimate,
    made without a language model; no text is stored. Raises InvalidInput.
    """
    ctx, scope, labels = place.parts
    if (used is None) == (reply is None):
        raise InvalidInput("Pass either `used` (ids) or `reply` (the text of the reply)")
    question = ""
    if isinstance(recalled, Recall):
        memories = [*recalled.memories]
        question = recalled.query.text
    else:
        validation.texts("recalled", recalled)
        memories = await ctx.store.get(scope, recalled)
    if reply is not None:
        validation.fields({"reply": reply})
        validation.size(reply, ctx.settings.max_text_chars)
        language = ctx.settings.language
        found = compare.find_used(reply, memories, asked=question, language=language)
    else:
        validation.texts("used", used)
        ids = [memory.id for memory in memories if memory.id in (used or ())]
        found = dict.fromkeys(ids, "told")
    if not await privacy.find_disabled_reason(place):
        event = Event(
            node="context",
            op="use",
            at=ctx.clock(),
            status="ok" if found else "skipped",
            thread=labels.thread or labels.session,
        )
        ctx.access_log.note(scope, [event])
    return found
