"""Export everything as records, and import records again.

Importing has two halves: the first reads records into values and checks them, the second stores
the values in batches, each in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from .. import storage
from ..context import Context
from ..errors import InvalidInput
from ..ingest import guard, validation
from ..ingest.decide import FORGOTTEN
from ..storage import HistoryEntry, Save, SeenMessage, rows
from ..storage.person import Summary
from ..storage.scan import FORMAT
from ..storage.transaction import Transaction
from ..text import authority, normalize
from ..types import (
    HISTORY_EVENTS,
    Draft,
    HistoryEvent,
    Labels,
    Memory,
    Message,
    Outcome,
    Receipt,
    Scope,
    frozen,
)
from . import edit
from .records import LISTS, add_missing

BATCH = 256
_HEADS = ("memorist", "recollect")  # the first record; version 0.1 wrote "recollect"
_IGNORED = (*_HEADS, "damaged", "proposal")  # about other records, or agreed to elsewhere
_MESSAGE = "said"  # a message with `content`, which is no exported record
_MOST_NAME = 200  # characters
_MOST_LABEL = 1_000  # characters
_MOST_SUMMARY = 2_000  # characters
_MOST_LISTED = 10_000  # entries of a list, each as long as a label may be
_SHARES = "importance base_importance confidence metadata_confidence".split()
_RANGES = dict.fromkeys(_SHARES, 1) | dict.fromkeys(("repeat_count", "access_count"), 10**9)
_NOT_IMPORTED = "last_scores revision sequence needs_embedding".split()
_LOWERED = "steps_text category item_type fact_type".split()
_CHECKED = ("text", "labels", "speaker", "kind", "evidence", "evidence_text", *_LOWERED)
_TEXTS = "text steps_text evidence_text content".split()  # limited by the setting for texts
_UNDO_KEYS = "operation session final".split()  # by these `undo` finds what it takes back
_HOW_TO_RESTORE = "if this is an export of your own, restore it (restore=True, --restore)"

Value = Memory | SeenMessage | HistoryEntry | Summary


@frozen
class Import:
    """How records are imported."""

    ctx: Context
    scope: Scope | None = None  # without one, each record goes to the scope it names
    remember: Callable[[list[Any]], Awaitable[Receipt]] | None = None  # stores messages
    restore: bool = False  # an export of one's own: stored as it was, even where memory is off


class Record(NamedTuple):
    """One record, read and checked."""

    kind: str
    value: Any
    scope: Scope | None  # where it is stored
    origin: Any = None  # the scope it names


async def import_records(records: Iterable[Mapping[str, Any]], how: Import) -> Receipt:
    """Import records in batches that are each stored whole.

    Raises InvalidInput at the first record that cannot be read; those before it are stored.
    """
    if isinstance(records, (str, bytes, Mapping)) or not isinstance(records, Iterable):
        raise InvalidInput(f"import_ takes an iterable of records, not {type(records).__name__}")
    outcomes: list[Outcome] = []
    for batch in _read_batches(records, how):
        outcomes += await _store_batch(batch, how)
    return Receipt(tuple(outcomes))


def _read_batches(records: Iterable[Mapping[str, Any]], how: Import) -> Iterable[list[Record]]:
    """Yield records that are stored together: of one kind and from one scope."""
    batch: list[Record] = []
    for number, given in enumerate(records, 1):
        try:
            record = read(given, how)
        except InvalidInput as error:
            yield batch
            raise InvalidInput(f"Record {number}: {error}") from error
        if batch:
            first = batch[0]
            is_like = first.kind == record.kind and first.origin == record.origin
            if len(batch) == BATCH or not is_like:
                yield batch
                batch = []
        batch.append(record)
    yield batch


def read(record: Mapping[str, Any], how: Import) -> Record:
    """Return a record with its value, checked. Raises InvalidInput."""
    if not isinstance(record, Mapping):
        raise InvalidInput("it is not an object")
    if "content" in record:
        if how.scope is None:
            raise InvalidInput("it is a message: name its owner, with a scope or --user")
        validation.message(record, Labels())
        return Record(_MESSAGE, record, how.scope)
    kind = record.get("record_type")
    data = record.get("data")
    if kind not in (*_IGNORED, *_READERS) or not isinstance(data, Mapping):
        raise InvalidInput("it is neither an exported record nor a message with 'content'")
    if kind in _HEADS and data.get("format") != FORMAT:
        raise InvalidInput(f"its format is {data.get('format')!r}, this version reads {FORMAT}")
    origin = data.get("scope")
    if kind in _IGNORED:
        return Record(kind, None, how.scope, origin)
    value = _READERS[kind](data)
    check_sizes(value, how)
    scope = how.scope
    if scope is None:
        if not isinstance(origin, Mapping) or set(origin) != {"tenant", "user", "space"}:
            raise InvalidInput(f"it needs a scope with tenant, user and space, not {origin!r:.60}")
        names = {name: validation.name(name, each) for name, each in origin.items()}
        scope = Scope(**names)
    return Record(kind, value, scope, origin)


def _read_memory(data: Mapping[str, Any]) -> Memory:
    """Return a memory as it was, except what is computed from its text, its place and its uses.

    Raises InvalidInput for what no verb would have stored.
    """
    known = {name: value for name, value in data.items() if name not in _NOT_IMPORTED}
    memory = storage.load(Memory, known)
    validation.text(memory.text, len(memory.text))
    id = memory.id
    is_word = id.isprintable() and not any(map(str.isspace, id))
    if not 0 < len(id) <= _MOST_NAME or not is_word:
        raise InvalidInput(
            f"An id is a text of 1 to {_MOST_NAME} characters without blanks, not {id!r:.60}"
        )
    for name, most in _RANGES.items():
        value = getattr(memory, name)
        if not 0 <= value <= most:  # also true for NaN
            raise InvalidInput(f"{name} lies between 0 and {most:,}, not {value!r:.60}")
    if not all(abs(part) <= _MOST_LABEL for part in memory.importance_parts.values()):
        raise InvalidInput("importance_parts are small numbers")
    tags = tuple(map(normalize.storable, memory.tags))
    if memory.is_active:
        memory = replace(memory, superseded_by=None, purge_at=None)
    if id in (memory.superseded_by, *memory.evidence_ids):
        raise InvalidInput(f"Memory {id!r:.60} names itself as its evidence or its successor")
    return edit.reword(memory, normalize.storable(memory.text), tags=tags)


def _read_message(data: Mapping[str, Any]) -> SeenMessage:
    text = data.get("text")
    plain = {name: data.get(name) for name in ("id", "role", "name", "session")}
    plain["at"] = validation.moment(data.get("at"))
    plain["content"] = "" if text is None else text
    message = storage.load(Message, plain)
    if message.id is None:
        raise InvalidInput("This is no message: it has no id")
    outcome = rows.upgrade_outcome(data.get("outcome") or {})
    return SeenMessage(
        id=message.id,
        message=message,
        outcome=storage.load(Outcome, outcome),
        digest="" if text is None else normalize.digest(text),
        keep_text=data.get("kept") is True,
    )


def _read_entry(data: Mapping[str, Any]) -> HistoryEntry:
    entry = storage.load(HistoryEntry, data)
    try:
        UUID(entry.id)
    except ValueError as error:
        raise InvalidInput(f"Not a history entry: id {entry.id!r:.60} is not a UUID") from error
    if not isinstance(entry.meta.get("before", {}), Mapping):
        raise InvalidInput("Not a history entry: `before` has to be an object of fields and values")
    if entry.event not in HISTORY_EVENTS:
        known = ", ".join(HISTORY_EVENTS)
        raise InvalidInput(f"Not a history entry: {entry.event!r:.60} is none of {known}")
    return entry


def _read_summary(data: Mapping[str, Any]) -> Summary:
    summary = storage.load(Summary, data)
    if not summary.evidence_ids:
        raise InvalidInput("a long-term record names the memories that it rests on (evidence_ids)")
    lists = LISTS[summary.record_type]
    for name, lines in summary.data.items():
        is_list = isinstance(lines, list | tuple)
        is_known = name in lists and is_list
        if not is_known or not all(isinstance(line, str) for line in lines):
            raise InvalidInput(f"its lists of texts are {', '.join(lists)}, not {name!r:.60}")
    return summary


_READERS: dict[str, Callable[[Mapping[str, Any]], Value]] = {
    "memory": _read_memory,
    "history": _read_entry,
    "message": _read_message,
    "user_profile": _read_summary,
    "project_memory": _read_summary,
}


def check_sizes(value: object, how: Import) -> None:
    """Raise InvalidInput for texts and lists that are too long; an own export may hold longer."""
    for each in fields(value):  # type: ignore[arg-type]
        name = each.name
        part = getattr(value, each.name)
        if isinstance(part, Labels | Message | Outcome):
            check_sizes(part, how)
            continue
        if isinstance(part, Mapping):
            name = "text"
            part = json.dumps(part, default=str)
        listed = part if isinstance(part, tuple) else (part,)
        texts = [text for text in listed if isinstance(text, str)]
        if any("\0" in text for text in texts):
            raise InvalidInput(f"{name} holds a NUL character: remove it")
        if name in _TEXTS:
            validation.size("".join(texts), how.ctx.settings.max_text_chars)
        elif not how.restore:
            most = _MOST_SUMMARY if name == "summary" else _MOST_LABEL
            if len(listed) > _MOST_LISTED or any(len(text) > most for text in texts):
                limits = f"at most {_MOST_LISTED:,} entries of {most:,} characters are imported"
                raise InvalidInput(f"{name} is too long: {limits}; {_HOW_TO_RESTORE}")


async def _store_batch(batch: Sequence[Record], how: Import) -> Sequence[Outcome]:
    """Store records of one kind; return what became of memories and messages, and refusals."""
    if not batch or batch[0].kind in _IGNORED:
        return []
    kind, _, scope, origin = batch[0]
    values = [record.value for record in batch]
    if kind == _MESSAGE and how.remember is not None:
        return (await how.remember(values)).outcomes
    assert scope is not None
    values, reasons = await admit(values, scope, how)
    if kind == "memory":
        return await _store_memories(values, reasons, scope, how.ctx)
    allowed = [value for value, why in zip(values, reasons, strict=True) if not why]
    async with how.ctx.store.transaction(scope) as tx:
        if kind == "history":
            if origin != asdict(scope):  # there an entry has an id of its own, always the same
                name = "\0".join((scope.tenant, scope.user, scope.space))
                for number, entry in enumerate(allowed):
                    id = uuid5(UUID(entry.id), name)
                    allowed[number] = replace(entry, id=str(id))
            await _store_history(tx, allowed, how.ctx.clock())
        elif kind == "message":
            for number, seen in enumerate(allowed):
                found = await tx.get(scope, seen.outcome.ids)
                if len(found) < len(set(seen.outcome.ids)):  # its memories were forgotten here
                    allowed[number] = replace(seen, keep_text=False)
            await tx.save_messages(allowed)
        else:
            reasons += await add_missing(tx, scope, allowed, any_speaker=how.restore)
    return [Outcome(status="refused", reason=why) for why in reasons if why]


async def admit(
    values: Sequence[Value],
    scope: Scope,
    how: Import,
) -> tuple[list[Any], list[str]]:
    """Return the values with the authority of their speakers, and why each is refused, if it is.

    A record that claims to be pinned or manually saved gets no exception.
    """
    drafts = [_to_draft(value) for value in values]
    sessions = {draft.labels.session for draft in drafts}
    disabled, _ = await guard.load_disabled(how.ctx, how.ctx.store, scope, sessions)
    policy = validation.policy(how.ctx.policies, how.ctx.settings.policy)
    admitted: list[Any] = []
    reasons: list[str] = []
    for value, draft in zip(values, drafts, strict=True):
        why = disabled.get(draft.labels.session, "")
        if how.restore:
            why = why if why == guard.INCOGNITO else ""
        elif why != guard.INCOGNITO:
            if draft.text and not why:
                why = guard.find_refusal(draft, policy, scope.user)
            why = why and f"{why}; {_HOW_TO_RESTORE}"
        if isinstance(value, Memory) and not how.restore:
            low = guard.lower_authority(draft, policy, scope.user)
            if low != draft or not authority.is_own(draft.labels.role, draft.speaker, scope.user):
                lowered: dict[str, Any] = {name: getattr(low, name) for name in _LOWERED}
                lowered |= {"kind": low.kind or "episodic", "procedural_form": None, "key": None}
                value = edit.reword(value, low.text, **lowered)
        admitted.append(value)
        reasons.append(why)
    return admitted, reasons


def _to_draft(value: Value) -> Draft:
    """Return the text and the speaker of a value as a draft, for the guard to check."""
    if isinstance(value, Memory):
        given = {name: getattr(value, name) for name in _CHECKED}
        return Draft(**given)
    if isinstance(value, SeenMessage):
        message = value.message
        labels = Labels(session=message.session, role=message.role)
        speaker = authority.speaker_of(message.role, message.name)
        return Draft(text=message.content, labels=labels, speaker=speaker)
    if isinstance(value, Summary):  # derived text, so it is checked like the words of a tool
        lines = [line for each in value.data.values() for line in each]
        return Draft(text="\n".join(lines), labels=Labels(role="tool"))
    session = value.meta.get("session")
    return Draft(text="", labels=Labels(session=session if isinstance(session, str) else None))


async def _store_memories(
    memories: Sequence[Memory],
    refusals: Sequence[str],
    scope: Scope,
    ctx: Context,
) -> list[Outcome]:
    """Store memories as they are, with vectors of the current model; those already here stay.

    The memories of a session are numbered after those already stored, in the order of the file.
    """
    texts = [each.text for each, why in zip(memories, refusals, strict=True) if not why]
    vectors = await edit.encode(ctx, texts)
    outcomes: list[Outcome] = []
    async with ctx.store.transaction(scope) as tx:
        stored = await tx.get(scope, [memory.id for memory in memories])
        here = {memory.id for memory in stored}
        words = [normalize.wording(memory.text) for memory in memories]
        forgotten = await tx.tombstones(scope, words, ctx.clock())
        new: dict[str, Memory] = {}
        for memory, why, wording in zip(memories, refusals, words, strict=True):
            ids = (memory.id,)
            if memory.id in here:
                made = Outcome(status="skipped", ids=ids, reason="it is here already")
            elif why or wording in forgotten:
                why = FORGOTTEN if wording in forgotten else why
                made = Outcome(status="refused", reason=why)
            else:
                made = Outcome(status="created", ids=ids)
                new[memory.id] = memory
            outcomes.append(made)
        saves: list[Save] = []
        keys: set[str | None] = set()
        last: dict[str, int] = {}
        for memory in new.values():
            memory = await edit.release_key(tx, replace(memory, scope=scope))
            if memory.key in keys:
                memory = replace(memory, key=None)
            keys.add(memory.key)
            session = memory.labels.session
            if session is not None:
                if session not in last:
                    last[session] = await tx.last_sequence(scope, session)
                last[session] += 1
                memory = replace(memory, sequence=last[session])
            event: HistoryEvent | None = None if memory.state == "superseded" else "created"
            meta = {"imported": True}
            saves.append(edit.to_save(memory, vectors, ctx.index.model, event, meta=meta))
        await tx.apply(saves)
    return outcomes


async def _store_history(tx: Transaction, entries: Sequence[HistoryEntry], now: datetime) -> None:
    """Add entries, without the words of what was forgotten here and out of the reach of `undo`."""
    words: list[str] = []
    for entry in entries:
        before = entry.meta.get("before", {})
        text = str(before.get("text", ""))
        words.append(normalize.wording(text))
    forgotten = await tx.tombstones(tx.scope, words, now)
    imported: list[HistoryEntry] = []
    for entry, wording in zip(entries, words, strict=True):
        meta: dict[str, Any] = {}
        for name, value in entry.meta.items() if wording not in forgotten else ():
            meta[f"imported_{name}" if name in _UNDO_KEYS else name] = value
        imported.append(replace(entry, meta={**meta, "imported": True}))
    await tx.import_history(imported)
