"""What jobs work with, and how they store what they derive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial

from ..context import Context
from ..ingest import guard, pipeline, policies
from ..text.clock import new_id
from ..types import Draft, Outcome, Scope
from .context import Also, Care


def care_of(ctx: Context) -> Care:
    """Return what jobs work with, from the context."""
    return Care(
        store=ctx.store,
        corpora=ctx.index,
        embedder=ctx.embedder,
        adviser=ctx.llm,
        remember=partial(_derive, ctx),
        now=ctx.clock,
    )


async def _derive(
    ctx: Context, drafts: Sequence[Draft], scope: Scope, *, policy: str, now: datetime, also: Also
) -> None:
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
