"""Everything out of a memory, and into one again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from . import codec, inputs
from .changes import Put, Said, Summary
from .errors import InvalidInput
from .ingest import drafts
from .ingest.piece import Piece
from .ingest.pipeline import FORGOTTEN
from .model import HISTORY_EVENTS, Draft, Memory, Message, Outcome, Receipt, Scope
from .ports import Store, Transaction, Vectors
from .records import Entry
from .revisions import encoded, with_vector
from .text import normalise

if TYPE_CHECKING:
    from .engine import Engine
    from .scoped import Scoped

FORMAT = 1
_NOTES = ("recollect", "damaged", "proposal")  # to be read: they tell of the others, or what the person agreed to here
BATCH = 256


async def exported(store: Store, scope: Scope | None) -> AsyncIterator[dict[str, Any]]:
    """All records as plain values: first what they are, then history, memories, messages, long-term records."""
    yield {"record_type": "recollect", "data": {"format": FORMAT}}
    async for record in store.export(scope):
        data = record["data"]
        yield {**record, "data": data if isinstance(data, dict) else codec.dump(data)}


async def imported(records: Iterable[Mapping[str, Any]], into: Scoped | None, engine: Engine) -> Receipt:
    """Take in records, in batches that are each committed whole; a bad one ends it after what stood before."""
    if isinstance(records, (str, bytes, Mapping)) or not isinstance(records, Iterable):
        raise InvalidInput(f"import_ takes records one after the other, not {type(records).__name__}")
    outcomes: list[Outcome] = []
    batch: list[Mapping[str, Any]] = []
    for number, record in enumerate(records, 1):
        problem = _problem(record, number, into)
        if batch and (problem or len(batch) == BATCH or _sort(record) != _sort(batch[0])):
            outcomes += await _take(batch, into, engine)
            batch = []
        if problem:
            raise problem
        batch.append(record)
    return Receipt((*outcomes, *(await _take(batch, into, engine) if batch else ())))


def _problem(record: Mapping[str, Any], number: int, into: Scoped | None) -> InvalidInput | None:
    """Why a record cannot be taken in, with its number."""
    try:
        _check(record, into)
    except InvalidInput as error:
        return InvalidInput(f"Record {number}: {error}")
    return None


def _check(record: Mapping[str, Any], into: Scoped | None) -> None:
    if not isinstance(record, Mapping):
        raise InvalidInput("it is no object")
    if "content" in record:
        if into is None:
            raise InvalidInput("it is a message: say whose it is, with a scope or --user")
        drafts.message(record, into.labels)
        return
    kind, data = record.get("record_type"), record.get("data")
    if kind not in (*_NOTES, *_READERS) or not isinstance(data, Mapping):
        raise InvalidInput("it is neither an exported record nor a message with 'content'")
    if kind == "recollect" and data.get("format") != FORMAT:
        raise InvalidInput(f"the export has format {data.get('format')!r}, this version reads {FORMAT}")
    if kind in _READERS:
        _READERS[kind](data)
        if into is None:
            _scope(data)


def _sort(record: Mapping[str, Any]) -> str:
    """Records that may be taken in together have the same sort: kind, and scope where they name one."""
    data = record.get("data", {})
    return "said" if "content" in record else f"{record['record_type']} {data.get('scope')}"


async def _take(batch: Sequence[Mapping[str, Any]], into: Scoped | None, engine: Engine) -> Sequence[Outcome]:
    if "content" in batch[0]:
        assert into is not None
        return (await into.remember(list(batch))).outcomes
    kind = batch[0]["record_type"]
    if kind in _NOTES:
        return []
    data = [record["data"] for record in batch]
    scope = into.scope if into is not None else _scope(data[0])
    values = [_READERS[kind](each) for each in data]
    if kind == "memory":
        return await _take_memories(values, scope, engine)
    if kind == "history":
        home = data[0].get("scope")
        values = [each if home == asdict(scope) else _elsewhere(each, scope) for each in values]
        await _take_history(values, scope, engine)
        return []
    async with engine.store.transaction(scope) as tx:
        await tx.apply([left for each in values if (left := await _still_supported(each, tx, scope)) is not None])
    return []


async def _still_supported(value: Any, tx: Transaction, scope: Scope) -> Any:
    """A message without its words, or a long-term record not at all, where what it became or rests on is forgotten."""
    ids = value.outcome.ids if isinstance(value, Said) else value.evidence_ids if isinstance(value, Summary) else ()
    there = {memory.id for memory in await tx.get(scope, ids)} if ids else set()
    if there.issuperset(ids):
        return value
    return replace(value, keep_text=False) if isinstance(value, Said) else None


def _scope(data: Mapping[str, Any]) -> Scope:
    made = data.get("scope")
    if not isinstance(made, Mapping) or set(made) != {"tenant", "user", "space"}:
        raise InvalidInput(f"A record needs a scope with tenant, user and space, not {made!r:.60}")
    return Scope(**{name: inputs.name(name, value) for name, value in made.items()})


def _memory(data: Mapping[str, Any]) -> Memory:
    """A memory as it was, with what is derived from its text made anew."""
    made = codec.load(Memory, data)
    inputs.text(made.text, len(made.text))
    inputs.fields({"importance": made.importance, "confidence": made.confidence})
    piece = Piece(Draft(text=made.text), made.text)
    return replace(made, content_hash=piece.content_hash, simhash=piece.simhash)


def _summary(data: Mapping[str, Any]) -> Summary:
    return codec.load(Summary, {name: value for name, value in data.items() if name != "scope"})


def _said(data: Mapping[str, Any]) -> Said:
    for name in ("id", "role", "text", "name", "session"):
        value = data.get(name)
        if not isinstance(value, str) and (value is not None or name in ("id", "role")):
            raise InvalidInput(f"This is no message: {name} is text, not {type(value).__name__}")
    text = data.get("text")
    fields = {name: data.get(name) for name in ("id", "role", "name", "session")}
    message = Message(content=text or "", at=drafts.moment(data.get("at")), **fields)  # type: ignore[arg-type]
    outcome = codec.load(Outcome, data.get("outcome") or {})
    digest = drafts.digest(text) if text is not None else ""
    return Said(id=data["id"], message=message, outcome=outcome, digest=digest, keep_text=data.get("kept") is True)


def _entry(data: Mapping[str, Any]) -> Entry:
    made = codec.load(Entry, {name: value for name, value in data.items() if name != "scope"})
    try:
        UUID(made.id)
    except ValueError as error:
        raise InvalidInput(f"This is no entry of a history: its id is no UUID but {made.id!r:.60}") from error
    if made.event not in HISTORY_EVENTS:
        raise InvalidInput(f"This is no entry of a history: {made.event!r:.60} is none of {', '.join(HISTORY_EVENTS)}")
    return made


def _elsewhere(entry: Entry, scope: Scope) -> Entry:
    """An entry that goes into another scope than it came from: there it has a name of its own, always the same."""
    return replace(entry, id=str(uuid5(UUID(entry.id), "\0".join((scope.tenant, scope.user, scope.space)))))


async def _take_history(entries: Sequence[Entry], scope: Scope, engine: Engine) -> None:
    """Add what happened before, without the words of what was forgotten here; what is here already stays as it is."""
    words = {entry.id: normalise.wording(str(entry.meta.get("before", {}).get("text", ""))) for entry in entries}
    async with engine.store.transaction(scope) as tx:
        forgotten = await tx.tombstones(scope, set(words.values()), engine.clock())
        await tx.apply([replace(each, meta={}) if words[each.id] in forgotten else each for each in entries])


_READERS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "memory": _memory,
    "history": _entry,
    "message": _said,
    "user_profile": _summary,
    "project_memory": _summary,
}


async def _take_memories(memories: Sequence[Memory], scope: Scope, engine: Engine) -> list[Outcome]:
    """Keep memories as they are, with vectors of this engine's model; those already here stay untouched."""
    vectors = await encoded(engine, [memory.text for memory in memories])
    async with engine.store.transaction(scope) as tx:
        there = {memory.id for memory in await tx.get(scope, [memory.id for memory in memories])}
        compared = {memory.id: normalise.wording(memory.text) for memory in memories}
        forgotten = await tx.tombstones(scope, list(compared.values()), engine.clock())
        refused = {id for id, text in compared.items() if text in forgotten}
        new = {memory.id: memory for memory in memories if memory.id not in there | refused}
        await tx.apply([_imported(memory, scope, vectors.get(memory.text), engine) for memory in new.values()])
    return [_taken(memory.id, there, refused) for memory in memories]


def _imported(memory: Memory, scope: Scope, vector: Vectors | None, engine: Engine) -> Put:
    return Put(
        memory=with_vector(replace(memory, scope=scope), vector),
        event="created" if memory.state != "superseded" else None,
        vector=vector,
        model=engine.corpora.model,
        meta={"imported": True},
    )


def _taken(id: str, there: set[str], refused: set[str]) -> Outcome:
    if id in there:
        return Outcome(status="skipped", ids=(id,), reason="it is here already")
    if id in refused:
        return Outcome(status="refused", reason=FORGOTTEN)
    return Outcome(status="created", ids=(id,))
