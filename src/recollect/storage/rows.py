"""Memories as rows and rows as memories: the one place that knows the order of the columns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from ..errors import StoreDamaged
from ..model import Entry, Labels, Memory, Scope
from ..ports import IndexRow
from ..text import clock, simhash

LABELS = tuple(f.name for f in fields(Labels))
_TEXTS = ("text", "summary", "steps_text", "kind", "item_type", "fact_type", "category", "procedural_form", "tier", "key")
_LISTS = ("tags", "source_ids", "evidence", "evidence_ids")
_TIMES = ("occurred_at", "valid_from", "valid_to", "created_at", "updated_at", "purge_at")
_PLAIN = (
    "sequence",
    "speaker",
    *_TEXTS,
    "importance",
    "base_importance",
    "confidence",
    "metadata_confidence",
    "evidence_text",
    "source_message_id",
    "source_session_id",
    "repeat_count",
    "content_hash",
    "state",
    "superseded_by",
    "revision",
)
_FLAGS = ("pinned", "manually_saved", "compression_source", "needs_embedding")
# Everything that says what is remembered, in this order, goes into the hash of the row.
HASHED = ("id", *LABELS, *_PLAIN, *_FLAGS, *_TIMES, *_LISTS, "importance_parts", "simhash")
USE = ("last_accessed", "access_count", "last_scores")  # changes with every recall, so it is not hashed
COLUMNS = (*HASHED, "row_hash", *USE)
INDEX_COLUMNS = (
    "row, state, session, sequence, speaker, role, channel, kind, occurred_at, created_at, valid_from, valid_to, "
    "importance, confidence, pinned, simhash, flags, terms"
)


def values(memory: Memory) -> tuple[Any, ...]:
    """A memory as the values of `COLUMNS`."""
    hashed = (
        memory.id,
        *(getattr(memory.labels, name) for name in LABELS),
        *(getattr(memory, name) for name in _PLAIN),
        *(int(getattr(memory, name)) for name in _FLAGS),
        *(_time(getattr(memory, name)) for name in _TIMES),
        *(_json(getattr(memory, name)) for name in _LISTS),
        _json(memory.importance_parts),
        simhash.to_signed(memory.simhash),
    )
    use = (_time(memory.last_accessed), memory.access_count, _json(memory.last_scores) if memory.last_scores else None)
    return (*hashed, row_hash(hashed), *use)


def memory(row: Sequence[Any], scope: Scope) -> Memory:
    """The memory that a row of `COLUMNS` holds. Raises StoreDamaged if the row is not what was written."""
    hashed = tuple(row[: len(HASHED)])
    if row_hash(hashed) != row[len(HASHED)]:
        raise StoreDamaged(f"Memory {row[0]!r} was altered on disk: restore a backup, or forget it")
    at = dict(zip(COLUMNS, row, strict=True))
    return Memory(
        id=at["id"],
        scope=scope,
        labels=Labels(**{name: at[name] for name in LABELS}),
        **{name: at[name] for name in _PLAIN},
        **{name: bool(at[name]) for name in _FLAGS},
        **{name: _parsed(at[name]) for name in _TIMES},
        **{name: tuple(_loaded(at[name])) for name in _LISTS},
        importance_parts=_loaded(at["importance_parts"]),
        simhash=simhash.to_unsigned(at["simhash"]),
        last_accessed=_parsed(at["last_accessed"]),
        access_count=at["access_count"],
        last_scores=_loaded(at["last_scores"]) if at["last_scores"] else None,
    )


def row_hash(hashed: tuple[Any, ...]) -> bytes:
    """A digest of a row's values: one flipped bit changes it."""
    return hashlib.blake2b(repr(hashed).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def index_row(row: Sequence[Any]) -> IndexRow:
    """A row of `INDEX_COLUMNS` and a vector, as the legs need it."""
    times = (_parsed(value) for value in row[8:12])
    return IndexRow(*row[:8], *times, *row[12:14], bool(row[14]), simhash.to_unsigned(row[15]), *row[16:])


def entry(row: Sequence[Any]) -> Entry:
    """A row of the history."""
    id, memory_id, event, old, new, actor, meta, at = row
    return Entry(
        id=id, memory_id=memory_id, event=event, old_ref=old, new_ref=new, actor=actor,
        meta=json.loads(meta), at=clock.parse(at),
    )  # fmt: skip


def _time(at: datetime | None) -> str | None:
    return None if at is None else clock.iso(at)


def _parsed(text: str | None) -> datetime | None:
    return None if text is None else clock.parse(text)


def _json(value: Sequence[str] | Mapping[str, Any]) -> str:
    if not value:
        return "{}" if isinstance(value, Mapping) else "[]"
    return json.dumps(value if isinstance(value, Mapping) else list(value), ensure_ascii=False, sort_keys=True)


def _loaded(text: str) -> Any:
    return () if text == "[]" else json.loads(text)
