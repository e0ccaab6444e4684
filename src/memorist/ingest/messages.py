"""From what a caller hands over to drafts: one text, or messages with their place in the
conversation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from ..errors import InvalidInput
from ..text import authority, clock, normalize
from ..types import Draft, Labels, Message
from . import validation

_FIELDS = {f.name for f in fields(Message)}


def message(given: Message | Mapping[str, Any], labels: Labels) -> Message:
    """A message with its time in UTC and its text fit to be kept. Raises InvalidInput."""
    if isinstance(given, Mapping):
        unknown = set(given) - _FIELDS
        if unknown or "content" not in given:
            wrong = f"unknown field {min(map(str, unknown))!r}" if unknown else "no 'content'"
            raise InvalidInput(f"A message has {wrong}: it takes {', '.join(sorted(_FIELDS))}")
        given = Message(**given)
    if not isinstance(given, Message):
        raise InvalidInput(
            f"A message is a mapping or memorist.Message, not {type(given).__name__}"
        )
    for name in ("content", "id", "role", "name", "session"):
        value = getattr(given, name)
        if not isinstance(value, str) and not (value is None and name in ("id", "name", "session")):
            raise InvalidInput(f"A message's {name!r} is text, not {type(value).__name__}")
    session = given.session if given.session is not None else labels.session
    return replace(
        given, content=normalize.storable(given.content), at=moment(given.at), session=session
    )


def moment(at: datetime | str | None) -> datetime | None:
    """A time in UTC; text is read as ISO 8601. Raises InvalidInput."""
    if at is None:
        return None
    if isinstance(at, datetime):
        return clock.utc(at)
    try:
        return clock.parse(at)
    except (ValueError, TypeError) as error:
        raise InvalidInput(f"{at!r} is not a time: write it as in 2026-05-31T14:00:00Z") from error


def conversation(messages: Sequence[Message]) -> list[Message]:
    """The messages with a session: those that name none were said together, so they get one of
    their own.
    """
    if all(each.session is not None for each in messages) or len(messages) < 2:
        return list(messages)
    said = "\0".join(each.content for each in messages)
    together = "together-" + hashlib.sha256(said.encode()).hexdigest()[:16]
    return [
        each if each.session is not None else replace(each, session=together) for each in messages
    ]


def draft(said: Message, labels: Labels, common: Mapping[str, Any]) -> Draft:
    """A message as a draft: it is evidence for itself, and its speaker and time come along."""
    made = Draft(
        text=said.content,
        labels=replace(labels, session=said.session, role=said.role),
        message_id=said.id,
        speaker=authority.speaker_of(said.role, said.name),
        at=said.at,
        **common,
    )
    return replace(made, source_ids=(said.id, *made.source_ids)) if said.id is not None else made


def drafts(
    what: object, labels: Labels, at: datetime | None, common: Mapping[str, Any], longest: int
) -> list[Draft]:
    """Return the drafts of a text, a message or a list of messages. Raises InvalidInput."""
    if isinstance(what, str):
        validation.text(what, longest)
        text = normalize.storable(what)
        return [Draft(text=text, labels=labels, speaker=labels.role, at=at, **common)]
    given = [what] if isinstance(what, (Message, Mapping)) else what
    if not isinstance(given, Sequence) or isinstance(given, (bytes, bytearray)):
        raise InvalidInput(
            f"remember takes a text or a list of messages, not {type(what).__name__}"
        )
    turns = conversation([message(each, labels) for each in given])
    for turn in turns:
        validation.size(turn.content, longest)
    return [draft(turn, labels, common) for turn in turns]
