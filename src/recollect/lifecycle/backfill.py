"""Giving vectors to memories that have none: after an outage, under another model, or where the policy defers them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from .. import vectors
from ..errors import StoreUnavailable
from ..ids import new_id
from ..model import Embedded, Memory, Scope
from ..ports import Embedder, Store

LEASE_SECONDS = 120.0  # longer than a model may take for a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """What an indexing run did, or would do."""

    found: int
    embedded: int
    batches: int


async def backfill(
    store: Store,
    embedder: Embedder,
    *,
    batch_size: int = 32,
    force: bool = False,
    dry_run: bool = False,
    waiting: bool = False,
    lease_seconds: float = LEASE_SECONDS,
    stop: Callable[[], bool] = lambda: False,
    progress: Callable[[int], None] = lambda done: None,
) -> Indexed:
    """Embed what this model has not embedded yet, or everything, or only what waits for its first vector.

    Each batch is claimed and committed by itself: any number of processes share the work, an interrupted run goes on
    where it stopped, and what a killed one had claimed is free after the lease. Raises EmbedderUnavailable.
    """
    worker, found, batches, after = new_id(), 0, 0, 0
    usual: dict[str, Any] = {"limit": batch_size, "everything": force, "dimensions": embedder.dimensions}
    claim = partial(store.claim_unembedded, worker=worker, lease_seconds=lease_seconds, waiting=waiting)
    ask = store.unembedded if dry_run else claim
    while not stop() and (batch := await ask(embedder.model, after=after, **usual)):
        after = batch[-1][0]
        found, batches = found + len(batch), batches + 1
        if not dry_run:
            await _done(store, embedder, [memory for _, memory in batch], worker)
        progress(found)
    return Indexed(found=found, embedded=0 if dry_run else found, batches=batches)


async def _done(store: Store, embedder: Embedder, memories: Sequence[Memory], worker: str) -> None:
    try:
        await _embed(store, embedder, memories)
    finally:
        with suppress(StoreUnavailable):  # then the lease ends by itself
            await asyncio.shield(store.release(worker))


async def _embed(store: Store, embedder: Embedder, memories: Sequence[Memory]) -> None:
    encoded = await vectors.encode(embedder, [memory.text for memory in memories])
    by_scope: dict[Scope, dict[tuple[str, str], Embedded]] = {}
    for memory, vector in zip(memories, encoded, strict=True):
        made = Embedded(memory_id=memory.id, model=embedder.model, vector=vector)
        by_scope.setdefault(memory.scope, {})[memory.id, memory.text] = made
    for scope, made_there in by_scope.items():
        async with store.transaction(scope) as tx:
            now = await tx.get(scope, [id for id, _ in made_there])
            # A text that was edited in the meantime has another vector.
            await tx.apply([made_there[m.id, m.text] for m in now if (m.id, m.text) in made_there])
