"""Memories as rows and rows as memories: the only module that knows the order of the columns."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from numbers import Real
from types import NoneType
from typing import Any

from ..errors import InvalidInput, StoreDamaged
from ..ports import IndexRow
from ..text import clock, normalize
from ..types import Labels, Memory, Outcome, Scope

LABELS = tuple(f.name for f in fields(Labels))
_TEXTS = (
    "speaker",
    "text",
    "summary",
    "steps_text",
    "kind",
    "item_type",
    "fact_type",
    "category",
    "procedural_form",
    "tier",
    "key",
    "evidence_text",
    "source_message_id",
    "source_session_id",
    "content_hash",
    "state",
    "superseded_by",
)
_NUMBERS = ("importance", "base_importance", "confidence", "metadata_confidence")
_WHOLE = ("sequence", "repeat_count", "revision")
_FLAGS = ("pinned", "manually_saved", "compression_source", "needs_embedding")
_TIMES = ("occurred_at", "valid_from", "valid_to", "created_at", "updated_at", "purge_at")
_LISTS = ("tags", "source_ids", "evidence", "evidence_ids")
# Everything that says what is remembered, in this order, goes into the hash of the row.
HASHED = (
    "id",
    *LABELS,
    *_TEXTS,
    *_NUMBERS,
    *_WHOLE,
    *_FLAGS,
    *_TIMES,
    *_LISTS,
    "importance_parts",
    "simhash",
)
USE = (
    "last_accessed",
    "access_count",
    "last_scores",
)  # changes with every recall, so it is not hashed
COLUMNS = (*HASHED, "row_hash", *USE)
_AFTER_LABELS = 1 + len(LABELS)
_NAMED = (
    *HASHED[_AFTER_LABELS:],
    *USE,
)  # the fields of a memory that a row holds under their own names
_FLAG_PLACES, _LIST_PLACES = (tuple(map(COLUMNS.index, names)) for names in (_FLAGS, _LISTS))
_TIME_PLACES = tuple(map(COLUMNS.index, (*_TIMES, "last_accessed")))
_PARTS, _SIMHASH, _SCORES = map(COLUMNS.index, ("importance_parts", "simhash", "last_scores"))
INDEX_COLUMNS = (
    "row, state, session, sequence, speaker, channel, kind, occurred_at, created_at, updated_at, "
    "valid_from, valid_to, "
    "importance, confidence, pinned, simhash, flags, terms"
)
_WORD, _BLOB = (str, NoneType), (bytes, NoneType)
_INDEX_TYPES: tuple[Any, ...] = (
    int,
    str,
    _WORD,
    (int, NoneType),
    _WORD,
    _WORD,
    str,
    _WORD,
    str,
    str,
    _WORD,
    _WORD,
    float,
    float,
    int,
    int,
    int,
    bytes,
    _BLOB,
)
# How the reason of an outcome named the replaced memory in version 0.1.
_REPLACED = re.compile(r"it (?:takes the place of|contradicts) ([^\s:]+)")
ALTERED = "A row was altered on disk: run `memorist check`, and restore a backup"


def values(memory: Memory) -> tuple[Any, ...]:
    """Return a memory as the values of `COLUMNS`. Raises InvalidInput for a value that would not
    come back equal."""
    hashed = (
        _text("id", memory.id),
        *(_text(name, getattr(memory.labels, name)) for name in LABELS),
        *(_text(name, getattr(memory, name)) for name in _TEXTS),
        *(_number(name, getattr(memory, name)) for name in _NUMBERS),
        *(_whole(name, getattr(memory, name)) for name in _WHOLE),
        *(int(getattr(memory, name)) for name in _FLAGS),
        *(_time(getattr(memory, name)) for name in _TIMES),
        *(_json(getattr(memory, name)) for name in _LISTS),
        _json(memory.importance_parts),
        normalize.to_signed(memory.simhash),
    )
    use = (
        _time(memory.last_accessed),
        memory.access_count,
        _json(memory.last_scores) if memory.last_scores else None,
    )
    return (*hashed, row_hash(hashed, memory.scope), *use)


def memory(row: Sequence[Any], scope: Scope) -> Memory:
    """Return the memory in a row of `COLUMNS`. Raises StoreDamaged if the row was altered."""
    hashed = tuple(row[: len(HASHED)])
    if row_hash(hashed, scope) != row[len(HASHED)]:
        raise StoreDamaged(f"Memory {row[0]!r} was altered on disk: restore a backup, or forget it")
    made = list(row)
    for i in _FLAG_PLACES:
        made[i] = bool(made[i])
    for i in _TIME_PLACES:
        made[i] = _parsed(made[i])
    for i in _LIST_PLACES:
        made[i] = tuple(loaded(made[i]))
    made[_PARTS] = loaded(made[_PARTS])
    made[_SIMHASH] = normalize.to_unsigned(made[_SIMHASH])
    made[_SCORES] = loaded(made[_SCORES]) if made[_SCORES] else None
    fields = dict(
        zip(_NAMED, (*made[_AFTER_LABELS : len(HASHED)], *made[len(HASHED) + 1 :]), strict=True)
    )
    return Memory(id=made[0], scope=scope, labels=Labels(*made[1:_AFTER_LABELS]), **fields)


def row_hash(hashed: tuple[Any, ...], scope: Scope) -> bytes:
    """Return a digest of a row's values and of its scope: one flipped bit changes it."""
    whole = (scope.tenant, scope.user, scope.space, *hashed)
    return hashlib.blake2b(repr(whole).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def index_row(row: Sequence[Any]) -> IndexRow:
    """Return a row of `INDEX_COLUMNS` and a vector. Raises StoreDamaged."""
    if not (
        all(map(isinstance, row, _INDEX_TYPES)) and 0 <= row[16] < 256 and len(row[17]) % 5 == 0
    ):
        raise StoreDamaged(ALTERED)
    made: list[Any] = [
        *row[:7],
        *map(_micros, row[7:12]),
        *row[12:14],
        bool(row[14]),
        normalize.to_unsigned(row[15]),
    ]
    return IndexRow(*made, *row[16:])


def _micros(text: str | None) -> int | None:
    try:
        return None if text is None else clock.micros_of(text)
    except ValueError as error:
        raise StoreDamaged(ALTERED) from error


def loaded(text: str) -> Any:
    """Return the value of a JSON column. Raises StoreDamaged."""
    try:
        return () if text == "[]" else json.loads(text)
    except (ValueError, TypeError) as error:
        raise StoreDamaged(ALTERED) from error


def dump_outcome(outcome: Outcome) -> str:
    """Return what the column of a message keeps of its outcome."""
    kept: list[Any] = [outcome.status, list(outcome.ids), outcome.reason]
    if outcome.supersedes is not None:
        kept.append(outcome.supersedes)
    return json.dumps(kept, ensure_ascii=False)


def load_outcome(text: str, message_id: str) -> Outcome:
    """Return the outcome that the column of a message holds. Raises StoreDamaged."""
    found = loaded(text)
    if not (isinstance(found, list) and len(found) in (3, 4)):
        raise StoreDamaged(ALTERED)
    status, ids, reason, *supersedes = found
    plain = {"status": status, "ids": tuple(ids), "reason": reason}
    if supersedes:
        plain["supersedes"] = supersedes[0]
    return Outcome(message_id=message_id, **upgrade_outcome(plain))


def upgrade_outcome(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an outcome, where version 0.1 wrote it, by their new names.

    >>> upgrade_outcome({"status": "superseded", "reason": "it takes the place of m1"})["supersedes"]
    'm1'
    """
    fields = dict(plain)
    if fields.get("status") == "conflicting":
        fields["status"] = "conflict"
    if fields.get("status") == "superseded":
        replaced = _REPLACED.search(str(fields.get("reason", "")))
        fields |= {"status": "created", "supersedes": replaced[1] if replaced else None}
    return fields


def moment(text: str) -> datetime:
    """Return the value of a column of times. Raises StoreDamaged."""
    try:
        return clock.parse(text)
    except (ValueError, TypeError) as error:
        raise StoreDamaged(ALTERED) from error


def _text(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"{name} is text, not {type(value).__name__}")
    return value


def _number(name: str, value: object) -> float:
    """Return the number as a column of reals returns it: never an int, never -0.0."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise InvalidInput(f"{name} is a finite number, not {value!r:.60}")
    return float(value) + 0.0


def _whole(name: str, value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | None):
        raise InvalidInput(f"{name} is a whole number, not {value!r:.60}")
    return value


def _time(at: datetime | None) -> str | None:
    return None if at is None else clock.iso(at)


def _parsed(text: str | None) -> datetime | None:
    return None if text is None else moment(text)


def _json(value: Sequence[str] | Mapping[str, Any]) -> str:
    if not value:
        return "{}" if isinstance(value, Mapping) else "[]"
    return json.dumps(
        value if isinstance(value, Mapping) else list(value), ensure_ascii=False, sort_keys=True
    )
