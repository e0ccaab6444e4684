"""Finding JSON in what a model wrote, and validating it against a schema.

The text is not trusted in any way.
"""

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
    text = text.rpartition("</think>")[2]
    start = -1
    for _ in range(MAX_STARTS):
        start = text.find("{", start + 1)
        if start < 0:
            break
        try:
            return _DECODER.raw_decode(text, start)[0]
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
    if not any(_is_of_type(value, each) for each in types):
        return f"{where} is not of type {' or '.join(types)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} is none of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, str):
        return _text_problem(value, schema, where)
    if isinstance(value, dict):
        return _object_problem(value, schema, where)
    if isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            return f"{where} has more than {schema['maxItems']} items"
        for index, item in enumerate(value):
            if wrong := problem(item, schema.get("items", {}), f"{where}[{index}]"):
                return wrong
    elif not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return f"{where} is out of range"
    return None


def _is_of_type(value: Any, kind: str) -> bool:
    if not isinstance(value, _TYPES.get(kind, ())):
        return False
    if isinstance(value, bool):
        return kind == "boolean"
    return not isinstance(value, int | float) or abs(value) <= _LARGEST


def _text_problem(value: str, schema: Mapping[str, Any], where: str) -> str | None:
    if _NO_TEXT.search(value):
        return f"{where} holds characters that are not text"
    if len(value) > schema.get("maxLength", len(value)):
        return f"{where} is longer than {schema['maxLength']} characters"
    return None


def _object_problem(value: dict[str, Any], schema: Mapping[str, Any], where: str) -> str | None:
    known: Mapping[str, Any] = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        return f"{where} lacks {', '.join(missing)}"
    if schema.get("additionalProperties") is False and not value.keys() <= known.keys():
        return f"{where} has other fields than {', '.join(known)}"
    for name, part in known.items():
        if name in value and (wrong := problem(value[name], part, name)):
            return wrong
    return None


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
    """Whether every object in it names all its fields and requires them all, which some servers
    demand.
    """
    if isinstance(schema, list):
        return all(map(is_closed, schema))
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") != "object":
        return is_closed(schema.get("items"))
    fields = schema.get("properties", {})
    if schema.get("additionalProperties") is not False:
        return False
    return set(schema.get("required", ())) == set(fields) and all(map(is_closed, fields.values()))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
