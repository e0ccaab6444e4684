"""How jobs store what they derive: like any other write, with the end of the job in the same
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from ..context import Context
from ..text.clock import new_id
from ..types import Draft, Outcome, Scope
from . import guard, pipeline, policies
from .pipeline import Also


async def derive(
    ctx: Context,
    scope: Scope,
    drafts: Sequence[Draft],
    *,
    policy: str,
    now: datetime,
    also: Also,
) -> None:
    """Store drafts, and apply in the same transaction the changes that `also` returns for their
    outcomes.

    `also` is called exactly once; if it raises, nothing is stored.
    """
    parts = replace(pipeline.parts_of(ctx), policy=policies.named(policy))
    is_done = False

    async def take(kept: Sequence[Draft]) -> list[Outcome]:
        nonlocal is_done
        is_done = True
        return await pipeline.remember(kept, scope, parts, now, also)

    named = [replace(d, id=d.id or new_id(), told_at=d.told_at or now) for d in drafts]
    outcomes = await guard.admitted(named, scope, parts.policy, take)
    if not is_done:
        async with ctx.store.transaction(scope) as tx:
            await tx.apply(await also(tx, outcomes))
