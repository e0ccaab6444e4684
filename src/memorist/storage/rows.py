"""Convert between memories and rows. Only this module knows the order of the columns.

Also converts rows of other tables to values.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from numbers import Real
from sys import intern
from types import NoneType
from typing import Any, TypeVar

import numpy as np

from ..errors import InvalidInput, StoreDamaged
from ..ports import IndexRow
from ..text import clock, cues, tokens
from ..types import Labels, Memory, Node, Outcome, Scope
from . import Event, HistoryEntry
from .database import LogRow, Rows

Value = TypeVar("Value")
LABELS = tuple(field.name for field in fields(Labels))
_TEXTS = """speaker text summary steps_text kind item_type fact_type category procedural_form tier
    key evidence_text source_message_id source_session_id content_hash state
    superseded_by""".split()
_NUMBERS = "importance base_importance confidence metadata_confidence".split()
_INTEGERS = "sequence repeat_count revision".split()
_FLAGS = "pinned manually_saved compression_source needs_embedding".split()
_TIMES = "occurred_at valid_from valid_to created_at updated_at purge_at".split()
_LISTS = "tags source_ids evidence evidence_ids".split()
_NAMED = (*_TEXTS, *_NUMBERS, *_INTEGERS, *_FLAGS, *_TIMES, *_LISTS, "importance_parts", "simhash")
_NAMED += ("metadata", "expires_at")
_NAMED = tuple(map(intern, _NAMED))  # a call finds interned keywords much faster
# The content of a memory, in this order, goes into the hash of the row.
HASHED = ("id", *LABELS, *_NAMED)
# Columns that change with every recall are not hashed.
_USE = ("last_accessed", "access_count", "last_scores")
COLUMNS = (*HASHED, "row_hash", *_USE)
_READ = (*_NAMED, "row_hash", *_USE)
_WRITTEN = ("scope", "changed", *COLUMNS, "flags", "terms")
UPSERT = f"""INSERT INTO memories ({", ".join(_WRITTEN)})
VALUES ({", ".join("?" * len(_WRITTEN))}) ON CONFLICT (scope, id) DO UPDATE SET
{", ".join(f"{name} = excluded.{name}" for name in _WRITTEN if name not in ("id", "scope"))}"""
INSERT_VECTOR = """INSERT INTO vectors (scope, memory, model, dims, embedding)
SELECT scope, row, ?, ?, ? FROM memories WHERE scope = ? AND id = ?
ON CONFLICT (scope, memory, model)
DO UPDATE SET dims = excluded.dims, embedding = excluded.embedding"""
_FEW = 250  # rows that are parsed at once, without blocking the event loop for long
_AFTER_LABELS = 1 + len(LABELS)
# The columns that the index reads, with the types of their values.
_INDEX = """row int, state str, session str?, sequence int?, speaker str?, channel str?, kind str,
    occurred_at str?, created_at str, updated_at str, valid_from str?, valid_to str?,
    expires_at str?, importance float, confidence float, pinned int, simhash int, flags int, terms bytes"""
INDEX_COLUMNS = [each.split()[0] for each in _INDEX.split(",")]
_TYPES: dict[str, Any] = {"int": int, "str": str, "float": float, "bytes": bytes}
_TYPES |= {f"{name}?": (kind, NoneType) for name, kind in _TYPES.items()}
_INDEX_TYPES = [_TYPES[each.split()[1]] for each in _INDEX.split(",")]
_INDEX_TYPES += [_TYPES["bytes?"], _TYPES["bytes?"], _TYPES["int?"]]  # vectors, source
# Reasons of version 0.1 that name the replaced memory.
_REPLACED = re.compile(r"it (?:takes the place of|contradicts) ([^\s:]+)")
ALTERED = "A row was altered on disk: run `memorist check`, and restore a backup"

_decode = json.JSONDecoder().raw_decode  # `json.loads` would also look for spaces around the value
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def values(memory: Memory) -> tuple[Any, ...]:
    """Return a memory as the values of `COLUMNS`. Raises InvalidInput for a value that could not be
    read back unchanged."""
    hashed: list[Any] = [memory.id]
    hashed += [getattr(memory.labels, name) for name in LABELS]
    hashed += [getattr(memory, name) for name in _TEXTS]
    for name, text in zip(HASHED, hashed, strict=False):
        if text is not None and not isinstance(text, str):
            raise InvalidInput(f"{name} must be text, not {type(text).__name__}")
    for name in _NUMBERS:
        number = getattr(memory, name)
        is_number = isinstance(number, Real) and not isinstance(number, bool)
        if not is_number or not math.isfinite(number):
            raise InvalidInput(f"{name} must be a finite number, not {number!r:.60}")
        hashed.append(float(number) + 0.0)  # as the column returns it: never an int, never -0.0
    for name in _INTEGERS:
        number = getattr(memory, name)
        if isinstance(number, bool) or not isinstance(number, int | None):
            raise InvalidInput(f"{name} must be a whole number, not {number!r:.60}")
        hashed.append(number)
    hashed += [int(getattr(memory, name)) for name in _FLAGS]
    for name in _TIMES:
        at = getattr(memory, name)
        hashed.append(None if at is None else clock.iso(at))
    for name in _LISTS:
        listed = getattr(memory, name)
        hashed.append(json.dumps(list(listed), ensure_ascii=False) if listed else "[]")
    hashed.append(dump_json(memory.importance_parts))
    hashed.append(to_signed(memory.simhash))
    hashed.append(dump_json(memory.metadata) if memory.metadata else None)
    hashed.append(memory.expires_at and clock.iso(memory.expires_at))
    scores = dump_json(memory.last_scores) if memory.last_scores else None
    accessed = memory.last_accessed and clock.iso(memory.last_accessed)
    digest = row_hash(_drop_absent(hashed), memory.scope)
    return (*hashed, digest, accessed, memory.access_count, scores)


def row_values(memory: Memory, language: str) -> tuple[Any, ...]:
    """Return the values of `UPSERT` after the scope and its revision. Raises InvalidInput."""
    columns = values(memory)  # refuses what cannot be stored
    spoken = tokens.words(memory.text)
    terms = tokens.terms_of(memory, language, spoken)
    return (*columns, cues.flags_of(memory, spoken), terms)


def memory(row: Sequence[Any], scope: Scope) -> Memory:
    """Return the memory in a row of `COLUMNS`. Raises StoreDamaged if the row was altered."""
    made = dict(zip(_READ, row[_AFTER_LABELS:], strict=True))
    if row_hash(_drop_absent(row[: len(HASHED)]), scope) != made.pop("row_hash"):
        raise StoreDamaged(f"Memory {row[0]!r} was altered on disk: restore a backup, or forget it")
    for name in _FLAGS:
        made[name] = bool(made[name])
    for name in (*_TIMES, "expires_at", "last_accessed"):
        if made[name] is not None:
            made[name] = parse_time(made[name])
    for name in _LISTS:
        made[name] = tuple(load_json(made[name]))
    if row[0] in made["evidence_ids"]:  # versions before 0.2 stored it as its own evidence
        made["evidence_ids"] = tuple(id for id in made["evidence_ids"] if id != row[0])
    made["metadata"] = load_json(made["metadata"]) if made["metadata"] else {}
    made["importance_parts"] = load_json(made["importance_parts"])
    made["simhash"] = to_unsigned(made["simhash"])
    made["last_scores"] = load_json(made["last_scores"]) if made["last_scores"] else None
    return Memory(
        id=row[0],
        scope=scope,
        labels=Labels(*row[1:_AFTER_LABELS]),
        **made,
    )


async def memories(found: Rows, scope: Scope) -> dict[int, Memory]:
    """Return the memories in rows of a number and `COLUMNS`; many are parsed in a thread."""

    def parse() -> dict[int, Memory]:
        return {row[0]: memory(row[1:], scope) for row in found}

    return parse() if len(found) <= _FEW else await asyncio.to_thread(parse)


def _drop_absent(hashed: Sequence[Any]) -> tuple[Any, ...]:
    """Return what is hashed: without the columns of version 0.3 if they are empty, so that the
    hashes of earlier versions stay valid."""
    count = len(hashed)
    while hashed[count - 1] is None:
        count -= 1
    return tuple(hashed[:count])


def to_signed(value: int) -> int:
    """Return the fingerprint as the signed 64-bit number that a database stores.

    >>> to_signed(2**64 - 1), to_signed(5)
    (-1, 5)
    """
    return value - (1 << 64) if value >= 1 << 63 else value


def to_unsigned(value: int) -> int:
    """Return the fingerprint that a database stored as a signed number.

    >>> to_unsigned(-1) == 2**64 - 1, to_unsigned(5)
    (True, 5)
    """
    return value % (1 << 64)


def row_hash(hashed: tuple[Any, ...], scope: Scope) -> bytes:
    """Return a digest of a row's values and its scope; any flipped bit changes it."""
    whole = (scope.tenant, scope.user, scope.space, *hashed)
    data = repr(whole).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=16).digest()


def index_row(row: Sequence[Any]) -> IndexRow:
    """Return `INDEX_COLUMNS`, two vectors and a source as a value. Raises StoreDamaged."""
    is_typed = all(map(isinstance, row, _INDEX_TYPES))
    if not is_typed or not 0 <= row[17] < 2**31 or len(row[18]) % 5:
        raise StoreDamaged(ALTERED)
    times: list[int | None] = []
    try:
        for at in row[7:13]:
            micros = None
            if at is not None:
                micros = (datetime.fromisoformat(at) - _EPOCH) // _MICROSECOND
            times.append(micros)
    except (ValueError, TypeError) as error:
        raise StoreDamaged(ALTERED) from error
    pinned = bool(row[15])
    simhash = to_unsigned(row[16])
    made = [*row[:7], *times, *row[13:15], pinned, simhash, *row[17:]]
    return IndexRow._make(made)


def parse(kind: Callable[..., Value], row: Sequence[Any]) -> Value:
    """Return a row as a value whose fields are in the order of its columns. Times and JSON are
    parsed according to the type of the field. Raises StoreDamaged."""
    made = {}
    for field, value in zip(fields(kind), row, strict=True):  # type: ignore[arg-type]
        type_name = re.split(r"\W", str(field.type))[0]
        read = _READERS.get(type_name)
        made[field.name] = value if read is None or value is None else read(value)
    return kind(**made)


def parse_all(kind: Callable[..., Value], found: Iterable[Sequence[Any]]) -> list[Value]:
    """Return rows as values, see `parse`."""
    return [parse(kind, row) for row in found]


def vector_row(model: str | None, vector: Any, number: int, memory_id: str) -> tuple[Any, ...]:
    """Return the values of `INSERT_VECTOR`."""
    numbers = np.asarray(vector, "<f4")
    return (model, len(numbers), numbers, number, memory_id)


def event_row(number: int, user: str, event: Event) -> LogRow:
    """Return an event as a row of the log."""
    logged = _fields_of(event)
    logged["at"] = clock.iso(event.at)
    return LogRow(scope=number, user=user, event_id=clock.new_id(), **logged)


def entry_row(number: int, entry: HistoryEntry) -> LogRow:
    """Return a history entry as a row of the log."""
    logged = _fields_of(entry)
    logged["at"] = clock.iso(entry.at)
    logged["meta"] = dump_json(entry.meta)
    return LogRow(scope=number, **logged)


def _fields_of(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def node_of(kind: str) -> Node:
    """Return the node that writes memories of a kind."""
    return "episodic" if kind == "episodic" else "hotpath"


def scope_of(row: Sequence[Any]) -> Scope:
    """Return the scope in the first three columns of a row."""
    tenant, user, space = row[:3]
    return Scope(tenant=tenant, user=user, space=space)


def load_json(text: str) -> Any:
    """Return the value of a JSON column. Raises StoreDamaged."""
    if text == "[]":
        return ()
    try:
        value, end = _decode(text)
        if end < len(text):
            raise ValueError(text)
    except (ValueError, TypeError) as error:
        raise StoreDamaged(ALTERED) from error
    return value


def parse_time(text: str) -> datetime:
    """Return the value of a time column. Raises StoreDamaged."""
    try:
        at = datetime.fromisoformat(text)
        return at if at.tzinfo is UTC else clock.utc(at)
    except (ValueError, TypeError) as error:
        raise StoreDamaged(ALTERED) from error


def dump_json(value: Mapping[str, Any]) -> str:
    """Return a mapping as JSON with sorted keys."""
    return json.dumps(dict(value), ensure_ascii=False, sort_keys=True)


def seal(secret: bytes, meta: str) -> str:
    """Return a keyed digest of JSON that does not depend on how an engine formats it."""
    value = json.loads(meta, parse_int=float)
    return keyed_digest(secret, json.dumps(value, sort_keys=True))


def keyed_digest(secret: bytes, text: str) -> str:
    """Return a digest that can only be computed with the key of the database."""
    plain = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(plain, key=secret[:64], digest_size=16).hexdigest()


def dump_outcome(outcome: Outcome) -> str:
    """Return an outcome as the JSON that is stored with its message."""
    kept: list[Any] = [outcome.status, list(outcome.ids), outcome.reason]
    if outcome.supersedes is not None:
        kept.append(outcome.supersedes)
    return json.dumps(kept, ensure_ascii=False)


def load_outcome(text: str, message_id: str) -> Outcome:
    """Return the outcome that is stored with a message. Raises StoreDamaged."""
    found = load_json(text)
    if not (isinstance(found, list) and len(found) in (3, 4)):
        raise StoreDamaged(ALTERED)
    plain = dict(zip(("status", "ids", "reason", "supersedes"), found, strict=False))
    plain["ids"] = tuple(plain["ids"])
    return Outcome(message_id=message_id, **upgrade_outcome(plain))


def upgrade_outcome(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an outcome, converted if version 0.1 wrote it.

    >>> old = {"status": "superseded", "reason": "it takes the place of m1"}
    >>> upgrade_outcome(old)["supersedes"]
    'm1'
    """
    fields = dict(plain)
    if fields.get("status") == "conflicting":
        fields["status"] = "conflict"
    if fields.get("status") == "superseded":
        replaced = _REPLACED.search(str(fields.get("reason", "")))
        fields |= {"status": "created", "supersedes": replaced[1] if replaced else None}
    return fields


_READERS: dict[str, Callable[[str], Any]] = {
    "datetime": parse_time,
    "Mapping": load_json,
    "tuple": lambda text: tuple(load_json(text)),
}


def read_cursor(cursor: str | None) -> int:
    """Return the row before which a page begins. Raises InvalidInput."""
    if not cursor:
        return 2**62
    if not re.fullmatch(r"r\d{1,18}", str(cursor)):
        raise InvalidInput(f"{cursor!r} is not a cursor: pass the previous page's cursor")
    return int(cursor[1:])
