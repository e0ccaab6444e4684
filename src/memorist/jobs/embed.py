"""Embedding of memories that have no vector: after an outage, under another model, or where the
policy defers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from ..embedders import encode
from ..errors import ProviderFailed, StoreUnavailable
from ..ports import Embedder, Vectors
from ..storage import embedding_queue
from ..storage.changes import Change, Event
from ..storage.embedding_queue import Embedding
from ..storage.store import Store
from ..text import derived
from ..text.clock import new_id
from ..types import Memory, Scope

LEASE_SECONDS = 120.0  # longer than a model may take for a batch


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexReport:
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
) -> IndexReport:
    """Embed what this model has not embedded yet; with `force` everything, with `waiting` only new
    memories.

    Each batch is claimed and committed on its own: any number of processes share the work, an
    interrupted run continues where it stopped, and the claims of a killed process end with their
    lease. A text that the model cannot embed is skipped, and the error is raised at the end. Raises
    ProviderFailed.
    """
    worker, model, dimensions = new_id(), embedder.model, embedder.dimensions
    found, embedded, batches, after = 0, 0, 0, 0
    problem: ProviderFailed | None = None
    while not stop():
        if dry_run:
            batch = await store.embeddings.pending(
                model, after=after, limit=batch_size, everything=force, dimensions=dimensions
            )
        else:
            batch = await store.embeddings.claim(
                model,
                after=after,
                limit=batch_size,
                everything=force,
                dimensions=dimensions,
                worker=worker,
                lease_seconds=lease_seconds,
                waiting=waiting,
            )
        if not batch:
            break
        after = batch[-1][0]
        found, batches = found + len(batch), batches + 1
        if not dry_run:
            memories = [memory for _, memory in batch]
            done, error = await _embed_claimed(store, embedder, memories, worker, now)
            embedded, problem = embedded + done, problem or error
        progress(found if dry_run else embedded)
    if problem is not None:
        raise problem
    return IndexReport(found=found, embedded=embedded, batches=batches)


async def embed_now(
    store: Store, embedder: Embedder, memories: Sequence[Memory], now: datetime
) -> None:
    """Embed a few memories without claiming them. Raises ProviderFailed."""
    vectors, _ = await _encode(embedder, memories)
    await _save(store, embedder.model, vectors, now)


async def _embed_claimed(
    store: Store,
    embedder: Embedder,
    memories: Sequence[Memory],
    worker: str,
    now: Callable[[], datetime],
) -> tuple[int, ProviderFailed | None]:
    """Embed a claimed batch; return how many memories got a vector, and why others did not.

    Raises ProviderFailed.
    """
    try:
        vectors, problem = await _encode(embedder, memories)
        await _save(store, embedder.model, vectors, now())
        if problem is not None:
            done = {memory.id for memory, _ in vectors}
            await _note_failure(store, [each for each in memories if each.id not in done], now())
        return len(vectors), problem
    except StoreUnavailable:
        raise
    except ProviderFailed:
        with suppress(StoreUnavailable):
            await _note_failure(store, memories, now())
        raise
    finally:
        with suppress(StoreUnavailable):  # then the lease runs out
            await asyncio.shield(store.embeddings.release(worker))


async def _encode(
    embedder: Embedder, memories: Sequence[Memory]
) -> tuple[list[tuple[Memory, Vectors]], ProviderFailed | None]:
    """Return the vectors, without those of texts that the model refuses.

    Raises ProviderFailed if it refuses all.
    """
    texts = [derived.meaning_of(memory) for memory in memories]
    try:
        vectors = await encode(embedder, texts)
        return list(zip(memories, vectors, strict=True)), None
    except ProviderFailed as error:
        await encode(embedder, ["tea"])  # is it the model or one of the texts?
        problem = error
    made: list[tuple[Memory, Vectors]] = []
    for memory, text in zip(memories, texts, strict=True):
        with suppress(ProviderFailed):
            made.append((memory, (await encode(embedder, [text]))[0]))
    return made, problem


async def _save(
    store: Store, model: str, vectors: Sequence[tuple[Memory, Vectors]], now: datetime
) -> None:
    by_scope: dict[Scope, dict[tuple[str, str], Embedding]] = {}
    for memory, vector in vectors:
        change = Embedding(memory_id=memory.id, model=model, vector=vector)
        by_scope.setdefault(memory.scope, {})[memory.id, memory.text] = change
    for scope, made in by_scope.items():
        async with store.transaction(scope) as tx:
            changes: list[Embedding] = []
            events: list[Change] = []
            for memory in await tx.get(scope, [id for id, _ in made]):
                if (memory.id, memory.text) not in made:
                    continue  # it was edited in the meantime
                changes.append(made[memory.id, memory.text])
                if memory.needs_embedding:
                    events.append(Event(node="worker", op="embed", at=now, memory_id=memory.id))
            if changes:
                await embedding_queue.save(tx, changes)
                await tx.apply(events or [Event(node="worker", op="embed", at=now)])


async def _note_failure(store: Store, memories: Sequence[Memory], now: datetime) -> None:
    for scope in dict.fromkeys(memory.scope for memory in memories):
        async with store.transaction(scope) as tx:
            await tx.apply([Event(node="worker", op="embed", at=now, status="error")])
