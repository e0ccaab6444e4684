"""Keeping a scope within its soft cap: the least valuable memories go first, the protected
never.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from heapq import nsmallest
from typing import Any

from ..ports import Transaction
from ..storage.changes import Change, Happened, Put, Used
from ..storage.paging import matching
from ..text import clock
from ..types import Filter, Memory, Scope

TAU = timedelta(days=7)
STALE = timedelta(hours=24)
KEPT = timedelta(days=30)  # a trimmed memory can be restored for this long


async def enforce(tx: Transaction, scope: Scope, cap: int, now: datetime) -> list[str]:
    """Trim a scope to its cap, reversibly; returns the ids that went.

    Each that goes is an event (`ttl`, on the path that filled the scope). Where only the protected
    are left and it is still too full, nothing more goes, and an event of status `error` says so.
    """
    over = len(await tx.rows_where(scope, Filter())) - cap
    if over <= 0:
        return []
    candidates = await matching(tx, scope, Filter(pinned=False, manually_saved=False))
    scores = {memory.id: fresh_scores(memory, now) for memory in candidates}
    victims = least_valuable(candidates, scores, over)
    changes: list[Change] = [
        Used(memory_id=m.id, at=now, scores=scores[m.id], accessed=False)
        for m in candidates
        if scores[m.id] is not m.last_scores
    ]
    changes += [
        Put(memory=_trimmed(memory, now), event="soft_deleted", meta={"reason": "capacity"})
        for memory in victims
    ]
    if len(victims) < over:
        changes.append(Happened(node="hotpath", op="ttl", at=now, status="error"))
    await tx.apply(changes)
    return [memory.id for memory in victims]


def least_valuable(candidates: Sequence[Memory], scores: dict[str, Any], over: int) -> list[Memory]:
    """The memories with the smallest totals; of equals, the oldest."""
    return nsmallest(
        over,
        candidates,
        key=lambda memory: (scores[memory.id]["total"], memory.created_at, memory.id),
    )


def fresh_scores(memory: Memory, now: datetime) -> Any:
    """The cached scores, or new ones where they are missing or older than a day; without a question
    relevance is 0.
    """
    cached = memory.last_scores
    if (
        cached and abs(now - clock.parse(cached["computed_at"])) <= STALE
    ):  # a clock may have been ahead
        return cached
    return scores(memory, 0.0, now)


def scores(memory: Memory, relevance: float, now: datetime) -> dict[str, Any]:
    """Relevance, recency and importance, unweighted, and their sum."""
    recency = math.exp(-max(0.0, (now - memory.created_at).total_seconds()) / TAU.total_seconds())
    return {
        "relevance": relevance,
        "recency": recency,
        "importance": memory.importance,
        "total": relevance + recency + memory.importance,
        "computed_at": clock.iso(now),
    }


def _trimmed(memory: Memory, now: datetime) -> Memory:
    return replace(
        memory,
        state="soft_deleted",
        purge_at=now + KEPT,
        updated_at=now,
        revision=memory.revision + 1,
    )
