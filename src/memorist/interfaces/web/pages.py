"""The pages. Each asks the client and passes the result to a template."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import timedelta

from fastapi import Response

from ...dialects import catalog
from ...manage.access import RIGHTS
from ...storage.keys import Key
from ...types import KINDS, STATES, Filter, Labels, Memory
from .. import plain
from . import charts
from .request import PAGE_SIZE, PageRequest, route

RECENT = 200  # memories searched for threads
MAX_NODES = 36  # memories in the graph of related memories
DAYS = 30

# Charts of the statistics page: title, description, and for each line the events it counts.
CHARTS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Duplicates", "Repeated statements that were merged.", {"merged": "merge ok"}),
    (
        "Removals",
        "Memories removed because a space was full, they expired, or they were moved to the trash.",
        {"removed": "ttl ok", "space full of protected memories": "ttl error"},
    ),
    (
        "User actions",
        "Changes made to memories and privacy settings.",
        {
            "pinned or unpinned": "pin ok, unpin ok",
            "edited": "update ok",
            "forgotten": "delete ok",
            "memory on, off, incognito": "enable ok, disable ok, incognito ok",
        },
    ),
    (
        "Activity",
        "New memories and searches.",
        {"new memories": "create ok", "searches": "search ok"},
    ),
    (
        "Hit rate",
        "Whether recalled memories were used in the reply, where feedback was given.",
        {"used": "use ok", "not used": "use skipped"},
    ),
    (
        "Embedding",
        "Vectors computed in the background, and batches that failed.",
        {"computed": "embed ok", "failed": "embed error"},
    ),
    (
        "LLM tokens",
        "Tokens sent to and received from the language model.",
        {"input": "input tokens", "output": "output tokens"},
    ),
)


@route("GET", "/", "read")
async def search(page: PageRequest) -> Response:
    """Search results, or the latest memories."""
    question = page.param("q")
    if question:
        answer = await page.memories.recall(
            question,
            budget=page.number("budget", 100_000),
            profile=page.choose("profile", catalog.PROFILES),
        )
        parts: dict[str, None] = {}  # names in the order of their first use
        for hit in answer.hits:
            parts |= {name: None for name, value in hit.parts.items() if round(value, 4)}
        # Names with a dot belong to dialects, for code that is written against those.
        names = [name for name in sorted(catalog.PROFILES) if "." not in name]
        return await page.render("search.html", answer=answer, parts=list(parts), profiles=names)
    kind, tag = page.choose("kind", KINDS), page.param("tag")
    where = Filter(
        states=(page.choose("state", STATES) or "active",),
        kinds=(kind,) if kind else (),
        tags=(tag,) if tag else (),
        pinned=True if page.param("pinned") else None,
    )
    found = await page.list_memories(where)
    return await page.render(
        "latest.html", found=found, kinds=KINDS, states=STATES, text="", tags=""
    )


@route("GET", "/m/{id}", "read")
async def memory(page: PageRequest) -> Response:
    """One memory with its evidence, revisions, history and related memories."""
    memories, id = page.memories, page.id
    evidence = await memories.why(id)
    found, labels = evidence.memory, evidence.memory.labels
    history = await memories.history(id)
    revised = {entry.old_ref for entry in history if entry.event != "ADD"}
    older = list(await memories.list(Filter(versions_of=id, states=STATES)))
    older.sort(key=lambda version: version.revision)
    versions = [each for each in older if each.id in revised]
    changes = zip([*versions, found], [None, *versions], strict=True)
    return await page.render(
        "memory.html",
        memory=found,
        evidence=evidence,
        history=history,
        related=await memories.related(id),
        changes=list(changes)[::-1],
        replaced=[each for each in older if each.id not in revised],
        thread=labels.thread or labels.session,
    )


@route("GET", "/m/{id}/forget", "write")
async def confirm_forget(page: PageRequest) -> Response:
    """What forgetting a memory would delete."""
    found = await page.memories.get(page.id)
    where = Filter(ids=(page.id,), states=STATES)
    preview = await page.memories.forget_where(where=where, dry_run=True)
    ids = (*preview.derived[:PAGE_SIZE], *preview.flagged[:PAGE_SIZE])
    listed: Iterable[Memory] = ()
    if ids:
        where = Filter(ids=ids, states=STATES)
        listed = await page.memories.list(where, limit=2 * PAGE_SIZE)
    texts = {each.id: each for each in listed}
    return await page.render("forget.html", memory=found, preview=preview, texts=texts)


@route("GET", "/threads", "read")
async def threads(page: PageRequest) -> Response:
    """Recent threads, or the memories and changes of one."""
    name, since = page.param("thread"), page.number("since", 2**31) or 0
    if not name:
        counts = Counter[str]()
        for each in await page.memories.list(limit=RECENT):
            if thread := each.labels.thread or each.labels.session:
                counts[thread] += 1
        return await page.render("threads.html", counts=counts)
    where = Filter(labels=Labels(thread=name))
    if not (await page.memories.list(where, limit=1)).memories:
        where = Filter(labels=Labels(session=name))
    found = await page.list_memories(where)
    days: dict[str, list[Memory]] = {}
    for each in found:
        days.setdefault(f"{each.occurred_at or each.created_at:%Y-%m-%d}", []).append(each)
    changes = await page.memories.delta(since, thread=name)
    return await page.render("thread.html", name=name, found=found, changes=changes, days=days)


@route("GET", "/decide", "read")
async def review(page: PageRequest) -> Response:
    """Conflicts and proposals that wait for a decision."""
    consent = page.memories.consent
    return await page.render(
        "decide.html",
        conflicts=await page.memories.conflicts(limit=PAGE_SIZE),
        proposals=await consent.list(),
        profile=await consent.about(),
    )


@route("GET", "/trash", "read")
async def trash(page: PageRequest) -> Response:
    """Memories that can be restored."""
    found = await page.list_memories(Filter(states=("soft_deleted", "archived")))
    # Earlier versions are restored together with their memory.
    rows = [each for each in found if each.superseded_by is None]
    return await page.render("trash.html", found=found, rows=rows)


@route("GET", "/relations", "read")
async def relations(page: PageRequest) -> Response:
    """A graph of related memories, around one memory or among the latest."""
    center, memories = page.param("id"), page.memories
    start: Iterable[Memory]
    if center:
        start, depth, limit = [await memories.get(center)], 2, 6
    else:
        start, depth, limit = await memories.list(limit=MAX_NODES // 2), 1, 3
    found = {each.id: each for each in start}
    edges: dict[tuple[str, str], float] = {}
    visited = 0
    for _ in range(depth):
        new, visited = list(found)[visited:], len(found)
        for id in new:
            for related in await memories.related(id, limit=limit):
                other = related.memory
                if other.id in found or len(found) < MAX_NODES:
                    found[other.id] = other
                    edges[min(id, other.id), max(id, other.id)] = related.strength
    weighted = [(*ids, strength) for ids, strength in edges.items()]
    connected, graph = {center}.union(*edges), ""
    labels: dict[str, str] = {}
    for id, each in found.items():
        if id in connected:
            line = plain(each.text[:200])
            labels[id] = line if len(line) <= 22 else line[:21] + "…"
    if edges:
        graph = await asyncio.to_thread(charts.render_graph, labels, weighted, center)
    rows = [(found[one], found[other], strength) for one, other, strength in weighted]
    rows.sort(key=lambda row: -row[2])
    return await page.render("relations.html", graph=graph, rows=rows, center=found.get(center))


@route("GET", "/figures", "read")
async def statistics(page: PageRequest) -> Response:
    """Events and LLM usage by day; for administrators also jobs and latencies."""
    today = page.engine.ctx.clock()
    days = [f"{today - timedelta(days=ago):%Y-%m-%d}" for ago in reversed(range(DAYS))]
    counts = defaultdict[str, Counter[str]](Counter)  # by event, by day
    for counted in await page.memories.event_counts(days=DAYS):
        counts[f"{counted.op} {counted.status}"][counted.day] += counted.count
    usage = await page.memories.llm_usage(days=DAYS)
    for each in usage:
        counts["input tokens"][each.day] += each.tokens_in
        counts["output tokens"][each.day] += each.tokens_out
    plots: list[tuple[str, str, dict[str, list[int]]]] = []
    for title, about, lines in CHARTS:
        series: dict[str, list[int]] = {}
        for name, events in lines.items():
            total = sum(map(counts.__getitem__, events.split(", ")), Counter[str]())
            series[name] = [total[day] for day in days]
        plots.append((title, about, series))
    is_admin = page.caller.has_right("admin")
    return await page.render(
        "figures.html",
        days=days,
        plots=plots,
        usage=usage,
        jobs=await page.engine.backlog() if is_admin else None,
        latencies=page.app.state.metrics.latencies() if is_admin else {},
    )


@route("GET", "/settings", "read")
async def settings(page: PageRequest) -> Response:
    """Privacy settings of the space, and which space the page shows."""
    scope = page.memories.scope
    spaces = {scope.space}
    if page.caller.space is None:
        for each in await page.engine.scopes():
            if (each.user, each.tenant) == (scope.user, scope.tenant):
                spaces.add(each.space)
    return await page.render(
        "settings.html",
        settings=await page.memories.privacy.settings(),
        spaces=sorted(spaces),
    )


@route("GET", "/keys", "admin")
async def keys(page: PageRequest) -> Response:
    """The API keys of this user."""
    return await render_keys(page)


async def list_keys(page: PageRequest) -> list[Key]:
    """Return the keys of this user, oldest first."""
    owner = (page.caller.user, page.caller.tenant)
    return [key for key in await page.engine.keys() if (key.user, key.tenant) == owner]


async def render_keys(page: PageRequest, token: str = "") -> Response:
    """Render the keys, and the token of one that was just created."""
    rights = [right for right in RIGHTS if right in page.caller.rights]
    keys = await list_keys(page)
    return await page.render("keys.html", keys=keys[::-1], rights=rights, token=token)
