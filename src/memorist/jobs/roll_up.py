"""Roll-ups: what nobody used for long and is about the same becomes one memory; the originals are archived."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from ..ports import Vectors
from ..results import Task
from ..storage.changes import Done
from ..types import Filter, Memory, Scope
from .context import Care
from .schedule import again
from .summarize import SummedUp, in_order, put_behind

DAYS = 90.0  # without use
NEAR = 0.6  # cosine to the first of a topic
FEWEST, MOST = 3, 12  # memories of a topic
AT_ONCE = 2000  # memories looked at, the oldest first
EVERY = timedelta(days=7)


async def run(task: Task, care: Care, *, days: float = DAYS) -> int:
    """Roll up what is due in a scope. Each topic is a transaction of its own."""
    done = await roll_up(care, task.scope, days=days)
    async with care.store.transaction(task.scope) as tx:
        await tx.apply([Done(task=task, again_at=again(task, EVERY, care.now()))])
    return len(done.memories) + len(done.summaries)


async def roll_up(
    care: Care, scope: Scope, *, days: float = DAYS, dry_run: bool = False
) -> SummedUp:
    """Make one memory of each topic among what was not used for so many days.

    What is pinned, was saved on purpose, tells how to do something or is a summary already stays as it is.
    """
    old, vectors = await _unused(care, scope, days)
    done = SummedUp(dry_run=dry_run)
    for topic in topics(vectors):
        alike = [old[place] for place in topic]
        made = "" if dry_run else await put_behind(alike, care, state="archived")
        done = done.with_group(alike, made)
    return done


async def _unused(care: Care, scope: Scope, days: float) -> tuple[list[Memory], Vectors]:
    """Memories that may be rolled up and have a vector, in the order of time, and their vectors."""
    where = Filter(
        kinds=("episodic", "semantic"),
        used_before=care.now() - timedelta(days=days),
        pinned=False,
        manually_saved=False,
        compression_source=False,
    )
    rows = sorted(await care.store.rows_where(scope, where))[:AT_ONCE]
    held = await care.store.vectors(scope, rows, model=care.index.model)
    there = await care.store.at_rows(scope, list(held))
    found = {memory.id: row for row, memory in there.items()}
    able = in_order(list(there.values()))
    read = [np.frombuffer(held[found[memory.id]], "<f4") for memory in able]
    return able, np.stack(read) if read else np.zeros((0, care.index.dimensions), np.float32)


def topics(vectors: Vectors) -> list[list[int]]:
    """Places that belong together: each takes along, nearest first, those after it that are near and still free.

    >>> topics(np.asarray([[1, 0], [0, 1], [1, 0], [0.8, 0.6]], np.float32))
    [[0, 2, 3]]
    """
    free: NDArray[np.bool_] = np.ones(len(vectors), np.bool_)
    found: list[list[int]] = []
    for first in range(len(vectors)):
        if free[first]:
            cosines = vectors @ vectors[first]
            near = [
                int(place)
                for place in np.argsort(-cosines, kind="stable")
                if free[place] and cosines[place] >= NEAR
            ]
            if len(near) >= FEWEST:
                found.append(sorted(near[:MOST]))
                free[found[-1]] = False
    return found
