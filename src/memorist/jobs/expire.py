"""Retention: memories that were not used for long are soft-deleted, and erased some time after
that.

Pinned and manually saved memories and summaries do not expire. If roll-ups are on, memories on one
topic are summarized before any of them would expire. A soft-deleted memory can be restored until it is
erased. The limits are settings: `ttl_days`, `ttl_level`, `purge_days` and `retention_days`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from ..context import Context, Place
from ..ingest import transitions
from ..manage import forget, privacy
from ..settings import Settings
from ..storage import Change, Forget, Save, person
from ..storage.queries import portions
from ..storage.tasks import Task
from ..types import Filter, Labels, Memory, Scope, frozen
from . import DAILY, finish, rollup

EVENTS_KEPT = timedelta(days=90)


@frozen
class Purged:
    """What retention limits removed, or would remove."""

    expired: tuple[str, ...] = ()  # soft-deleted
    purged: tuple[str, ...] = ()  # erased

    def __add__(self, other: Purged) -> Purged:
        expired = self.expired + other.expired
        purged = self.purged + other.purged
        return Purged(expired=expired, purged=purged)


async def run(ctx: Context, task: Task) -> int:
    """Purge a scope; return the number of changed memories."""
    done = await purge(Place(ctx, task.scope, Labels()))
    await finish(ctx, task, DAILY)
    return len(done.expired) + len(done.purged)


async def purge(place: Place, *, dry_run: bool = False) -> Purged:
    """Hide what was not used for `ttl_days`, and erase what was hidden for `purge_days`.

    Both are settings. What is pinned or manually saved stays.
    With `dry_run` nothing is changed.
    """
    ctx, scope, _ = place.parts
    store = ctx.store
    settings = ctx.settings
    now = ctx.clock()
    unused = await _find_unused(ctx, scope, now)
    if unused and settings.rollup_days and not await privacy.is_space_off(ctx, scope):
        # What belongs to a topic is summarized instead.
        days = settings.rollup_days
        where = _unused_filter(settings, now)
        _, kept = await rollup.roll_up_before(place, where, days=days, dry_run=dry_run)
        unused = [id for id in unused if id not in kept]
    summarized = await _find_summarized(ctx, scope, now)
    due = await store.find_all(scope, Filter(states=("soft_deleted",), purge_before=now))
    due += await store.find_all(scope, Filter(states=(), expired_by=now))
    due.sort(key=lambda memory: memory.superseded_by is not None)  # versions go with their memory
    erasable = list(dict.fromkeys([*(memory.id for memory in due), *summarized]))
    if dry_run:
        return Purged(expired=tuple(unused), purged=tuple(erasable))
    expired = []
    purged = []
    texts = []
    for batch in portions([*unused, *erasable]):
        changes: list[Change] = []
        async with store.transaction(scope) as tx:
            for memory in await tx.get(scope, batch):
                id = memory.id
                ends = memory.purge_at if memory.state == "soft_deleted" else None
                is_due = ends is not None and ends < now
                has_ended = memory.expires_at is not None and memory.expires_at <= now
                is_replaced = id in summarized and not memory.on_purpose
                if is_due or has_ended or is_replaced:
                    reason = "soft-deleted long ago" if is_due else "summarized long ago"
                    if has_ended:
                        reason = "it expired"
                    erased = Forget(
                        memory_id=id,
                        at=now,
                        until=now,
                        reason=reason,
                        purged=True,
                    )
                    changes.append(erased)
                    purged.append(id)
                    texts += await tx.versions(scope, id)
                elif is_unused(memory, settings, now):
                    erase_at = now + timedelta(days=settings.purge_days)
                    hidden = transitions.hide(memory, now, purge_at=erase_at)
                    meta = {"reason": f"not used for {settings.days_kept(memory):g} days"}
                    changes.append(Save(memory=hidden, event="soft_deleted", meta=meta))
                    expired.append(id)
            await tx.apply(changes)
    async with store.transaction(scope) as tx:
        await person.erase_lapsed(tx, now)
        await tx.delete_old(now - EVENTS_KEPT)
    if texts:
        await forget.sweep(ctx, scope, list(dict.fromkeys(texts)))
    return Purged(expired=tuple(expired), purged=tuple(purged))


async def _find_unused(ctx: Context, scope: Scope, now: datetime) -> list[str]:
    """Return the ids of memories that expire now."""
    where = _unused_filter(ctx.settings, now)
    found = await ctx.store.find_all(scope, where) if where is not None else []
    return [memory.id for memory in found if is_unused(memory, ctx.settings, now)]


def _unused_filter(settings: Settings, now: datetime) -> Filter | None:
    """Return a filter for what may expire now, or None if nothing ever expires."""
    days = [days for days in settings.ttl_days.values() if days > 0]
    if not days:
        return None
    return Filter(
        used_before=now - timedelta(days=min(days)),
        importance_max=(settings.ttl_level - 1) / 5,
        pinned=False,
        manually_saved=False,
    )


def is_unused(memory: Memory, settings: Settings, now: datetime) -> bool:
    """Whether a memory is unimportant and was neither recalled nor changed for too long.

    A summary does not expire: it is what remains of its sources.
    """
    if not memory.is_active or memory.on_purpose or memory.compression_source:
        return False
    days = settings.days_kept(memory)
    return days > 0 and memory.last_used < now - timedelta(days=days)


async def _find_summarized(ctx: Context, scope: Scope, now: datetime) -> list[str]:
    """Return the ids of memories whose summary is old enough to replace them for good."""
    if not ctx.settings.retention_days:
        return []
    where = Filter(
        compression_source=True,
        created_before=now - timedelta(days=ctx.settings.retention_days),
        states=("active", "compressed", "archived"),
    )
    ids: dict[str, None] = {}
    for summary in await ctx.store.find_all(scope, where):
        ids |= dict.fromkeys((*summary.evidence_ids, *summary.source_ids))
    memories = await ctx.store.get(scope, list(ids))
    return [memory.id for memory in memories if not memory.on_purpose]
