"""Giving vectors to memories that have none: after an outage, under another model, or where the policy defers them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .. import vectors
from ..model import Embedded, Memory, Scope
from ..ports import Embedder, Store


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
    progress: Callable[[int], None] = lambda done: None,
) -> Indexed:
    """Embed what this model has not embedded yet, or everything, batch by batch.

    Each batch is committed by itself, so an interrupted run goes on where it stopped. Raises EmbedderUnavailable.
    """
    found = batches = after = 0
    while batch := await store.unembedded(embedder.model, limit=batch_size, everything=force, after=after):
        after = batch[-1][0]
        found, batches = found + len(batch), batches + 1
        if not dry_run:
            await _embed(store, embedder, [memory for _, memory in batch])
        progress(found)
    return Indexed(found=found, embedded=0 if dry_run else found, batches=batches)


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
