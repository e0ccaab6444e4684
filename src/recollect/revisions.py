"""Changing a memory without losing what it was, and showing what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .errors import EmbedderUnavailable, NotFound
from .ids import new_id
from .ingest.piece import Piece
from .model import Draft, Event, Evidence, Memory, Message, Put, Scope
from .ports import Store, Transaction, Vectors
from .text import normalise

if TYPE_CHECKING:
    from .engine import Engine


async def changed(
    engine: Engine,
    scope: Scope,
    id: str,
    event: Event,
    fields: Mapping[str, Any],
    *,
    actor: str | None,
    reason: str = "",
) -> Memory:
    """Change fields of a memory under the write lock, with its history. Raises NotFound."""
    async with engine.store.transaction(scope) as tx:
        old = await _found(tx, scope, id)
        new = replace(old, **fields, updated_at=engine.clock(), revision=old.revision + 1)
        told = {name: value for name, value in fields.items() if isinstance(value, (bool, str))}
        meta = {**told, "reason": reason} if reason else told
        await tx.apply([Put(memory=new, event=event, actor=actor, meta=meta)])
    return new


async def edited(
    engine: Engine, scope: Scope, id: str, text: str | None, fields: Mapping[str, Any], *, actor: str | None
) -> Memory:
    """Put the new version in the place of the old, and the old beside it as superseded. Raises NotFound."""
    vectors = await _vectors(engine, scope, id, text)
    async with engine.store.transaction(scope) as tx:
        old, now, model = await _found(tx, scope, id), engine.clock(), engine.corpora.model
        new = replace(old, **fields, updated_at=now, revision=old.revision + 1)
        kept = []
        if text is not None:
            before = replace(old, id=new_id(), state="superseded", superseded_by=old.id, valid_to=now, key=None)
            vector = vectors.get(old.text)
            kept = [Put(memory=with_vector(before, vector), event=None, vector=vector, model=model)]
            new = _reworded(new, text, vectors)
        meta = {"fields": sorted([*fields, *(["text"] if text is not None else [])])}
        old_ref = kept[0].memory.id if kept else None
        put = Put(
            memory=new,
            event="updated",
            vector=vectors.get(new.text),
            model=model,
            old_ref=old_ref,
            actor=actor,
            meta=meta,
        )
        await tx.apply([*kept, put])
    return new


def _reworded(memory: Memory, text: str, vectors: Mapping[str, Vectors]) -> Memory:
    piece = Piece(Draft(text=text), _cleaned(text))
    new = replace(
        memory,
        text=piece.text,
        content_hash=piece.content_hash,
        simhash=piece.simhash,
        valid_from=memory.updated_at,
    )
    return with_vector(new, vectors.get(piece.text))


def _cleaned(text: str) -> str:
    return normalise.clean(normalise.storable(text))


async def _found(tx: Transaction, scope: Scope, id: str) -> Memory:
    found = await tx.get(scope, [str(id)])
    if not found:
        raise NotFound(f"No memory with id {id!r} in this scope")
    return found[0]


def with_vector(memory: Memory, vector: Vectors | None) -> Memory:
    """The memory, marked as embedded or not."""
    return replace(memory, needs_embedding=vector is None)


async def _vectors(engine: Engine, scope: Scope, id: str, text: str | None) -> dict[str, Vectors]:
    """Vectors of the text before and after an edit, made before the write lock is taken."""
    if text is None:
        return {}
    before = [memory.text for memory in await engine.store.get(scope, [str(id)])]
    return await encoded(engine, [*before, _cleaned(text)])


async def encoded(engine: Engine, texts: Sequence[str]) -> dict[str, Vectors]:
    """The vectors of texts, or none where the model is away: they are made later."""
    if engine.embedder is None:
        return {}
    try:
        return dict(zip(texts, await engine.embedder.encode_batch(texts), strict=True))
    except EmbedderUnavailable:
        return {}


async def evidence(store: Store, memory: Memory) -> Evidence:
    """What a memory rests on, as far as it can still be read."""
    kept = await store.messages(memory.scope, memory.source_ids)
    if memory.source_message_id and memory.source_message_id not in kept:  # the memory holds it word for word
        kept[memory.source_message_id] = Message(
            id=memory.source_message_id, content=memory.text, role=memory.labels.role or "user", name=memory.speaker,
            at=memory.occurred_at, session=memory.labels.session,
        )  # fmt: skip
    memories = await store.get(memory.scope, memory.evidence_ids)
    found = {*kept, *(other.id for other in memories)}
    named = (*memory.source_ids, *memory.evidence_ids, *memory.evidence)
    return Evidence(
        memory=memory,
        messages=tuple(kept[id] for id in memory.source_ids if id in kept),
        memories=tuple(memories),
        missing=tuple(reference for reference in named if reference not in found),
    )
