"""Add the server and its hooks to the configuration file of an MCP client; the rest of it stays."""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...errors import InvalidInput

Host = Literal["claude-code", "codex", "cursor", "claude-desktop"]
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

    @property
    def is_needed(self) -> bool:
        return self.before != self.after

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


def plan_changes(
    host: Host, entry: Mapping[str, Any], hook_command: str | None = None
) -> list[FileChange]:
    """Return the changes that add the server to a host, and its hooks. Raises InvalidInput."""
    if hook_command is not None and host != "claude-code":
        raise InvalidInput(f"Hooks are supported for claude-code only, not for {host}")

    def add_server(data: dict[str, Any]) -> None:
        _get_object(data, "mcpServers")[NAME] = dict(entry)

    if host == "codex":
        path = _config_dir("CODEX_HOME", ".codex") / "config.toml"
        return [_change_file(path, lambda text: _add_toml_table(text, entry))]
    changes = [_change_file(_json_file(host), lambda text: _change_json(text, add_server))]
    if hook_command is not None:
        path = _config_dir("CLAUDE_CONFIG_DIR", ".claude") / "settings.json"
        changes.append(
            _change_file(
                path,
                lambda text: _change_json(text, lambda data: _add_hooks(data, hook_command)),
            )
        )
    return changes


def program() -> list[str]:
    """Return the command that starts this program from any folder."""
    path = shutil.which("memorist")
    return [os.path.abspath(path)] if path else [sys.executable, "-m", "memorist"]


def _config_dir(variable: str, default: str) -> Path:
    configured = os.environ.get(variable)
    return Path(configured) if configured else Path.home() / default


def _json_file(host: Host) -> Path:
    if host == "claude-code":
        return _config_dir("CLAUDE_CONFIG_DIR", "") / ".claude.json"
    if host == "cursor":
        return Path.home() / ".cursor" / "mcp.json"
    if sys.platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    else:
        folder = _config_dir("APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME", ".config")
    return folder / "Claude" / "claude_desktop_config.json"


def _change_file(path: Path, change: Callable[[str], str]) -> FileChange:
    try:
        before = path.read_text("utf-8") if path.exists() else ""
        return FileChange(path=path, before=before, after=change(before))
    except (ValueError, OSError, RecursionError) as error:
        raise InvalidInput(
            f"Cannot change {path}: {error}. See the documentation for how to add it by hand"
        ) from error


def _change_json(text: str, change: Callable[[dict[str, Any]], None]) -> str:
    data = json.loads(text) if text.strip() else {}
    before = json.dumps(data)
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    change(data)
    if json.dumps(data) == before:
        return text
    indent = re.search(r"^\{\r?\n([ \t]+)", text)
    return json.dumps(data, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def _add_hooks(data: dict[str, Any], command: str) -> None:
    """Add each hook once, replacing an older one of ours."""
    hooks = _get_object(data, "hooks")
    for event, argument in HOOKS.items():
        groups = hooks.setdefault(event, [])
        if not isinstance(groups, list) or not all(isinstance(each, dict) for each in groups):
            raise ValueError(f"hooks.{event} is not a list of objects")
        kept: list[dict[str, Any]] = []
        for group in groups:
            others = [each for each in group.get("hooks", []) if not _is_ours(each, argument)]
            if others:
                kept.append({**group, "hooks": others})
        hook = {"type": "command", "command": f"{command} {argument}", "timeout": TIMEOUT}
        hooks[event] = [*kept, {"hooks": [hook]}]


def _is_ours(hook: Any, argument: str) -> bool:
    command = str(hook.get("command", "")) if isinstance(hook, dict) else ""
    return "memorist" in command and command.endswith(f" hook {argument}")


def _get_object(data: dict[str, Any], name: str) -> dict[str, Any]:
    value = data.setdefault(name, {})
    if not isinstance(value, dict):
        raise ValueError(f"{name} is not an object")
    return value


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
    if _without_ours(tomllib.loads(after)) != _without_ours(before):
        raise ValueError("other settings in it would change")
    return after


def _to_toml(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{name} = {_to_toml(each)}" for name, each in value.items())
        return f"{{ {pairs} }}"
    # A JSON string is a TOML string, except for DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _without_ours(data: dict[str, Any]) -> dict[str, Any]:
    servers = dict(data.get("mcp_servers", {}))
    servers.pop(NAME, None)
    return {**data, "mcp_servers": servers}
