"""Changing a memory without losing what it was, and showing what it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .. import embedders
from ..context import Context
from ..errors import InvalidInput, NotFound, ProviderFailed, RevisionConflict
from ..ingest import links as relations
from ..ingest import policies, transitions, validation
from ..ports import Vectors
from ..storage.changes import Save
from ..storage.store import Store
from ..storage.transaction import Transaction
from ..text import normalize
from ..text.clock import new_id
from ..types import Evidence, Filter, HistoryEvent, Labels, Memory, Message, Scope
from . import privacy

LONGEST_SUMMARY = 280  # characters


async def change(
    ctx: Context,
    scope: Scope,
    id: str,
    event: HistoryEvent,
    fields: Mapping[str, Any],
    actor: str | None,
    session: str | None = None,
) -> Memory:
    """Change fields of a memory under the write lock, with its history; hide or show its versions with it.

    Raises NotFound.
    """
    async with ctx.store.transaction(scope) as tx:
        old = await _found(tx, scope, id)
        new = transitions.revise(old, ctx.clock(), **fields)
        new = await release_key(tx, new)
        told = {name: value for name, value in fields.items() if isinstance(value, (bool, str))}
        meta = {**told, **({"session": session} if session else {})}
        versions = await carry_versions(tx, old, new)
        await tx.apply([Save(memory=new, event=event, actor=actor, meta=meta), *versions])
    return new


async def release_key(tx: Transaction, memory: Memory) -> Memory:
    """The memory, without its key if another one has taken that over while this one was away."""
    if memory.key is None or not memory.is_active:
        return memory
    taken = (await tx.by_key(memory.scope, [memory.key])).get(memory.key)
    return memory if taken is None or taken.id == memory.id else replace(memory, key=None)


async def carry_versions(tx: Transaction, old: Memory, new: Memory) -> list[Save]:
    """What a memory has replaced disappears with it, and comes back with it."""
    hidden = "soft_deleted"
    if (old.state == hidden) == (new.state == hidden):
        return []
    now, then = (hidden, "superseded") if new.state == hidden else ("superseded", hidden)
    found: dict[str, Memory] = {}
    ids = [old.id]
    while ids:
        id = ids.pop()
        page = await tx.page(old.scope, Filter(versions_of=id, states=(then,)), limit=1000)
        ids += [version.id for version in page.memories if version.id not in found]
        found |= {version.id: version for version in page.memories}
    return [
        Save(memory=replace(each, state=now, purge_at=new.purge_at), event=None)
        for each in found.values()
    ]


async def edit(
    ctx: Context,
    scope: Scope,
    id: str,
    text: str | None,
    fields: Mapping[str, Any],
    actor: str | None,
    session: str | None = None,
    revision: int | None = None,
) -> Memory:
    """Put the new version in the place of the old, and the old beside it as superseded.

    Raises NotFound, InvalidInput; RevisionConflict if it has another revision than was thought.
    """
    if text is not None:
        validation.text(text, ctx.settings.max_text_chars)
    fields = _checked({name: value for name, value in fields.items() if value is not None})
    made = await _vectors(ctx, scope, id, text)
    async with ctx.store.transaction(scope) as tx:
        old, now, model = await _found(tx, scope, id), ctx.clock(), ctx.index.model
        if old.state in ("superseded", "soft_deleted"):
            raise InvalidInput(
                f"Memory {id!r} is {old.state}: edit the current version, or restore it first"
            )
        if revision not in (None, old.revision):
            raise RevisionConflict(
                f"Memory {id!r} was changed: it has revision {old.revision}, not {revision}"
            )
        before = transitions.earlier_version(old, now, id=new_id())
        new = transitions.revise(old, now, **fields)
        if "importance" in fields:
            new = replace(new, base_importance=new.importance)
        if text is not None:
            new = replace(
                _reworded(new, text), summary=fields.get("summary"), key=None, valid_from=now
            )
        meta: dict[str, Any] = {
            "fields": sorted([*fields, *(["text"] if text is not None else [])])
        }
        meta |= {"session": session} if session else {}
        links = policies.find(ctx.policies, ctx.settings.policy).links if text is not None else None
        snapshot = await ctx.index.current(scope, tx) if links is not None else None
        put = Save(
            memory=new, event="updated", model=model, old_ref=before.id, actor=actor, meta=meta
        )
        await tx.apply(
            [
                attach_vector(each, made)
                for each in (Save(memory=before, event=None, model=model), put)
            ]
        )
        if links is not None and snapshot is not None:
            await relations.link(tx, scope, snapshot, [attach_vector(put, made)], links, now)
    return attach_vector(put, made).memory


def _checked(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an edit as they are stored. Raises InvalidInput."""
    validation.fields(fields)
    summary, tags = fields.get("summary"), fields.get("tags")
    if summary is not None and len(summary) > LONGEST_SUMMARY:
        raise InvalidInput(
            f"A summary has at most {LONGEST_SUMMARY} characters, not {len(summary)}"
        )
    if tags is None:
        return dict(fields)
    return {**fields, "tags": tuple(dict.fromkeys(tag.lower() for tag in tags))}


async def set_pinned(
    ctx: Context, scope: Scope, labels: Labels, id: str, pinned: bool, actor: str | None
) -> Memory:
    """Pin or unpin a memory. Raises NotFound."""
    session = await privacy.traceable_session(ctx, scope, labels.session)
    return await change(ctx, scope, id, "updated", {"pinned": pinned}, actor, session)


async def restore(ctx: Context, scope: Scope, labels: Labels, id: str, actor: str | None) -> Memory:
    """Make a hidden or archived memory active again. Raises NotFound."""
    session = await privacy.traceable_session(ctx, scope, labels.session)
    fields = {"state": "active", "purge_at": None}
    return await change(ctx, scope, id, "restored", fields, actor, session)


def _reworded(memory: Memory, text: str) -> Memory:
    clean = _cleaned(text)
    content_hash, simhash = normalize.content_hash(clean), normalize.simhash64(clean)
    return replace(memory, text=clean, content_hash=content_hash, simhash=simhash)


def attach_vector(put: Save, made: Mapping[str, Vectors]) -> Save:
    """The put with the vector of its text, or marked to get one later."""
    vector = made.get(put.memory.text)
    return replace(put, memory=with_vector(put.memory, vector), vector=vector)


def _cleaned(text: str) -> str:
    return normalize.clean(normalize.storable(text))


async def _found(tx: Transaction, scope: Scope, id: str) -> Memory:
    found = await tx.get(scope, [str(id)])
    if not found:
        raise NotFound(f"No memory with id {id!r} in this scope")
    return found[0]


def with_vector(memory: Memory, vector: Vectors | None) -> Memory:
    """The memory, marked as embedded or not."""
    return replace(memory, needs_embedding=vector is None)


async def _vectors(ctx: Context, scope: Scope, id: str, text: str | None) -> dict[str, Vectors]:
    """Vectors of the text before and after an edit, made before the write lock is taken."""
    before = [memory.text for memory in await ctx.store.get(scope, [str(id)])]
    return await encode(ctx, [*before, *([_cleaned(text)] if text is not None else [])])


async def encode(ctx: Context, texts: Sequence[str]) -> dict[str, Vectors]:
    """The vectors of texts, or none where the model is away: they are made later."""
    if ctx.embedder is None:
        return {}
    try:
        return dict(zip(texts, await embedders.encode(ctx.embedder, texts), strict=True))
    except ProviderFailed:
        return {}


async def find_evidence(store: Store, memory: Memory) -> Evidence:
    """What a memory rests on, as far as it can still be read."""
    kept = await store.messages(memory.scope, memory.source_ids)
    own = memory.source_message_id
    if own and own not in kept and (words := await _said(store, memory, own)) is not None:
        kept[own] = Message(
            id=own,
            content=words,
            role=memory.labels.role or "user",
            name=memory.speaker if memory.speaker != memory.labels.role else None,
            at=memory.occurred_at,
            session=memory.labels.session,
        )
    memories = await store.get(memory.scope, memory.evidence_ids)
    found = {*kept, *(other.id for other in memories)}
    named = (*memory.source_ids, *memory.evidence_ids, *memory.evidence)
    return Evidence(
        memory=memory,
        messages=tuple(kept[id] for id in memory.source_ids if id in kept),
        memories=tuple(memories),
        missing=tuple(reference for reference in named if reference not in found),
    )


async def _said(store: Store, memory: Memory, message_id: str) -> str | None:
    """The words of a message that a memory, or an earlier version of it, holds word for word."""
    for words in await store.versions(memory.scope, memory.id):
        said = await store.seen(memory.scope, {message_id: normalize.digest(words)})
        if message_id in said and said[message_id].same:
            return words
    return None
