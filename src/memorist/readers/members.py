"""Objects of a JSON file in parts, so that a damage costs one part and not the whole object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import ijson

from .source import Damaged, ImportRun, Source, as_object, name_damage, opened

LIST, MAP = "start_array", "start_map"  # what contains the members


class Member(NamedTuple):
    """A member of a list or mapping, with the fields of its object that come before it.

    After its members comes the object itself, with an empty `place`.
    """

    owner: dict[str, Any]
    place: str = ""  # the field of the object
    key: str = ""  # in a mapping
    value: Any = None


def read_members(
    source: Source, how: ImportRun, place: str, *fields: str, kind: str = LIST
) -> Iterator[Member]:
    """Yield the members of these fields of the objects at a place, one at a time.

    Raises Damaged, after the object that is cut off if one of the fields has begun.
    """
    inside = {f"{place}.{name}".lstrip("."): name for name in fields}
    owner: dict[str, Any] = {}
    wanted: str | None = None  # prefix of the value to build
    parent = key = ""
    builder: Any = None
    depth = 0
    with opened(source, how) as file:
        try:
            events = ijson.parse(file, use_float=True, multiple_values=True)
            for prefix, event, value in events:
                if builder is None:
                    if event == "map_key" and (prefix == place or prefix in inside):
                        parent, key = prefix, value
                        wanted = f"{prefix}.{value}".lstrip(".")
                    elif prefix in inside and event == kind:
                        parent, wanted = prefix, f"{prefix}.item"
                        owner[inside[prefix]] = [] if kind == LIST else {}
                    elif prefix == place and event == MAP:
                        owner = {}
                    elif prefix == place and event != "end_array":
                        yield Member(owner if event == "end_map" else {})
                        owner = {}
                    elif prefix == wanted and not event.startswith("end"):
                        builder = ijson.ObjectBuilder()
                if builder is None or (event == "map_key" and depth == 0):
                    continue
                builder.event(event, value)
                depth += event.startswith("start") - event.startswith("end")
                if depth == 0:
                    if parent in inside:
                        yield Member(owner, inside[parent], key, builder.value)
                    else:
                        owner[key] = builder.value
                    builder = None
        except (ijson.JSONError, UnicodeDecodeError) as error:
            if not owner.keys().isdisjoint(fields):
                yield Member(owner)
            raise Damaged(name_damage(source, error)) from error


def read_objects(
    source: Source, how: ImportRun, place: str, *fields: str, kind: str = LIST
) -> Iterator[dict[str, Any]]:
    """Yield the objects at a place. One that is cut off has the members that are whole."""
    for owner, name, key, value in read_members(source, how, place, *fields, kind=kind):
        if not name:
            yield owner
        elif kind == LIST:
            owner[name].append(value)
        else:
            owner[name][key] = as_object(value)
