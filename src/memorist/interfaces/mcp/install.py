"""Telling a host where the memory is, in its own configuration file; nothing else in that file changes."""

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
HOSTS: tuple[Host, ...] = ("claude-code", "codex", "cursor", "claude-desktop")
NAME = "memorist"
HOOKS = {
    "SessionStart": "session-start",
    "UserPromptSubmit": "prompt",
    "Stop": "stop",
    "PreCompact": "pre-compact",
}  # as Claude Code calls them, and as we do
TIMEOUT = 15  # seconds that a host gives a hook


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A file as it is, and as it is to be."""

    path: Path
    before: str
    after: str

    @property
    def is_needed(self) -> bool:
        return self.before != self.after

    def diff(self) -> str:
        """What changes, with a line around it."""
        old, new = (text.splitlines(keepends=True) for text in (self.before, self.after))
        return "".join(difflib.unified_diff(old, new, str(self.path), str(self.path), n=1))

    def write(self) -> Path | None:
        """Make it so, and give the path of the copy of what was there before."""
        real = Path(os.path.realpath(self.path))  # people keep such files elsewhere and link them
        real.parent.mkdir(parents=True, exist_ok=True)
        backup = None
        if real.exists():
            backup = real.with_name(f"{real.name}.before-memorist")
            shutil.copy2(real, backup)
        draft = real.with_name(f".{real.name}.{os.getpid()}")
        with open(
            os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(self.after)
        if backup is not None:
            shutil.copymode(backup, draft)
        os.replace(draft, real)
        return backup


def changes(host: Host, entry: Mapping[str, Any], hooks: str | None = None) -> list[Change]:
    """What has to change so that a host knows the server, and calls the hooks by these words. Raises InvalidInput."""
    if hooks is not None and host != "claude-code":
        raise InvalidInput(f"{host} is given the server alone: hooks are known for claude-code")
    if host == "codex":
        return [
            _changed(
                _home("CODEX_HOME", ".codex") / "config.toml", lambda text: _in_toml(text, entry)
            )
        ]
    made = [
        _changed(
            _json_file(host), lambda text: _in_json(text, lambda data: _with_server(data, entry))
        )
    ]
    if hooks is not None:
        place = _home("CLAUDE_CONFIG_DIR", ".claude") / "settings.json"
        made.append(
            _changed(place, lambda text: _in_json(text, lambda data: _with_hooks(data, hooks)))
        )
    return made


def command() -> list[str]:
    """How this program is called, from anywhere."""
    found = shutil.which("memorist")
    return [os.path.abspath(found)] if found else [sys.executable, "-m", "memorist"]


def _home(variable: str, usual: str) -> Path:
    named = os.environ.get(variable)
    return Path(named) if named else Path.home() / usual


def _json_file(host: Host) -> Path:
    if host == "claude-code":
        inside = os.environ.get("CLAUDE_CONFIG_DIR")
        return (Path(inside) if inside else Path.home()) / ".claude.json"
    if host == "cursor":
        return Path.home() / ".cursor" / "mcp.json"
    if sys.platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    else:
        folder = Path(
            os.environ.get("APPDATA" if os.name == "nt" else "XDG_CONFIG_HOME")
            or Path.home() / ".config"
        )
    return folder / "Claude" / "claude_desktop_config.json"


def _changed(path: Path, change: Callable[[str], str]) -> Change:
    try:
        before = path.read_text("utf-8") if path.exists() else ""
        return Change(path=path, before=before, after=change(before))
    except (ValueError, OSError, RecursionError) as error:
        raise InvalidInput(
            f"{path} cannot be changed: {error}. The documentation shows what to add by hand"
        ) from error


def _in_json(text: str, change: Callable[[dict[str, Any]], None]) -> str:
    data = json.loads(text) if text.strip() else {}
    old = json.dumps(data)
    if not isinstance(data, dict):
        raise ValueError("it holds no object")
    change(data)
    if json.dumps(data) == old:
        return text
    indent = re.search(r"^\{\r?\n([ \t]+)", text)
    return json.dumps(data, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def _with_server(data: dict[str, Any], entry: Mapping[str, Any]) -> None:
    _inner(data, "mcpServers")[NAME] = dict(entry)


def _with_hooks(data: dict[str, Any], words: str) -> None:
    """Each hook once, in place of one of ours that is there."""
    hooks = _inner(data, "hooks")
    for event, ours in HOOKS.items():
        there = hooks.setdefault(event, [])
        if not isinstance(there, list) or not all(isinstance(each, dict) for each in there):
            raise ValueError(f"hooks.{event} is no list of objects")
        call = {"type": "command", "command": f"{words} {ours}", "timeout": TIMEOUT}
        kept = [
            {**each, "hooks": [one for one in each.get("hooks", []) if not _is_ours(one, ours)]}
            for each in there
        ]
        hooks[event] = [*(each for each in kept if each["hooks"]), {"hooks": [call]}]


def _is_ours(call: Any, word: str) -> bool:
    words = str(call.get("command", "")) if isinstance(call, dict) else ""
    return "memorist" in words and words.endswith(f" hook {word}")


def _inner(data: dict[str, Any], name: str) -> dict[str, Any]:
    inner = data.setdefault(name, {})
    if not isinstance(inner, dict):
        raise ValueError(f"{name} is no object")
    return inner


def _in_toml(text: str, entry: Mapping[str, Any]) -> str:
    """The text with our table at its end; comments and the order of the rest stay as they are."""
    old = tomllib.loads(text)
    if old.get("mcp_servers", {}).get(NAME) == entry:
        return text
    kept, is_ours = [], False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            is_ours = (
                re.match(rf"\s*\[\s*mcp_servers\s*\.\s*\"?{NAME}\"?\s*[\].]", line) is not None
            )
        if not is_ours:
            kept.append(line)
    rest = "".join(kept).rstrip()
    table = "\n".join(f"{name} = {_toml(value)}" for name, value in entry.items())
    made = f"{rest}\n\n[mcp_servers.{NAME}]\n{table}\n".lstrip()
    if _without(tomllib.loads(made)) != _without(old):
        raise ValueError("another part of it would change")
    return made


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml(each)}" for name, each in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace(
        "\x7f", "\\u007f"
    )  # what JSON writes is TOML, but for this


def _without(data: dict[str, Any]) -> dict[str, Any]:
    servers = {name: value for name, value in data.get("mcp_servers", {}).items() if name != NAME}
    return {
        **{name: value for name, value in data.items() if name != "mcp_servers"},
        "mcp_servers": servers,
    }
