"""What surrounds one recall: the query, what changed in the thread, use and feedback; and the one
query for agents, limited to what each may read.

Each change of a thread has its own revision, so a header that stops after three lines continues
with the next change: nothing is reported twice or left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict

from ..context import Context, Place
from ..errors import InvalidInput, NotAllowed, ProviderFailed, StoreUnavailable
from ..ingest import validation
from ..retrieve import pipeline, profiles, render
from ..retrieve.profiles import Profile
from ..settings import allowlists
from ..storage import Event
from ..storage.history import ThreadChange, Updates, shown_revision, thread_changes
from ..storage.queries import Reader
from ..storage.store import MemoryAccess, access_scores, record_access
from ..text import compare, normalize
from ..types import Filter, Memory, Query, Recall, Scope
from . import privacy

BULLETS = 3  # lines of a header
UNLIMITED = 1 << 20  # tokens: more than any look-up returns
RETURNS = ("bullets", "full")
AGENT_PROFILE = "imp.bullets"
_LABELS = {"agent_id": "agent", "run_id": "run", "actor_id": "actor", "role": "role"}
_LEVELS = {"importance_min": 1, "importance_max": 5}  # the ends, which exclude nothing
FILTERS = ("user_id", *_LABELS, "category", "pinned", *_LEVELS, "updated_after", "updated_before")
_TINY = 1e-9  # a level ends where the next begins


class RecallOptions(TypedDict, total=False):
    """How a question is answered; what is left out, the profile decides."""

    limit: int | None
    budget: int | None  # tokens of the rendered text
    max_chars: int | None  # of the rendered text
    profile: str | Profile | None
    where: Filter | None
    as_of: datetime | str | None  # what held then
    include_compressed: bool
    rerank: bool | None  # None: as the profile says


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
    )
    return query, profile


async def look_up(
    place: Place,
    text: str,
    limit: int,
    where: Filter | None = None,
) -> tuple[Memory, ...]:
    """Return what matches, also while memory is off: this is the person looking.

    An incognito session leaves no vector of its question.
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


async def record_use(ctx: Context, query: Query, profile: Profile, answer: Recall) -> None:
    """Record a search and which memories it returned.

    The caller waits until the scores are stored only if the profile says so.
    """
    now = ctx.clock()
    scope = query.scope
    uses = []
    for hit in answer.hits:
        scores = access_scores(hit.memory, hit.relevance, now)
        uses.append(MemoryAccess(memory_id=hit.memory.id, at=now, scores=scores))
    if uses and profile.scores_first:
        with suppress(ProviderFailed):  # an answer does not fail because of its statistics
            async with ctx.store.transaction(scope) as tx:
                await record_access(tx, uses)
    else:
        ctx.access_log.note(scope, uses)
    best = max((hit.relevance for hit in answer.hits), default=None)
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
    """Return what changed in a thread after a revision: at most three lines.

    Without a revision it continues where it stopped the last time. Raises InvalidInput.
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
    """Return the first changes after a revision, one line each, and how far they go.

    Of like changes of one memory only the last counts; what is new is not reported as changed.
    """
    log = await thread_changes(reading, scope, thread, since)
    ids = [change.memory_id for change in log]
    found = await reading.get(scope, ids)
    replaced = [m.superseded_by for m in found if m.state == "superseded" and m.superseded_by]
    successors = await reading.get(scope, replaced)
    newer = {memory.id: memory for memory in successors}
    current = {memory.id: newer.get(memory.superseded_by or "", memory) for memory in found}
    last: dict[tuple[str, str], ThreadChange] = {}
    for change in log:
        memory = current.get(change.memory_id)
        key = (memory.id if memory else change.memory_id, change.event)
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
        text = "\n".join([f"Memory updates since rev {since}:", *lines])
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

    Without room for it, it is reported the next time; while the store is unavailable there is none.
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
    """Return the answer with what changed before its block."""
    text = "\n".join(filter(None, (updates.text, answer.text)))
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

    Pass the ids that were `used`, or the `reply`, in which ids and echoed words are found. Returns
    the used ids and how that is known: `told`, `cited` or `echoed`. An echo is an estimate, made
    without a language model; no text is stored. Raises InvalidInput.
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
        found = {memory.id: "told" for memory in memories if memory.id in (used or ())}
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


def limit_agent(
    ctx: Context,
    scope: Scope,
    agent: str,
    categories: Sequence[str] | None,
    filters: Mapping[str, Any] | None,
    threshold: float | None,
) -> tuple[Filter, Profile]:
    """Return the categories asked for and allowed, with what else was given, and the profile.

    Without categories, all that the agent may read, except workflows. Raises NotAllowed,
    InvalidInput.
    """
    if categories is not None:
        validation.texts("categories", categories)
    gate = profiles.Gate()
    if threshold is not None:
        validation.fields({"confidence": threshold})
        gate = profiles.Gate(enough={"semantic": threshold})
    access = ctx.allowlists
    given = {name: value for name, value in (filters or {}).items() if value is not None}
    if unknown := [name for name in given if name not in FILTERS]:
        raise InvalidInput(f"No filter {unknown[0]!r}: there are {', '.join(FILTERS)}")
    if given.get("user_id", scope.user) != scope.user:
        raise NotAllowed(f"This is the memory of {scope.user!r}: no other user's can be read here")
    wanted = list(access.allowed(agent, categories))
    if not categories and allowlists.PROCEDURAL in wanted:
        wanted.remove(allowlists.PROCEDURAL)
    if "category" in given:
        only = access.allowed(agent, [given["category"]])
        wanted = [each for each in wanted if each in only] if categories else list(only)
    if "pinned" in given:
        validation.fields({"pinned": given["pinned"]})
    limits: dict[str, float] = {}
    for name, end in _LEVELS.items():
        level = given.get(name, end)
        if level == end:
            continue
        if isinstance(level, bool) or level not in (1, 2, 3, 4, 5):
            raise InvalidInput(f"{name} is a level from 1 to 5, not {level!r}")
        limits[name] = (level - (end == 1)) / 5 + _TINY
    labels = {label: given.get(name) for name, label in _LABELS.items()}
    where = Filter(
        categories=allowlists.spellings(wanted),
        pinned=given.get("pinned"),
        labels=validation.labels(labels),
        updated_after=validation.moment(given.get("updated_after")),
        updated_before=validation.moment(given.get("updated_before")),
        importance_min=limits.get("importance_min"),
        importance_max=limits.get("importance_max"),
    )
    workflows = allowlists.PROCEDURAL in where.categories
    profile = profiles.find(ctx.profiles, AGENT_PROFILE)
    return where, replace(profile, gate=gate, workflows=workflows, related=0)


def to_items(
    ctx: Context,
    found: Recall,
    shape: str,
    budget: int,
) -> list[dict[str, Any]]:
    """Return an answer as an agent reads it, within a budget of tokens."""
    count = ctx.count_tokens
    items: list[dict[str, Any]] = []
    for memory in limit_categories(found, ctx.allowlists):
        category = ctx.allowlists.category(memory.category or memory.kind)
        items.append(_to_item(memory, category.name, is_full=shape == "full"))
    fitted = render.fit(
        items,
        render.Caps(tokens=budget),
        lambda _: "",
        count,
        cost=lambda item: count(json.dumps(item, ensure_ascii=False)),  # as it is sent
    )
    return [items[i] for i in fitted.taken]


def limit_categories(found: Recall, access: allowlists.Access) -> Iterator[Memory]:
    """Yield the hits, of each category no more than may enter a context."""
    taken: Counter[str] = Counter()
    for memory in found.memories:
        category = access.category(memory.category or memory.kind)
        taken[category.name] += 1
        is_whole = category.context == "all" or category.rag_length == allowlists.ALL
        if is_whole or taken[category.name] <= category.rag_length:
            yield memory


def _to_item(memory: Memory, category: str, *, is_full: bool) -> dict[str, Any]:
    item: dict[str, Any] = {"id": memory.id, "category": category}
    if not is_full:
        return {**item, "text": render.bullet(memory, category)}
    return {
        **item,
        "kind": memory.kind,
        "text": memory.text,
        "summary": memory.summary or memory.text[:280],
        "steps_text": memory.steps_text,
        "told_by": render.teller(memory),
        "tags": list(memory.tags),
        "importance": memory.importance_level,
        "confidence": memory.confidence,
        "pinned": memory.pinned,
        "created_at": memory.created_at.isoformat(),
        "updated_at": memory.updated_at.isoformat(),
    }
