"""Read exported records and messages into values, and check them before anything is stored."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple
from uuid import UUID

from .. import storage
from ..context import Context
from ..errors import InvalidInput
from ..ingest import validation
from ..storage import HEADS, HistoryEntry, Relation, SeenMessage, rows
from ..storage.person import Summary
from ..storage.scan import FORMAT
from ..text import normalize
from ..types import (
    CONTRADICTS,
    HISTORY_EVENTS,
    REPLACES,
    Labels,
    Memory,
    Message,
    Outcome,
    Receipt,
    Scope,
    frozen,
)
from . import edit
from .records import LISTS

BATCH = 256
HOW_TO_RESTORE = "if this is your own export, restore it (restore=True, --restore)"
MESSAGE = "said"  # kind of a message with `content`, which is not an exported record
# About other records, agreed to elsewhere, or of another place.
IGNORED = (*HEADS, "damaged", "proposal", "row", "key", "journal", "pending")
_MOST_NAME = 200  # characters
_MOST_LABEL = 1_000  # characters
_MOST_SUMMARY = 2_000  # characters
_MOST_LISTED = 10_000  # entries of a list, each as long as a label may be
_SHARES = "importance base_importance confidence metadata_confidence".split()
_RANGES = dict.fromkeys(_SHARES, 1) | dict.fromkeys(("repeat_count", "access_count"), 10**9)
_NOT_IMPORTED = "last_scores revision sequence needs_embedding".split()
_PLACE = ("user", "space", "tenant")
_TEXTS = "text steps_text evidence_text content".split()  # limited by the setting for texts

Value = Memory | SeenMessage | HistoryEntry | Summary | Relation


@frozen
class Import:
    """How records are imported."""

    ctx: Context
    scope: Scope | None = None  # without one, each record goes to the scope it names
    remember: Callable[[list[Any]], Awaitable[Receipt]] | None = None  # stores messages
    restore: bool = False  # the user's own export: stored as it was, even where memory is off


class Record(NamedTuple):
    """One record, read and checked."""

    kind: str
    value: Any
    scope: Scope | None  # where it is stored
    origin: Any = None  # the scope it names


def read_batches(records: Iterable[Mapping[str, Any]], how: Import) -> Iterable[list[Record]]:
    """Yield records that are stored together: of one kind and from one scope."""
    batch: list[Record] = []
    for number, given in enumerate(records, 1):
        try:
            record = read_record(given, how)
        except InvalidInput as error:
            yield batch
            raise InvalidInput(f"Record {number}: {error}") from error
        if batch:
            first = batch[0]
            is_same_kind = first.kind == record.kind
            is_same_origin = first.origin == record.origin
            if len(batch) == BATCH or not is_same_kind or not is_same_origin:
                yield batch
                batch = []
        batch.append(record)
    yield batch


def read_record(record: Mapping[str, Any], how: Import) -> Record:
    """Return a record with its value, checked. Raises InvalidInput."""
    if not isinstance(record, Mapping):
        raise InvalidInput("it is not an object")
    if "content" in record:
        if how.scope is None:
            raise InvalidInput("it is a message: name its owner, with a scope or --user")
        validation.message(record, Labels())
        return Record(MESSAGE, record, how.scope)
    kind = record.get("record_type")
    data = record.get("data")
    if kind not in (*IGNORED, *READERS) or not isinstance(data, Mapping):
        raise InvalidInput("it is neither an exported record nor a message with 'content'")
    if kind in HEADS and data.get("format") != FORMAT:
        raise InvalidInput(f"its format is {data.get('format')!r}, this version reads {FORMAT}")
    origin = data.get("scope")
    if kind in IGNORED:
        return Record(kind, None, how.scope, origin)
    value = READERS[kind](data)
    check_sizes(value, how)
    if isinstance(value, Memory):  # after the check: it takes long for a long text
        value = edit.reword(value, value.text)
    scope = how.scope
    if scope is None:
        if not isinstance(origin, Mapping) or set(origin) != set(_PLACE):
            raise InvalidInput(f"it needs a scope with tenant, user and space, not {origin!r:.60}")
        scope = Scope(**{name: validation.name(name, origin[name]) for name in _PLACE})
    return Record(kind, value, scope, origin)


def read_memory(data: Mapping[str, Any]) -> Memory:
    """Return a memory as it was, except what is computed from its text, its place and its uses.

    Raises InvalidInput for what no verb would have stored.
    """
    known = dict(data)
    for name in _NOT_IMPORTED:
        known.pop(name, None)
    memory = storage.load(Memory, known)
    validation.text(memory.text, len(memory.text))
    id = memory.id
    is_word = id.isprintable() and not any(map(str.isspace, id))
    if not 0 < len(id) <= _MOST_NAME or not is_word:
        raise InvalidInput(f"An id has 1 to {_MOST_NAME} characters and no blanks, not {id!r:.60}")
    for name, most in _RANGES.items():
        value = getattr(memory, name)
        if not 0 <= value <= most:  # also true for NaN
            raise InvalidInput(f"{name} must be between 0 and {most:,}, not {value!r:.60}")
    for part in memory.importance_parts.values():
        if not abs(part) <= _MOST_LABEL:
            raise InvalidInput("importance_parts must be small numbers")
    tags = tuple(map(normalize.storable, memory.tags))
    if memory.is_active:
        memory = replace(memory, superseded_by=None, purge_at=None)
    if id in (memory.superseded_by, *memory.evidence_ids):
        raise InvalidInput(f"Memory {id!r:.60} names itself as its evidence or its successor")
    metadata = validation.metadata(memory.metadata)
    text = normalize.storable(memory.text)
    return replace(memory, text=text, tags=tags, metadata=metadata)


def read_message(data: Mapping[str, Any]) -> SeenMessage:
    text = data.get("text")
    plain = {
        "id": data.get("id"),
        "role": data.get("role"),
        "name": data.get("name"),
        "session": data.get("session"),
        "at": validation.moment(data.get("at")),
        "content": "" if text is None else text,
    }
    message = storage.load(Message, plain)
    if message.id is None:
        raise InvalidInput("Not a message: it has no id")
    outcome = rows.upgrade_outcome(data.get("outcome") or {})
    return SeenMessage(
        id=message.id,
        message=message,
        outcome=storage.load(Outcome, outcome),
        digest="" if text is None else normalize.digest(text),
        keep_text=data.get("kept") is True,
    )


def read_entry(data: Mapping[str, Any]) -> HistoryEntry:
    entry = storage.load(HistoryEntry, data)
    try:
        UUID(entry.id)
    except ValueError as error:
        raise InvalidInput(f"Not a history entry: id {entry.id!r:.60} is not a UUID") from error
    merged = entry.meta.get("merged", [])
    if not isinstance(entry.meta.get("before", {}), Mapping) or not isinstance(merged, list):
        raise InvalidInput("Not a history entry: `before` must be an object of fields and values")
    if entry.event not in HISTORY_EVENTS:
        known = ", ".join(HISTORY_EVENTS)
        raise InvalidInput(f"Not a history entry: {entry.event!r:.60} is not one of {known}")
    return entry


def read_summary(data: Mapping[str, Any]) -> Summary:
    summary = storage.load(Summary, data)
    if not summary.evidence_ids:
        raise InvalidInput(
            "a long-term record must name the memories it is based on (evidence_ids)"
        )
    lists = LISTS[summary.record_type]
    for name, lines in summary.data.items():
        is_list = isinstance(lines, list | tuple)
        is_known = name in lists and is_list
        if not is_known or not all(isinstance(line, str) for line in lines):
            known = ", ".join(lists)
            raise InvalidInput(f"its lists of texts are {known}, not {name!r:.60}")
    return summary


def read_relation(data: Mapping[str, Any]) -> Relation:
    relation = storage.load(Relation, data)
    if relation.type not in (REPLACES, CONTRADICTS) or not 0 <= relation.strength <= 1:
        raise InvalidInput("A relation replaces or contradicts, with a strength from 0 to 1")
    return relation


READERS: dict[str, Callable[[Mapping[str, Any]], Value]] = {
    "memory": read_memory,
    "relation": read_relation,
    "history": read_entry,
    "message": read_message,
    "user_profile": read_summary,
    "project_memory": read_summary,
}


def check_sizes(value: object, how: Import) -> None:
    """Raise InvalidInput for texts and lists that are too long, unless they are restored."""
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
        whole = "".join(texts)
        if "\0" in whole:
            raise InvalidInput(f"{name} contains a NUL character: remove it")
        if name in _TEXTS:
            validation.size(whole, how.ctx.settings.max_text_chars)
        elif not how.restore:
            most = _MOST_SUMMARY if name == "summary" else _MOST_LABEL
            longest = max(map(len, texts), default=0)
            if len(listed) > _MOST_LISTED or longest > most:
                limits = f"at most {_MOST_LISTED:,} entries of {most:,} characters are imported"
                raise InvalidInput(f"{name} is too long: {limits}; {HOW_TO_RESTORE}")
