"""Hooks for the hosts of coding agents: called at certain moments with a JSON object on stdin.

A hook prints context for the model and stores what the person said. A host never waits long for its
memory and never fails because of it: errors go to stderr. Each prompt of a session is stored once,
whether the host passes it or it is in the transcript; replies only with the setting
`memory_store_responses`. Only the last turn of a transcript is read: earlier ones were stored at
their time, or must not be.
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
from ..ingest.validation import moment as parse_time
from ..retrieve import budget, render
from ..types import Filter, Message
from .call import Call

if TYPE_CHECKING:
    from ..settings import Settings
    from ..sync import BlockingScope

Moment = Literal["session-start", "prompt", "stop", "pre-compact"]
EVENTS = {"session-start": "SessionStart", "prompt": "UserPromptSubmit"}
MAX_INPUT = 4 << 20  # bytes on stdin
MAX_TRANSCRIPT = 2 << 20  # bytes read from its end
MAX_TEXT = 20_000  # characters of one message
SECONDS = 10.0  # after which the host continues without us
CANDIDATES = 200  # recent memories from which the most important are chosen
_FROM_HOST = re.compile(
    r"/[a-z][\w:-]*(?:\s|$)|\[Request interrupted"
    r"|<(?:command-|local-command-|bash-|system-reminder|user-memory-input"
    r"|user-prompt-submit-hook|task-notification)"
)  # commands, and what a host writes in the person's place


def answer(moment: Moment, call: Call, given: str) -> str:
    """Handle a moment and return what to print for the host. Raises as the client does."""
    event = _parse(given)
    call = replace(call, session=call.session or _text(event.get("session_id"))[:200] or None)
    with call.memory() as memory:
        settings = memory.settings
        if not call.space and settings.space == "default":
            folder = os.environ.get("CLAUDE_PROJECT_DIR") or _text(event.get("cwd"))
            call = replace(call, space=project(folder))
        mine = call.scope(memory)
        if moment in ("stop", "pre-compact"):
            path = _text(event.get("transcript_path"))
            mine.remember(list(_last_turn(path, mine, settings)))
            return ""
        context = ""
        if moment == "prompt":
            context = _handle_prompt(mine, settings, _text(event.get("prompt")))
        elif not mine.privacy.disabled_reason():
            context = _start_context(mine, settings)
    if not context:
        return ""
    output = {"hookEventName": EVENTS[moment], "additionalContext": context}
    return json.dumps({"hookSpecificOutput": output})


def _parse(given: str) -> dict[str, Any]:
    try:
        event = json.loads(given) if given.strip() else {}
    except (ValueError, RecursionError) as error:
        raise InvalidInput("A hook reads a JSON object on stdin: this is not JSON") from error
    if not isinstance(event, dict):
        raise InvalidInput("A hook reads a JSON object on stdin")
    return event


def project(folder: str) -> str | None:
    """Return the name of a folder, as a space.

    >>> project("/home/ana/code/shop/"), project("/")
    ('shop', None)
    """
    return Path(folder).name[:200].strip() or None


def _start_context(mine: BlockingScope, settings: Settings) -> str:
    """Return pinned memories, then the most important recent ones, within the limits."""
    limit = settings.memory_context_limit
    pinned = mine.list(Filter(pinned=True), limit=max(1, limit)).memories
    recent = mine.list(Filter(pinned=False), limit=CANDIDATES)
    rest = sorted(recent, key=lambda memory: -memory.importance)
    caps = budget.Caps(limit=limit, chars=settings.memory_context_max_chars)
    return budget.fit([*pinned, *rest], caps, render.block, skip=False).text


def _handle_prompt(mine: BlockingScope, settings: Settings, text: str) -> str:
    """Return context for a prompt, then store the prompt, so that it does not answer itself."""
    if not text.strip() or _FROM_HOST.match(text):
        return ""
    if reply := mine.command(text):
        return f"The memory ran the user's command and says: {reply.say}"
    limit, max_chars = settings.memory_context_limit, settings.memory_context_max_chars
    context = ""
    if limit and max_chars:
        context = mine.recall(text, limit=limit, max_chars=max_chars).prompt()
    mine.remember(_prompt_message(mine, text))
    return context


def _prompt_message(mine: BlockingScope, text: str, at: str | None = None) -> Message:
    """Return a prompt as a message. Its id is the same however often a session passes it."""
    content = f"{mine.labels.session}\0{text.strip()}".encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(content).hexdigest()[:32]
    return Message(id=f"prompt-{digest}", content=text, role="user", at=parse_time(at))


def _last_turn(path: str, mine: BlockingScope, settings: Settings) -> Iterator[Message]:
    """Yield the last prompt in a transcript, and the replies to it if those are stored."""
    turn: list[Message] = []
    for record in _records(path):
        text, at, id = _message_text(record), record.get("timestamp"), record.get("uuid")
        if not text:
            continue
        if record.get("type") == "user":
            turn = [_prompt_message(mine, text, at)]
        elif settings.memory_store_responses and isinstance(id, str):
            reply = Message(id=id, content=text, role="assistant", at=parse_time(at))
            turn.append(reply)
    yield from turn


def _records(path: str) -> Iterator[dict[str, Any]]:
    """Yield the records at the end of a transcript, without damaged ones."""
    if not path:
        return
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - MAX_TRANSCRIPT))
        for raw in file.read().splitlines():
            try:
                record = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            is_own = isinstance(record, dict) and not record.get("isMeta")
            if is_own and not record.get("isSidechain"):
                yield record


def _message_text(record: Mapping[str, Any]) -> str:
    """Return the text of a record, without tool results, commands and marks of the host."""
    message = record.get("message")
    if not isinstance(message, dict) or record.get("type") not in ("user", "assistant"):
        return ""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = []
    for part in parts:
        if isinstance(part, dict) and part.get("type") == "text":
            text = part.get("text")
            if isinstance(text, str):
                texts.append(text)
    joined = _text("\n".join(texts)).strip()
    return "" if _FROM_HOST.match(joined) else joined


def _text(given: object) -> str:
    return given[:MAX_TEXT] if isinstance(given, str) else ""
