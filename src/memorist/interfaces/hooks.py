"""What a coding agent's host calls at certain moments, with a JSON object on stdin: what is known goes in, what the
person says is kept.

A host is never kept waiting and never fails because of its memory: whatever goes wrong is told on stderr. What is kept
of a session is each prompt once, whether the host hands it over or it stands in the transcript, and replies only with
the setting `memory_store_responses`. Of a transcript only the last turn is read: what came before it was kept in its
time, or is not to be kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InvalidInput
from ..retrieve import budget, render
from ..types import Filter, Message

if TYPE_CHECKING:
    from ..settings import Settings
    from ..sync import BlockingScope
    from .cli.app import Call

Moment = Literal["session-start", "prompt", "stop", "pre-compact"]
MOMENTS: tuple[Moment, ...] = ("session-start", "prompt", "stop", "pre-compact")
EVENTS = {"session-start": "SessionStart", "prompt": "UserPromptSubmit"}
MOST_INPUT = 4 << 20  # bytes on stdin
MOST_TRANSCRIPT = 2 << 20  # bytes of its end that are looked at
MOST_TEXT = 20_000  # characters of one message
SECONDS = 10.0  # after which the host goes on without us
AMONG = 200  # memories among which the most important are looked for
_OF_HOST = re.compile(
    r"/[a-z][\w:-]*(?:\s|$)|\[Request interrupted"
    r"|<(?:command-|local-command-|bash-|system-reminder|user-memory-input|user-prompt-submit-hook|task-notification)"
)  # how commands begin, and what a host says in the person's place


def answer(moment: Moment, call: Call, given: str) -> str:
    """Do what a moment asks for, and what to print for the host. Raises as the engine does."""
    event = _event(given)
    with replace(call, session=_session(call, event)).memory() as memory:
        place = replace(
            call, session=_session(call, event), space=_space(call, event, memory.settings.space)
        )
        mine = place.scope(memory)
        if moment == "session-start":
            return _told(
                moment, "" if mine.privacy.disabled_reason() else _start(mine, memory.settings)
            )
        if moment == "prompt":
            return _told(moment, _prompt(mine, memory.settings, _text(event.get("prompt"))))
        mine.remember(list(_last_turn(_text(event.get("transcript_path")), mine, memory.settings)))
    return ""


def _event(given: str) -> dict[str, Any]:
    try:
        event = json.loads(given) if given.strip() else {}
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            "A hook reads a JSON object on stdin, as hosts hand it over: this is no JSON"
        ) from error
    if not isinstance(event, dict):
        raise InvalidInput("A hook reads a JSON object on stdin, as hosts hand it over")
    return event


def _session(call: Call, event: Mapping[str, Any]) -> str | None:
    return call.session or _text(event.get("session_id"))[:200] or None


def _space(call: Call, event: Mapping[str, Any], usual: str) -> str | None:
    """The space that was named, or that of the settings, or the name of the project's folder."""
    if call.space or usual != "default":
        return call.space
    return project(os.environ.get("CLAUDE_PROJECT_DIR") or _text(event.get("cwd")))


def project(folder: str) -> str | None:
    """The name of a folder as a space.

    >>> project("/home/ana/code/shop/"), project("/")
    ('shop', None)
    """
    return Path(folder).name[:200].strip() or None


def _start(mine: BlockingScope, settings: Settings) -> str:
    """What is pinned, then what counts most of what was told lately, within the limits for a context."""
    most = settings.memory_context_limit
    pinned = mine.list(Filter(pinned=True), limit=max(1, most)).memories
    rest = sorted(mine.list(Filter(pinned=False), limit=AMONG), key=lambda each: -each.importance)
    caps = budget.Caps(limit=most, chars=settings.memory_context_max_chars)
    return budget.fit([*pinned, *rest], caps, render.block, skip=False).text


def _prompt(mine: BlockingScope, settings: Settings, text: str) -> str:
    """What helps with what is said; it is kept afterwards, so that it is no answer to itself."""
    if not text.strip() or _OF_HOST.match(text):
        return ""
    if reply := mine.command(text):
        return f"The memory did what the user asked of it and says: {reply.say}"
    most, chars = settings.memory_context_limit, settings.memory_context_max_chars
    known = mine.recall(text, limit=most, max_chars=chars).prompt() if most and chars else ""
    mine.remember(_said(mine, text))
    return known


def _said(mine: BlockingScope, text: str, at: str | None = None) -> Message:
    """What the person said, once in a session however often it is handed over."""
    from ..ingest.messages import moment

    named = hashlib.sha256(
        f"{mine.labels.session}\0{text.strip()}".encode("utf-8", "surrogatepass")
    ).hexdigest()[:32]
    return Message(id=f"prompt-{named}", content=text, role="user", at=moment(at))


def _last_turn(path: str, mine: BlockingScope, settings: Settings) -> Iterator[Message]:
    """The last thing the person said in a transcript, and the replies to it, where those are kept."""
    from ..ingest.messages import moment

    turn: list[Message] = []
    for line in _lines(path):
        text, role = _words(line), line.get("type")
        if not text:
            continue
        if role == "user":
            turn = [_said(mine, text, line.get("timestamp"))]
        elif settings.memory_store_responses and isinstance(line.get("uuid"), str):
            turn.append(
                Message(
                    id=line["uuid"],
                    content=text,
                    role="assistant",
                    at=moment(line.get("timestamp")),
                )
            )
    yield from turn


def _lines(path: str) -> Iterator[dict[str, Any]]:
    """The records at the end of a file; what is no record is passed over."""
    if not path:
        return
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - MOST_TRANSCRIPT))
        for raw in file.read().splitlines():
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict) and not (line.get("isMeta") or line.get("isSidechain")):
                yield line


def _words(line: Mapping[str, Any]) -> str:
    """What was said in a record: no results of tools, no commands, no marks of the host."""
    message = line.get("message")
    content = (
        message.get("content")
        if isinstance(message, dict) and line.get("type") in ("user", "assistant")
        else ""
    )
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    told = [
        each.get("text") for each in parts if isinstance(each, dict) and each.get("type") == "text"
    ]
    text = _text("\n".join(each for each in told if isinstance(each, str))).strip()
    return "" if _OF_HOST.match(text) else text


def _text(given: object) -> str:
    return given[:MOST_TEXT] if isinstance(given, str) else ""


def _told(moment: Moment, text: str) -> str:
    """The answer that puts a text before the model; nothing where there is none."""
    if not text:
        return ""
    return json.dumps(
        {"hookSpecificOutput": {"hookEventName": EVENTS[moment], "additionalContext": text}}
    )
