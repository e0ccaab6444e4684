"""What a memory held before a change, field by field, as plain values that the history can keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from ..types import Memory
from . import clock

# What a memory is or holds; the rest is where it stands and how often it was used or changed.
_ASIDE = {"id", "scope", "labels", "updated_at", "revision", "needs_embedding"}
_USE = {"last_accessed", "access_count", "last_scores"}
CONTENT = tuple(each.name for each in fields(Memory) if each.name not in _ASIDE | _USE)
_TIMES = tuple(name for name in CONTENT if name.endswith("_at") or name.startswith("valid_"))
_LISTS = ("tags", "source_ids", "evidence", "evidence_ids")


def difference(old: Memory, new: Memory) -> dict[str, Any]:
    """What the old one holds that the new one does not, as plain values by field."""
    changed = (name for name in CONTENT if getattr(old, name) != getattr(new, name))
    return {name: field(old, name) for name in changed}


def field(of: Memory, name: str) -> Any:
    """One field of a memory as JSON knows it."""
    value = getattr(of, name)
    if isinstance(value, datetime):
        return clock.iso(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if name in _LISTS else value


def with_fields(of: Memory, plain: Mapping[str, Any]) -> Memory:
    """The memory with other values in some of its fields, as `difference` gave them."""
    made = dict(plain)
    made |= {name: clock.parse(made[name]) for name in _TIMES if made.get(name) is not None}
    made |= {name: tuple(made[name]) for name in _LISTS if name in made}
    return replace(of, **made)
