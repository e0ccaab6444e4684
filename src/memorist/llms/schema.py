"""Find JSON in what a model wrote, and validate it against a schema. The text is not trusted."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

MAX_STARTS = 50  # places in a text that are tried as the beginning of an object
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


def find_object(text: str) -> Any:
    """Return the first JSON object in a text, whatever surrounds it. Raises ValueError.

    >>> find_object('<think>{no}</think>Sure! ```json\\n{"facts": []}\\n``` Anything else?')
    {'facts': []}
    """

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not a number")

    text = text.rpartition("</think>")[2]
    decoder = json.JSONDecoder(parse_constant=refuse)
    start = -1
    for _ in range(MAX_STARTS):
        start = text.find("{", start + 1)
        if start < 0:
            break
        try:
            return decoder.raw_decode(text, start)[0]
        except (ValueError, RecursionError):
            continue
    raise ValueError("it holds no complete JSON object")


def problem(value: Any, schema: Mapping[str, Any], where: str = "the answer") -> str | None:
    """Return what is wrong with a value, in words that quote the schema and nothing of the value.

    >>> problem({"n": "3"}, {"type": "object", "properties": {"n": {"type": "integer"}}})
    'n is not of type integer'
    >>> problem([1, 2], {"type": "array", "maxItems": 1})
    'the answer has more than 1 items'
    """
    types = schema.get("type", list(_TYPES))
    types = [types] if isinstance(types, str) else types
    if value is None and "null" in types:
        return None
    is_number = isinstance(value, int | float)
    is_typed = any(type(value) in _TYPES.get(each, ()) for each in types)
    if not is_typed or (is_number and not abs(value) <= _LARGEST):
        return f"{where} is not of type {' or '.join(types)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} is none of {', '.join(map(str, schema['enum']))}"
    if is_number and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return f"{where} is out of range"
    inner: list[tuple[Any, Mapping[str, Any], str]] = []
    if isinstance(value, str):
        if _NO_TEXT.search(value):
            return f"{where} holds characters that are not text"
        if len(value) > schema.get("maxLength", len(value)):
            return f"{where} is longer than {schema['maxLength']} characters"
    elif isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            return f"{where} has more than {schema['maxItems']} items"
        for index, item in enumerate(value):
            inner.append((item, schema.get("items", {}), f"{where}[{index}]"))
    elif isinstance(value, dict):
        known: Mapping[str, Any] = schema.get("properties", {})
        missing = [name for name in schema.get("required", ()) if name not in value]
        if missing:
            return f"{where} lacks {', '.join(missing)}"
        if schema.get("additionalProperties") is False and not value.keys() <= known.keys():
            return f"{where} has other fields than {', '.join(known)}"
        inner = [(value[name], part, name) for name, part in known.items() if name in value]
    problems = (problem(*each) for each in inner)
    return next(filter(None, problems), None)


def without(schema: Any, keywords: Collection[str]) -> Any:
    """Return a schema without some of its keywords, for a server that does not support them.

    >>> without({"maxItems": 3, "items": {"type": "string", "maxLength": 9}}, ["maxLength"])
    {'maxItems': 3, 'items': {'type': 'string'}}
    """
    if isinstance(schema, list):
        return [without(each, keywords) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept: dict[str, Any] = {}
    for name, part in schema.items():
        if name == "properties":  # their names are not keywords
            kept[name] = {field: without(each, keywords) for field, each in part.items()}
        elif name not in keywords:
            kept[name] = without(part, keywords)
    return kept


def is_closed(schema: Any) -> bool:
    """Whether every object in it names and requires all its fields, which some servers demand."""
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") != "object":
        return is_closed(schema.get("items"))
    fields = schema.get("properties", {})
    is_exact = schema.get("additionalProperties") is False
    is_exact = is_exact and set(schema.get("required", ())) == set(fields)
    return is_exact and all(map(is_closed, fields.values()))
