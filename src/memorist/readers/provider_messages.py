"""Messages as providers and frameworks have them: OpenAI, Anthropic, LangChain.

Text parts are taken. Tool calls, system prompts and what has no text are left out, with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from ..errors import InvalidInput
from ..types import Message
from .source import NO_TEXT, Skipped, moment

SYSTEM = "a system prompt"
TOOL = "a tool call or its result"
FIELDS = ("at", "content", "id", "name", "role", "session")
ROLES = {"human": "user", "ai": "assistant", "gpt": "assistant", "model": "assistant"}
NOT_KEPT = {"system": SYSTEM, "developer": SYSTEM, "function": TOOL}
_TEXTS = ("text", "input_text", "output_text")  # types of parts
_TIMES = ("at", "timestamp", "created_at", "create_time", "created")
# A message with one of each is complete: what other fields it has is up to who wrote it.
_WHO, _WHAT = frozenset(("role", "from", "type")), frozenset(("content", "value"))
# Keys of providers and frameworks that look like a misspelled one of ours.
_USUAL = ("context", "mode", "date")


def text_of(content: object) -> str:
    """Return the text parts of a content: a text, a list of parts, or one part.

    >>> text_of([{"type": "text", "text": "Hi"}, {"type": "image_url"}, "Bo"])
    'Hi\\nBo'
    """
    if isinstance(content, str):
        return content
    parts = [content] if isinstance(content, Mapping) else content
    if not isinstance(parts, (list, tuple)):
        return ""
    texts = []
    for part in parts:
        if isinstance(part, Mapping) and part.get("type", "text") in _TEXTS:
            part = part.get("text")
        if isinstance(part, str) and part.strip():
            texts.append(part)
    return "\n".join(texts)


def read_message(given: object) -> Message | Skipped:
    """Return a message of a provider or framework as ours, or why it is not kept.

    Raises InvalidInput if it is none, or if a field that it lacks is misspelled.
    """
    said = _to_mapping(given)
    kind = said.get("type")
    calls = said.get("tool_calls") or said.get("function_call")
    content = said.get("content", said.get("value"))
    is_call = bool(calls) or kind not in (None, "message")
    if content is None and not is_call and not (said.get("role") and "content" in said):
        raise InvalidInput(f"A message has no 'content': it takes {', '.join(FIELDS)}")
    if content is not None and not isinstance(content, (str, list, tuple, Mapping)):
        raise InvalidInput(f"A message's 'content' is text, not {type(content).__name__}")
    text = text_of(content)
    if not text.strip() and (calls or not isinstance(content, str)):
        return Skipped(TOOL if content or is_call else NO_TEXT)
    return Message(
        content=text,
        role=_read_role(said),
        id=said.get("id"),
        name=said.get("name"),
        session=said.get("session"),
        # Our own field is validated later; an invalid time in theirs is ignored.
        at=time_of(said) or said.get("at") or None,
    )


def time_of(said: Mapping[str, Any]) -> datetime | None:
    """Return when a message was said, as far as it is known."""
    return moment(next((said[name] for name in _TIMES if said.get(name)), None))


def _read_role(said: Mapping[str, Any]) -> Any:
    """Return who spoke, as it is given; an empty role is nobody, and not the user."""
    if "role" in said:
        return said["role"]
    named = said.get("from", said.get("type"))
    return "user" if named in (None, "message") else ROLES.get(str(named).lower(), named)


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
        # "session_id" and "idx" are other fields.
        if close and close[0] not in name.lower():
            raise InvalidInput(
                f"A message has an unknown field {name!r}: do you mean {close[0]!r}?"
            )
