"""What can be looked at. Each view asks the engine and hands the answer to a template."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from fastapi import Response
from prometheus_client import CollectorRegistry

from ...errors import InvalidInput
from ...manage.keys import RIGHTS
from ...results import Page, Spending, Tally
from ...retrieve import profiles
from ...types import KINDS, STATES, Filter, Labels, Memory
from ..render import plain
from . import charts
from .request import Visit, view

SOME = 25  # memories on a page
RECENT = 200  # among which threads are looked for
DRAWN = 36  # memories in the picture of relations
DAYS = 30

# What is plotted: a title, what it means, and lines that count events by what was done and how it went.
PLOTS: tuple[tuple[str, str, Mapping[str, tuple[tuple[str, str], ...]]], ...] = (
    ("Dedupe saves", "Told again, and kept once.", {"merged": (("merge", "ok"),)}),
    (
        "Trims",
        "Put away: the space was full, the time was up, or somebody put it in the trash.",
        {"put away": (("ttl", "ok"),), "full of what must stay": (("ttl", "error"),)},
    ),
    (
        "What people did",
        "Decisions about memories and about memory itself.",
        {
            "pinned": (("pin", "ok"), ("unpin", "ok")),
            "changed": (("update", "ok"),),
            "forgotten": (("delete", "ok"),),
            "on, off, incognito": (("enable", "ok"), ("disable", "ok"), ("incognito", "ok")),
        },
    ),
    (
        "Written and asked",
        "New memories, and questions that were asked.",
        {"new": (("create", "ok"),), "questions": (("search", "ok"),)},
    ),
    (
        "Hit rate",
        "Whether what was recalled went into the reply, where somebody told.",
        {"used": (("use", "ok"),), "not used": (("use", "skipped"),)},
    ),
    (
        "Embedding",
        "Vectors that were made later, and batches that failed.",
        {"made": (("embed", "ok"),), "failed": (("embed", "error"),)},
    ),
)


@view("/")
async def search(visit: Visit) -> Response:
    """A question and its answer, or what was remembered last."""
    question = visit.asked("q")
    if not question:
        where = Filter(
            states=(_one_of(visit.asked("state"), STATES) or "active",),
            kinds=tuple(filter(None, [_one_of(visit.asked("kind"), KINDS)])),
            tags=tuple(filter(None, [visit.asked("tag")])),
            pinned=True if visit.asked("pinned") else None,
        )
        found = await _listed(visit, where)
        return await visit.show(
            "latest.html", found=found, kinds=KINDS, states=STATES, text="", tags=""
        )
    answer = await visit.mine.recall(
        question,
        budget=visit.number("budget", 100_000),
        profile=_one_of(visit.asked("profile"), profiles.PROFILES),
    )
    names = list(
        dict.fromkeys(
            name for hit in answer.hits for name, value in hit.parts.items() if round(value, 4)
        )
    )
    return await visit.show(
        "search.html", answer=answer, names=names, profiles=sorted(profiles.PROFILES)
    )


def _one_of(given: str, known: Iterable[str]) -> str | None:
    if given and given not in known:
        raise InvalidInput(f"{given!r:.40} is none of {', '.join(known)}")
    return given or None


async def _listed(visit: Visit, where: Filter) -> Page:
    return await visit.mine.list(where, limit=SOME, cursor=visit.asked("after") or None)


@view("/m/{id}")
async def memory(visit: Visit) -> Response:
    """One memory, and everything that is known about it."""
    mine, id = visit.mine, visit.request.path_params["id"]
    evidence = await mine.why(id)
    found = evidence.memory
    history = await mine.history(id)
    kept = {entry.old_ref for entry in history if entry.event != "ADD"}
    older = sorted(
        await mine.list(Filter(versions_of=id, states=STATES)), key=lambda each: each.revision
    )
    versions = [each for each in older if each.id in kept]
    return await visit.show(
        "memory.html",
        memory=found,
        evidence=evidence,
        history=history,
        related=await mine.related(id),
        steps=list(zip([*versions, found], [None, *versions], strict=True))[::-1],
        replaced=[each for each in older if each not in versions],
        thread=found.labels.thread or found.labels.session,
    )


@view("/m/{id}/forget", "write")
async def forgetting(visit: Visit) -> Response:
    """What would go with a memory."""
    id = visit.request.path_params["id"]
    found = await visit.mine.get(id)
    would = await visit.mine.forget_where(where=Filter(ids=(id,), states=STATES), dry_run=True)
    ids = (*would.derived[:SOME], *would.flagged[:SOME])
    others = await visit.mine.list(Filter(ids=ids, states=STATES), limit=2 * SOME) if ids else ()
    return await visit.show(
        "forget.html", memory=found, would=would, texts={each.id: each for each in others}
    )


@view("/threads")
async def threads(visit: Visit) -> Response:
    """What was said in a thread, and what changed in it."""
    name, since = visit.asked("thread"), visit.number("since", 2**31) or 0
    if not name:
        latest = await visit.mine.list(limit=RECENT)
        counts = Counter(each.labels.thread or each.labels.session for each in latest)
        return await visit.show(
            "threads.html", counts={thread: n for thread, n in counts.items() if thread}
        )
    where = Filter(labels=Labels(thread=name))
    if not (await visit.mine.list(where, limit=1)).memories:
        where = Filter(labels=Labels(session=name))
    found = await _listed(visit, where)
    news = await visit.mine.delta(since, thread=name)
    return await visit.show("thread.html", name=name, found=found, news=news, days=_by_day(found))


def _by_day(found: Iterable[Memory]) -> dict[str, list[Memory]]:
    days: dict[str, list[Memory]] = {}
    for each in found:
        days.setdefault(f"{each.occurred_at or each.created_at:%Y-%m-%d}", []).append(each)
    return days


@view("/decide")
async def decide(visit: Visit) -> Response:
    """What waits for a decision."""
    mine = visit.mine
    return await visit.show(
        "decide.html",
        conflicts=await mine.conflicts(limit=SOME),
        proposals=await mine.consent.list(),
        about=await mine.consent.about(),
    )


@view("/trash")
async def trash(visit: Visit) -> Response:
    """What can be brought back, and for how long."""
    found = await _listed(visit, Filter(states=("soft_deleted", "archived")))
    rows = [
        each for each in found if each.superseded_by is None
    ]  # earlier versions come back with their memory
    return await visit.show("trash.html", found=found, rows=rows)


@view("/relations")
async def relations(visit: Visit) -> Response:
    """What is about the same as what, around one memory or among the newest."""
    centre = visit.asked("id")
    first = (
        [await visit.mine.get(centre)] if centre else list(await visit.mine.list(limit=DRAWN // 2))
    )
    known, edges = await _joined(visit, first, rings=2 if centre else 1)
    joined = {id for pair in edges for id in pair} | {centre}
    nodes = [
        charts.Node(id=each.id, label=_label(each), is_centre=each.id == centre)
        for each in known.values()
        if each.id in joined
    ]
    picture = await asyncio.to_thread(
        charts.web, nodes, [(*pair, strength) for pair, strength in edges.items()]
    )
    rows = sorted(
        ((known[a], known[b], strength) for (a, b), strength in edges.items()),
        key=lambda row: -row[2],
    )
    return await visit.show("relations.html", picture=picture, rows=rows, centre=known.get(centre))


async def _joined(
    visit: Visit, first: Sequence[Memory], *, rings: int
) -> tuple[dict[str, Memory], dict[tuple[str, str], float]]:
    """What is related to these, and to that, as far as it can be drawn; and how strongly, by pairs of ids."""
    known, edges, asked = (
        {each.id: each for each in first},
        dict[tuple[str, str], float](),
        set[str](),
    )
    for _ in range(rings):
        for id in [id for id in known if id not in asked]:
            asked.add(id)
            for other in await visit.mine.related(id, limit=6 if rings > 1 else 3):
                if other.memory.id in known or len(known) < DRAWN:
                    known[other.memory.id] = other.memory
                    edges[min(id, other.memory.id), max(id, other.memory.id)] = other.strength
    return known, edges


def _label(memory: Memory) -> str:
    line = plain(memory.text[:200])
    return line if len(line) <= 22 else line[:21] + "…"


@view("/figures")
async def figures(visit: Visit) -> Response:
    """How it went, day by day."""
    today = visit.engine.ctx.clock()
    days = [f"{today - timedelta(days=back):%Y-%m-%d}" for back in range(DAYS - 1, -1, -1)]
    tallies, costs = await visit.mine.event_counts(days=DAYS), await visit.mine.llm_usage(days=DAYS)
    plots = [(title, about, _counted(tallies, days, lines)) for title, about, lines in PLOTS]
    plots.append(
        ("Model cost", "Tokens that the language model read and wrote.", _spent(costs, days))
    )
    is_admin = visit.may("admin")
    return await visit.show(
        "figures.html",
        days=days,
        plots=plots,
        costs=costs,
        backlog=await visit.engine.backlog() if is_admin else None,
        took=_took(visit.request.app.state.metrics.registry) if is_admin else {},
    )


def _took(registry: CollectorRegistry) -> dict[str, tuple[int, float, str]]:
    """How often each verb was called in this process, the mean of its milliseconds, and within how many 95 % were."""
    seconds = next(each for each in registry.collect() if each.name == "memorist_verb_seconds")
    kinds: dict[str, list[tuple[str, float]]] = {}
    for sample in seconds.samples:
        if not sample.labels["duty"]:
            kinds.setdefault(sample.labels["verb"], []).append(
                (sample.labels.get("le", sample.name), sample.value)
            )
    verbs = {verb: dict(samples) for verb, samples in kinds.items()}
    return {verb: _latency(of) for verb, of in sorted(verbs.items()) if of[f"{seconds.name}_count"]}


def _latency(of: Mapping[str, float]) -> tuple[int, float, str]:
    calls, total = of["memorist_verb_seconds_count"], of["memorist_verb_seconds_sum"]
    most = next(
        name for name, number in of.items() if number >= 0.95 * calls
    )  # bounds stand in order
    return int(calls), 1000 * total / calls, "more" if most == "+Inf" else f"{1000 * float(most):g}"


def _counted(
    tallies: Sequence[Tally], days: Sequence[str], lines: Mapping[str, tuple[tuple[str, str], ...]]
) -> dict[str, list[int]]:
    counts = Counter[tuple[str, str]]()
    for each in tallies:
        for name, wanted in lines.items():
            if (each.op, each.status) in wanted:
                counts[name, each.day] += each.count
    return {name: [counts[name, day] for day in days] for name in lines}


def _spent(costs: Sequence[Spending], days: Sequence[str]) -> dict[str, list[int]]:
    sums = Counter[tuple[str, str]]()
    for each in costs:
        sums["read", each.day] += each.tokens_in
        sums["written", each.day] += each.tokens_out
    return {name: [sums[name, day] for day in days] for name in ("read", "written")}


@view("/settings")
async def settings(visit: Visit) -> Response:
    """Whether anything is remembered, and which space this page shows."""
    of_mine = visit.mine.scope.user, visit.mine.scope.tenant
    spaces = (
        [visit.caller.space]
        if visit.caller.space
        else sorted(
            {
                each.space
                for each in await visit.engine.scopes()
                if (each.user, each.tenant) == of_mine
            }
            | {visit.mine.scope.space}
        )
    )
    return await visit.show(
        "settings.html", settings=await visit.mine.privacy.settings(), spaces=spaces
    )


@view("/keys", "admin")
async def keys(visit: Visit) -> Response:
    """The keys of this person."""
    return await shown_keys(visit)


async def shown_keys(visit: Visit, token: str = "") -> Response:
    """Them, and the one that was just made."""
    caller = visit.caller
    found = [
        key
        for key in await visit.engine.keys()
        if (key.user, key.tenant) == (caller.user, caller.tenant)
    ]
    rights = [right for right in RIGHTS if right in caller.rights]
    return await visit.show("keys.html", keys=found[::-1], rights=rights, token=token)
