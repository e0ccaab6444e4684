"""Messages as providers and frameworks have them: OpenAI, Anthropic, LangChain.

Text parts are taken. Tool calls, system prompts and what has no text are left out, with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from enum import Enum
from typing import Any

from ..errors import InvalidInput
from ..text.cues import ROLE_WORDS
from ..types import FAKE_ID, Message
from .source import NO_TEXT, Skipped, moment

SYSTEM = "a system prompt"
TOOL = "a tool call or its result"
REFERENCE = "a reference to an item"
FIELDS = ("at", "content", "id", "name", "role", "session")
ROLES = {"human": "user", "ai": "assistant", "gpt": "assistant", "model": "assistant"}
NOT_KEPT = {"system": SYSTEM, "developer": SYSTEM, "function": TOOL}
_CONTENTS = (str, list, tuple, Mapping)
_TEXTS = ("text", "input_text", "output_text")  # types of parts
_TIMES = ("at", "timestamp", "created_at", "create_time", "created")
# A message with one of each is complete: what other fields it has is up to who wrote it.
_WHO, _WHAT = frozenset(("role", "from", "type")), frozenset(("content", "value"))
# What is read of a message that is an object: an SDK's, or a framework's.
_ATTRIBUTES = (*FIELDS, *_TIMES, "type", "tool_calls", "function_call", "refusal", "audio")
_WITHOUT_TEXT = ("refusal", "audio")  # what an assistant may have answered in place of a content
# Keys of providers and frameworks that look like a misspelled one of ours.
_USUAL = ("context", "mode", "date")


def text_of(content: object) -> str:
    """Return the text parts of a content: a text, a list of parts, or one part.

    Parts are dicts, or objects such as the blocks in an answer of an SDK.

    >>> text_of([{"type": "text", "text": "Hi"}, {"type": "image_url"}, "Bo"])
    'Hi\\nBo'
    """
    if isinstance(content, str):
        return content
    texts = []
    for part in content if isinstance(content, (list, tuple)) else [content]:
        if _get(part, "type", "text") in _TEXTS:
            part = _get(part, "text", part)
        if isinstance(part, str) and part.strip():
            texts.append(part)
    return "\n".join(texts)


def _get(part: object, name: str, missing: object) -> object:
    """Return a key of a mapping, or an attribute of any other object."""
    if isinstance(part, Mapping):
        return part.get(name, missing)
    return getattr(part, name, missing)


def is_message(given: object) -> bool:
    """Return whether this is one message, and not a list of them."""
    names = ("role", "type", "model_dump")
    return isinstance(given, (Message, Mapping)) or any(hasattr(given, name) for name in names)


def read_message(given: object) -> Message | Skipped:
    """Return a message of a provider or framework as ours, or why it is not kept.

    Raises InvalidInput if it is none, or if a field that it lacks is misspelled.
    """
    said = _to_mapping(_read_object(given))
    kind = said.get("type")
    calls = said.get("tool_calls") or said.get("function_call")
    content = said.get("content", said.get("value"))
    is_call = bool(calls) or kind not in (None, "message", "user", "assistant", *ROLES)
    if content is None and not is_call:
        if said.get("id") and said.keys() <= {"id", "type"}:
            return Skipped(REFERENCE)
        who = said.get("role") or (kind != "message" and kind)
        if not who or said.keys().isdisjoint(("content", *_WITHOUT_TEXT)):
            raise InvalidInput(f"A message has no 'content': it takes {', '.join(FIELDS)}")
    if not (content is None or isinstance(content, _CONTENTS) or hasattr(content, "type")):
        raise InvalidInput(f"A message's 'content' is text, not {type(content).__name__}")
    text = text_of(content)
    if not text.strip() and (calls or not isinstance(content, str)):
        return Skipped(TOOL if content or is_call else NO_TEXT)
    role = _read_role(said)
    if kind is not None and str(role).casefold() not in ROLE_WORDS:
        return Skipped(f"a message whose role is {role!r:.40}")
    return Message(
        content=text,
        role=role,
        id=None if said.get("id") == FAKE_ID else said.get("id"),
        name=said.get("name"),
        session=said.get("session"),
        # Our own field is validated later; an invalid time in theirs is ignored.
        at=time_of(said) or said.get("at") or None,
    )


def time_of(said: Mapping[str, Any]) -> datetime | None:
    """Return when a message was said, as far as it is known."""
    return moment(next((said[name] for name in _TIMES if said.get(name)), None))


def _read_object(given: object) -> object:
    """Return the fields of a message that is an object, or a pair of a role and a content."""
    if isinstance(given, tuple) and len(given) == 2:
        role, content = given
        return {
            "role": ROLES.get(role, role) if isinstance(role, str) else role,
            "content": content,
        }
    if isinstance(given, Mapping) or not (hasattr(given, "role") or hasattr(given, "type")):
        return given
    return {name: getattr(given, name) for name in _ATTRIBUTES if hasattr(given, name)}


def _read_role(said: Mapping[str, Any]) -> Any:
    """Return who spoke, as it is given; an empty role is nobody, and not the user."""
    if "role" in said:
        role = said["role"]
        return role.value if isinstance(role, Enum) else role
    named = said.get("from", said.get("type"))
    if named in (None, "message"):
        return "user"
    known = str(named).lower().removesuffix("messagechunk")  # a part of a stream of LangChain
    return ROLES.get(known, known if known in ROLE_WORDS else named)


def _to_mapping(given: object) -> Mapping[str, Any]:
    """Return the fields of a message that is a mapping or a model of pydantic."""
    if not isinstance(given, Mapping) and hasattr(given, "model_dump"):
        given = given.model_dump()
    if not isinstance(given, Mapping):
        raise InvalidInput(
            f"A message is a mapping or memorist.Message, not {type(given).__name__}"
        )
    data = given.get("data", given.get("kwargs"))
    if "content" not in given and isinstance(data, Mapping):  # serialized by LangChain
        given = {**data, "type": data.get("type", given.get("type"))}
    if _WHO.isdisjoint(given) or _WHAT.isdisjoint(given):
        _explain_misspelling(given)
    return given


def _explain_misspelling(given: Mapping[str, Any]) -> None:
    """Raise InvalidInput if a field is a misspelled one of ours."""
    for name in map(str, given):
        if name in FIELDS or name in _USUAL:
            continue
        close = get_close_matches(name.lower(), FIELDS, n=1, cutoff=0.75)
        # "session_id" and "idx" are other fields, "Role" is not.
        if close and (name.lower() == close[0] or close[0] not in name.lower()):
            raise InvalidInput(
                f"A message has an unknown field {name!r}: do you mean {close[0]!r}?"
            )
