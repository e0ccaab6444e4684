"""Values as plain data for files and wires, and back, checked on the way in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ..errors import InvalidInput

Value = TypeVar("Value")


_adapters: dict[type[Any], Any] = {}


def _adapter(kind: type[Any]) -> Any:
    if kind not in _adapters:
        from pydantic import TypeAdapter  # slow to import, and only needed at the edges

        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def dump(value: Any, *, strict: bool = False) -> dict[str, Any]:
    """Return a value as JSON: times as ISO 8601 text, tuples as lists.

    A field of the wrong type is a warning, or a ValueError if `strict`.
    """
    warnings = "error" if strict else "warn"
    plain: dict[str, Any] = _adapter(type(value)).dump_python(value, mode="json", warnings=warnings)
    return plain


def load(kind: type[Value], data: Mapping[str, Any]) -> Value:
    """Return the value that `dump` was given. Raises InvalidInput, naming the field."""
    from pydantic import ValidationError

    try:
        made: Value = _adapter(kind).validate_python(data)
        return made
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or kind.__name__
        raise InvalidInput(f"Invalid {kind.__name__.lower()}: {where}: {first['msg']}") from error
