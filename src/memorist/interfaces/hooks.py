"""The hooks that hosts of coding agents call.

A host calls a hook on certain events with a JSON object on stdin. A hook prints context for the
model and stores the user's prompt, if it states something: "commit this please" does not. It is
limited in time and never makes the host fail: errors go to stderr. Each prompt of a session is
stored once, whether the host passes it or it is read from the transcript; replies are stored only
with the setting `memory_store_responses`. Only the last turn of a transcript is read: earlier ones
were stored before, or must not be.

The space of a project is named after its folder, or by a `.memorist` file in it. The file is TOML,
and each line is optional:

    memory = false    # or true: turn memory off or on in this project
    space = "shop"    # use this space
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput, Misconfigured, NotFound, StoreUnavailable
from ..extraction.durable import is_worth_keeping
from ..readers.coding import is_by_program, read_line
from ..retrieve import render
from ..settings import Settings
from ..types import Draft, Filter, Message, frozen
from . import Call

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
MARKER = ".memorist"
CANDIDATES = 200  # recent memories from which the most important are chosen


@frozen
class Project:
    """What is known of a project."""

    space: str | None
    memory: bool | None = None  # whether its file turns memory on or off

    def apply(self, mine: BlockingScope) -> None:
        """Turn memory on or off as the file of the project says."""
        if self.memory is None or mine.privacy.settings().memory_enabled == self.memory:
            return
        mine.privacy.set(memory_enabled=self.memory, actor=MARKER)


def find_project(folder: str | Path) -> Project:
    """Return the project of a folder: that of the nearest `.memorist` file, or the folder itself.

    Folders of the same name at other places have other spaces. Raises Misconfigured if the file
    cannot be read.
    """
    if not str(folder):
        return Project(space=None)
    root = Path(folder).resolve()
    given: dict[str, Any] = {}
    for each in (root, *root.parents):
        marker = each / MARKER
        if marker.is_file():
            root = each
            try:
                given = tomllib.loads(marker.read_text("utf-8"))
            except (OSError, ValueError) as error:
                raise Misconfigured(f"{marker} cannot be read: {error}") from error
            break
    memory = given.pop("memory", None)
    space = given.pop("space", None)
    if given:
        name = min(given)
        raise Misconfigured(f"{marker}: unknown setting {name!r}; use memory and space")
    if not isinstance(memory, bool | None) or not isinstance(space, str | None):
        raise Misconfigured(f"{marker}: memory must be true or false, and space a name")
    name = root.name.strip()[:180]
    digest = hashlib.sha256(str(root).encode("utf-8", "surrogatepass")).hexdigest()
    return Project(space=space or (f"{name}-{digest[:6]}" if name else None), memory=memory)


def answer(moment: str, call: Call, given: str) -> str:
    """Run a hook and return what to print for the host. Raises as the client does."""
    try:
        fields = json.loads(given.strip() or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidInput("A hook expects a JSON object on stdin: this is not JSON") from error
    if not isinstance(fields, dict):
        raise InvalidInput("A hook expects a JSON object on stdin")
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    event = defaultdict(str, texts)
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
            turn = _read_last_turn(mine, event["transcript_path"])
            keeps_replies = settings.memory_store_responses
            mine.remember([each for each in turn if _is_kept(each, keeps_replies)])
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
    if not text.strip() or is_by_program(text):
        return ""
    reply = mine.command(text)
    # A command that finds nothing was hardly meant for the memory.
    if reply and (reply.done or reply.ids or reply.intent == "forget_all"):
        return f"The memory carried out the user's command and replied: {reply.say}"
    limit = settings.memory_context_limit
    max_chars = settings.memory_context_max_chars
    context = ""
    if limit and max_chars:
        # A token has about four characters, so the number of characters decides.
        found = mine.context(text, limit=limit, max_chars=max_chars, budget=max_chars)
        context = found.text
        # What was recalled is compared with the reply, when the host passes that.
        if mine.labels.session and "memory" not in found.legs:
            with suppress(StoreUnavailable):
                thread = f"{AWAITING}{mine.labels.session}"
                mine.checkpoints.save(thread, {"memory_context": {"recalled": found.ids}})
    prompt = _prompt_message(mine, text)
    if _is_kept(prompt):
        mine.remember(prompt)
        _mark_known(mine)
    return context


def _is_kept(message: Message, keeps_replies: bool = False) -> bool:
    """Return whether a message is stored: what the person states, not what they only ask for."""
    return is_worth_keeping(message.content) if message.role == "user" else keeps_replies


def _mark_known(mine: BlockingScope) -> None:
    """Mark what this session just said as reported: the model has read it."""
    with suppress(StoreUnavailable):
        while mine.labels.session and mine.delta().more:
            pass


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


def _read_last_turn(mine: BlockingScope, path: str) -> list[Message]:
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
            record = json.loads(line)
        except (ValueError, RecursionError):  # cut off or damaged
            continue
        said = read_line(record) if isinstance(record, dict) else None
        if not isinstance(said, Draft):
            continue
        text = said.text[:MAX_TEXT]
        if said.labels.role == "user":
            turn = [_prompt_message(mine, text, said.at)]
        else:
            reply = Message(id=said.message_id, content=text, role="assistant", at=said.at)
            turn.append(reply)
    return turn
