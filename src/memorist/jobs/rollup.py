"""Roll up old memories: those about one topic become a summary before any of them would expire.

The memories of a topic become due at different times. Enough of them that are due at once are
summarized; one that becomes due later is added to their summary.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np

from ..context import Context, Place
from ..index.arrays import products
from ..ingest import transitions, validation
from ..ports import Vectors
from ..storage.tasks import Task
from ..text import summarize as texts
from ..types import Filter, Labels, Memory, Scope, frozen
from . import WEEKLY, finish
from .summarize import SummaryReport, add_group, in_order

DAYS = 90.0  # without use before a memory is rolled up
NEAR = 0.35  # lowest mean cosine between the memories of a topic
FEWEST = 3  # memories of a topic
MOST = 12  # memories of a topic, in one run
MAX_MEMORIES = 2000  # per run
FULL = transitions.MOST_LISTED // 2  # sources of a summary to which no more are added
APART = -2.0  # in place of a cosine: these groups are not joined
# Pinned and manually saved memories, and workflows, are not rolled up.
_USABLE = Filter(
    kinds=("episodic", "semantic"),
    pinned=False,
    manually_saved=False,
    none_of=(transitions.EXPIRING,),
)


@frozen
class Topic:
    """Memories about one topic that are due, and the summary that has earlier ones."""

    memories: tuple[Memory, ...]
    summary: Memory | None


async def run(ctx: Context, task: Task) -> int:
    """Roll up the topics of a scope; return the number of changed memories."""
    place = Place(ctx, task.scope, Labels())
    done = await roll_up(place, days=ctx.settings.rollup_days)
    await finish(ctx, task, WEEKLY)
    return done.changed


async def roll_up(
    place: Place,
    *,
    days: float = DAYS,
    dry_run: bool = False,
) -> SummaryReport:
    """Merge memories that were not used for a number of days into one memory per topic.

    The originals are archived and can be restored. What becomes due later is added to the memory
    of its topic. With `dry_run` nothing is changed. Raises InvalidInput.
    """
    if days != place.ctx.settings.rollup_days:
        validation.days(days)
    done, _ = await roll_up_before(place, None, days=days, dry_run=dry_run)
    return done


async def roll_up_before(
    place: Place,
    expiring: Filter | None,
    *,
    days: float,
    dry_run: bool,
) -> tuple[SummaryReport, set[str]]:
    """Roll up, the expiring memories first. Return also what must not expire: memories of topics,
    whether they were summarized, changed meanwhile or wait for others to become due, and those for
    which the run had no room.
    """
    ctx, scope, _ = place.parts
    done = SummaryReport(dry_run=dry_run)
    rows, left = await _select(ctx, scope, expiring, days)
    topics, kept = await _find_due_topics(ctx, scope, rows, days)
    for topic in topics:
        done = await add_group(ctx, done, topic.memories, "archived", known=topic.summary)
        kept.update(memory.id for memory in topic.memories)
    kept.update(memory.id for memory in (await ctx.store.at_rows(scope, left)).values())
    return done, kept


async def _select(
    ctx: Context,
    scope: Scope,
    expiring: Filter | None,
    days: float,
) -> tuple[list[int], list[int]]:
    """Return the rows that are looked at, and those that expire but have to wait.

    Summaries come first, then what expires, then what may be due.
    """
    limits = [days, *(kept / 2 for kept in ctx.settings.ttl_days.values() if kept > 0)]
    unused = replace(_USABLE, used_before=ctx.clock() - timedelta(days=min(limits)))
    old = await ctx.store.rows_where(scope, unused)
    if not old:
        return [], []
    summaries = replace(_USABLE, compression_source=True)
    first = (await ctx.store.rows_where(scope, summaries))[-MAX_MEMORIES // 2 :]
    ending = []
    if expiring is not None:
        ending = await ctx.store.rows_where(scope, replace(_USABLE, all_of=(expiring,)))
    every = await ctx.store.rows_where(scope, _USABLE)
    ordered = list(dict.fromkeys([*first, *ending, *old, *every]))
    left = set(ordered[MAX_MEMORIES:])
    return ordered[:MAX_MEMORIES], sorted(left.intersection(ending))


async def _find_due_topics(
    ctx: Context,
    scope: Scope,
    rows: Sequence[int],
    days: float,
) -> tuple[list[Topic], set[str]]:
    """Return the topics that are rolled up now, and the ids of the members of the others.

    Memories without a vector, and questions and courtesies, belong to none. A fact follows the
    turn that it was extracted from.
    """
    vectors = await ctx.store.vectors(scope, rows, model=ctx.index.model)
    found = await ctx.store.at_rows(scope, list(vectors))
    row_of = {memory.id: row for row, memory in found.items()}
    pool = await asyncio.to_thread(_find_telling, found.values())
    turns = {memory.id for memory in pool if not memory.compression_source}
    facts: dict[str, list[Memory]] = defaultdict(list)  # by turn
    statements = []
    for memory in pool:
        source = next((id for id in memory.evidence_ids if id in turns), None)
        if source is None or memory.compression_source:
            statements.append(memory)
        elif _is_due(ctx, memory, days):
            facts[source].append(memory)
    data = b"".join(vectors[row_of[memory.id]] for memory in statements)
    matrix = np.frombuffer(data, "<f4").reshape(-1, ctx.index.dimensions)
    summaries = [n for n, memory in enumerate(statements) if memory.compression_source]
    topics = []
    waiting: set[str] = set()
    for positions in await asyncio.to_thread(find_topics, matrix, summaries):
        members = [statements[position] for position in positions]
        known = next((memory for memory in members if memory.compression_source), None)
        due = [m for m in members if m is not known and _is_due(ctx, m, days)]
        if len(due) >= (FEWEST if known is None else 1):
            derived = [fact for memory in due for fact in facts[memory.id]]
            topics.append(Topic(memories=(*due, *derived), summary=known))
        else:
            waiting.update(memory.id for memory in members)
    return topics, waiting


def _find_telling(memories: Iterable[Memory]) -> list[Memory]:
    """Return the memories that say something, in order, without the summaries to which nothing is
    added: those of sessions, and full ones, which would no longer name all their sources.
    """
    kept = []
    for memory in in_order(memories):
        is_closed = memory.source_session_id is not None or len(memory.evidence_ids) > FULL
        if texts.is_telling(memory.text) and not (memory.compression_source and is_closed):
            kept.append(memory)
    return kept


def _is_due(ctx: Context, memory: Memory, days: float) -> bool:
    """Return whether a memory was not used for the given days, or for half the days after which it
    would expire.
    """
    kept = ctx.settings.days_kept(memory)
    least = min(days, kept / 2) if kept else days
    return memory.last_used < ctx.clock() - timedelta(days=least)


def find_topics(vectors: Vectors, summaries: Collection[int] = ()) -> list[list[int]]:
    """Return the positions of each topic: the most similar vectors are joined first, then groups
    whose vectors are similar on average. A topic has at most one of the summaries, and one other
    vector is enough for it.

    >>> find_topics(np.asarray([[1, 0], [0, 1], [1, 0], [0.8, 0.6]], np.float32))
    [[0, 2, 3]]
    """
    count = len(vectors)
    cosines = products(vectors, vectors.T)
    np.fill_diagonal(cosines, APART)
    cosines[np.ix_(list(summaries), list(summaries))] = APART
    every = np.arange(count)
    groups = [[position] for position in range(count)]
    nearest = cosines.argmax(axis=1) if count else every
    while count:
        best = cosines[every, nearest]
        a = int(best.argmax())
        b = int(nearest[a])
        if best[a] < NEAR:
            break
        stale = (nearest == a) | (nearest == b)
        stale[[a, b]] = True
        size = len(groups[a])
        total = size + len(groups[b])
        if total > MOST:
            cosines[a, b] = cosines[b, a] = APART
        else:
            mean = (size * cosines[a] + (total - size) * cosines[b]) / total
            mean[(cosines[a] == APART) | (cosines[b] == APART)] = APART
            cosines[a] = cosines[:, a] = mean
            cosines[b] = cosines[:, b] = APART
            groups[a] += groups[b]
            groups[b] = []
        nearest[stale] = cosines[stale].argmax(axis=1)
    known = set(summaries)
    found = []
    for group in groups:
        fewest = FEWEST if known.isdisjoint(group) else 2
        if len(group) >= fewest:
            found.append(sorted(group))
    return sorted(found)
