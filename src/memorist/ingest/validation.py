"""What callers hand over, checked before anything happens. Every check raises InvalidInput and
names the way out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import NoneType
from typing import Any

from ..errors import InvalidInput
from ..text import normalize
from ..types import KINDS, Filter, Labels

_NUMBERS = ("importance", "confidence")
_LISTS = ("tags", "source_ids", "evidence")
_FLAGS = ("pinned", "manually_saved")
_MOST_DAYS = 36_500


def name(what: str, value: object) -> str:
    """The name of a user, space or tenant."""
    if (
        not isinstance(value, str)
        or not value.strip()
        or len(value) > 200
        or value != normalize.storable(value)
    ):
        raise InvalidInput(
            f"A scope needs a {what}: a text of 1 to 200 characters, not {value!r:.60}"
        )
    return value


def labels(given: Mapping[str, Any]) -> Labels:
    """Marks inside a scope, each a text or None."""
    unknown = set(given) - set(Labels.__slots__)
    if unknown:
        known = ", ".join(Labels.__slots__)
        raise InvalidInput(
            f"A scope knows no label {min(unknown)!r}: it takes user, space, tenant, {known}"
        )
    fields(given)
    for each, value in given.items():
        if value is not None and value != normalize.storable(value):
            raise InvalidInput(
                f"The label {each} holds characters that cannot be kept: {value!r:.60}"
            )
    return Labels(**given)


def number(what: str, value: object) -> None:
    """A count."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(f"{what} is a whole number of at least 1, not {value!r:.60}")


def days(value: object) -> None:
    """How long something is kept."""
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not 0 <= value <= _MOST_DAYS
    ):
        raise InvalidInput(f"keep_days is a number from 0 to {_MOST_DAYS:,}, not {value!r:.60}")


def day(now: datetime, back: float) -> str:
    """The day, in UTC, so many days ago."""
    days(back)
    return (now - timedelta(days=back)).date().isoformat()


def text(value: object, most: int) -> None:
    """A text that is to be remembered."""
    if not isinstance(value, str):
        raise InvalidInput(f"A memory is text, not {type(value).__name__}")
    if not normalize.storable(value).strip():
        raise InvalidInput("There is nothing to remember in a blank text")
    size(value, most)


def size(value: str, most: int) -> None:
    """A text within the limit."""
    if len(value) > most:
        raise InvalidInput(
            f"{len(value):,} characters are too many: cut the"
            f" text, or raise max_text_chars ({most:,})"
        )


def where(value: object) -> Filter:
    """A filter, or none."""
    if value is None:
        return Filter()
    if not isinstance(value, Filter):
        raise InvalidInput(f"A filter is a memorist.Filter, not {type(value).__name__}")
    for each in dataclasses.fields(value):
        given, usual = getattr(value, each.name), each.default
        if isinstance(usual, tuple) and not _texts(given):
            raise InvalidInput(f"{each.name} of a filter is a tuple of texts, not {given!r:.60}")
        if each.name.endswith(("_after", "_before")) and not isinstance(
            given, (datetime, NoneType)
        ):
            raise InvalidInput(f"{each.name} of a filter is a datetime, not {given!r:.60}")
        if each.name.startswith("importance") and not isinstance(given, (int, float, NoneType)):
            raise InvalidInput(f"{each.name} of a filter is a number, not {given!r:.60}")
    return value


def _texts(value: object) -> bool:
    return isinstance(value, (tuple, list)) and all(isinstance(one, str) for one in value)


def draft_fields(**given: Any) -> dict[str, Any]:
    """The fields that all drafts of one call share."""
    if given["kind"] is not None and given["kind"] not in KINDS:
        raise InvalidInput(f"No kind {given['kind']!r}: there are {', '.join(KINDS)}")
    fields(given, optional=("importance",))
    return {**given, **{each: tuple(map(normalize.storable, given[each])) for each in _LISTS}}


def texts(name: str, value: object) -> None:
    """A list of texts or ids."""
    if not isinstance(value, (list, tuple, set, frozenset)) or not all(
        isinstance(one, str) for one in value
    ):
        raise InvalidInput(f"{name} is a list of texts, not {value!r:.60}")


def fields(given: Mapping[str, Any], *, optional: Sequence[str] = ()) -> None:
    """Fields of a memory by their names."""
    for each, value in given.items():
        if each in _NUMBERS:
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not (is_number and 0 <= value <= 1) and not (value is None and each in optional):
                raise InvalidInput(f"{each} lies between 0 and 1, not {value!r:.60}")
        elif each in _LISTS:
            texts(each, value)
        elif each in _FLAGS:
            if not isinstance(value, bool):
                raise InvalidInput(f"{each} is True or False, not {value!r:.60}")
        elif value is not None and not isinstance(value, str):
            raise InvalidInput(f"{each} is text, not {type(value).__name__}")
