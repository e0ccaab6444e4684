"""Time limits: what nobody used for long is put away, and what was put away for long enough is erased.

What is pinned or was saved on purpose has no limit. What is put away can be restored until it is erased.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from ..ingest import transitions
from ..ports import Reading, Store
from ..results import Proposal, Purged
from ..settings import Settings
from ..storage.changes import Decided, Forget, Put
from ..storage.paging import matching
from ..types import Filter, Memory, Scope

OTHERS = "*"
EVENTS_KEPT = timedelta(days=90)
AT_ONCE = 500  # memories in one transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long things are kept."""

    ttl_days: Mapping[str, float] = field(
        default_factory=lambda: {OTHERS: 60.0}
    )  # without use; 0: for ever
    level: int = 3  # importance from which on use does not matter
    purge_days: float = 30  # from being put away to being erased
    retention_days: float = 0  # after they were summed up; 0: for ever

    @classmethod
    def from_settings(cls, settings: Settings) -> Limits:
        return cls(
            ttl_days=settings.ttl_days,
            level=settings.ttl_level,
            purge_days=settings.purge_days,
            retention_days=settings.retention_days,
        )

    def of(self, category: str | None) -> float:
        return self.ttl_days.get((category or "").lower(), self.ttl_days.get(OTHERS, 0))


async def purge(
    store: Store, scope: Scope, limits: Limits, now: datetime, *, dry_run: bool
) -> tuple[Purged, list[str]]:
    """Put away what is unused and erase what is due; gives the ids, and the words that are gone."""
    unused, summed_up = (
        await _unused(store, scope, limits, now),
        await _summed_up(store, scope, limits, now),
    )
    due = [
        *await _ids(store, scope, Filter(states=("soft_deleted",), purge_before=now)),
        *summed_up,
    ]
    if dry_run:
        return Purged(expired=tuple(unused), purged=tuple(due)), []
    away, gone, words = [], [], []
    for few in _few(unused):
        async with store.transaction(scope) as tx:
            still = [
                memory for memory in await tx.get(scope, few) if is_unused(memory, limits, now)
            ]
            await tx.apply([_put_away(memory, limits, now) for memory in still])
        away += [memory.id for memory in still]
    for few in _few(due):
        async with store.transaction(scope) as tx:
            over = [
                m
                for m in await tx.get(scope, few)
                if is_due(m, now) or (m.id in summed_up and not m.on_purpose)
            ]
            words += [text for memory in over for text in await tx.wordings(scope, memory.id)]
            await tx.apply([_erasing(memory, now) for memory in over])
        gone += [memory.id for memory in over]
    async with store.transaction(scope) as tx:
        await tx.apply(lapsed(await tx.proposals(scope), now))
        await tx.tidy(now - EVENTS_KEPT)
    return Purged(expired=tuple(away), purged=tuple(gone)), list(dict.fromkeys(words))


def lapsed(proposals: Iterable[Proposal], now: datetime) -> list[Decided]:
    """What the person did not agree to in time goes with its words."""
    late = (each for each in proposals if each.decided is None and each.lapses_at <= now)
    return [Decided(proposal=each, decision="lapsed", at=now) for each in late]


def is_unused(memory: Memory, limits: Limits, now: datetime) -> bool:
    """Not important, and for too long neither recalled nor changed."""
    if not memory.is_active or memory.on_purpose or memory.importance_level >= limits.level:
        return False
    days = limits.of(memory.category)
    used = max(memory.updated_at, memory.last_accessed or memory.updated_at)
    return days > 0 and used < now - timedelta(days=days)


def is_due(memory: Memory, now: datetime) -> bool:
    """Put away, and for long enough."""
    return memory.state == "soft_deleted" and memory.purge_at is not None and memory.purge_at < now


async def _unused(reading: Reading, scope: Scope, limits: Limits, now: datetime) -> list[str]:
    days = [days for days in limits.ttl_days.values() if days > 0]
    if not days:
        return []
    where = Filter(
        used_before=now - timedelta(days=min(days)),
        importance_max=(limits.level - 1) / 5,
        pinned=False,
        manually_saved=False,
    )
    return [
        memory.id
        for memory in await matching(reading, scope, where)
        if is_unused(memory, limits, now)
    ]


async def _summed_up(reading: Reading, scope: Scope, limits: Limits, now: datetime) -> list[str]:
    """What a summary was made of that is old enough."""
    if not limits.retention_days:
        return []
    before = now - timedelta(days=limits.retention_days)
    states = ("active", "compressed", "archived")
    summaries = await matching(
        reading, scope, Filter(compression_source=True, created_before=before, states=states)
    )
    ids = dict.fromkeys(id for each in summaries for id in (*each.evidence_ids, *each.source_ids))
    return [memory.id for memory in await reading.get(scope, list(ids)) if not memory.on_purpose]


async def _ids(reading: Reading, scope: Scope, where: Filter) -> list[str]:
    """The ids that pass, a memory before its versions, which go with it."""
    found = await matching(reading, scope, where)
    return [
        memory.id for memory in sorted(found, key=lambda memory: memory.superseded_by is not None)
    ]


def _few(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + AT_ONCE] for start in range(0, len(ids), AT_ONCE))


def _put_away(memory: Memory, limits: Limits, now: datetime) -> Put:
    away = transitions.hide(memory, now, purge_at=now + timedelta(days=limits.purge_days))
    return Put(
        memory=away,
        event="soft_deleted",
        meta={"reason": f"not used for {limits.of(memory.category):g} days"},
    )


def _erasing(memory: Memory, now: datetime) -> Forget:
    reason = (
        "it was put away for long enough" if is_due(memory, now) else "it was summed up long ago"
    )
    return Forget(memory_id=memory.id, at=now, until=now, reason=reason, purged=True)
