"""The jobs that run in the background, beside embedding, which the worker does itself.

| job | interval | applies |
|---|---|---|
| purge | daily | always |
| trim | daily | the write policy has a capacity |
| snapshot | hourly | `journal_dir` is set |
| extract | queued by writes | `extract` is not off |
| consolidate | daily | the write policy compares texts |
| reflect | daily | a language model and `reflect_hours` are set |
| compress | daily | `compression_threshold` is set, or the write policy asks for it |
| rollup | weekly | `rollup_days` is set |
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ..extraction import job as extraction
from ..ingest import trim
from ..manage.privacy import INCOGNITO
from ..results import Task
from ..storage.changes import Done
from ..types import Scope
from . import compress, consolidate, reflect, roll_up
from .context import Care
from .schedule import finish, next_due
from .worker import Job, Worker

if TYPE_CHECKING:
    from ..client import Engine

HOURLY, DAILY = timedelta(hours=1), timedelta(days=1)


def jobs(engine: Engine) -> Iterator[Job]:
    """Yield the jobs that apply under the settings."""
    settings, policy = engine.settings, engine.ingest.policy

    async def purge(ctx: Care, task: Task) -> int:
        done = await engine.scope(task.scope.user, task.scope.space, task.scope.tenant).purge()
        await finish(ctx, task, DAILY)
        return len(done.expired) + len(done.purged)

    async def trim_scope(ctx: Care, task: Task) -> int:
        assert policy.capacity is not None
        now = ctx.clock()
        async with ctx.store.transaction(task.scope) as tx:
            trimmed = await trim.enforce(tx, task.scope, policy.capacity, now)
            await tx.apply([Done(task=task, again_at=next_due(task, DAILY, now))])
        return len(trimmed)

    async def snapshot(ctx: Care, task: Task) -> int:
        await engine.snapshot()
        await finish(ctx, task, HOURLY)
        return 0

    async def extract(ctx: Care, task: Task) -> int:
        return await extraction.run(task, ctx, with_model=settings.extract == "model")

    async def join(ctx: Care, task: Task) -> int:
        return await consolidate.run(ctx, task, policy=policy, most=settings.consolidate_pairs)

    async def infer(ctx: Care, task: Task) -> int:
        return await reflect.run(ctx, task, hours=settings.reflect_hours)

    async def compress_sessions(ctx: Care, task: Task) -> int:
        return await compress.run(ctx, task, threshold=settings.compression_threshold)

    async def roll_up_topics(ctx: Care, task: Task) -> int:
        return await roll_up.run(ctx, task, days=settings.rollup_days)

    yield Job(name="purge", run=purge, every=DAILY)
    if policy.capacity is not None:
        yield Job(name="trim", run=trim_scope, every=DAILY)
    if engine.journal is not None:
        yield Job(name="snapshot", run=snapshot, every=HOURLY, whole_store=True)
    if settings.extract != "off":
        yield Job(name=extraction.NAME, run=extract, derives=True)
    if policy.bands is not None:
        yield Job(name="consolidate", run=join, every=consolidate.EVERY, derives=True)
    if settings.llm != "none" and settings.reflect_hours:
        yield Job(name="reflect", run=infer, every=reflect.EVERY, derives=True)
    if policy.name == "vault" or "compression_threshold" in settings.model_fields_set:
        yield Job(name="compress", run=compress_sessions, every=compress.EVERY, derives=True)
    if settings.rollup_days:
        yield Job(name="rollup", run=roll_up_topics, every=roll_up.EVERY, derives=True)


def worker(engine: Engine, **options: Any) -> Worker:
    """Return a worker for these jobs. Raises InvalidInput."""

    async def is_off(scope: Scope) -> bool:
        return await is_memory_off(engine, scope)

    return Worker(engine.care, jobs(engine), is_off=is_off, observers=engine.watchers, **options)


async def is_memory_off(engine: Engine, scope: Scope) -> bool:
    """Whether memory is off in a scope; a space of incognito sessions still holds what others
    stored.
    """
    why = await engine.scope(scope.user, scope.space, scope.tenant).privacy.why_off()
    return why not in ("", INCOGNITO)
