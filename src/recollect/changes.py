"""What stands behind the longer verbs: an edit and the version before it, evidence, export and import."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import codec
from .errors import EmbedderUnavailable, InvalidInput, NotFound
from .ids import new_id
from .ingest import drafts
from .ingest.piece import Piece
from .model import KINDS, Change, Draft, Evidence, Memory, Message, Outcome, Put, Receipt, Said, Scope
from .ports import Store, Vectors
from .text import normalise

if TYPE_CHECKING:
    from .engine import Engine, Scoped

FORMAT = 1
BATCH = 256


def draft_fields(**given: Any) -> dict[str, Any]:
    """The fields that all drafts of one call share, checked. Raises InvalidInput."""
    if given["kind"] is not None and given["kind"] not in KINDS:
        raise InvalidInput(f"No kind {given['kind']!r}: there are {', '.join(KINDS)}")
    _check_fields(given, optional=("importance",))
    for name in ("tags", "source_ids", "evidence"):
        given[name] = tuple(map(normalise.storable, given[name]))
    return given


def _check_fields(given: Mapping[str, Any], *, optional: Sequence[str] = ()) -> None:
    """Raises InvalidInput for a value of a wrong kind, naming its field."""
    for name, value in given.items():
        if name in ("importance", "confidence"):
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not (is_number and 0 <= value <= 1) and not (value is None and name in optional):
                raise InvalidInput(f"{name} lies between 0 and 1, not {value!r:.60}")
        elif name in ("tags", "source_ids", "evidence"):
            if not isinstance(value, (list, tuple, set, frozenset)) or not all(isinstance(each, str) for each in value):
                raise InvalidInput(f"{name} is a list of texts, not {value!r:.60}")
        elif name in ("pinned", "manually_saved"):
            if not isinstance(value, bool):
                raise InvalidInput(f"{name} is True or False, not {value!r:.60}")
        elif value is not None and not isinstance(value, str):
            raise InvalidInput(f"{name} is text, not {type(value).__name__}")


async def edited(
    engine: Engine, scope: Scope, id: str, text: str | None, fields: Mapping[str, Any], actor: str | None
) -> Memory:
    """Put the new version in the place of the old, and the old beside it as superseded."""
    _check_fields(fields)
    vectors = await _vectors(engine, scope, id, text)
    async with engine.store.transaction(scope) as tx:
        found = await tx.get(scope, [str(id)])
        if not found:
            raise NotFound(f"No memory with id {id!r} in this scope")
        old, now = found[0], engine.clock()
        new = replace(old, **fields, updated_at=now, revision=old.revision + 1)
        changes: list[Change] = []
        if text is not None:
            piece = Piece(Draft(text=text), normalise.clean(normalise.storable(text)))
            before = replace(old, id=new_id(), state="superseded", superseded_by=old.id, valid_to=now, key=None)
            vector = vectors.get(old.text)
            changes.append(Put(memory=_embedded(before, vector), event=None, vector=vector, model=engine.corpora.model))
            new = replace(new, text=piece.text, content_hash=piece.content_hash, simhash=piece.simhash, valid_from=now)
            new = _embedded(new, vectors.get(piece.text))
        old_ref = changes[0].memory.id if changes and isinstance(changes[0], Put) else None
        changes.append(
            Put(memory=new, event="updated", vector=vectors.get(new.text), model=engine.corpora.model,
                old_ref=old_ref, actor=actor, meta={"fields": sorted([*fields, *(["text"] if text else [])])})
        )  # fmt: skip
        await tx.apply(changes)
    return new


def _embedded(memory: Memory, vector: Vectors | None) -> Memory:
    return replace(memory, needs_embedding=vector is None)


async def _vectors(engine: Engine, scope: Scope, id: str, text: str | None) -> dict[str, Vectors]:
    """Vectors of the text before and after an edit, made before the write lock is taken."""
    if text is None:
        return {}
    before = [memory.text for memory in await engine.store.get(scope, [str(id)])]
    return await _encoded(engine, [*before, normalise.clean(normalise.storable(text))])


async def _encoded(engine: Engine, texts: Sequence[str]) -> dict[str, Vectors]:
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


async def exported(store: Store, scope: Scope | None) -> AsyncIterator[dict[str, Any]]:
    """All records as plain values: first what they are, then memories, messages, long-term records."""
    yield {"record_type": "recollect", "data": {"format": FORMAT}}
    async for record in store.export(scope):
        data = record["data"]
        yield {**record, "data": data if isinstance(data, dict) else codec.dump(data)}


async def imported(records: Iterable[Mapping[str, Any]], into: Scoped | None, engine: Engine) -> Receipt:
    """Take in records, in batches that are each committed whole."""
    if not isinstance(records, Iterable):
        raise InvalidInput(f"import_ takes a list of records, not {type(records).__name__}")
    outcomes: list[Outcome] = []
    batch: list[Mapping[str, Any]] = []
    for number, record in enumerate(records, 1):
        _check(record, number, into)
        if batch and (len(batch) == BATCH or _sort(record) != _sort(batch[0])):
            outcomes += await _take(batch, into, engine)
            batch = []
        batch.append(record)
    return Receipt((*outcomes, *(await _take(batch, into, engine) if batch else ())))


_KNOWN = ("recollect", "memory", "message", "user_profile", "project_memory")


def _check(record: Mapping[str, Any], number: int, into: Scoped | None) -> None:
    if not isinstance(record, Mapping):
        raise InvalidInput(f"Record {number} is no object")
    if "content" in record:
        if into is None:
            raise InvalidInput(f"Record {number} is a message: say whose it is, with a scope or --user")
    elif record.get("record_type") not in _KNOWN or not isinstance(record.get("data"), Mapping):
        raise InvalidInput(f"Record {number} is neither an exported record nor a message with 'content'")
    elif record["record_type"] == "recollect" and record["data"].get("format") != FORMAT:
        raise InvalidInput(f"This export has format {record['data'].get('format')!r}, this version reads {FORMAT}")


def _sort(record: Mapping[str, Any]) -> str:
    """Records that may be taken in together have the same sort: kind, and scope where they name one."""
    data = record.get("data", {})
    return "said" if "content" in record else f"{record['record_type']} {data.get('scope')}"


async def _take(batch: Sequence[Mapping[str, Any]], into: Scoped | None, engine: Engine) -> Sequence[Outcome]:
    if "content" in batch[0]:
        assert into is not None
        return (await into.remember(list(batch))).outcomes
    kind = batch[0]["record_type"]
    if kind == "recollect":
        return []
    data = [record["data"] for record in batch]
    scope = into.scope if into is not None else _scope(data[0])
    if kind == "memory":
        return await _take_memories([codec.memory(each) for each in data], scope, engine)
    async with engine.store.transaction(scope) as tx:
        if kind == "message":
            await tx.apply([_said(each) for each in data])
        else:
            await tx.apply([codec.summary(_without_scope(each)) for each in data])
    return []


def _scope(data: Mapping[str, Any]) -> Scope:
    made = data.get("scope")
    names = ("tenant", "user", "space")
    if not isinstance(made, Mapping) or set(made) != set(names) or not all(isinstance(made[n], str) for n in names):
        raise InvalidInput(f"A record needs a scope with tenant, user and space, not {made!r:.60}")
    return Scope(**made)


def _without_scope(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != "scope"}


def _said(data: Mapping[str, Any]) -> Said:
    for name in ("id", "role", "digest", "text", "name", "session"):
        value = data.get(name)
        if not isinstance(value, str) and (value is not None or name in ("id", "role", "digest")):
            raise InvalidInput(f"This is no message: {name} is text, not {type(value).__name__}")
    text = data.get("text")
    fields = {name: data.get(name) for name in ("id", "role", "name", "session")}
    message = Message(content=text or "", at=drafts.moment(data.get("at")), **fields)  # type: ignore[arg-type]
    outcome = codec.outcome(data.get("outcome") or {})
    return Said(id=data["id"], message=message, outcome=outcome, digest=data["digest"], keep_text=text is not None)


async def _take_memories(memories: Sequence[Memory], scope: Scope, engine: Engine) -> list[Outcome]:
    """Keep memories as they are, with vectors of this engine's model; those already here stay untouched."""
    vectors = await _encoded(engine, [memory.text for memory in memories])
    async with engine.store.transaction(scope) as tx:
        there = {memory.id for memory in await tx.get(scope, [memory.id for memory in memories])}
        compared = {memory.id: normalise.for_hash(memory.text) for memory in memories}
        forgotten = await tx.tombstones(scope, list(compared.values()), engine.clock())
        refused = {id for id, text in compared.items() if text in forgotten}
        new = {memory.id: memory for memory in memories if memory.id not in there | refused}
        await tx.apply([_imported(memory, scope, vectors.get(memory.text), engine) for memory in new.values()])
    return [_taken(memory.id, there, refused) for memory in memories]


def _imported(memory: Memory, scope: Scope, vector: Vectors | None, engine: Engine) -> Put:
    return Put(
        memory=_embedded(replace(memory, scope=scope), vector),
        event="created" if memory.state != "superseded" else None,
        vector=vector,
        model=engine.corpora.model,
        meta={"imported": True},
    )


def _taken(id: str, there: set[str], refused: set[str]) -> Outcome:
    if id in there:
        return Outcome(status="skipped", ids=(id,), reason="it is here already")
    if id in refused:
        return Outcome(status="refused", reason="it was forgotten on request: save it on purpose to keep it again")
    return Outcome(status="created", ids=(id,))
