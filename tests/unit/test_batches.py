"""Batches of drafts, of which the next one is analyzed while one is written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from memorist import aio
from memorist.context import Context
from memorist.errors import InvalidInput
from memorist.ingest.policies import Policy
from memorist.scoped import BATCH, ScopedClient, split_drafts
from memorist.types import Draft

DRAFTS = [Draft(text=f"Tea number {number} is in the pot.") for number in range(2 * BATCH + 1)]


@pytest.fixture
async def ana(tmp_path: Path) -> AsyncIterator[ScopedClient]:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path / "state", extract="off") as memory:
        yield memory.scope("ana")


def deferred(ctx: Context) -> Policy:
    return replace(ctx.policies["default"], embed="deferred")


async def test_batches_keep_the_order_and_all_but_the_first_are_analyzed(ana: ScopedClient) -> None:
    async with aclosing(split_drafts(ana.ctx, ana.scope, DRAFTS, deferred(ana.ctx))) as batches:
        told = [each async for each in batches]
    assert [len(each.drafts) for each in told] == [BATCH, BATCH, 1]
    assert [draft.text for each in told for draft in each.drafts] == [d.text for d in DRAFTS]
    assert [each.analyzed is None for each in told] == [True, False, False]
    assert told[2].analyzed is not None
    assert [chunk.text for chunk in told[2].analyzed.chunks] == [DRAFTS[-1].text]


async def test_what_is_embedded_at_once_is_not_analyzed_ahead(ana: ScopedClient) -> None:
    policy = ana.ctx.policies["default"]
    async with aclosing(split_drafts(ana.ctx, ana.scope, DRAFTS, policy)) as batches:
        assert [each.analyzed async for each in batches] == [None, None, None]


async def test_an_error_of_a_batch_leaves_those_before_it_stored(ana: ScopedClient) -> None:
    odd = Draft(text="odd", kind="unknown")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="unknown"):
        await ana.remember_drafts([*DRAFTS[:BATCH], odd], defer_vectors=True)
    assert len(await ana.list(limit=2 * BATCH)) == BATCH


async def test_a_caller_that_stops_leaves_no_analysis_behind(ana: ScopedClient) -> None:
    before = asyncio.all_tasks()
    async with aclosing(split_drafts(ana.ctx, ana.scope, DRAFTS, deferred(ana.ctx))) as batches:
        await anext(batches)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before


async def test_a_message_of_an_earlier_batch_is_stored_once(ana: ScopedClient) -> None:
    drafts = [replace(draft, message_id=f"m{n}") for n, draft in enumerate(DRAFTS[:BATCH])]
    receipt = await ana.remember_drafts([*drafts, drafts[-1]], defer_vectors=True)
    assert receipt.outcomes[-1] == receipt.outcomes[-2]
    assert len(await ana.list(limit=2 * BATCH)) == BATCH
