"""When jobs are due: each scope at its own time of the period, and later after a failure."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from ..context import Context
from ..results import Task
from ..storage.changes import Change, Done
from ..types import Scope

HOURLY, DAILY, WEEKLY = timedelta(hours=1), timedelta(days=1), timedelta(days=7)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def next_turn(scope: Scope, name: str, every: timedelta, after: datetime) -> datetime:
    """Return when a job of a scope has its next turn, always at the same time of the period."""
    key = repr((scope.tenant, scope.user, scope.space, name)).encode("utf-8", "backslashreplace")
    digest = hashlib.blake2b(key, digest_size=6).digest()
    offset = timedelta(seconds=int.from_bytes(digest, "big") % every.total_seconds())
    return after + (offset - (after - _EPOCH)) % every


def next_due(task: Task, every: timedelta, now: datetime) -> datetime:
    """Return when a job that has just run is due again: at its next turn, but after half a period
    at the earliest.
    """
    return next_turn(task.scope, task.name, every, now + every / 2)


def backoff(tries: int, first: float, most: float) -> float:
    """Return the seconds until the next try: doubled each time, with jitter."""
    return min(most, first * 2.0 ** min(tries - 1, 30)) * random.uniform(0.5, 1.0)


async def finish(
    ctx: Context, task: Task, every: timedelta, changes: Sequence[Change] = ()
) -> None:
    """Apply the last changes of a task and record when it is due again, in one transaction."""
    done = Done(task=task, again_at=next_due(task, every, ctx.clock()))
    async with ctx.store.transaction(task.scope) as tx:
        await tx.apply([*changes, done])
