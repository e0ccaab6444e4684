"""A filter as a condition in SQL, applied where the rows are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from ..text import clock
from ..types import Filter
from .database import Dialect
from .rows import LABELS

_SETS = (
    ("ids", "id"),
    ("kinds", "kind"),
    ("states", "state"),
    ("item_types", "item_type"),
    ("subjects", "subject"),
)
_EQUAL = (
    "pinned",
    "manually_saved",
    "needs_embedding",
    "compression_source",
    "speaker",
    "procedural_form",
    "content_hash",
)
_TIMES = ("created", "updated", "occurred")
_FEW = 500
Value = TypeVar("Value")


def condition(where: Filter, dialect: Dialect) -> tuple[str, list[Any]]:
    """The condition and its values; it always holds for an empty filter.

    >>> from .sqlite.connection import DIALECT
    >>> condition(Filter(kinds=("semantic",), pinned=True), DIALECT)
    ('kind IN (?) AND state IN (?) AND pinned = ?', ['semantic', 'active', 1])
    """
    parts: list[tuple[str, Sequence[Any]]] = []
    for name, column in _SETS:
        parts += _among(column, getattr(where, name), dialect)
    parts += _among(
        dialect.lower.format("category"), [c.lower() for c in where.categories], dialect
    )
    parts += [
        (f"{name} = ?", [_plain(v)]) for name in _EQUAL if (v := getattr(where, name)) is not None
    ]
    parts += [
        (f"{name} = ?", [v]) for name in LABELS if (v := getattr(where.labels, name)) is not None
    ]
    parts += _ranges(where)
    if where.tags:
        lower = dialect.lower.format("value")
        parts.append(
            (_in_json("tags", lower, len(where.tags), dialect), [tag.lower() for tag in where.tags])
        )
    if where.versions_of is not None:
        parts.append(("superseded_by = ?", [where.versions_of]))
    if where.derived_from:
        n = len(where.derived_from)
        lists = (_in_json(column, "value", n, dialect) for column in ("evidence_ids", "source_ids"))
        parts.append((f"({' OR '.join(lists)})", where.derived_from * 2))
    if where.source_id is not None:
        parts.append((_in_json("source_ids", "value", 1, dialect), [where.source_id]))
    return " AND ".join(sql for sql, _ in parts) or "1 = 1", [
        value for _, values in parts for value in values
    ]


def _among(column: str, values: Sequence[Any], dialect: Dialect) -> list[tuple[str, Sequence[Any]]]:
    if len(values) > _FEW:  # a statement takes 32,766 values and no more
        return [
            (
                f"{column} IN (SELECT value FROM {dialect.each.format('?')})",
                [json.dumps(list(values))],
            )
        ]
    return [(f"{column} IN ({placeholders(len(values))})", values)] if values else []


def _ranges(where: Filter) -> list[tuple[str, Sequence[Any]]]:
    bounds: list[tuple[str, Any]] = [("importance >= ?", where.importance_min)]
    bounds += [("importance <= ?", where.importance_max)]
    for name in _TIMES:
        for sign, end in ((">=", "after"), ("<", "before")):
            at = getattr(where, f"{name}_{end}")
            bounds.append((f"{name}_at {sign} ?", None if at is None else clock.iso(at)))
    used, purge = (
        None if at is None else clock.iso(at) for at in (where.used_before, where.purge_before)
    )
    bounds += [
        ("updated_at < ?", used),
        ("coalesce(last_accessed, updated_at) < ?", used),
        ("purge_at < ?", purge),
    ]
    return [(sql, [value]) for sql, value in bounds if value is not None]


def _in_json(column: str, value: str, n: int, dialect: Dialect) -> str:
    members = dialect.each.format(column)
    return f"EXISTS (SELECT 1 FROM {members} WHERE {value} IN ({placeholders(n)}))"


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def placeholders(n: int, each: str = "?") -> str:
    """Return a list of placeholders for an IN or VALUES clause.

    >>> placeholders(2)
    '?, ?'
    """
    return ", ".join([each] * n)


def portions(values: Sequence[Value], size: int = 500) -> list[Sequence[Value]]:
    """Split values into portions that one statement can take.

    >>> portions("abc", 2)
    ['ab', 'c']
    """
    return [values[start : start + size] for start in range(0, len(values), size)]
