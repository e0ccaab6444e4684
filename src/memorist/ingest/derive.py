"""How jobs store what they derive: like any other write, in a transaction of the job.

batch = await derive.prepare(ctx, scope, drafts, "insight", now)
async with ctx.store.transaction(scope) as tx:
    outcomes = await derive.write(tx, batch)
    await tx.apply([Done(task=task)])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from ..context import Context
from ..ports import Transaction
from ..text.clock import new_id
from ..types import Draft, Outcome, Scope
from . import guard, pipeline, policies
from .analyze import to_items
from .pipeline import Batch


async def prepare(
    ctx: Context, scope: Scope, drafts: Sequence[Draft], policy: str, now: datetime
) -> Batch:
    """Check, analyze and embed drafts under a write policy, before the write lock is taken."""
    by = policies.find(ctx.policies, policy)
    named = [replace(d, id=d.id or new_id(), told_at=d.told_at or now) for d in drafts]
    items = to_items(named)
    guard.refuse(items, by, scope.user)
    return await pipeline.prepare(ctx, scope, items, by, now)


async def write(tx: Transaction, batch: Batch) -> list[Outcome]:
    """Write prepared drafts; return their outcomes in the same order."""
    await pipeline.write(tx, batch)
    return pipeline.outcomes(batch.items, batch.scope.user)
