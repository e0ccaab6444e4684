"""The duties of a memory that is open, and who does them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from ..context import Context
from ..extraction import job
from ..ingest import policies, trim
from ..ingest.policies import Policy
from ..manage import forget, journal, privacy
from ..results import Task
from ..settings import Settings
from ..storage.changes import Done
from ..telemetry.instrumentation import DUTY, watching
from ..types import Scope
from . import compress, consolidate, reflect, roll_up
from .context import Care
from .derive import care_of
from .schedule import Duty, Run, again
from .worker import Worker

HOURLY, DAILY = timedelta(hours=1), timedelta(days=1)


def duties(ctx: Context) -> dict[str, Duty]:
    """What there is to do beside embedding, as the settings have it."""
    settings, policy = ctx.settings, policies.named(ctx.settings.policy, ctx.settings.capacity)
    made = {"purge": Duty(run=_then_done(partial(_purge, ctx), DAILY), every=DAILY)}
    if policy.capacity is not None:
        made["trim"] = Duty(run=partial(_trim, cap=policy.capacity), every=DAILY)
    if settings.journal_dir is not None:
        made["snapshot"] = Duty(
            run=_then_done(partial(_snapshot, ctx), HOURLY), every=HOURLY, whole=True
        )
    made |= {
        name: Duty(run=run, every=every, derives=True)
        for name, run, every in _deriving(settings, policy)
    }
    return {name: replace(duty, run=_watched(ctx, name, duty.run)) for name, duty in made.items()}


def _watched(ctx: Context, name: str, run: Run) -> Run:
    async def watched(task: Task, care: Care) -> int | None:
        with watching(ctx.observers, DUTY + name) as tell:
            changed = await run(task, care)
            tell(changed or 0)
            return changed

    return watched


def _deriving(settings: Settings, policy: Policy) -> Iterator[tuple[str, Run, timedelta | None]]:
    """The duties that make memories. What hides the words that were said is done where it is asked for."""
    if settings.extract != "off":
        yield job.NAME, partial(job.run, with_model=settings.extract == "model"), None
    if policy.bands is not None:
        yield (
            "consolidate",
            partial(consolidate.run, policy=policy, most=settings.consolidate_pairs),
            consolidate.EVERY,
        )
    if settings.llm != "none" and settings.reflect_hours:
        yield "reflect", partial(reflect.run, hours=settings.reflect_hours), reflect.EVERY
    if policy.name == "vault" or "compression_threshold" in settings.model_fields_set:
        yield (
            "compress",
            partial(compress.run, threshold=settings.compression_threshold),
            compress.EVERY,
        )
    if settings.rollup_days:
        yield "rollup", partial(roll_up.run, days=settings.rollup_days), roll_up.EVERY


def worker(ctx: Context, **options: Any) -> Worker:
    """Somebody who does them; see `Worker`. Raises InvalidInput."""
    return Worker(care_of(ctx), duties(ctx), is_off=partial(_is_off, ctx), **options)


async def _is_off(ctx: Context, scope: Scope) -> bool:
    """Whether the person turned memory off there; a space of incognito sessions still holds what others told."""
    reasons = await privacy.off(ctx, scope, [None])
    return reasons.get(None, "") not in ("", privacy.INCOGNITO)


def _then_done(work: Callable[[Task], Awaitable[int]], every: timedelta) -> Run:
    """A duty of steps that can be done again: one that is killed on the way is begun anew, and goes on."""

    async def run(task: Task, care: Care) -> int:
        changed = await work(task)
        async with care.store.transaction(task.scope) as tx:
            await tx.apply([Done(task=task, again_at=again(task, every, care.now()))])
        return changed

    return run


async def _purge(ctx: Context, task: Task) -> int:
    gone = await forget.purge(ctx, task.scope, dry_run=False)
    return len(gone.expired) + len(gone.purged)


async def _trim(task: Task, care: Care, *, cap: int) -> int:
    now = care.now()
    async with care.store.transaction(task.scope) as tx:
        gone = await trim.enforce(tx, task.scope, cap, now)
        await tx.apply([Done(task=task, again_at=again(task, DAILY, now))])
    return len(gone)


async def _snapshot(ctx: Context, task: Task) -> int:
    await journal.snapshot(ctx, refresh=True)
    return 0
