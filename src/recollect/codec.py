"""Memories as plain values for files and wires, and back, checked on the way in."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from . import model
from .errors import InvalidInput
from .model import Draft, Entry, Memory, Outcome, Summary


@cache
def _adapter(name: str) -> Any:
    from pydantic import TypeAdapter  # slow to import, and only needed at the edges

    return TypeAdapter(getattr(model, name))


def dump(value: Any, *, strict: bool = False) -> dict[str, Any]:
    """A value as JSON knows it: times as ISO 8601 text, tuples as lists.

    A field of the wrong type is warned of, or raises ValueError if the value has to be as it should.
    """
    warnings = "error" if strict else "warn"
    plain: dict[str, Any] = _adapter(type(value).__name__).dump_python(value, mode="json", warnings=warnings)
    return plain


def memory(data: Mapping[str, Any]) -> Memory:
    """The memory that `dump` made plain. Raises InvalidInput, naming the field."""
    made: Memory = _load("Memory", data)
    return made


def draft(data: Mapping[str, Any]) -> Draft:
    """The draft that `dump` made plain. Raises InvalidInput."""
    made: Draft = _load("Draft", data)
    return made


def summary(data: Mapping[str, Any]) -> Summary:
    """The long-term record that `dump` made plain. Raises InvalidInput."""
    made: Summary = _load("Summary", data)
    return made


def entry(data: Mapping[str, Any]) -> Entry:
    """The line of a history that `dump` made plain. Raises InvalidInput."""
    made: Entry = _load("Entry", data)
    return made


def outcome(data: Mapping[str, Any]) -> Outcome:
    """The outcome that `dump` made plain. Raises InvalidInput."""
    made: Outcome = _load("Outcome", data)
    return made


def _load(kind: str, data: Mapping[str, Any]) -> Any:
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_python(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or kind
        raise InvalidInput(f"This is no {kind.lower()}: {where}: {first['msg']}") from error
