"""Split many drafts into batches, and analyze the next batch while one is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ..context import Context
from ..errors import MemoristError
from ..text.clock import new_id
from ..types import Draft, Scope
from .candidates import Batch
from .pipeline import check_and_analyze
from .policies import Policy

BATCH = 256  # drafts in one transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftBatch:
    """Drafts that are stored in one transaction, with their ids."""

    drafts: Sequence[Draft]
    now: datetime
    analyzed: Batch | None = None  # None: not yet


async def split(
    ctx: Context, scope: Scope, drafts: Sequence[Draft], policy: Policy
) -> AsyncGenerator[DraftBatch]:
    """Yield drafts in batches, in their order.

    If vectors are added later, each batch but the first is analyzed before it is yielded, while the
    caller writes the one before it.
    """
    ahead: asyncio.Task[DraftBatch] | None = None
    try:
        for start in range(0, len(drafts), BATCH):
            some = drafts[start : start + BATCH]
            batch = _assign_ids(ctx, some) if ahead is None else await ahead
            following = drafts[start + BATCH : start + 2 * BATCH]
            if policy.embed == "deferred":
                ahead = asyncio.create_task(_analyze(ctx, scope, following, policy))
            yield batch
    finally:
        if ahead is not None:
            ahead.cancel()


def _assign_ids(ctx: Context, drafts: Sequence[Draft]) -> DraftBatch:
    """Return drafts with ids, as of now."""
    now = ctx.clock()
    return DraftBatch(
        drafts=[replace(draft, id=new_id(), told_at=now) for draft in drafts], now=now
    )


async def _analyze(
    ctx: Context, scope: Scope, drafts: Sequence[Draft], policy: Policy
) -> DraftBatch:
    """Return drafts with ids, analyzed."""
    batch = _assign_ids(ctx, drafts)
    try:
        analyzed = await check_and_analyze(ctx, scope, batch.drafts, policy, batch.now)
    except MemoristError:  # it is raised again when the batch has its turn
        return batch
    return replace(batch, analyzed=analyzed)
