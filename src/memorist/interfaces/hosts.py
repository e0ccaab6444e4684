"""Hosts of coding agents: their hooks, and how this server is added to their configuration.

A host calls a hook on certain events with a JSON object on stdin. A hook prints context for the
model and stores the user's prompt. It is limited in time and never makes the host fail: errors go
to stderr. Each prompt of a session is stored once, whether the host passes it or it is read from
the transcript; replies are stored only with the setting `memory_store_responses`. Only the last
turn of a transcript is read: earlier ones were stored before, or must not be.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shutil
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from ..errors import InvalidInput, NotFound, StoreUnavailable
from ..ingest.validation import moment as parse_time
from ..manage.turn_context import TurnContext
from ..retrieve import render
from ..settings import Settings
from ..storage import atomic
from ..types import Filter, Message, frozen
from . import Call

if TYPE_CHECKING:
    from ..sync import BlockingScope

NAME = "memorist"
HOOKS = {
    "session-start": "SessionStart",
    "prompt": "UserPromptSubmit",
    "stop": "Stop",
    "pre-compact": "PreCompact",
}  # argument of `memorist hook`: event of Claude Code
TIMEOUT = 15  # seconds for a hook, in the configuration of a host
SECONDS = 10.0  # after which a hook gives up and the host continues
MAX_INPUT = 4 << 20  # bytes read from stdin
MAX_TRANSCRIPT = 2 << 20  # bytes read from the end of a transcript
MAX_TEXT = 20_000  # characters of one message
DESKTOP = "Claude/claude_desktop_config.json"
FILES = {  # by host: variable that names the folder, default folder below home, file
    "claude-code": ("CLAUDE_CONFIG_DIR", "", ".claude.json"),
    "hooks": ("CLAUDE_CONFIG_DIR", ".claude", "settings.json"),
    "codex": ("CODEX_HOME", ".codex", "config.toml"),
    "cursor": ("", ".cursor", "mcp.json"),
    "claude-desktop": ("XDG_CONFIG_HOME", ".config", DESKTOP),
    "claude-desktop on win32": ("APPDATA", ".config", DESKTOP),
    "claude-desktop on darwin": ("", "Library/Application Support", DESKTOP),
}
AWAITING = "hook: "  # prefix of the checkpoint with what was recalled for the last prompt
CANDIDATES = 200  # recent memories from which the most important are chosen
_FROM_HOST = re.compile(
    r"/[a-z][\w:-]*(?:\s|$)|\[Request interrupted"
    r"|<(?:command-|local-command-|bash-|system-reminder|user-memory-input"
    r"|user-prompt-submit-hook|task-notification)"
)  # slash commands, and text that a host writes in place of the user
_OUR_TABLES = re.compile(  # up to the next table
    rf"(?m)^[ \t]*\[\s*mcp_servers\s*\.\s*\"?{NAME}\"?\s*[\].].*\n?(?:(?![ \t]*\[).*\n|.+\Z)*"
)


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
        if not call.space and settings.space == "default":
            folder = os.environ.get("CLAUDE_PROJECT_DIR") or event["cwd"]
            call = replace(call, space=project(folder))
        mine = call.scope(memory)
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


def project(folder: str) -> str | None:
    """Return the space of a project: the name of its folder.

    >>> project("/home/ana/code/shop/"), project("/")
    ('shop', None)
    """
    return Path(folder).name[:200].strip() or None


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


@frozen
class FileChange:
    """A file before and after a change."""

    path: Path
    before: str
    after: str

    def diff(self) -> str:
        """Return a unified diff."""
        old = self.before.splitlines(keepends=True)
        new = self.after.splitlines(keepends=True)
        name = str(self.path)
        return "".join(difflib.unified_diff(old, new, name, name, n=1))

    def write(self) -> Path | None:
        """Replace the file atomically and return the path of the backup, if there was a file."""
        path = self.path.resolve()  # keeps symbolic links to dotfiles
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic.new_file(path) as draft:
            draft.write_text(self.after, "utf-8")
            if not path.exists():
                return None
            backup = path.with_name(f"{path.name}.before-memorist")
            shutil.copy2(path, backup)
            shutil.copymode(path, draft)
        return backup


def plan_changes(
    host: str,
    call: Call,
    options: Sequence[str],
    *,
    hooks: bool,
) -> list[FileChange]:
    """Return the changes that add this server, and its hooks, to a host. Raises InvalidInput."""
    if hooks and host != "claude-code":
        raise InvalidInput(f"Hooks are supported for claude-code only, not for {host}")
    path = shutil.which("memorist")
    program = [os.path.abspath(path)] if path else [sys.executable, "-m", "memorist"]
    executable, *arguments = program
    entry: dict[str, Any] = {
        "command": executable,
        "args": [*arguments, "mcp", *options],
    }
    environment = _export_settings(call)
    if environment:
        entry["env"] = environment
    edits: dict[str, Callable[[str], str]] = {}
    if host == "codex":
        edits[host] = partial(_add_toml_table, entry=entry)
    else:
        edits[host] = partial(
            _edit_json,
            section="mcpServers",
            edit=lambda servers: servers.update({NAME: entry}),
        )
    if hooks:
        variables = [f"{name}={quote(value)}" for name, value in environment.items()]
        command = " ".join([*variables, *map(quote, program), "hook"])
        edits["hooks"] = partial(
            _edit_json,
            section="hooks",
            edit=partial(_add_hooks, command=command),
        )
    changes = []
    for name, edit in edits.items():
        variable, usual, last = FILES.get(f"{name} on {sys.platform}", FILES[name])
        folder = os.environ.get(variable) or Path.home() / usual
        file = Path(folder) / last
        try:
            before = file.read_text("utf-8") if file.exists() else ""
            change = FileChange(path=file, before=before, after=edit(before))
        except (ValueError, OSError, RecursionError) as error:
            raise InvalidInput(
                f"Cannot change {file}: {error}. See the documentation for how to add it by hand"
            ) from error
        if change.before != change.after:
            changes.append(change)
    return changes


def _export_settings(call: Call) -> dict[str, str]:
    """Return the current settings as environment variables, without secrets."""
    found = {}
    for name, field in {**Settings.model_fields, "config": None}.items():
        variable = f"MEMORIST_{name.upper()}"
        option = getattr(call, name, None)  # such as db
        value = option or os.environ.get(variable)
        if value and not (field and "Secret" in str(field.annotation)):
            found[variable] = value
    return found


def _edit_json(text: str, section: str, edit: Callable[[dict[str, Any]], None]) -> str:
    """Edit a section of a JSON text and keep the indentation. Raises ValueError."""
    data = json.loads(text.strip() or "{}")
    before = json.dumps(data)
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    values = data.setdefault(section, {})
    if not isinstance(values, dict):
        raise ValueError(f"{section} is not an object")
    edit(values)
    if json.dumps(data) == before:
        return text
    indent: int | str = 2
    if found := re.search(r"^\{\r?\n([ \t]+)", text):
        indent = found[1]
    return json.dumps(data, indent=indent, ensure_ascii=False) + "\n"


def _add_hooks(hooks: dict[str, Any], command: str) -> None:
    """Add each hook once; an older version of it is replaced."""
    for argument, event in HOOKS.items():
        ours = re.compile(rf"(?s).*memorist.* hook {argument}\Z")
        groups = hooks.get(event, [])
        if not isinstance(groups, list) or not all(isinstance(each, dict) for each in groups):
            raise ValueError(f"hooks.{event} is not a list of objects")
        kept = []
        for group in groups:
            others = []
            for each in group.get("hooks", []):
                known = str(each.get("command", "")) if isinstance(each, dict) else ""
                if not ours.match(known):
                    others.append(each)
            if others:
                kept.append({**group, "hooks": others})
        hook = {"type": "command", "command": f"{command} {argument}", "timeout": TIMEOUT}
        hooks[event] = [*kept, {"hooks": [hook]}]


def _add_toml_table(text: str, entry: Mapping[str, Any]) -> str:
    """Put our table at the end. Comments and the order of other tables stay as they are."""
    before = tomllib.loads(text)
    if before.get("mcp_servers", {}).get(NAME) == entry:
        return text
    lines = [_OUR_TABLES.sub("", text).rstrip(), "", f"[mcp_servers.{NAME}]"]
    for name, value in entry.items():
        lines.append(f"{name} = {_to_toml(value)}")
    after = "\n".join([*lines, ""]).lstrip()
    others = []
    for data in (before, tomllib.loads(after)):
        data.setdefault("mcp_servers", {}).pop(NAME, None)
        others.append(data)
    if others[0] != others[1]:
        raise ValueError("other settings in the file would change")
    return after


def _to_toml(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{name} = {_to_toml(each)}" for name, each in value.items())
        return f"{{ {pairs} }}"
    # A JSON string is a TOML string, except for DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
