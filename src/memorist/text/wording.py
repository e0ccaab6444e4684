"""Plain wording for what is wrong with a value, in place of the messages of pydantic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# By the type of the error; `{…}` refers to its context.
_PLAIN = {
    "missing": "Is required",
    "extra_forbidden": "Is not known here: check the name",
    "unexpected_keyword_argument": "Is not known here: check the name",
    "literal_error": "Must be {expected}",
    "greater_than_equal": "Must be at least {ge}",
    "greater_than": "Must be more than {gt}",
    "less_than_equal": "Must be at most {le}",
    "less_than": "Must be less than {lt}",
    "string_too_short": "Must have at least {min_length} characters",
    "string_too_long": "Must have at most {max_length} characters",
    "too_short": "Must have at least {min_length} entries",
    "too_long": "Must have at most {max_length} entries",
    "finite_number": "Must be a finite number",
    "json_invalid": "Is not valid JSON: {error}",
}
_OF_TYPE = {
    "int": "Must be a whole number",
    "float": "Must be a number",
    "bool": "Must be true or false",
    "string": "Must be text",
    "list": "Must be a list",
    "dict": "Must be an object",
    "model": "Must be an object",
    "datetime": "Must be a time, such as 2026-05-08T13:56:00Z",
}


def explain(error: Mapping[str, Any]) -> str:
    """Return what is wrong, given an error as pydantic describes it.

    >>> explain({"type": "int_parsing", "msg": "Input should be a valid integer, unable to parse"})
    'Must be a whole number'
    >>> explain({"type": "less_than_equal", "msg": "Input should be …", "ctx": {"le": 5}})
    'Must be at most 5'
    >>> explain({"type": "value_error", "msg": "Value error, name a field"})
    'Name a field'
    """
    kind = str(error["type"])
    plain = _PLAIN.get(kind) or _OF_TYPE.get(kind.partition("_")[0])
    if plain is None:
        plain = str(error["msg"]).removeprefix("Value error, ")
        return plain[:1].upper() + plain[1:]
    context = error.get("ctx", {})
    try:
        return plain.format_map(context)
    except KeyError:
        return str(error["msg"])
