"""JSON in what a model wrote, and whether it fits a schema. What models write is not to be trusted in any way."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

MOST_STARTS = 50  # places in a text that are tried as the beginning of an object
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
_LARGEST = 2**53


def found(text: str) -> Any:
    """The first JSON object in a text, whatever stands around it. Raises ValueError, saying what is wrong.

    >>> found('<think>{no}</think>Sure! ```json\\n{"facts": []}\\n``` Anything else?')
    {'facts': []}
    """
    text = text.rpartition("</think>")[2]
    starts = (match.start() for match in re.finditer(r"\{", text))
    for start, _ in zip(starts, range(MOST_STARTS), strict=False):
        try:
            return _DECODER.raw_decode(text, start)[0]
        except (ValueError, RecursionError):
            continue
    raise ValueError("it holds no complete JSON object")


def problem(value: Any, schema: Mapping[str, Any], where: str = "the answer") -> str | None:
    """What is wrong with a value, in words that name places of the schema and nothing of the value.

    >>> problem({"n": "3"}, {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    'n is no integer'
    >>> problem([1, 2], {"type": "array", "maxItems": 1})
    'the answer has more than 1 items'
    """
    kinds = schema.get("type", list(_TYPES))
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if value is None and "null" in kinds:
        return None
    if not any(_is(value, kind) for kind in kinds):
        return f"{where} is no {' or '.join(kinds)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} is none of {', '.join(map(str, schema['enum']))}"
    return _size(value, schema, where) or _inside(value, schema, where)


def _is(value: Any, kind: str) -> bool:
    right = isinstance(value, _TYPES.get(kind, ())) and isinstance(value, bool) == (
        kind == "boolean"
    )
    return right and (not isinstance(value, int | float) or abs(value) <= _LARGEST)


def _size(value: Any, schema: Mapping[str, Any], where: str) -> str | None:
    if isinstance(value, str):
        if _NO_TEXT.search(value):
            return f"{where} holds characters that are no text"
        if len(value) > schema.get("maxLength", len(value)):
            return f"{where} is longer than {schema['maxLength']} characters"
    if isinstance(value, list) and len(value) > schema.get("maxItems", len(value)):
        return f"{where} has more than {schema['maxItems']} items"
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get(
        "maximum", value
    ):
        return f"{where} is out of range"
    return None


def _inside(value: Any, schema: Mapping[str, Any], where: str) -> str | None:
    parts: list[tuple[str, Any, Mapping[str, Any]]] = []
    if isinstance(value, dict):
        known: Mapping[str, Any] = schema.get("properties", {})
        if missing := [name for name in schema.get("required", ()) if name not in value]:
            return f"{where} lacks {', '.join(missing)}"
        if schema.get("additionalProperties") is False and not value.keys() <= known.keys():
            return f"{where} has other fields than {', '.join(known)}"
        parts = [(name, value[name], part) for name, part in known.items() if name in value]
    elif isinstance(value, list):
        parts = [
            (f"{where}[{place}]", each, schema.get("items", {})) for place, each in enumerate(value)
        ]
    return next(filter(None, (problem(each, part, name) for name, each, part in parts)), None)


def without(schema: Any, words: Collection[str]) -> Any:
    """A schema without some of its limits, for a server that does not know them.

    >>> without({"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 9}}, ["maxLength"])
    {'type': 'array', 'maxItems': 3, 'items': {'type': 'string'}}
    """
    if isinstance(schema, list):
        return [without(each, words) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {name: each for name, each in schema.items() if name not in words}
    return {
        name: {field: without(part, words) for field, part in each.items()}
        if name == "properties"
        else without(each, words)
        for name, each in kept.items()
    }


def is_closed(schema: Any) -> bool:
    """Whether every object in it names all its fields and needs them all, which some servers ask for."""
    if isinstance(schema, list):
        return all(map(is_closed, schema))
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object":
        fields = schema.get("properties", {})
        if schema.get("additionalProperties") is not False or set(
            schema.get("required", ())
        ) != set(fields):
            return False
        return all(map(is_closed, fields.values()))
    return is_closed(schema.get("items"))


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no number")


_DECODER = json.JSONDecoder(parse_constant=_refused)
