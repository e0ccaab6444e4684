"""The duties of a memory that is open, and who does them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from ..extraction import job
from ..ingest import trim
from ..ingest.policies import Policy
from ..manage.privacy import INCOGNITO
from ..results import Task
from ..storage.changes import Done
from ..telemetry.instrumentation import DUTY, watching
from ..types import Scope
from . import compress, consolidate, reflect, roll_up
from .context import Care
from .schedule import Duty, Run, again
from .worker import Worker

if TYPE_CHECKING:
    from ..client import Engine
    from ..settings import Settings

HOURLY, DAILY = timedelta(hours=1), timedelta(days=1)


def duties(engine: Engine) -> dict[str, Duty]:
    """What there is to do beside embedding, as the settings have it."""
    settings, policy = engine.settings, engine.ingest.policy
    made = {"purge": Duty(run=_then_done(partial(_purge, engine), DAILY), every=DAILY)}
    if policy.capacity is not None:
        made["trim"] = Duty(run=partial(_trim, cap=policy.capacity), every=DAILY)
    if engine.journal is not None:
        made["snapshot"] = Duty(
            run=_then_done(partial(_snapshot, engine), HOURLY), every=HOURLY, whole=True
        )
    made |= {
        name: Duty(run=run, every=every, derives=True)
        for name, run, every in _deriving(settings, policy)
    }
    return {
        name: replace(duty, run=_watched(engine, name, duty.run)) for name, duty in made.items()
    }


def _watched(engine: Engine, name: str, run: Run) -> Run:
    async def watched(task: Task, care: Care) -> int | None:
        with watching(engine.watchers, DUTY + name) as tell:
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
            _consolidate(policy, settings.consolidate_pairs),
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


def _consolidate(policy: Policy, most: int) -> Run:
    async def run(task: Task, care: Care) -> int:
        return await consolidate.run(care, task, policy=policy, most=most)

    return run


def worker(engine: Engine, **options: Any) -> Worker:
    """Somebody who does them; see `Worker`. Raises InvalidInput."""
    return Worker(engine.care, duties(engine), is_off=partial(_is_off, engine), **options)


async def _is_off(engine: Engine, scope: Scope) -> bool:
    """Whether the person turned memory off there; a space of incognito sessions still holds what others told."""
    why = await engine.scope(scope.user, scope.space, scope.tenant).privacy.why_off()
    return why not in ("", INCOGNITO)


def _then_done(work: Callable[[Task], Awaitable[int]], every: timedelta) -> Run:
    """A duty of steps that can be done again: one that is killed on the way is begun anew, and goes on."""

    async def run(task: Task, care: Care) -> int:
        changed = await work(task)
        async with care.store.transaction(task.scope) as tx:
            await tx.apply([Done(task=task, again_at=again(task, every, care.now()))])
        return changed

    return run


async def _purge(engine: Engine, task: Task) -> int:
    scope = task.scope
    gone = await engine.scope(scope.user, scope.space, scope.tenant).purge()
    return len(gone.expired) + len(gone.purged)


async def _trim(task: Task, care: Care, *, cap: int) -> int:
    now = care.now()
    async with care.store.transaction(task.scope) as tx:
        gone = await trim.enforce(tx, task.scope, cap, now)
        await tx.apply([Done(task=task, again_at=again(task, DAILY, now))])
    return len(gone)


async def _snapshot(engine: Engine, task: Task) -> int:
    await engine.snapshot()
    return 0
