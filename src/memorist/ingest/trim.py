"""Keep a scope within its capacity: trim the least valuable memories, never protected ones."""

from __future__ import annotations

from datetime import datetime, timedelta
from heapq import nsmallest
from typing import Any

from ..context import access_scores
from ..storage import Change, Event, Save
from ..storage.store import MemoryAccess, record_access
from ..storage.transaction import Transaction
from ..text import clock
from ..types import Filter, Memory, Scope
from . import transitions

STALE = timedelta(hours=24)  # cached scores are recomputed after this time
KEPT = timedelta(days=30)  # a trimmed memory can be restored for this long


async def enforce(tx: Transaction, scope: Scope, cap: int, now: datetime) -> list[str]:
    """Soft-delete memories until a scope is within its capacity. Return their ids.

    Each has an event (`ttl`, on the path that filled the scope). If only protected memories are
    left and the scope is still too full, an event has the status `error`.
    """
    over = len(await tx.rows_where(scope, Filter())) - cap
    if over <= 0:
        return []
    candidates = await tx.find_all(scope, Filter(pinned=False, manually_saved=False))
    accesses = []
    ranked = []
    for memory in candidates:
        found = fresh_scores(memory, now)
        total = found["total"] + memory.importance_parts.get("chit_chat", 0.0)
        ranked.append((total, memory.created_at, memory.id, memory))
        if found is not memory.last_scores:
            accesses.append(
                MemoryAccess(
                    memory_id=memory.id,
                    at=now,
                    scores=found,
                    accessed=False,
                )
            )
    trimmed = [each[3] for each in nsmallest(over, ranked)]  # of equals, the oldest
    changes: list[Change] = []
    for memory in trimmed:
        hidden = transitions.hide(memory, now, purge_at=now + KEPT)
        changes.append(Save(memory=hidden, event="soft_deleted", meta={"reason": "capacity"}))
    if len(trimmed) < over:
        changes.append(
            Event(
                node="hotpath",
                op="ttl",
                at=now,
                status="error",
            )
        )
    await tx.apply(changes)
    await record_access(tx, accesses)
    return [memory.id for memory in trimmed]


def fresh_scores(memory: Memory, now: datetime) -> Any:
    """Return the cached scores, or new ones if they are missing or older than a day."""
    cached = memory.last_scores
    if cached and abs(now - clock.parse(cached["computed_at"])) <= STALE:  # a clock may be ahead
        return cached
    return access_scores(memory, 0.0, now)
