"""The hooks that hosts of coding agents call.

A host calls a hook on certain events with a JSON object on stdin. A hook prints context for the
model and stores the user's prompt. It is limited in time and never makes the host fail: errors go
to stderr. Each prompt of a session is stored once, whether the host passes it or it is read from
the transcript; replies are stored only with the setting `memory_store_responses`. Only the last
turn of a transcript is read: earlier ones were stored before, or must not be.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from ..errors import InvalidInput, NotFound, StoreUnavailable
from ..ingest.validation import moment as parse_time
from ..manage.turn_context import TurnContext
from ..retrieve import render
from ..settings import Settings
from ..types import Filter, Message
from . import Call
from .projects import Project, find_project

if TYPE_CHECKING:
    from ..sync import BlockingScope

HOOKS = {
    "session-start": "SessionStart",
    "prompt": "UserPromptSubmit",
    "stop": "Stop",
    "pre-compact": "PreCompact",
}  # argument of `memorist hook`: event of Claude Code
SECONDS = 10.0  # after which a hook gives up and the host continues
MAX_INPUT = 4 << 20  # bytes read from stdin
MAX_TRANSCRIPT = 2 << 20  # bytes read from the end of a transcript
MAX_TEXT = 20_000  # characters of one message
AWAITING = "hook: "  # prefix of the checkpoint with what was recalled for the last prompt
CANDIDATES = 200  # recent memories from which the most important are chosen
_FROM_HOST = re.compile(
    r"/[a-z][\w:-]*(?:\s|$)|\[Request interrupted"
    r"|<(?:command-|local-command-|bash-|system-reminder|user-memory-input"
    r"|user-prompt-submit-hook|task-notification)"
)  # slash commands, and text that a host writes in place of the user


def answer(moment: str, call: Call, given: str) -> str:
    """Run a hook and return what to print for the host. Raises as the client does."""
    try:
        fields = json.loads(given.strip() or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidInput("A hook reads a JSON object on stdin: this is not JSON") from error
    if not isinstance(fields, dict):
        raise InvalidInput("A hook reads a JSON object on stdin")
    event: defaultdict[str, str] = defaultdict(str)
    for name, value in fields.items():
        if isinstance(value, str):
            event[name] = value
    session = call.session or event["session_id"][:200]
    call = replace(call, session=session or None)
    with call.memory() as memory:
        settings = memory.settings
        project = Project(space=None)
        if not call.space and settings.space == "default":
            project = find_project(os.environ.get("CLAUDE_PROJECT_DIR") or event["cwd"])
            call = replace(call, space=project.space)
        mine = call.scope(memory)
        project.apply(mine)
        context = ""
        if moment == "prompt":
            context = _handle_prompt(mine, settings, event["prompt"][:MAX_TEXT])
        elif moment != "session-start":
            turn = _last_turn(mine, event["transcript_path"])
            keeps_replies = settings.memory_store_responses
            mine.remember([each for each in turn if each.role == "user" or keeps_replies])
            _mark_known(mine)
            if moment == "stop":
                _compare_reply(mine, turn)
        elif not mine.privacy.disabled_reason():
            # Pinned memories, then the most important recent ones, within the limits.
            limit = settings.memory_context_limit
            pinned = mine.list(Filter(pinned=True), limit=max(1, limit))
            recent = mine.list(Filter(pinned=False), limit=CANDIDATES)
            rest = sorted(recent, key=lambda memory: -memory.importance)
            caps = render.Caps(limit=limit, chars=settings.memory_context_max_chars)
            memories = [*pinned, *rest]
            context = render.fit(memories, caps, render.block, skip=False).text
    if not context:
        return ""
    output = {"hookEventName": HOOKS[moment], "additionalContext": context}
    return json.dumps({"hookSpecificOutput": output})


def _handle_prompt(mine: BlockingScope, settings: Settings, text: str) -> str:
    """Return context for a prompt and store the prompt, in this order: it must not find itself."""
    if not text.strip() or _FROM_HOST.match(text):
        return ""
    reply = mine.command(text)
    if reply and (reply.done or reply.ids):  # else it was hardly meant for the memory
        return f"The memory ran the user's command and says: {reply.say}"
    limit = settings.memory_context_limit
    max_chars = settings.memory_context_max_chars
    context = ""
    if limit and max_chars:
        # A token has about four characters, so the number of characters decides.
        found = mine.context(text, limit=limit, max_chars=max_chars, budget=max_chars)
        context = found.text
        _await_reply(mine, found)
    mine.remember(_prompt_message(mine, text))
    _mark_known(mine)
    return context


def _mark_known(mine: BlockingScope) -> None:
    """Mark what this session just said as reported: the model has read it."""
    with suppress(StoreUnavailable):
        while mine.labels.session and mine.delta().more:
            pass


def _await_reply(mine: BlockingScope, found: TurnContext) -> None:
    """Save which memories were recalled for a prompt, until the host passes the reply to it."""
    if mine.labels.session and "memory" not in found.legs:
        with suppress(StoreUnavailable):
            thread = f"{AWAITING}{mine.labels.session}"
            mine.checkpoints.save(thread, {"memory_context": {"recalled": found.ids}})


def _compare_reply(mine: BlockingScope, turn: Sequence[Message]) -> None:
    """Count whether the reply to a prompt used what was recalled for it."""
    prompt = "".join(each.content for each in turn if each.role == "user")
    reply = "\n".join(each.content for each in turn if each.role == "assistant")
    if not mine.labels.session or not reply:
        return
    thread = f"{AWAITING}{mine.labels.session}"
    with suppress(StoreUnavailable, NotFound):
        saved = mine.checkpoints.load(thread)
        mine.checkpoints.delete(thread)
        recalled = saved["memory_context"]["recalled"]
        mine.feedback(recalled, reply=reply[:MAX_TEXT], question=prompt)


def _prompt_message(mine: BlockingScope, text: str, at: datetime | None = None) -> Message:
    """Return a prompt as a message. The same prompt of a session always has the same id."""
    content = f"{mine.labels.session}\0{text.strip()}".encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(content).hexdigest()[:32]
    return Message(id=f"prompt-{digest}", content=text, role="user", at=at)


class _Part(BaseModel):
    type: str = ""
    text: str = ""


class _Content(BaseModel):
    content: str | list[_Part]


class _Record(BaseModel):
    """A message in a transcript."""

    type: Literal["user", "assistant"]
    message: _Content
    uuid: str = ""
    timestamp: str | None = None
    is_meta: Annotated[bool, Field(alias="isMeta")] = False  # written by the host
    is_sidechain: Annotated[bool, Field(alias="isSidechain")] = False  # of a subagent


def _last_turn(mine: BlockingScope, path: str) -> list[Message]:
    """Return the last prompt in a transcript, and the replies to it."""
    turn: list[Message] = []
    if not path:
        return turn
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - MAX_TRANSCRIPT))
        lines = file.read().splitlines()
    for line in lines:
        try:
            record = _Record.model_validate_json(line)
        except ValidationError:  # cut off, damaged, or not a message
            continue
        text = record.message.content
        if not isinstance(text, str):
            text = "\n".join(part.text for part in text if part.type == "text")
        text = text[:MAX_TEXT].strip()
        if not text or record.is_meta or record.is_sidechain:  # without text: a tool result
            continue
        if _FROM_HOST.match(text):
            continue
        at = parse_time(record.timestamp)
        if record.type == "user":
            turn = [_prompt_message(mine, text, at)]
        elif record.uuid:
            reply = Message(id=record.uuid, content=text, role="assistant", at=at)
            turn.append(reply)
    return turn
