"""What jobs work with, and how they store what they derive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from ..context import Context
from ..ingest import guard, pipeline, policies
from ..ingest.analyze import to_items
from ..text.clock import new_id
from ..types import Draft, Scope
from .context import Also, Care


def care_of(ctx: Context) -> Care:
    """Return what jobs work with, from the context."""
    return Care(
        store=ctx.store,
        index=ctx.index,
        embedder=ctx.embedder,
        adviser=ctx.llm,
        remember=partial(_derive, ctx),
        now=ctx.clock,
    )


async def _derive(
    ctx: Context, drafts: Sequence[Draft], scope: Scope, *, policy: str, now: datetime, also: Also
) -> None:
    by = policies.named(policy)
    items = to_items(
        replace(draft, id=draft.id or new_id(), told_at=draft.told_at or now) for draft in drafts
    )
    guard.refuse(items, by, scope.user)
    batch = await pipeline.prepare(ctx, scope, items, by, now)
    async with ctx.store.transaction(scope) as tx:
        await pipeline.write(tx, batch)
        await tx.apply(await also(tx, pipeline.outcomes(items, scope.user)))
