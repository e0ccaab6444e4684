"""Convert filters to SQL conditions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from itertools import chain
from typing import Any

from ..errors import InvalidInput
from ..text import clock
from ..types import Filter
from .database import Dialect, JsonPath, Query
from .rows import LABELS

DERIVED_FROM = """(EXISTS (SELECT 1 FROM {evidence_ids} WHERE value IN ({in})) OR
EXISTS (SELECT 1 FROM {source_ids} WHERE value IN ({in})))"""
# Earlier versions are hidden and restored together with their memory, and not listed beside it.
NOT_CARRIED = """AND NOT (m.state = 'soft_deleted' AND m.superseded_by IS NOT NULL AND EXISTS (
SELECT 1 FROM memories newer WHERE newer.scope = m.scope AND newer.id = m.superseded_by
AND newer.state = 'soft_deleted'))"""
# SQLite has no `right`, and PostgreSQL no negative positions.
_BEGINS_OR_ENDS = """(substr(id, 1, length(CAST(? AS TEXT))) = ? OR
substr(id, length(id) - length(CAST(? AS TEXT)) + 1) = ?)"""
# SQL conditions by field of a filter; {in} stands for the values, other fields for the dialect.
_CONDITIONS = {
    "ids": "id IN ({in})",
    "id_part": _BEGINS_OR_ENDS,
    "kinds": "kind IN ({in})",
    "states": "state IN ({in})",
    "item_types": "item_type IN ({in})",
    "subjects": "subject IN ({in})",
    "categories": "{category} IN ({in})",
    **{name: f"{name} = ?" for name in LABELS},
    "pinned": "pinned = ?",
    "manually_saved": "manually_saved = ?",
    "needs_embedding": "needs_embedding = ?",
    "compression_source": "compression_source = ?",
    "speaker": "speaker = ?",
    "procedural_form": "procedural_form = ?",
    "content_hash": "content_hash = ?",
    "versions_of": "superseded_by = ?",
    "importance_min": "importance >= ?",
    "importance_max": "importance <= ?",
    "created_after": "created_at >= ?",
    "created_before": "created_at < ?",
    "updated_after": "updated_at >= ?",
    "updated_before": "updated_at < ?",
    "occurred_after": "occurred_at >= ?",
    "occurred_before": "occurred_at < ?",
    "used_before": "updated_at < ? AND coalesce(last_accessed, updated_at) < ?",
    "purge_before": "purge_at < ?",
    "expired_by": "expires_at <= ?",
    "unexpired_at": "(expires_at IS NULL OR expires_at > ?)",
    "tags": "(EXISTS (SELECT 1 FROM {tags} WHERE {value} IN ({in})))",
    "derived_from": DERIVED_FROM,
    "source_id": "(EXISTS (SELECT 1 FROM {source_ids} WHERE value IN ({in})))",
}
_FEW = 500
_COMPARISONS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
OPERATORS = {"eq", "ne", "in", "nin", "exists", *_COMPARISONS}  # each may begin with "$"
_UNQUOTABLE = re.compile(r'["\\\x00-\x1f]')  # not part of a path in SQLite
_DEEPEST = 20  # levels of metadata
_MOST_LISTED = 500


def condition(where: Filter, dialect: Dialect) -> tuple[str, list[Any]]:
    """Return a filter as a condition and its values; an empty filter is always true.

    >>> from .sqlite import DIALECT
    >>> condition(Filter(kinds=("semantic",), pinned=True), DIALECT)
    ('kind IN (?) AND state IN (?) AND pinned = ?', ['semantic', 'active', 1])
    """
    words = {name: dialect.each.format(name) for name in ("tags", "evidence_ids", "source_ids")}
    words |= {name: dialect.lower.format(name) for name in ("category", "value")}
    clauses: list[str] = []
    given: list[Any] = []
    for name, clause in _CONDITIONS.items():
        source = where.labels if name in LABELS else where
        value = getattr(source, name)
        if isinstance(value, datetime):
            value = clock.iso(value)
        elif isinstance(value, bool):
            value = int(value)
        elif name in ("categories", "tags"):
            value = [each.lower() for each in value]
        wanted = list(value) if isinstance(value, tuple | list) else [value]
        if not wanted or value is None:
            continue
        if len(wanted) > _FEW:  # a statement takes at most 32,766 values
            wanted = [json.dumps(wanted)]
            words["in"] = f"SELECT value FROM {dialect.each.format('?')}"
        else:
            words["in"] = ", ".join("?" * len(wanted))
        clauses.append(clause.format(**words))
        given += wanted * max(clause.count("{in}"), clause.count("?"))
    for path, operator, value in metadata_terms(where.metadata):
        clause, values = match_metadata(path, operator, value, dialect)
        clauses.append(clause)
        given += values
    for form, others in (
        ("({})", where.any_of),
        ("({}) IS NOT TRUE", where.none_of),
        *(("{}", (each,)) for each in where.all_of),
    ):
        parts = []
        for other in others:
            part, values = condition(replace(other, states=()), dialect)
            parts.append(f"({part})")
            given += values
        if parts:
            clauses.append(form.format(" OR ".join(parts)))
    return " AND ".join(clauses) or "1 = 1", given


def metadata_terms(
    where: Mapping[str, Any], above: JsonPath = ()
) -> Iterator[tuple[JsonPath, str, Any]]:
    """Yield the conditions on metadata as path, operator and value. Raises InvalidInput.

    >>> list(metadata_terms({"user.level": {"gte": 3}, "topic": "home"}))
    [(('user', 'level'), 'gte', 3), (('topic',), 'eq', 'home')]
    """
    for key, wanted in where.items():
        path = (*above, *str(key).split("."))
        if any(_UNQUOTABLE.search(name) or not name for name in path) or len(path) > _DEEPEST:
            raise InvalidInput(f"{key!r:.60} cannot be filtered by: name a key of the metadata")
        if not isinstance(wanted, Mapping):
            is_list = isinstance(wanted, list | tuple | set | frozenset)
            wanted = {"in" if is_list else "eq": wanted}
        named = {str(name).removeprefix("$"): value for name, value in wanted.items()}
        if not named or not OPERATORS.issuperset(named):
            if not wanted or any(str(name).startswith("$") for name in wanted):
                known = ", ".join(sorted(OPERATORS))
                raise InvalidInput(f"The condition on {key!r:.60} needs one of {known}")
            yield from metadata_terms(wanted, path)
            continue
        for operator, value in named.items():
            _check_operand(path, operator, value)
            yield path, operator, value


def _check_operand(path: JsonPath, operator: str, value: Any) -> None:
    """Raise InvalidInput if an operator cannot be used with a value."""
    wanted = "text, a number, True, False or None"
    is_number = isinstance(value, int | float) and math.isfinite(value)
    is_valid = value is None or isinstance(value, str) or is_number
    if operator in ("in", "nin"):
        wanted = f"a list of at most {_MOST_LISTED} values"
        is_valid = isinstance(value, list | tuple | set | frozenset) and len(value) <= _MOST_LISTED
        for each in value if is_valid else ():
            _check_operand(path, "eq", each)
    elif operator == "exists":
        wanted = "True or False"
        is_valid = isinstance(value, bool)
    elif operator in _COMPARISONS:
        wanted = "text or a number"
        is_valid = is_valid and not isinstance(value, bool | None)
    if not is_valid:
        raise InvalidInput(
            f"{operator!r} of {'.'.join(path)!r:.60} takes {wanted}, not {value!r:.60}"
        )


def match_metadata(path: JsonPath, operator: str, value: Any, dialect: Dialect) -> Query:
    """Return the condition that metadata has such a value, and the values of its question marks.

    A list in the metadata matches if one of its members does. What is missing equals None.
    """
    if operator in ("eq", "ne"):
        value = [value]
    elif operator in _COMPARISONS:
        return dialect.match(path, _COMPARISONS[operator], [value])
    parts: list[Query] = []
    is_absent = operator == "exists" and not value
    if operator == "exists":
        parts.append(dialect.match(path, "exists", []))
    else:
        known = [each for each in value if each is not None]
        parts += [dialect.match(path, "=", known)] if known else []
        if len(known) < len(value):
            sql, given = dialect.match(path, "exists", [])
            parts.append((f"({sql}) IS NOT TRUE", given))
    sql = " OR ".join(f"({part})" for part, _ in parts) or "1 = 0"
    given = list(chain.from_iterable(each for _, each in parts))
    if operator in ("ne", "nin") or is_absent:
        return f"({sql}) IS NOT TRUE", given
    return f"({sql})", given
