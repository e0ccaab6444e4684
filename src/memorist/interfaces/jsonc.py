"""JSON with comments and trailing commas, as editors keep their settings, changed in place.

Only the members that change are written anew: the rest of the text stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from typing import NamedTuple

from . import Json

# A string, or a comment, without an end takes the rest, so that it is read only once.
_STRING = r'("[^"\\]*(?:\\.[^"\\]*)*"?|/\*(?!.*?\*/).*)'
_COMMENT = re.compile(rf"(?s){_STRING}|//[^\n]*|/\*.*?\*/")
_LAST_COMMA = re.compile(rf"(?s){_STRING}|,(?=\s*[}}\]])")
_BLANKS = re.compile(r"[ \t\r\n]*")
_decode = json.JSONDecoder().raw_decode


class _Place(NamedTuple):
    """Where a member of an object is in a text."""

    start: int
    value: int
    end: int


def edit_section(text: str, section: str, edit: Callable[[Json], None]) -> str:
    """Return a text of JSON after a function has changed the object of a section.

    Raises ValueError if it is not an object, or if the text cannot be changed without a loss.
    """
    data = json.loads(_to_plain(text) if text.strip() else "{}")
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    values = data.setdefault(section, {})
    if not isinstance(values, dict):
        raise ValueError(f"{section} is not an object")
    before = deepcopy(values)
    edit(values)
    if values == before:
        return text
    if not text.strip():
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    root, _ = _find_members(text, _root(text))
    result = text
    if section not in root:
        result = _set(text, _root(text), section, values, depth=1)
    else:
        for name in {**before, **values}:
            start = _find_members(result, _root(result))[0][section].value
            if name not in values:
                result = _remove(result, start, name)
            elif name not in before or values[name] != before[name]:
                result = _set(result, start, name, values[name], depth=2)
    if json.loads(_to_plain(result)) != data or _comments(result) != _comments(text):
        raise ValueError("comments or other settings in it would be lost")
    return result


def _set(text: str, start: int, name: str, value: object, *, depth: int) -> str:
    """Return the text with a member of the object at `start` replaced, or added at its end."""
    newline = "\r\n" if "\r\n" in text else "\n"
    unit = _indentation(text)
    written = json.dumps(value, indent=unit, ensure_ascii=False)
    written = written.replace("\n", newline + unit * depth)
    members, end = _find_members(text, start)
    if name in members:
        member = members[name]
        return text[: member.value] + written + text[member.end :]
    before = text[:end].rstrip()
    after = text[len(before) :]
    if "\n" not in text[len(before) : end]:  # the bracket gets a line of its own
        after = newline + unit * (depth - 1) + text[end:]
    comma = ""
    if members:
        last = max(member.end for member in members.values())
        if "," in _without_comments(text)[last:end]:
            comma = ","  # as the file has it
        else:
            before = before[:last] + "," + before[last:]
    return f"{before}{newline}{unit * depth}{json.dumps(name)}: {written}{comma}{after}"


def _remove(text: str, start: int, name: str) -> str:
    """Return the text without a member of the object at `start`, and without its comma."""
    members, _ = _find_members(text, start)
    member = members.pop(name)
    bare = _without_comments(text)
    before = text[: member.start]
    after = text[member.end :]
    comma = _skip(bare, member.end)
    if bare[comma] == ",":
        after = text[member.end : comma] + text[comma + 1 :]
    elif members:
        comma = bare.rindex(",", 0, member.start)
        before = text[:comma] + text[comma + 1 : member.start]
    if after.lstrip(" \t\r").startswith("\n"):
        before = before.rstrip()
    if before.endswith("{") and after.lstrip().startswith("}"):
        after = after.lstrip()
    return before + after


def _find_members(text: str, start: int) -> tuple[dict[str, _Place], int]:
    """Return where the members of the object at a position are, and where its end is."""
    plain = _to_plain(text)
    members = {}
    at = _skip(plain, start + 1)
    while plain[at] != "}":
        name, after = _decode(plain, at)
        value = _skip(plain, _skip(plain, after) + 1)  # after the colon
        _, after = _decode(plain, value)
        members[name] = _Place(at, value, after)
        at = _skip(plain, after)
        if plain[at] == ",":
            at = _skip(plain, at + 1)
    return members, at


def _root(text: str) -> int:
    return _skip(_to_plain(text), 0)


def _skip(text: str, at: int) -> int:
    """Return the next position that is not blank."""
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _indentation(text: str) -> str:
    """Return the indentation of the first member of a text."""
    found = re.search(r"\{\s*\n([ \t]+)\"", _without_comments(text))
    return found[1] if found else "  "


def _to_plain(text: str) -> str:
    """Return the text as strict JSON of the same length: what is not allowed is blank."""
    return _LAST_COMMA.sub(lambda found: found[1] or " ", _without_comments(text))


def _without_comments(text: str) -> str:
    return _COMMENT.sub(lambda found: found[1] or re.sub(r"[^\r\n]", " ", found[0]), text)


def _comments(text: str) -> list[str]:
    found = _COMMENT.finditer(text)
    return [each[0].rstrip() for each in found if not each[1]]
