"""Validation of what callers pass in, and its conversion to drafts.

Every check raises InvalidInput, unless it says otherwise, and says what is expected.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeGuard

from ..errors import InvalidInput
from ..readers import source
from ..readers.provider_messages import SYSTEM, is_message, read_message
from ..settings import allowlists
from ..storage.conditions import metadata_terms
from ..text import clock, cues, normalize
from ..text.steps import MAX_STEP_CHARS, numbered
from ..types import KINDS, Draft, Filter, Labels, Message, Outcome, Receipt
from .policies import Policy

Where = Filter | Mapping[str, Any]  # a dict has the fields of a Filter, and labels
_NUMBERS = ("importance", "confidence")
_LISTS = ("tags", "source_ids", "evidence")
_FLAGS = ("pinned", "manually_saved")
_MOST_DAYS = 36_500
_NESTED = ("all_of", "any_of", "none_of")  # filters in a filter
_MOST_NESTED = 50  # filters in one of these
_DEEPEST_FILTER = 10  # levels
NEVER = "never"  # in an edit: the end is removed
_DEEPEST = 20  # levels of metadata
_MOST_METADATA = 16_000  # characters of JSON
_OPTIONAL = ("id", "name", "session")  # of a message


def name(what: str, value: object) -> str:
    """Return the name of a user, space or tenant."""
    is_name = isinstance(value, str) and value == normalize.storable(value)
    if not is_name or not str(value).strip() or len(str(value)) > 200:
        raise InvalidInput(
            f"A scope needs a {what}: a text of 1 to 200 characters, not {value!r:.60}"
        )
    return str(value)


def labels(given: Mapping[str, Any]) -> Labels:
    """Return the labels of a scope, each a text or None."""
    unknown = set(given) - set(Labels.__slots__)
    if unknown:
        known = ", ".join(Labels.__slots__)
        raise InvalidInput(
            f"Unknown label {min(unknown)!r}: a scope takes user, space, tenant, {known}"
        )
    fields(given)
    for each, value in given.items():
        if value is not None and value != normalize.storable(value):
            raise InvalidInput(
                f"The label {each} contains characters that cannot be stored: {value!r:.60}"
            )
    return Labels(**given)


def number(what: str, value: object) -> None:
    """Check a count."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidInput(f"{what} must be an integer of at least 1, not {value!r:.60}")


def limits(**given: int | None) -> None:
    """Check counts that may be missing."""
    for what, value in given.items():
        if value is not None:
            number(what, value)


def _is_number(value: object, most: float = 1) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= most


def share(what: str, value: object) -> float | None:
    """Return a checked number from 0 to 1, or None."""
    if value is None:
        return None
    if not _is_number(value):
        raise InvalidInput(f"{what} must be a number from 0 to 1, not {value!r:.60}")
    return float(value)


def options(verb: str, given: Iterable[str], known: type) -> None:
    """Raise TypeError for an option that is not a key of a TypedDict, like a call of the verb."""
    for name in given:
        if name not in known.__annotations__:
            raise TypeError(f"{verb}() got an unexpected keyword argument {name!r}")


def days(value: object) -> None:
    """Check how long something is kept."""
    if not _is_number(value, _MOST_DAYS):
        raise InvalidInput(
            f"keep_days must be a number from 0 to {_MOST_DAYS:,}, not {value!r:.60}"
        )


def day(now: datetime, back: float) -> str:
    """Return the UTC date `back` days ago."""
    days(back)
    return (now - timedelta(days=back)).date().isoformat()


def moment(at: datetime | str | float | None) -> datetime | None:
    """Return a time in UTC; text is read as ISO 8601, and a number as seconds since 1970."""
    if at is None:
        return None
    found = clock.utc(at) if isinstance(at, datetime) else source.moment(at)
    if found is None:
        raise InvalidInput(f"{at!r} is not a time: write it like 2026-05-31T14:00:00Z")
    return found


def text(value: object, most: int) -> str:
    """Return the text of a memory, normalized for storage."""
    if not isinstance(value, str):
        raise InvalidInput(f"A memory must be text, not {type(value).__name__}")
    if not value.replace("\x00", "").strip():  # NUL cannot be stored
        raise InvalidInput("The text is blank")
    size(value, most)
    return normalize.storable(value)


def size(value: str, most: int) -> None:
    """Check the length of a text."""
    if len(value) > most:
        raise InvalidInput(
            f"{len(value):,} characters are too many: shorten the"
            f" text, or raise max_text_chars ({most:,})"
        )


def where(value: object, depth: int = 0) -> Filter:
    """Return a filter; None means no condition, and a dict has the fields of a Filter."""
    if value is None:
        return Filter()
    if isinstance(value, Mapping):
        value = _read_filter(value)
    if not isinstance(value, Filter):
        raise InvalidInput(f"A filter is a memorist.Filter or a dict, not {type(value).__name__}")
    for each in dataclasses.fields(value):
        given = getattr(value, each.name)
        wanted = ""
        if each.name in _NESTED:
            continue
        if isinstance(each.default, tuple):
            is_tuple = isinstance(given, (tuple, list)) and _are_texts(given)
            wanted = "" if is_tuple else "tuple of texts"
        elif given is None:
            continue
        elif each.name.endswith(("_after", "_before")) and not isinstance(given, datetime):
            wanted = "datetime"
        elif each.name.startswith("importance") and not isinstance(given, (int, float)):
            wanted = "number"
        elif each.name == "metadata" and not isinstance(given, Mapping):
            wanted = "dict"
        if wanted:
            raise InvalidInput(f"{each.name} of a filter must be a {wanted}, not {given!r:.60}")
    list(metadata_terms(value.metadata))
    nested: dict[str, Any] = {}
    for name in _NESTED:
        listed = getattr(value, name)
        if not isinstance(listed, (tuple, list)) or len(listed) > _MOST_NESTED:
            raise InvalidInput(
                f"{name} of a filter must be a list of at most {_MOST_NESTED} filters"
            )
        if listed and depth == _DEEPEST_FILTER:
            raise InvalidInput(f"Filters are nested at most {_DEEPEST_FILTER} levels deep")
        nested[name] = tuple(where(each, depth + 1) for each in listed)
    return replace(value, **nested)


def _read_filter(given: Mapping[str, Any]) -> Filter:
    """Return a dict as a filter. Times may be text, and one text may stand for a list."""
    names = {each.name for each in dataclasses.fields(Filter)}
    unknown = set(given) - names - set(Labels.__slots__)
    if unknown:
        raise InvalidInput(
            f"Unknown filter {min(map(str, unknown))!r:.60}: put keys of your own into 'metadata',"
            f" or use {', '.join(sorted(names))} or a label"
        )
    read: dict[str, Any] = {}
    for each in dataclasses.fields(Filter):
        value = given.get(each.name)
        if value is None:
            continue
        if each.name.endswith(("_after", "_before")):
            value = moment(value)
        elif isinstance(each.default, tuple):
            value = (value,) if isinstance(value, str | Mapping) else tuple(value)
        read[each.name] = value
    named = {name: given[name] for name in Labels.__slots__ if name in given}
    return Filter(**{"labels": labels(named)} | read)


def policy(policies: Mapping[str, Policy], name: str, capacity: int | None = None) -> Policy:
    """Return the policy of that name, with another capacity if one is given (0: none)."""
    if name not in policies:
        raise InvalidInput(
            f"Unknown write policy {name!r}: use one of {', '.join(sorted(policies))}"
        )
    found = policies[name]
    if capacity is None or found.has_own_capacity:
        return found
    return replace(found, capacity=capacity or None)


def texts(name: str, value: object) -> None:
    """Check a list of texts or ids."""
    if not isinstance(value, (list, tuple, set, frozenset)) or not _are_texts(value):
        raise InvalidInput(f"{name} must be a list of texts, not {value!r:.60}")


def _are_texts(values: Sequence[object] | set[object] | frozenset[object]) -> bool:
    return all(isinstance(one, str) for one in values)


def fields(given: Mapping[str, Any], *, optional: Sequence[str] = ()) -> None:
    """Check fields of a memory by their names."""
    for each, value in given.items():
        if each in _NUMBERS:
            if not _is_number(value) and not (value is None and each in optional):
                raise InvalidInput(f"{each} must be between 0 and 1, not {value!r:.60}")
        elif each in _LISTS:
            texts(each, value)
        elif each in _FLAGS:
            if not isinstance(value, bool):
                raise InvalidInput(f"{each} must be True or False, not {value!r:.60}")
        elif value is not None and not isinstance(value, str):
            raise InvalidInput(f"{each} must be text, not {type(value).__name__}")


def draft_fields(**given: Any) -> dict[str, Any]:
    """Return the fields that all drafts of one call share."""
    if given["kind"] is not None and given["kind"] not in KINDS:
        raise InvalidInput(f"Unknown kind {given['kind']!r}: use one of {', '.join(KINDS)}")
    own = {"metadata": metadata(given["metadata"])}
    plain = {each: value for each, value in given.items() if each not in own}
    fields(plain, optional=("importance",))
    return plain | own | {each: tuple(map(normalize.storable, given[each])) for each in _LISTS}


def metadata(given: object) -> dict[str, Any]:
    """Return metadata as JSON keeps it; None is empty."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidInput(f"metadata must be a dict, not {type(given).__name__}")
    made: dict[str, Any] = _to_plain(given, 0)
    length = len(json.dumps(made, ensure_ascii=False))
    if length > _MOST_METADATA:
        raise InvalidInput(f"metadata has at most {_MOST_METADATA:,} characters, not {length:,}")
    return made


def _to_plain(value: object, depth: int) -> Any:
    """Return a value of metadata with texts normalized for storage and tuples as lists."""
    if depth > _DEEPEST:
        raise InvalidInput(f"metadata has at most {_DEEPEST} levels")
    if isinstance(value, Mapping):
        made = {}
        for key, each in value.items():
            if not isinstance(key, str) or not key or len(key) > 200:
                raise InvalidInput(f"A key of metadata is a text, not {key!r:.60}")
            made[normalize.storable(key)] = _to_plain(each, depth + 1)
        return made
    if isinstance(value, list | tuple):
        return [_to_plain(each, depth + 1) for each in value]
    if isinstance(value, str):
        return normalize.storable(value)
    is_number = isinstance(value, int | float) and math.isfinite(value) and abs(value) < 2**63
    if value is None or is_number:
        return value
    raise InvalidInput(
        f"metadata holds text, numbers of 64 bits, True, False, None, lists and dicts,"
        f" not {value!r:.60}: pass a time as isoformat()"
    )


def workflow(task: object, steps: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a draft that make it a workflow, which only agents that ask for
    `procedural` get.
    """
    if not isinstance(task, str) or not 1 <= len(normalize.one_line(task)) <= MAX_STEP_CHARS:
        raise InvalidInput(f"The name of a task is a text of 1 to {MAX_STEP_CHARS} characters")
    if not isinstance(steps, str):
        texts("steps", steps)
    return {
        "kind": "procedural",
        "category": allowlists.PROCEDURAL,
        "steps_text": numbered(steps),
    }


def drafts(
    what: object,
    labels: Labels,
    at: datetime | None,
    common: Mapping[str, Any],
    longest: int,
) -> list[Draft | source.Skipped]:
    """Return the drafts of a text, a message or a list of messages, and what is not kept.

    Messages without a session get a common new one. A message is its own source, and its speaker
    and time are kept.
    """
    if isinstance(what, str):
        plain = text(what, longest)
        return [Draft(text=plain, labels=labels, speaker=labels.role, at=at, **common)]
    given = [what] if is_message(what) else what
    if not isinstance(given, Sequence) or isinstance(given, (bytes, bytearray)):
        kind = type(what).__name__
        raise InvalidInput(f"remember takes a text or a list of messages, not {kind}")
    turns = _drop_prompt([message(each, labels) for each in given])
    together = None
    if len(turns) > 1:
        said = "\0".join(turn.content for turn in turns if isinstance(turn, Message))
        digest = hashlib.sha256(said.encode()).hexdigest()
        together = f"together-{digest[:16]}"
    found: list[Draft | source.Skipped] = []
    for turn in turns:
        if isinstance(turn, source.Skipped):
            found.append(turn)
            continue
        size(turn.content, longest)
        session = together if turn.session is None else turn.session
        draft = Draft(
            text=turn.content,
            labels=replace(labels, session=session, role=turn.role),
            message_id=turn.id,
            speaker=cues.speaker_of(turn.role, turn.name),
            at=turn.at,
            **common,
        )
        if turn.id is not None:
            draft = replace(draft, source_ids=(turn.id, *draft.source_ids))
        found.append(draft)
    return found


def _drop_prompt(turns: list[Message | source.Skipped]) -> list[Message | source.Skipped]:
    """Return messages without the system prompts that stand before a conversation."""
    for number, turn in enumerate(turns[:-1]):
        if not isinstance(turn, Message) or turn.role.casefold() not in ("system", "developer"):
            break
        turns[number] = source.Skipped(SYSTEM)
    return turns


def add_skipped(receipt: Receipt, given: Sequence[Draft | source.Skipped]) -> Receipt:
    """Return a receipt that also has the messages that were not kept, in their order."""
    done = iter(receipt.outcomes)
    outcomes = []
    for each in given:
        if isinstance(each, source.Skipped):
            outcomes.append(Outcome(status="skipped", reason=each.reason))
        else:
            outcomes.append(next(done))
    return Receipt(tuple(outcomes))


def message(given: object, labels: Labels) -> Message | source.Skipped:
    """Return a message with its time in UTC and its text normalized for storage, or why it is not
    kept.
    """
    found = given if isinstance(given, Message) else read_message(given)
    if isinstance(found, source.Skipped):
        return found
    for name in ("content", "id", "role", "name", "session"):
        value = getattr(found, name)
        if not isinstance(value, str) and not (value is None and name in _OPTIONAL):
            raise InvalidInput(f"A message's {name!r} must be text, not {type(value).__name__}")
        if name != "content" and value is not None and value != normalize.storable(value):
            raise InvalidInput(f"A message's {name!r} has characters that cannot be stored")
    if found.role.casefold() not in cues.ROLE_WORDS:
        known = ", ".join(sorted(cues.ROLE_WORDS))
        raise InvalidInput(
            f"A message's role is one of {known}, not {found.role!r:.60}: put names into 'name'"
        )
    session = labels.session if found.session is None else found.session
    return replace(
        found,
        content=normalize.storable(found.content),
        at=moment(found.at),
        session=session,
    )
