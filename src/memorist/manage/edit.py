"""Changes that a person makes to a memory: edit, pin, restore, and decide between two statements.

The text before an edit is kept as an earlier version that can still be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from .. import embedders
from ..context import Context, Place, compute, observed
from ..errors import InvalidInput, NotFound, ProviderFailed, RevisionConflict
from ..ingest import links, pipeline, transitions, validation
from ..ingest.analyze import is_turn
from ..ports import Vectors
from ..storage import Change, Relation, Save, Unrelated
from ..storage.queries import Reader
from ..storage.transaction import Transaction
from ..text import normalize
from ..text.clock import new_id
from ..types import (
    CONTRADICTS,
    REPLACES,
    Conflict,
    Filter,
    HistoryEvent,
    Memory,
    Scope,
    State,
)
from . import decisions, privacy

LONGEST_SUMMARY = 280  # characters
_SAYS = ("summary", "expires_at", "valid_from", "valid_to")  # what is shown, and until when
Decision = Literal["confirmed", "rejected", "both"]  # about a conflict


@observed("edit", lambda _: 1)
async def edit_memory(
    place: Place,
    id: str,
    text: str | None = None,
    *,
    summary: str | None = None,
    category: str | None = None,
    tags: Sequence[str] | None = None,
    importance: float | None = None,
    metadata: Mapping[str, Any] | None = None,
    expires_at: datetime | str | None = None,
    valid_from: datetime | str | None = None,
    valid_to: datetime | str | None = None,
    revision: int | None = None,
    actor: str | None = None,
) -> Memory:
    """Change a memory. The id stays; the previous version is kept and can still be read.

    Metadata is replaced as a whole. "never" removes `expires_at` or `valid_to`. Raises NotFound;
    Refused in an incognito session, or if an agent edits the words of others; InvalidInput if
    it is not the current version; RevisionConflict if `revision` is not its revision.
    """
    ctx, scope, labels = place.parts
    await privacy.refuse_incognito(place)
    by = None
    if text is not None:
        text = normalize.clean(validation.text(text, ctx.settings.max_text_chars))
        by = ctx.policy.links
    given = {"summary": summary, "category": category, "importance": importance, "tags": tags}
    fields: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    validation.fields(fields)
    length = len(fields.get("summary", ""))
    if length > LONGEST_SUMMARY:
        raise InvalidInput(f"A summary has at most {LONGEST_SUMMARY} characters, not {length}")
    if "tags" in fields:
        lowered = map(str.lower, fields["tags"])
        fields["tags"] = tuple(dict.fromkeys(lowered))
    if metadata is not None:
        fields["metadata"] = validation.metadata(metadata)
    times = {"expires_at": expires_at, "valid_from": valid_from, "valid_to": valid_to}
    for name, at in times.items():
        if at is not None:
            is_removed = at == validation.NEVER and name != "valid_from"
            fields[name] = None if is_removed else validation.moment(at)
    stored = await ctx.store.get(scope, [str(id)])
    texts = [memory.text for memory in stored]
    if text is not None:
        texts.append(text)
    vectors = await encode(ctx, texts)  # before the write lock
    model = ctx.index.model
    async with ctx.store.transaction(scope) as tx:
        old = await load(tx, scope, id)
        now = ctx.clock()
        if old.state in ("superseded", "soft_deleted"):
            raise InvalidInput(
                f"Memory {id!r} is {old.state}: edit the current version, or restore it first"
            )
        if revision not in (None, old.revision):
            raise RevisionConflict(
                f"Memory {id!r} was changed: it has revision {old.revision}, not {revision}"
            )
        if text is not None or not fields.keys().isdisjoint(_SAYS):
            place.voice.require_rewording(old)
        before = transitions.earlier_version(old, now, id=new_id())
        new = transitions.revise(old, now, **fields)
        if new.valid_from and new.valid_to and new.valid_to < new.valid_from:
            raise InvalidInput("valid_to must not be before valid_from")
        if "importance" in fields:
            new = replace(new, base_importance=new.importance)
        if text is not None:
            computed = {"summary": fields.get("summary"), "key": None}
            computed["valid_from"] = fields.get("valid_from", now)
            new = await compute(len(text), reword, new, text, **computed)
            if "tags" not in fields and text != old.text:
                new = transitions.drop_tags(transitions.unshare(new), old.text)
        snapshot = None if by is None else await ctx.index.current(scope, tx)
        names = fields if text is None else [*fields, "text"]
        meta: dict[str, Any] = {"fields": sorted(names)}
        if labels.session:
            meta["session"] = labels.session
        about = {"old_ref": before.id, "actor": actor, "meta": meta}
        put = to_save(new, vectors, model, "updated", **about)
        await tx.apply([to_save(before, vectors, model, None), put])
        if by is not None and snapshot is not None:
            await links.link(tx, snapshot, [put], by, now)
        if text is not None and is_turn(new):
            await _extract_again(ctx, tx, put.memory)
    if ctx.extractor is not None:
        ctx.extractor.start(has_news=True)
    return put.memory


async def _extract_again(ctx: Context, tx: Transaction, turn: Memory) -> None:
    """Archive the facts that rest on a turn alone, and queue it, because its text was changed."""
    facts = []
    meta = {"reason": "source changed"}
    for fact in await decisions.find_facts(tx, turn, "active"):
        if fact.evidence_ids != (turn.id,):
            continue
        archived = transitions.archive(fact, ctx.clock())
        facts.append(Save(memory=archived, event="superseded", meta=meta))
    await tx.apply(facts)
    if facts and ctx.settings.extract != "off":
        await pipeline.queue_turns(tx, [(turn.id,)], ctx, ctx.policy, ctx.clock())


async def change(
    place: Place,
    id: str,
    event: HistoryEvent,
    fields: Mapping[str, Any],
    actor: str | None,
) -> Memory:
    """Change fields of a memory with its history; hide or restore its earlier versions with it.

    Raises NotFound.
    """
    ctx, scope, _ = place.parts
    plain = {name: value for name, value in fields.items() if isinstance(value, bool | str)}
    meta = plain | await privacy.trace(place)
    async with ctx.store.transaction(scope, command=place.command_id) as tx:
        old = await load(tx, scope, id)
        if fields.get("pinned") or fields.get("manually_saved"):
            fields = {**fields, **transitions.saved_fields(old)}
        new = await release_key(tx, transitions.revise(old, ctx.clock(), **fields))
        put = Save(memory=new, event=event, actor=actor, meta=meta)
        await tx.apply([put, *await carry_versions(tx, old, new)])
    return new


async def load(reading: Reader, scope: Scope, id: str) -> Memory:
    """Return a memory. Raises NotFound."""
    found = await reading.get(scope, [str(id)])
    if not found:
        raise NotFound(f"No memory with id {id!r} in this scope")
    return found[0]


async def release_key(tx: Transaction, memory: Memory) -> Memory:
    """Return the memory without its key if another active memory has that key now."""
    if memory.key is None or not memory.is_active:
        return memory
    taken = (await tx.by_key(memory.scope, [memory.key])).get(memory.key, memory)
    return memory if taken.id == memory.id else replace(memory, key=None)


async def carry_versions(tx: Transaction, old: Memory, new: Memory) -> list[Save]:
    """Return the changes that hide or restore the earlier versions together with a memory."""
    is_hidden = new.state == "soft_deleted"
    if (old.state == "soft_deleted") == is_hidden:
        return []
    before: State = "superseded" if is_hidden else "soft_deleted"
    found = {}
    ids = [old.id]
    while ids:
        where = Filter(versions_of=ids.pop(), states=(before,))
        for version in await tx.find_all(old.scope, where):
            if version.id not in found:
                ids.append(version.id)
                found[version.id] = version
    after: State = "soft_deleted" if is_hidden else "superseded"
    carried = [replace(each, state=after, purge_at=new.purge_at) for each in found.values()]
    return [Save(memory=version, event=None) for version in carried]


def reword(memory: Memory, text: str, **fields: Any) -> Memory:
    """Return the memory with another text and what is computed from it."""
    content_hash = normalize.content_hash(text)
    simhash = normalize.simhash64(text)
    return replace(memory, text=text, content_hash=content_hash, simhash=simhash, **fields)


def to_save(
    memory: Memory,
    vectors: Mapping[str, Vectors],
    model: str | None,
    event: HistoryEvent | None,
    **fields: Any,
) -> Save:
    """Return the change that stores a memory with the vector of its text.

    Without a vector it is marked to be embedded later.
    """
    vector = vectors.get(memory.text)
    memory = replace(memory, needs_embedding=vector is None)
    return Save(memory=memory, event=event, vector=vector, model=model, **fields)


async def encode(ctx: Context, texts: Sequence[str]) -> dict[str, Vectors]:
    """Return the vectors of texts; none while the model is unavailable."""
    if ctx.embedder is None:
        return {}
    try:
        vectors = await embedders.encode(ctx.embedder, texts)
        return dict(zip(texts, vectors, strict=True))
    except ProviderFailed:
        return {}


async def list_conflicts(
    reading: Reader,
    scope: Scope,
    *,
    limit: int,
    id: str | None = None,
) -> list[Conflict]:
    """Return the conflicts that await a decision, newest first.

    Those whose memories were changed since are left out.
    """
    relations = await reading.relations(scope, CONTRADICTS, limit=limit, from_id=id)
    ids = [id for relation in relations for id in (relation.from_id, relation.to_id)]
    memories = {memory.id: memory for memory in await reading.get(scope, ids)}
    found = []
    for relation in relations:
        new = memories.get(relation.from_id)
        old = memories.get(relation.to_id)
        if new is None or old is None or not new.is_active:
            continue
        if old.is_active or (old.state == "superseded" and old.superseded_by == new.id):
            found.append(Conflict(new=new, old=old, at=relation.at))
    return found


async def decide(place: Place, id: str, actor: str | None, *, decision: Decision) -> Memory:
    """Keep the newer memory of a conflict, make the older one current again, or keep both.

    A newer one that is rejected counts as if it had never been valid. Raises NotFound; NotAllowed
    if the caller may not give up what the person saved explicitly.
    """
    ctx, scope, _ = place.parts
    trace = await privacy.trace(place)
    async with ctx.store.transaction(scope, command=place.command_id) as tx:
        found = await list_conflicts(tx, scope, limit=1, id=str(id))
        if not found:
            raise NotFound(
                f"Memory {id!r} is not in a conflict that awaits a decision: see `conflicts`"
            )
        new = found[0].new
        old = found[0].old
        gone = {"confirmed": old, "rejected": new}.get(decision)
        if gone is not None and gone.on_purpose:
            place.voice.require_owner("Giving up what was saved explicitly")
        now = ctx.clock()
        replaced = await decisions.list_replaced(tx, new)
        meta: dict[str, Any] = {"decision": decision, "between": [new.id, old.id], **trace}
        meta |= {"replaced": replaced} if replaced else {}
        pair = {"from_id": new.id, "to_id": old.id}
        changes: list[Change] = [Unrelated(**pair, type=CONTRADICTS)]
        if decision != "confirmed":
            changes.append(Unrelated(**pair, type=REPLACES))

        def save(memory: Memory, event: HistoryEvent) -> None:
            changes.append(Save(memory=memory, event=event, actor=actor, meta=meta))

        kept = transitions.revise(new, now)
        since = transitions.held_since(new)
        if decision != "rejected":
            save(kept, "updated")
            if decision == "both":
                save(transitions.restore(old, now), "restored")
            elif old.is_active:
                outdated = transitions.revise(old, now, valid_to=since, pinned=False)
                save(outdated, "superseded")
        else:
            kept = transitions.restore(old, now)
            never = transitions.supersede(new, now, by=old.id, since=since)
            if old.is_active:  # turns stay: they are what was said
                never = transitions.revise(new, now, valid_to=since)
                changes.append(Relation(from_id=old.id, to_id=new.id, type=REPLACES, at=now))
            save(never, "superseded")
            meta = {"decision": decision, "supersedes": new.id, **trace}
            save(kept, "restored")
        changes += await decisions.follow(tx, new, old, gone, now)
        if decision != "confirmed":
            changes += await decisions.release(tx, new, old, now)
        await tx.apply(changes)
    return kept


async def supersede(place: Place, id: str, *, by: str, actor: str | None) -> Memory:
    """Replace a memory by another one that corrects it. Raises NotFound."""
    ctx = place.ctx
    meta = {"superseded_by": by, **await privacy.trace(place)}
    async with ctx.store.transaction(place.scope, command=place.command_id) as tx:
        old = await load(tx, place.scope, id)
        new = await load(tx, place.scope, by)
        now = ctx.clock()
        gone = transitions.supersede(old, now, by=by)
        put = Save(memory=gone, event="superseded", actor=actor, meta=meta)
        await tx.apply([put, *await decisions.end_facts(tx, old, new, now)])
    return new
