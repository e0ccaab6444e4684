"""The jobs that run in the background, beside embedding, which the worker does itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..context import Context
from ..extraction import job as extraction
from ..ingest import policies, trim
from ..manage import journal
from ..storage import tasks
from ..storage.tasks import Task
from . import compress, consolidate, expire, reflect, roll_up
from .schedule import DAILY, HOURLY, WEEKLY, finish, next_due
from .worker import Job, Worker


def jobs(ctx: Context) -> Iterator[Job]:
    """Yield the jobs that apply under the settings."""
    settings = ctx.settings
    policy = policies.find(ctx.policies, settings.policy, settings.capacity)
    yield Job(name="purge", run=expire.run, every=DAILY)
    if policy.capacity is not None:
        yield Job(name="trim", run=trim_scope, every=DAILY)
    if settings.journal_dir is not None:
        yield Job(name="snapshot", run=write_snapshot, every=HOURLY, whole_store=True)
    if settings.extract != "off":
        yield Job(name=extraction.NAME, run=extraction.run, derives=True)  # queued by writes
    if policy.bands is not None:
        yield Job(name="consolidate", run=consolidate.run, every=DAILY, derives=True)
    if settings.llm != "none" and settings.reflect_hours:
        yield Job(name="reflect", run=reflect.run, every=DAILY, derives=True)
    if policy.compresses or "compression_threshold" in settings.model_fields_set:
        yield Job(name="compress", run=compress.run, every=DAILY, derives=True)
    if settings.rollup_days:
        yield Job(name="rollup", run=roll_up.run, every=WEEKLY, derives=True)


def worker(ctx: Context, **options: Any) -> Worker:
    """Return a worker for these jobs. Raises InvalidInput."""
    return Worker(ctx, jobs(ctx), **options)


async def trim_scope(ctx: Context, task: Task) -> int:
    """Trim a scope to the capacity of the write policy; return how many were trimmed."""
    settings = ctx.settings
    capacity = policies.find(ctx.policies, settings.policy, settings.capacity).capacity
    now, trimmed = ctx.clock(), []
    async with ctx.store.transaction(task.scope) as tx:
        if capacity is not None:
            trimmed = await trim.enforce(tx, task.scope, capacity, now)
        await tasks.finish(tx, task, again_at=next_due(task, DAILY, now))
    return len(trimmed)


async def write_snapshot(ctx: Context, task: Task) -> int:
    """Write what is known to MEMORY.md."""
    await journal.snapshot(ctx, refresh=True)
    await finish(ctx, task, HOURLY)
    return 0
