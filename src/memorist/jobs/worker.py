"""The worker runs the jobs that are due, once or until it is stopped, and any number of workers can
share a store. This module also lists the jobs.

Pending tasks are rows in the store that a worker claims with a lease. A periodic job that was
missed several times runs once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from functools import partial
from time import monotonic
from typing import cast

from .. import extraction
from ..context import Context
from ..errors import InvalidInput, ProviderFailed, RevisionConflict, StoreUnavailable
from ..ingest import trim
from ..manage import journal, privacy, records
from ..storage import Event, tasks
from ..storage.tasks import Task, Where
from ..telemetry import JOB, observe
from ..types import Op, frozen
from . import (
    AHEAD,
    DAILY,
    HOURLY,
    WEEKLY,
    backfill,
    backoff,
    cancel,
    consolidate,
    expire,
    finish,
    next_due,
    next_turn,
    reflect,
    rollup,
    summarize,
    vectors,
    wait_for_any,
)

EMBED = "embed"
LEASE_SECONDS = 120.0  # renewed while a job runs
RUN_SECONDS = 600.0  # limit of one run; what it has committed by then is kept
POLL_SECONDS = 30.0  # between checks for work if no notification arrives
SEED_SECONDS = 600.0  # between checks for scopes that have no tasks yet
DRAIN_SECONDS = 20.0  # for running work to finish when the worker is stopped
OFF_FOR = timedelta(hours=1)  # before checking again whether memory is on
_GRACE = 1.0  # seconds for a run that ends as its lease is lost
_TASK_BACKOFF = (30.0, 3600.0)  # seconds after the first failure, and at most
_LOOP_BACKOFF = (1.0, 30.0)
log = logging.getLogger("memorist")


@dataclass(frozen=True, slots=True)
class Job:
    """Background work, periodic or queued by a write.

    `run` applies its changes, calls `tasks.finish` in the last transaction and returns how many
    memories it changed.
    """

    name: str
    run: Callable[[Context, Task], Awaitable[int | None]]
    every: timedelta | None = None  # None: only when queued
    where: Where = "each"  # scope it recurs in; `one`: for the whole store; `queued`: by a write
    derives: bool = False  # creates memories, so it is postponed where memory is off


@frozen
class JobResult:
    """Counts for the runs of one job."""

    runs: int = 0  # completed
    changed: int = 0  # memories created, changed, embedded or erased
    failed: int = 0  # postponed because of an error
    skipped: int = 0  # postponed because memory is off there, or another worker has it


@frozen
class JobReport:
    """The results by job; jobs that were not due are left out."""

    jobs: Mapping[str, JobResult] = field(default_factory=dict)

    def __getitem__(self, name: str) -> JobResult:
        return self.jobs.get(name, JobResult())


def list_jobs(ctx: Context) -> Iterator[Job]:
    """Yield the jobs that the settings enable, except embedding, which is part of the worker."""
    settings = ctx.settings
    policy = ctx.policy
    yield Job("purge", expire.run, DAILY)
    if policy.capacity is not None:
        yield Job("trim", trim_scope, DAILY)
    if settings.journal_dir is not None:
        yield Job("snapshot", write_snapshot, HOURLY, "one")
    if settings.extract != "off":
        yield Job(extraction.NAME, extraction.run, derives=True)  # queued by writes
        yield Job(backfill.NAME, backfill.run, derives=True)  # queued on request
    if policy.bands is not None:
        yield Job("consolidate", consolidate.run, DAILY, derives=True)
    if ctx.llm is not None and settings.reflect_hours:
        yield Job("reflect", reflect.run, DAILY, derives=True)
    compresses = policy.job == "compress" or "compression_threshold" in settings.model_fields_set
    where: Where = "each" if compresses else "queued"
    yield Job("compress", summarize.run_compress, DAILY, where, derives=True)
    where = "each" if policy.job == "promote" else "queued"
    yield Job("promote", promote_items, DAILY, where, derives=True)
    if settings.rollup_days:
        yield Job("rollup", rollup.run, WEEKLY, derives=True)
    yield Job("shorten", summarize.run_shorten, DAILY, derives=True)


async def trim_scope(ctx: Context, task: Task) -> int:
    """Trim a scope to the capacity of the write policy; return how many memories were trimmed."""
    now = ctx.clock()
    most = ctx.policy.capacity
    assert most is not None
    async with ctx.store.transaction(task.scope) as tx:
        trimmed = await trim.enforce(tx, task.scope, most, now)
        await tasks.finish(tx, task, again_at=next_due(task, DAILY, now))
    return len(trimmed)


async def promote_items(ctx: Context, task: Task) -> int:
    """Move the items of a scope that are older than two days into their records."""
    now = ctx.clock()
    done = await records.promote(ctx.store, task.scope, before=now - records.CUTOFF, now=now)
    await finish(ctx, task, DAILY)
    return done.compressed


async def write_snapshot(ctx: Context, task: Task) -> None:
    """Write the current memories to MEMORY.md."""
    await journal.snapshot(ctx, refresh=True)
    await finish(ctx, task, HOURLY)


@dataclass(eq=False)
class Worker:
    """Embeds memories without a vector and runs the jobs that are due. `report` has the results.

    Raises InvalidInput if `only` names a job that does not exist.
    """

    ctx: Context
    jobs: Iterable[Job] | None = None  # None: those that the settings enable
    _: KW_ONLY
    only: Sequence[str] = ()
    batch_size: int = 32
    lease_seconds: float = LEASE_SECONDS
    drain_seconds: float = DRAIN_SECONDS
    progress: Callable[[int, int], None] = lambda done, of: None

    def __post_init__(self) -> None:
        jobs = list_jobs(self.ctx) if self.jobs is None else self.jobs
        self._jobs = {job.name: job for job in jobs}
        known = [EMBED, *self._jobs]
        for name in self.only:
            if name not in known:
                raise InvalidInput(f"Unknown job {name!r}: choose from {', '.join(known)}")
        chosen = self.only or known
        self._jobs = {name: job for name, job in self._jobs.items() if name in chosen}
        self._embeds = self.ctx.embedder is not None and EMBED in chosen
        self._queue = self.ctx.store.tasks
        self._counts = defaultdict[str, Counter[str]](Counter)  # by job, by field of JobResult
        self._steps = 0
        self._total = 0
        self._is_first = True  # the first run embeds everything pending, later ones new memories
        self._stop = asyncio.Event()
        self._task: asyncio.Task[JobReport] | None = None

    @property
    def report(self) -> JobReport:
        return JobReport(jobs={name: JobResult(**did) for name, did in self._counts.items() if did})

    async def run_once(self, *, retry: bool = False) -> JobReport:
        """Run the tasks that are due now; with `retry` also those that were given up on.

        A recurring task that is due soon counts as due, so a run at the same time each day reaches
        every scope every day. Raises StoreUnavailable.
        """
        now = self.ctx.clock()
        await self._seed(lambda *_, **__: now, soon=now)
        if retry:
            await self._queue.retry(list(self._jobs), now=now)
        for each in await self._queue.backlog(now):
            if each.name in self._jobs or (each.name == EMBED and self._embeds):
                self._total += each.waiting
        with suppress(ProviderFailed):  # counted; jobs that need no model still run
            await self._embed()
        while await self.run_next():
            pass
        with suppress(ProviderFailed):  # for the memories that the jobs created
            await self._embed()
        return self.report

    async def run(self) -> JobReport:
        """Run the tasks that are due until `stop`; then finish running work, or release it if that
        takes too long.
        """
        news = asyncio.Event(), asyncio.Event()
        seeded = -SEED_SECONDS

        async def run_due() -> bool:
            nonlocal seeded
            if monotonic() - seeded > SEED_SECONDS:
                await self._seed(partial(next_turn, after=self.ctx.clock()))
                seeded = monotonic()
            return await self.run_next()

        async def watch_changes() -> None:
            while True:
                try:
                    await self.ctx.store.database.wait_for_change(POLL_SECONDS)
                except ProviderFailed:
                    await asyncio.sleep(_LOOP_BACKOFF[0])
                for each in news:
                    each.set()

        with suppress(ProviderFailed):
            await self.ctx.store.database.wait_for_change(0)  # notice every change from here on
        loops = [
            asyncio.create_task(self._loop(self._embed, news[0])),
            asyncio.create_task(self._loop(run_due, news[1])),
        ]
        watch = asyncio.create_task(watch_changes())
        try:
            await self._stop.wait()
            await asyncio.wait(loops, timeout=self.drain_seconds)
        finally:
            await cancel(*loops, watch)
        return self.report

    def stop(self) -> None:
        self._stop.set()

    def start(self) -> None:
        """Run in the background until `close`."""
        self._task = asyncio.create_task(self.run(), name="memorist-jobs")

    async def close(self) -> None:
        self.stop()
        if self._task is not None:
            await self._task

    def _count(self, name: str, steps: int = 1, **counts: int) -> None:
        self._counts[name].update(counts)
        self._steps += steps
        self._total = max(self._total, self._steps)
        self.progress(self._steps, self._total)

    async def _seed(self, due: Callable[..., datetime], *, soon: datetime | None = None) -> None:
        """Create the tasks of periodic jobs for scopes that have none; with `soon`, those that are
        due within an eighth of their period from then on become due.
        """
        for name, job in self._jobs.items():
            if job.every is not None:
                when = partial(due, name=name, every=job.every)
                latest = self.ctx.clock() + 2 * job.every
                await self._queue.seed(name, due=when, latest=latest, where=job.where)
                if soon is not None:
                    until = soon + job.every / AHEAD
                    await self._queue.bring_forward(name, soon, until)

    async def _embed(self) -> None:
        """Embed everything that is pending. Raises ProviderFailed if some of it failed."""
        if not self._embeds:
            return
        counts = self._counts[EMBED]
        before = counts["changed"]

        def progress(done: int) -> None:
            new = before + done - counts["changed"]
            self._count(EMBED, new, changed=new)

        try:
            await vectors.backfill(
                self.ctx,
                batch_size=self.batch_size,
                waiting=not self._is_first,
                lease_seconds=self.lease_seconds,
                stop=self._stop.is_set,
                progress=progress,
            )
        except StoreUnavailable:
            raise
        except ProviderFailed:
            self._count(EMBED, 0, failed=1)
            raise
        self._is_first = False
        if counts["changed"] > before:
            self._count(EMBED, 0, runs=1)

    async def run_next(self) -> bool:
        """Run or postpone the task that has been due longest; return False if there is none.

        Other workers may claim the rest. Raises StoreUnavailable; then the lease expires.
        """
        ctx = self.ctx
        if not self._jobs:
            return False
        claimed = await self._queue.claim(
            list(self._jobs), now=ctx.clock(), limit=1, lease_seconds=self.lease_seconds
        )
        for task in claimed:
            job = self._jobs[task.name]
            try:
                if job.derives and await privacy.is_space_off(ctx, task.scope):
                    await self._queue.postpone(task, due_at=ctx.clock() + OFF_FOR, failed=False)
                    self._count(job.name, skipped=1)
                    continue
                with observe(ctx.observers, JOB + job.name) as report_count:
                    changed = await self._run_under_lease(task, job) or 0
                    report_count(changed)
                self._count(job.name, runs=1, changed=changed)
            except asyncio.CancelledError:
                with suppress(ProviderFailed):
                    back = self._queue.postpone(task, due_at=task.due_at, failed=False)
                    await asyncio.shield(back)
                raise
            except StoreUnavailable:
                raise
            except Exception as error:
                await self._postpone(task, error)
        return bool(claimed)

    async def _run_under_lease(self, task: Task, job: Job) -> int | None:
        """Run a job while its lease is renewed. Raises RevisionConflict if the lease is lost."""

        async def renew() -> None:
            is_ours = True
            while is_ours:
                await asyncio.sleep(self.lease_seconds / 3)
                with suppress(ProviderFailed):  # the lease outlasts a short outage
                    is_ours = await self._queue.renew(task, lease_seconds=self.lease_seconds)

        running = asyncio.ensure_future(job.run(self.ctx, task))
        renewing = asyncio.create_task(renew())
        try:
            async with asyncio.timeout(RUN_SECONDS):
                await asyncio.wait((running, renewing), return_when=asyncio.FIRST_COMPLETED)
                done, _ = await asyncio.wait((running,), timeout=_GRACE)
            if not done:
                raise RevisionConflict(f"The task {task.name!r} was claimed by another worker")
            return running.result()
        finally:
            await cancel(running, renewing)

    async def _postpone(self, task: Task, error: Exception) -> None:
        """Retry a task later.

        The event and the log have the type of the error but not its message, which may contain
        stored text.
        """
        now = self.ctx.clock()
        due_at = now + timedelta(seconds=backoff(task.attempts, *_TASK_BACKOFF))
        await self._queue.postpone(task, due_at=due_at)
        if isinstance(error, RevisionConflict):  # claimed by another worker, or memories changed
            self._count(task.name, skipped=1)
            return
        log.warning("Job %r failed (%s) and will be retried", task.name, type(error).__name__)
        event = Event(node="worker", op=cast(Op, task.name), at=now, status="error")
        async with self.ctx.store.transaction(task.scope) as tx:
            await tx.apply([event])
        self._count(task.name, failed=1)

    async def _loop(self, step: Callable[[], Awaitable[bool | None]], news: asyncio.Event) -> None:
        """Repeat a step while it finds work, then wait for news. A step that fails is retried."""
        tries = 0
        while not self._stop.is_set():
            news.clear()
            try:
                is_busy = await step()
                tries = 0
                if not is_busy:
                    await wait_for_any(news, self._stop, seconds=POLL_SECONDS)
            except Exception as error:
                tries += 1
                if not isinstance(error, ProviderFailed):
                    log.warning("The worker failed (%s) and continues", type(error).__name__)
                await wait_for_any(self._stop, seconds=backoff(tries, *_LOOP_BACKOFF))
