"""Tending, piece by piece: which duties there are, when each has its turn, and how one piece of work is done.

What waits are rows under a lease, so any number of workers share it. A duty that was missed is caught up once.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast

from ..errors import ProviderFailed, RevisionConflict, StoreUnavailable
from ..ports import Store
from ..results import Task
from ..storage.changes import Happened
from ..types import Op, Scope
from .context import Care

LEASE_SECONDS = 120.0  # renewed while a duty is at work
LIMIT_SECONDS = 600.0  # of one run; what a duty did in slices until then stands
OFF_FOR = timedelta(hours=1)  # until it is asked again whether memory is on
_PATIENCE = (30.0, 3600.0)  # seconds after a first and after many failures
_GRACE = 1.0  # seconds for a run whose end and whose last renewal met
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
log = logging.getLogger("memorist")

Run = Callable[[Task, Care], Awaitable[int | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Duty:
    """Work that comes round, or that somebody queued.

    `run` makes its changes itself, and `Done` with the last of them; it gives how many memories it made or changed.
    """

    run: Run
    every: timedelta | None = None  # None: it is done when it was queued, and not by itself
    whole: bool = False  # of the whole store, not of each scope
    derives: bool = False  # it makes memories, so it waits where memory is off


@dataclass(frozen=True, slots=True, kw_only=True)
class Did:
    """What became of one duty."""

    runs: int = 0  # that came to their end
    changed: int = 0  # memories made, changed, embedded or erased
    failed: int = 0  # put off, because a part was away or something went wrong
    skipped: int = 0  # put off, because memory is off there or somebody else is at it

    def __add__(self, other: Did) -> Did:
        return Did(
            runs=self.runs + other.runs,
            changed=self.changed + other.changed,
            failed=self.failed + other.failed,
            skipped=self.skipped + other.skipped,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tended:
    """What was done, by the name of the duty; what was not due is not in it."""

    duties: Mapping[str, Did] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Did:
        return self.duties.get(name, Did())


def turn(scope: Scope, name: str, every: timedelta, after: datetime) -> datetime:
    """When a duty of a scope has its turn next: always at the same time of the period, and each scope at its own."""
    key = repr((scope.tenant, scope.user, scope.space, name)).encode("utf-8", "backslashreplace")
    own = timedelta(
        seconds=int.from_bytes(hashlib.blake2b(key, digest_size=6).digest(), "big")
        % every.total_seconds()
    )
    return after + (own - (after - _EPOCH)) % every


def again(task: Task, every: timedelta, now: datetime) -> datetime:
    """When a duty that has just been done is due again: at its next turn, but not sooner than after half a period."""
    return turn(task.scope, task.name, every, now + every / 2)


def backoff(tries: int, first: float, most: float) -> float:
    """Seconds until the next try: twice as long each time, and never the same for two that failed together."""
    return min(most, first * 2.0 ** min(tries - 1, 30)) * random.uniform(0.5, 1.0)


async def done(
    task: Task,
    duty: Duty,
    care: Care,
    *,
    is_off: Callable[[Scope], Awaitable[bool]],
    lease_seconds: float,
) -> Did:
    """Do one claimed piece of work, or put it off. Raises StoreUnavailable; then the lease ends by itself."""
    try:
        if duty.derives and await is_off(task.scope):
            await care.store.postpone(task, due_at=care.now() + OFF_FOR, failed=False)
            return Did(skipped=1)
        changed = await _under_lease(task, duty, care, lease_seconds)
        return Did(runs=1, changed=changed or 0)
    except asyncio.CancelledError:
        with suppress(ProviderFailed):
            await asyncio.shield(care.store.postpone(task, due_at=task.due_at, failed=False))
        raise
    except StoreUnavailable:
        raise
    except Exception as error:
        return await _put_off(task, error, care)


async def _under_lease(task: Task, duty: Duty, care: Care, seconds: float) -> int | None:
    async def run() -> int | None:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await duty.run(task, care)

    doing = asyncio.ensure_future(run())
    holding = asyncio.ensure_future(_held(task, care.store, seconds))
    try:
        await asyncio.wait((doing, holding), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            await asyncio.wait((doing,), timeout=_GRACE)
        if not doing.done():
            raise RevisionConflict(
                f"The task {task.name!r} was given to somebody else in the meantime"
            )
        return doing.result()
    finally:
        doing.cancel()
        holding.cancel()
        await asyncio.gather(doing, holding, return_exceptions=True)


async def _held(task: Task, store: Store, seconds: float) -> None:
    """Renew a lease until it is lost."""
    is_ours = True
    while is_ours:
        await asyncio.sleep(seconds / 3)
        with suppress(ProviderFailed):  # the lease outlasts a short outage
            is_ours = await store.renew(task, lease_seconds=seconds)


async def _put_off(task: Task, error: Exception, care: Care) -> Did:
    """Try again later; a failure is an event, without a word of what it was about."""
    now = care.now()
    await care.store.postpone(
        task, due_at=now + timedelta(seconds=backoff(task.attempts, *_PATIENCE)), failed=True
    )
    if isinstance(error, RevisionConflict):  # somebody was faster, or changed what it was about
        return Did(skipped=1)
    log.warning(
        "The duty %r did not come to its end (%s); it is tried again",
        task.name,
        type(error).__name__,
    )
    async with care.store.transaction(task.scope) as tx:
        await tx.apply([Happened(node="worker", op=cast(Op, task.name), at=now, status="error")])
    return Did(failed=1)
