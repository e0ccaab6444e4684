"""Schedule background work: each job of a scope at its own offset in the period, with backoff after
a failure; debounced work shortly after it was requested.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from ..context import Context
from ..errors import MemoristError
from ..storage import Change, tasks
from ..storage.tasks import Task
from ..storage.transaction import Transaction
from ..types import Memory, Scope

HOURLY = timedelta(hours=1)
DAILY = timedelta(days=1)
WEEKLY = timedelta(days=7)
AHEAD = 8  # a single run also does what is due within this part of its period
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def next_turn(
    scope: Scope,
    name: str,
    every: timedelta,
    after: datetime,
) -> datetime:
    """Return when a job of a scope runs next. Its offset in the period is always the same."""
    key = repr((scope.tenant, scope.user, scope.space, name))
    data = key.encode("utf-8", "backslashreplace")
    digest = hashlib.blake2b(data, digest_size=6).digest()
    number = int.from_bytes(digest, "big")
    offset = timedelta(seconds=number % every.total_seconds())
    elapsed = after - _EPOCH
    return after + (offset - elapsed) % every


def next_due(task: Task, every: timedelta, now: datetime) -> datetime:
    """Return when a job that has just run is due again: at its next turn after half a period, but
    always within a period, so that a job that did not run at its turn gets there in a few steps.
    """
    turn = next_turn(
        task.scope,
        task.name,
        every,
        now + every / 2,
    )
    return turn if turn <= now + every else now + every - every / AHEAD


def backoff(tries: int, first: float, most: float) -> float:
    """Return the seconds until the next try: doubled each time, with jitter."""
    seconds = first * 2.0 ** min(tries - 1, 30)
    return min(most, seconds) * random.uniform(0.5, 1.0)


async def finish(
    ctx: Context,
    task: Task,
    every: timedelta,
    changes: Sequence[Change] = (),
) -> None:
    """Apply the last changes of a task and record when it is due again, in one transaction."""
    async with ctx.store.transaction(task.scope) as tx:
        await tx.apply(changes)
        again_at = next_due(task, every, ctx.clock())
        await tasks.finish(tx, task, again_at=again_at)


async def get_unchanged(tx: Transaction, memories: Sequence[Memory]) -> list[Memory]:
    """Return the stored memories, or none of them if one was changed since it was read."""
    versions = {memory.id: (memory.revision, memory.state) for memory in memories}
    stored = await tx.get(tx.scope, list(versions))
    now = {memory.id: (memory.revision, memory.state) for memory in stored}
    return stored if now == versions else []


async def wait_for_any(*events: asyncio.Event, seconds: float) -> None:
    """Wait until one of the events is set or the time is up."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel(*waiting)


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait for them to end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class Debounced:
    """Runs a function in the background at regular intervals and soon after a request. Requests
    that arrive together cause one run; those made before `close` are still served.
    """

    def __init__(
        self,
        work: Callable[[], Awaitable[object]],
        *,
        delay: float = 1.0,
        every: float = 300.0,
    ) -> None:
        self._work = work
        self._delay = delay
        self._every = every
        self._requested = asyncio.Event()
        self._closing = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def request(self) -> None:
        """Run the function soon. Further requests before it runs have no effect."""
        self._requested.set()

    async def close(self) -> None:
        """Serve the pending request, then stop."""
        self._closing.set()
        await self._task

    async def _run(self) -> None:
        while True:
            await wait_for_any(self._requested, self._closing, seconds=self._every)
            if self._requested.is_set():
                await wait_for_any(self._closing, seconds=self._delay)
            elif self._closing.is_set():
                return
            self._requested.clear()
            with suppress(MemoristError, OSError):  # the next run tries again
                await self._work()
