"""Hosts of coding agents: what their hooks do, and how they are configured for this server.

A host calls a hook at certain moments with a JSON object on stdin. A hook prints context for the
model and stores what the person said. A host never waits long for its memory and never fails
because of it: errors go to stderr. Each prompt of a session is stored once, whether the host passes
it or it is in the transcript; replies only with the setting `memory_store_responses`. Only the last
turn of a transcript is read: earlier ones were stored at their time, or must not be.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from ..errors import InvalidInput
from ..ingest.validation import moment as parse_time
from ..retrieve import render
from ..settings import Settings
from ..storage import atomic
from ..types import Filter, Message
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
SECONDS = 10.0  # after which the host continues without us
MAX_INPUT = 4 << 20  # bytes on stdin
MAX_TRANSCRIPT = 2 << 20  # bytes read from its end
MAX_TEXT = 20_000  # characters of one message
CANDIDATES = 200  # recent memories from which the most important are chosen
_FROM_HOST = re.compile(
    r"/[a-z][\w:-]*(?:\s|$)|\[Request interrupted"
    r"|<(?:command-|local-command-|bash-|system-reminder|user-memory-input"
    r"|user-prompt-submit-hook|task-notification)"
)  # commands, and what a host writes in the person's place
_OUR_TABLE = re.compile(rf"\[\s*mcp_servers\s*\.\s*\"?{NAME}\"?\s*[\].]")


def answer(moment: str, call: Call, given: str) -> str:
    """Handle a moment and return what to print for the host. Raises as the client does."""
    try:
        event = json.loads(given) if given.strip() else {}
    except (ValueError, RecursionError) as error:
        raise InvalidInput("A hook reads a JSON object on stdin: this is not JSON") from error
    if not isinstance(event, dict):
        raise InvalidInput("A hook reads a JSON object on stdin")
    call = replace(call, session=call.session or _text(event.get("session_id"))[:200] or None)
    with call.memory() as memory:
        settings = memory.settings
        context = ""
        if not call.space and settings.space == "default":
            folder = os.environ.get("CLAUDE_PROJECT_DIR") or _text(event.get("cwd"))
            call = replace(call, space=project(folder))
        mine = call.scope(memory)
        if moment == "prompt":
            context = _handle_prompt(mine, settings, _text(event.get("prompt")))
        elif moment != "session-start":
            mine.remember(_last_turn(_text(event.get("transcript_path")), mine, settings))
        elif not mine.privacy.disabled_reason():
            # Pinned memories, then the most important recent ones, within the limits.
            limit = settings.memory_context_limit
            pinned = mine.list(Filter(pinned=True), limit=max(1, limit))
            recent = mine.list(Filter(pinned=False), limit=CANDIDATES)
            rest = sorted(recent, key=lambda memory: -memory.importance)
            caps = render.Caps(limit=limit, chars=settings.memory_context_max_chars)
            context = render.fit([*pinned, *rest], caps, render.block, skip=False).text
    if not context:
        return ""
    output = {"hookEventName": HOOKS[moment], "additionalContext": context}
    return json.dumps({"hookSpecificOutput": output})


def project(folder: str) -> str | None:
    """Return the name of a folder, as a space.

    >>> project("/home/ana/code/shop/"), project("/")
    ('shop', None)
    """
    return Path(folder).name[:200].strip() or None


def _handle_prompt(mine: BlockingScope, settings: Settings, text: str) -> str:
    """Return context for a prompt, then store the prompt, so that it does not answer itself."""
    if not text.strip() or _FROM_HOST.match(text):
        return ""
    if reply := mine.command(text):
        return f"The memory ran the user's command and says: {reply.say}"
    limit = settings.memory_context_limit
    max_chars = settings.memory_context_max_chars
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


def _last_turn(path: str, mine: BlockingScope, settings: Settings) -> list[Message]:
    """Return the last prompt in a transcript, and the replies to it if those are stored."""
    turn: list[Message] = []
    for record in _read_transcript(path):
        message = record.get("message")
        at = record.get("timestamp")
        id = record.get("uuid")
        content = message.get("content") if isinstance(message, dict) else None
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        objects = [part for part in parts if isinstance(part, dict)]
        texts = [_text(part.get("text")) for part in objects if part.get("type") == "text"]
        text = _text("\n".join(texts)).strip()
        if not text or _FROM_HOST.match(text):  # a tool result, or written by the host
            continue
        if record["type"] == "user":
            turn = [_prompt_message(mine, text, at)]
        elif settings.memory_store_responses and isinstance(id, str):
            turn.append(Message(id=id, content=text, role="assistant", at=parse_time(at)))
    return turn


def _read_transcript(path: str) -> Iterator[dict[str, Any]]:
    """Yield the messages at the end of a transcript, without damaged ones."""
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
            if not isinstance(record, dict) or record.get("type") not in ("user", "assistant"):
                continue
            if not record.get("isMeta") and not record.get("isSidechain"):
                yield record


def _text(given: object) -> str:
    return given[:MAX_TEXT] if isinstance(given, str) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file before and after a change."""

    path: Path
    before: str
    after: str

    def diff(self) -> str:
        """Return a unified diff."""
        old = self.before.splitlines(keepends=True)
        new = self.after.splitlines(keepends=True)
        return "".join(difflib.unified_diff(old, new, str(self.path), str(self.path), n=1))

    def write(self) -> Path | None:
        """Replace the file atomically and return the path of the backup, if there was a file."""
        path = Path(os.path.realpath(self.path))  # keeps symbolic links to dotfiles
        path.parent.mkdir(parents=True, exist_ok=True)
        backup = None
        if path.exists():
            backup = path.with_name(f"{path.name}.before-memorist")
            shutil.copy2(path, backup)
        with atomic.new_file(path) as draft:
            draft.write_text(self.after, "utf-8")
            if backup is not None:
                shutil.copymode(backup, draft)
        return backup


def plan_changes(host: str, call: Call, options: Sequence[str], *, hooks: bool) -> list[FileChange]:
    """Return the changes that add the server to a host, and its hooks. Raises InvalidInput."""
    if hooks and host != "claude-code":
        raise InvalidInput(f"Hooks are supported for claude-code only, not for {host}")
    path = shutil.which("memorist")
    program = [os.path.abspath(path)] if path else [sys.executable, "-m", "memorist"]
    entry: dict[str, Any] = {"command": program[0], "args": [*program[1:], "mcp", *options]}
    environment = _export_settings(call)
    if environment:
        entry["env"] = environment
    edits: dict[Path, Callable[[str], str]] = {}
    if host == "codex":
        file = _config_dir("CODEX_HOME", ".codex") / "config.toml"
        edits[file] = partial(_add_toml_table, entry=entry)
    else:
        edits[_config_file(host)] = partial(
            edit_json, section="mcpServers", edit=lambda servers: servers.update({NAME: entry})
        )
    if hooks:
        variables = [f"{name}={quote(value)}" for name, value in environment.items()]
        command = " ".join([*variables, *map(quote, program), "hook"])
        file = _config_dir("CLAUDE_CONFIG_DIR", ".claude") / "settings.json"
        edits[file] = partial(edit_json, section="hooks", edit=partial(_add_hooks, command=command))
    changes = []
    for file, edit in edits.items():
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
    """Return the settings that hold here as environment variables: all but secrets."""
    found = {}
    for name in (*Settings.model_fields, "config"):
        field = Settings.model_fields.get(name)
        if field and "Secret" in str(field.annotation):
            continue
        variable = f"MEMORIST_{name.upper()}"
        value = getattr(call, name, None) or os.environ.get(variable)  # an option, such as db
        if value:
            found[variable] = value
    return found


def _config_dir(variable: str, default: str) -> Path:
    configured = os.environ.get(variable)
    return Path(configured) if configured else Path.home() / default


def _config_file(host: str) -> Path:
    """Return the file with the MCP servers of a host that configures them in JSON."""
    if host == "claude-code":
        return _config_dir("CLAUDE_CONFIG_DIR", "") / ".claude.json"
    if host == "cursor":
        return Path.home() / ".cursor" / "mcp.json"
    folder = Path.home() / "Library" / "Application Support"
    if sys.platform != "darwin":
        folder = _config_dir("APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME", ".config")
    return folder / "Claude" / "claude_desktop_config.json"


def edit_json(text: str, section: str, edit: Callable[[dict[str, Any]], None]) -> str:
    """Change a section of a JSON text, which keeps its indentation. Raises ValueError."""
    data = json.loads(text) if text.strip() else {}
    before = json.dumps(data)
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    values = data.setdefault(section, {})
    if not isinstance(values, dict):
        raise ValueError(f"{section} is not an object")
    edit(values)
    if json.dumps(data) == before:
        return text
    indent = re.search(r"^\{\r?\n([ \t]+)", text)
    return json.dumps(data, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def _add_hooks(hooks: dict[str, Any], command: str) -> None:
    """Add each hook once, replacing an older one of ours."""
    for argument, event in HOOKS.items():
        groups = hooks.setdefault(event, [])
        if not isinstance(groups, list) or not all(isinstance(each, dict) for each in groups):
            raise ValueError(f"hooks.{event} is not a list of objects")
        kept: list[dict[str, Any]] = []
        for group in groups:
            others = []
            for each in group.get("hooks", []):
                known = str(each.get("command", "")) if isinstance(each, dict) else ""
                if "memorist" not in known or not known.endswith(f" hook {argument}"):
                    others.append(each)
            if others:
                kept.append({**group, "hooks": others})
        hook = {"type": "command", "command": f"{command} {argument}", "timeout": TIMEOUT}
        hooks[event] = [*kept, {"hooks": [hook]}]


def _add_toml_table(text: str, entry: Mapping[str, Any]) -> str:
    """Put our table at the end; comments and the order of the rest stay as they are."""
    before = tomllib.loads(text)
    if before.get("mcp_servers", {}).get(NAME) == entry:
        return text
    kept: list[str] = []
    is_ours = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            is_ours = _OUR_TABLE.match(line.lstrip()) is not None
        if not is_ours:
            kept.append(line)
    table = "\n".join(f"{name} = {_to_toml(value)}" for name, value in entry.items())
    after = f"{''.join(kept).rstrip()}\n\n[mcp_servers.{NAME}]\n{table}\n".lstrip()
    others = []
    for data in (before, tomllib.loads(after)):
        data.setdefault("mcp_servers", {}).pop(NAME, None)
        others.append(data)
    if others[0] != others[1]:
        raise ValueError("other settings in it would change")
    return after


def _to_toml(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{name} = {_to_toml(each)}" for name, each in value.items())
        return f"{{ {pairs} }}"
    # A JSON string is a TOML string, except for DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
