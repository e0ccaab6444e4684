"""Roll-up: old memories about the same topic are replaced by one summary; the originals are
archived.
"""

from __future__ import annotations

from datetime import timedelta

import numpy as np

from ..context import Context
from ..ports import Vectors
from ..storage.tasks import Task
from ..types import Filter, Memory, Scope
from .schedule import WEEKLY, finish
from .summarize import SummaryReport, in_order, replace_by_summary

DAYS = 90.0  # without use
NEAR = 0.6  # cosine to the first memory of a topic
FEWEST, MOST = 3, 12  # memories of a topic
MAX_MEMORIES = 2000  # per run, the oldest ones


async def run(ctx: Context, task: Task) -> int:
    """Roll up the topics of a scope; return the number of changed memories."""
    done = await roll_up(ctx, task.scope, days=ctx.settings.rollup_days)
    await finish(ctx, task, WEEKLY)
    return len(done.memories) + len(done.summaries)


async def roll_up(
    ctx: Context, scope: Scope, *, days: float = DAYS, dry_run: bool = False
) -> SummaryReport:
    """Make one memory of each topic among the memories that were not used for so many days.

    Pinned and manually saved memories, workflows and summaries stay as they are. Each topic is one
    transaction.
    """
    memories, vectors = await find_unused(ctx, scope, days)
    done = SummaryReport(dry_run=dry_run)
    for topic in find_topics(vectors):
        group = [memories[position] for position in topic]
        summary = "" if dry_run else await replace_by_summary(ctx, group, state="archived")
        done = done.with_group(group, summary)
    return done


async def find_unused(ctx: Context, scope: Scope, days: float) -> tuple[list[Memory], Vectors]:
    """Return the memories that may be rolled up and have a vector, in the order of time, and their
    vectors.
    """
    where = Filter(
        kinds=("episodic", "semantic"),
        used_before=ctx.clock() - timedelta(days=days),
        pinned=False,
        manually_saved=False,
        compression_source=False,
    )
    rows = sorted(await ctx.store.rows_where(scope, where))[:MAX_MEMORIES]
    vectors = await ctx.store.vectors(scope, rows, model=ctx.index.model)
    found = await ctx.store.at_rows(scope, list(vectors))
    row_of = {memory.id: row for row, memory in found.items()}
    memories = in_order(list(found.values()))
    matrix = np.zeros((len(memories), ctx.index.dimensions), np.float32)
    for position, memory in enumerate(memories):
        matrix[position] = np.frombuffer(vectors[row_of[memory.id]], "<f4")
    return memories, matrix


def find_topics(vectors: Vectors) -> list[list[int]]:
    """Return positions that belong together: each with the nearest later ones that are near and
    still free.

    >>> find_topics(np.asarray([[1, 0], [0, 1], [1, 0], [0.8, 0.6]], np.float32))
    [[0, 2, 3]]
    """
    free = np.ones(len(vectors), np.bool_)
    topics: list[list[int]] = []
    for first in range(len(vectors)):
        if not free[first]:
            continue
        cosines = vectors @ vectors[first]
        nearest = np.argsort(-cosines, kind="stable")
        near = nearest[free[nearest] & (cosines[nearest] >= NEAR)]
        if len(near) >= FEWEST:
            topics.append(sorted(near[:MOST].tolist()))
            free[topics[-1]] = False
    return topics
