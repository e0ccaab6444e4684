"""Giving vectors to memories that have none: after an outage, under another model, or where the policy defers them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ..embedders import checked
from ..errors import ProviderFailed, StoreUnavailable
from ..ports import Embedder, Store, Vectors
from ..storage.changes import Change, Embedded, Happened
from ..text import derived
from ..text.clock import new_id
from ..types import Memory, Scope

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
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Indexed:
    """Embed what this model has not embedded yet, or everything, or only what waits for its first vector.

    Each batch is claimed and committed by itself: any number of processes share the work, an interrupted run goes on
    where it stopped, and what a killed one had claimed is free after the lease. A text that the model cannot embed is
    passed over, and at the end the error is raised. Raises ProviderFailed.
    """
    worker, found, embedded, batches, after = new_id(), 0, 0, 0, 0
    usual: dict[str, Any] = {
        "limit": batch_size,
        "everything": force,
        "dimensions": embedder.dimensions,
    }
    claim = partial(
        store.claim_unembedded, worker=worker, lease_seconds=lease_seconds, waiting=waiting
    )
    ask = store.unembedded if dry_run else claim
    problem: ProviderFailed | None = None
    while not stop() and (batch := await ask(embedder.model, after=after, **usual)):
        after = batch[-1][0]
        found, batches = found + len(batch), batches + 1
        if not dry_run:
            done, error = await _done(store, embedder, [memory for _, memory in batch], worker, now)
            embedded, problem = embedded + done, problem or error
        progress(found if dry_run else embedded)
    if problem is not None:
        raise problem
    return Indexed(found=found, embedded=embedded, batches=batches)


async def some(store: Store, embedder: Embedder, memories: Sequence[Memory], now: datetime) -> None:
    """Embed a few memories at once, without asking whether others are at it. Raises ProviderFailed."""
    made, _ = await _encoded(embedder, memories)
    await _keep(store, embedder.model, made, now)


async def _done(
    store: Store,
    embedder: Embedder,
    memories: Sequence[Memory],
    worker: str,
    now: Callable[[], datetime],
) -> tuple[int, ProviderFailed | None]:
    """Embed a batch and give it back; how many got a vector, and why others did not. Raises ProviderFailed."""
    try:
        made, problem = await _encoded(embedder, memories)
        await _keep(store, embedder.model, made, now())
        if problem is not None:
            await _failed(
                store,
                [memory for memory in memories if memory.id not in {m.id for m, _ in made}],
                now(),
            )
        return len(made), problem
    except StoreUnavailable:
        raise
    except ProviderFailed:
        with suppress(StoreUnavailable):
            await _failed(store, memories, now())
        raise
    finally:
        with suppress(StoreUnavailable):  # then the lease ends by itself
            await asyncio.shield(store.release(worker))


async def _encoded(
    embedder: Embedder, memories: Sequence[Memory]
) -> tuple[list[tuple[Memory, Vectors]], ProviderFailed | None]:
    """The vectors, without those of texts that the model cannot take. Raises ProviderFailed if it takes none at all."""
    try:
        return list(
            zip(
                memories,
                await checked.encode(embedder, [derived.meaning_of(m) for m in memories]),
                strict=True,
            )
        ), None
    except ProviderFailed as error:
        await checked.encode(embedder, ["tea"])  # is it the model or one of the texts?
        problem = error
    made: list[tuple[Memory, Vectors]] = []
    for memory in memories:
        with suppress(ProviderFailed):
            made.append((memory, (await checked.encode(embedder, [derived.meaning_of(memory)]))[0]))
    return made, problem


async def _keep(
    store: Store, model: str, made: Sequence[tuple[Memory, Vectors]], now: datetime
) -> None:
    by_scope: dict[Scope, dict[tuple[str, str], Embedded]] = {}
    for memory, vector in made:
        by_scope.setdefault(memory.scope, {})[memory.id, memory.text] = Embedded(
            memory_id=memory.id, model=model, vector=vector
        )
    for scope, there in by_scope.items():
        async with store.transaction(scope) as tx:
            found = await tx.get(scope, [id for id, _ in there])
            still = [memory for memory in found if (memory.id, memory.text) in there]
            waited = [memory.id for memory in still if memory.needs_embedding]
            lines: list[Change] = [
                Happened(node="worker", op="embed", at=now, memory_id=id)
                for id in waited or (None,)
            ]
            if still:  # a text that was edited in the meantime has another vector
                await tx.apply([*(there[memory.id, memory.text] for memory in still), *lines])


async def _failed(store: Store, memories: Sequence[Memory], now: datetime) -> None:
    for scope in dict.fromkeys(memory.scope for memory in memories):
        async with store.transaction(scope) as tx:
            await tx.apply([Happened(node="worker", op="embed", at=now, status="error")])
