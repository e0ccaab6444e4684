"""Add the server and its hooks to the configuration file of an MCP client; the rest of it stays."""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from ...errors import InvalidInput
from ...settings import Settings
from ..call import Call

NAME = "memorist"
HOOKS = {
    "SessionStart": "session-start",
    "UserPromptSubmit": "prompt",
    "Stop": "stop",
    "PreCompact": "pre-compact",
}  # event of Claude Code: argument of `memorist hook`
TIMEOUT = 15  # seconds for a hook
_OUR_TABLE = re.compile(rf"\[\s*mcp_servers\s*\.\s*\"?{NAME}\"?\s*[\].]")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file before and after a change."""

    path: Path
    before: str
    after: str

    def diff(self) -> str:
        """Return a unified diff."""
        old, new = self.before.splitlines(keepends=True), self.after.splitlines(keepends=True)
        return "".join(difflib.unified_diff(old, new, str(self.path), str(self.path), n=1))

    def write(self) -> Path | None:
        """Replace the file atomically and return the path of the backup, if there was a file."""
        path = Path(os.path.realpath(self.path))  # keeps symbolic links to dotfiles
        path.parent.mkdir(parents=True, exist_ok=True)
        backup = None
        if path.exists():
            backup = path.with_name(f"{path.name}.before-memorist")
            shutil.copy2(path, backup)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(self.after)
        if backup is not None:
            shutil.copymode(backup, temporary)
        os.replace(temporary, path)
        return backup


def plan_changes(host: str, call: Call, options: Sequence[str], *, hooks: bool) -> list[FileChange]:
    """Return the changes that add the server to a host, and its hooks. Raises InvalidInput."""
    if hooks and host != "claude-code":
        raise InvalidInput(f"Hooks are supported for claude-code only, not for {host}")
    path = shutil.which("memorist")
    program = [os.path.abspath(path)] if path else [sys.executable, "-m", "memorist"]
    entry: dict[str, Any] = {"command": program[0], "args": [*program[1:], "mcp", *options]}
    environment = export_settings(call)
    if environment:
        entry["env"] = environment
    edits: dict[Path, Callable[[str], str]] = {}
    if host == "codex":
        file = _config_dir("CODEX_HOME", ".codex") / "config.toml"
        edits[file] = partial(add_toml_table, entry=entry)
    else:
        edits[config_file(host)] = partial(edit_json, edit=partial(add_server, entry=entry))
    if hooks:
        variables = [f"{name}={quote(value)}" for name, value in environment.items()]
        command = " ".join([*variables, *map(quote, program), "hook"])
        file = _config_dir("CLAUDE_CONFIG_DIR", ".claude") / "settings.json"
        edits[file] = partial(edit_json, edit=partial(add_hooks, command=command))
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


def export_settings(call: Call) -> dict[str, str]:
    """Return the settings that hold here as environment variables: all but secrets."""
    found = {}
    for name in (*Settings.model_fields, "config"):
        field = Settings.model_fields.get(name)
        if field and "Secret" in str(field.annotation):
            continue
        value = getattr(call, name, None) if name in ("db", "user", "space", "tenant") else None
        value = value or os.environ.get(f"MEMORIST_{name.upper()}")
        if value:
            found[f"MEMORIST_{name.upper()}"] = str(value)
    return found


def _config_dir(variable: str, default: str) -> Path:
    configured = os.environ.get(variable)
    return Path(configured) if configured else Path.home() / default


def config_file(host: str) -> Path:
    """Return the file with the MCP servers of a host that configures them in JSON."""
    if host == "claude-code":
        return _config_dir("CLAUDE_CONFIG_DIR", "") / ".claude.json"
    if host == "cursor":
        return Path.home() / ".cursor" / "mcp.json"
    folder = Path.home() / "Library" / "Application Support"
    if sys.platform != "darwin":
        folder = _config_dir("APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME", ".config")
    return folder / "Claude" / "claude_desktop_config.json"


def edit_json(text: str, edit: Callable[[dict[str, Any]], None]) -> str:
    """Change an object in a JSON text, which keeps its indentation. Raises ValueError."""
    data = json.loads(text) if text.strip() else {}
    before = json.dumps(data)
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    edit(data)
    if json.dumps(data) == before:
        return text
    indent = re.search(r"^\{\r?\n([ \t]+)", text)
    return json.dumps(data, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def add_server(data: dict[str, Any], entry: Mapping[str, Any]) -> None:
    servers = data.setdefault("mcpServers", {})
    if not isinstance(servers, dict):
        raise ValueError("mcpServers is not an object")
    servers[NAME] = entry


def add_hooks(data: dict[str, Any], command: str) -> None:
    """Add each hook once, replacing an older one of ours."""
    hooks = data.setdefault("hooks", {})
    if not isinstance(hooks, dict):
        raise ValueError("hooks is not an object")
    for event, argument in HOOKS.items():
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


def add_toml_table(text: str, entry: Mapping[str, Any]) -> str:
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
