"""Retention: memories that were not used for long are soft-deleted, and erased some time after
that.

Pinned and manually saved memories do not expire. A soft-deleted memory can be restored until it is
erased.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ..context import Context
from ..ingest import transitions
from ..manage import forget
from ..settings import Settings
from ..storage import proposals
from ..storage.changes import Change, Forget, Save
from ..storage.proposals import Proposal
from ..storage.queries import Reader
from ..storage.tasks import Task
from ..types import Filter, Memory, Scope
from .schedule import DAILY, finish

OTHERS = "*"
EVENTS_KEPT = timedelta(days=90)
BATCH = 500  # memories in one transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """What retention limits removed, or would remove."""

    expired: tuple[str, ...] = ()  # soft-deleted
    purged: tuple[str, ...] = ()  # erased

    def __add__(self, other: Purged) -> Purged:
        return Purged(expired=self.expired + other.expired, purged=self.purged + other.purged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long memories are kept."""

    ttl_days: Mapping[str, float] = field(default_factory=lambda: {OTHERS: 60.0})  # unused; 0: ever
    level: int = 3  # importance level from which memories do not expire
    purge_days: float = 30  # from soft deletion to erasure
    retention_days: float = 0  # of what was summarized; 0: forever

    @classmethod
    def from_settings(cls, settings: Settings) -> Retention:
        return cls(
            ttl_days=settings.ttl_days,
            level=settings.ttl_level,
            purge_days=settings.purge_days,
            retention_days=settings.retention_days,
        )

    def days(self, category: str | None) -> float:
        return self.ttl_days.get((category or "").lower(), self.ttl_days.get(OTHERS, 0))


async def run(ctx: Context, task: Task) -> int:
    """Purge a scope; return the number of changed memories."""
    done = await purge(ctx, task.scope)
    await finish(ctx, task, DAILY)
    return len(done.expired) + len(done.purged)


async def purge(ctx: Context, scope: Scope, *, dry_run: bool = False) -> Purged:
    """Soft-delete what is unused and erase what is due; with `dry_run` only say what would go."""
    store, now, limits = ctx.store, ctx.clock(), Retention.from_settings(ctx.settings)
    unused = await _find_unused(store, scope, limits, now)
    summarized = await _find_summarized(store, scope, limits, now)
    where = Filter(states=("soft_deleted",), purge_before=now)
    due = await store.find_all(scope, where)
    due.sort(key=lambda memory: memory.superseded_by is not None)  # versions go with their memory
    erasable = [*(memory.id for memory in due), *summarized]
    if dry_run:
        return Purged(expired=tuple(unused), purged=tuple(erasable))
    purge_at = now + timedelta(days=limits.purge_days)
    expired: list[str] = []
    for batch in _batches(unused):
        async with store.transaction(scope) as tx:
            changes: list[Change] = []
            for memory in await tx.get(scope, batch):
                if is_unused(memory, limits, now):
                    hidden = transitions.hide(memory, now, purge_at=purge_at)
                    meta = {"reason": f"not used for {limits.days(memory.category):g} days"}
                    changes.append(Save(memory=hidden, event="soft_deleted", meta=meta))
                    expired.append(memory.id)
            await tx.apply(changes)
    purged: list[str] = []
    texts: list[str] = []
    for batch in _batches(erasable):
        async with store.transaction(scope) as tx:
            changes = []
            for memory in await tx.get(scope, batch):
                is_expired = is_due(memory, now)
                if is_expired or (memory.id in summarized and not memory.on_purpose):
                    reason = "soft-deleted long ago" if is_expired else "summarized long ago"
                    erased = Forget(
                        memory_id=memory.id, at=now, until=now, reason=reason, purged=True
                    )
                    changes.append(erased)
                    purged.append(memory.id)
                    texts += await tx.versions(scope, memory.id)
            await tx.apply(changes)
    async with store.transaction(scope) as tx:
        for late in find_lapsed(await proposals.load(tx, scope), now):
            await tx.decide_proposal(late, "lapsed", at=now)
        await tx.delete_old(now - EVENTS_KEPT)
    if texts:
        await forget.sweep(ctx, scope, list(dict.fromkeys(texts)))
    return Purged(expired=tuple(expired), purged=tuple(purged))


def find_lapsed(proposals: Iterable[Proposal], now: datetime) -> list[Proposal]:
    """Return the proposals that the person did not approve in time."""
    return [each for each in proposals if each.decided is None and each.lapses_at <= now]


def is_unused(memory: Memory, limits: Retention, now: datetime) -> bool:
    """Whether a memory is unimportant and was neither recalled nor changed for too long."""
    if not memory.is_active or memory.on_purpose or memory.importance_level >= limits.level:
        return False
    days = limits.days(memory.category)
    used = max(memory.updated_at, memory.last_accessed or memory.updated_at)
    return days > 0 and used < now - timedelta(days=days)


def is_due(memory: Memory, now: datetime) -> bool:
    """Whether a memory is soft-deleted and its purge date has passed."""
    return memory.state == "soft_deleted" and memory.purge_at is not None and memory.purge_at < now


async def _find_unused(
    reading: Reader, scope: Scope, limits: Retention, now: datetime
) -> list[str]:
    days = [days for days in limits.ttl_days.values() if days > 0]
    if not days:
        return []
    where = Filter(
        used_before=now - timedelta(days=min(days)),
        importance_max=(limits.level - 1) / 5,
        pinned=False,
        manually_saved=False,
    )
    found = await reading.find_all(scope, where)
    return [memory.id for memory in found if is_unused(memory, limits, now)]


async def _find_summarized(
    reading: Reader, scope: Scope, limits: Retention, now: datetime
) -> list[str]:
    """Return the ids of memories whose summary is old enough."""
    if not limits.retention_days:
        return []
    where = Filter(
        compression_source=True,
        created_before=now - timedelta(days=limits.retention_days),
        states=("active", "compressed", "archived"),
    )
    ids: dict[str, None] = {}
    for summary in await reading.find_all(scope, where):
        ids |= dict.fromkeys((*summary.evidence_ids, *summary.source_ids))
    return [memory.id for memory in await reading.get(scope, list(ids)) if not memory.on_purpose]


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))
