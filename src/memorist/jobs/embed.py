"""Embedding of memories that have no vector: after an outage, under another model, or where the
policy defers it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from ..embedders import encode
from ..errors import ProviderFailed, StoreUnavailable
from ..ports import Embedder, Vectors
from ..storage import tasks
from ..storage.changes import Event
from ..storage.store import Store
from ..storage.tasks import Embedding
from ..text import tokens
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
    worker = new_id()
    queue = store.embeddings
    load = partial(queue.pending, embedder.model)
    if not dry_run:
        load = partial(
            queue.claim,
            embedder.model,
            worker=worker,
            lease_seconds=lease_seconds,
            waiting=waiting,
        )
    found = 0
    embedded = 0
    batches = 0
    after = 0
    problem: ProviderFailed | None = None
    while not stop():
        batch = await load(
            after=after,
            limit=batch_size,
            everything=force,
            dimensions=embedder.dimensions,
        )
        if not batch:
            break
        after = batch[-1][0]
        found += len(batch)
        batches += 1
        if not dry_run:
            memories = [memory for _, memory in batch]
            try:
                vectors, error = await _encode(embedder, memories)
                await _save(store, embedder.model, memories, vectors, now())
                embedded += sum(vector is not None for vector in vectors)
                problem = problem or error
            except StoreUnavailable:
                raise
            except ProviderFailed:
                with suppress(StoreUnavailable):
                    nothing = [None] * len(memories)
                    await _save(store, embedder.model, memories, nothing, now())
                raise
            finally:
                with suppress(StoreUnavailable):  # then the lease runs out
                    await asyncio.shield(queue.release(worker))
        progress(found if dry_run else embedded)
    if problem is not None:
        raise problem
    return IndexReport(found=found, embedded=embedded, batches=batches)


async def embed_now(
    store: Store,
    embedder: Embedder,
    memories: Sequence[Memory],
    now: datetime,
) -> None:
    """Embed a few memories without claiming them. Raises ProviderFailed."""
    vectors, _ = await _encode(embedder, memories)
    await _save(store, embedder.model, memories, vectors, now)


async def _encode(
    embedder: Embedder, memories: Sequence[Memory]
) -> tuple[list[Vectors | None], ProviderFailed | None]:
    """Return the vectors, None for texts that the model refuses, and its error.

    Raises ProviderFailed if it refuses all.
    """
    texts = [tokens.meaning_of(memory) for memory in memories]
    try:
        return [*await encode(embedder, texts)], None
    except ProviderFailed as error:
        await encode(embedder, ["tea"])  # is it the model or one of the texts?
        problem = error
    vectors: list[Vectors | None] = []
    for text in texts:
        vectors.append(None)
        with suppress(ProviderFailed):
            (vectors[-1],) = await encode(embedder, [text])
    return vectors, problem


async def _save(
    store: Store,
    model: str,
    memories: Sequence[Memory],
    vectors: Sequence[Vectors | None],
    now: datetime,
) -> None:
    """Store the vectors, with one event per memory, and one per scope for those that failed."""
    by_scope: dict[Scope, dict[str, tuple[str, Vectors | None]]] = {}
    for memory, vector in zip(memories, vectors, strict=True):
        by_scope.setdefault(memory.scope, {})[memory.id] = memory.text, vector
    for scope, given in by_scope.items():
        made: list[Embedding] = []
        events: list[Event] = []
        event = Event(node="worker", op="embed", at=now)
        async with store.transaction(scope) as tx:
            for memory in await tx.get(scope, list(given)):
                text, vector = given[memory.id]
                if vector is not None and memory.text == text:  # not edited in the meantime
                    made.append(Embedding(memory_id=memory.id, model=model, vector=vector))
                    if memory.needs_embedding:
                        events.append(replace(event, memory_id=memory.id))
            if made:
                await tasks.save_embeddings(tx, made)
                events = events or [event]
            if any(vector is None for _, vector in given.values()):
                events.append(replace(event, status="error"))
            await tx.apply(events)
