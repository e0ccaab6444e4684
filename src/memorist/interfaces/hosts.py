"""Hosts of coding agents: how this server and its hooks are added to their configuration.

The change is shown before it is written, other settings in the file stay, and a copy of it is kept.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from ..errors import InvalidInput, Misconfigured
from ..settings import Settings
from ..storage import atomic
from ..types import frozen
from . import Call, Json, jsonc
from .hooks import HOOKS

NAME = "memorist"
TIMEOUT = 15  # seconds for a hook
BYTE_ORDER_MARK = "\ufeff"  # begins a file that an editor on Windows saved
STARTS_WITHIN = 60  # seconds in which the server has to answer
_OUR_TABLES = re.compile(  # up to the next table
    rf"(?m)^[ \t]*\[\s*mcp_servers\s*\.\s*\"?{NAME}\"?\s*[\].].*\n?(?:(?![ \t]*\[).*\n|.+\Z)*"
)


class HostFile(NamedTuple):
    """Where a host keeps its servers."""

    file: str
    variable: str = ""  # of the environment, that names the folder
    folder: str = ""  # below home, otherwise
    section: str = "mcpServers"


_APPLICATIONS = {"win32": ("APPDATA", ".config"), "darwin": ("", "Library/Application Support")}


def _application(file: str, section: str = "mcpServers") -> HostFile:
    """Return the place of a file in the folder where this system keeps those of applications."""
    variable, folder = _APPLICATIONS.get(sys.platform, ("XDG_CONFIG_HOME", ".config"))
    return HostFile(file, variable, folder, section)


PLACES = {
    "claude-code": HostFile(".claude.json", "CLAUDE_CONFIG_DIR"),
    "hooks": HostFile("settings.json", "CLAUDE_CONFIG_DIR", ".claude", "hooks"),
    "codex": HostFile("config.toml", "CODEX_HOME", ".codex", "mcp_servers"),
    "cursor": HostFile("mcp.json", "", ".cursor"),
    "claude-desktop": _application("Claude/claude_desktop_config.json"),
    "vscode": _application("Code/User/mcp.json", "servers"),
    "windsurf": HostFile("mcp_config.json", "", ".codeium/windsurf"),
    "gemini-cli": HostFile("settings.json", "", ".gemini"),
    "zed": HostFile("zed/settings.json", "XDG_CONFIG_HOME", ".config", "context_servers"),
    "opencode": HostFile("opencode/opencode.json", "XDG_CONFIG_HOME", ".config", "mcp"),
}


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
            draft.write_bytes(self.after.encode("utf-8"))
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
    remove: bool = False,
) -> list[FileChange]:
    """Return the changes that add this server, and its hooks, to a host, or remove them.

    Tools and hooks use the same space: that of the project, unless one is set. Raises InvalidInput.
    """
    if hooks and host != "claude-code":
        raise InvalidInput(f"Hooks are supported for claude-code only, not for {host}")
    environment = _export_settings(call)
    if hooks and "MEMORIST_SPACE" not in environment and "--project" not in options:
        options = [*options, "--project"]
    program = _program()
    entry = _describe_server(host, [*program, "mcp", *options], environment)

    def set_server(servers: Json) -> None:
        if remove:
            servers.pop(NAME, None)
        else:
            servers[NAME] = entry

    edits: dict[str, Callable[[Json], None]] = {host: set_server}
    if hooks or (remove and host == "claude-code"):
        variables = [f"{name}={quote(value)}" for name, value in environment.items()]
        command = " ".join([*variables, *map(quote, program), "hook"])
        edits["hooks"] = partial(_set_hooks, command="" if remove else command)
    changes = []
    for name, edit in edits.items():
        place = PLACES[name]
        file = Path(os.environ.get(place.variable) or Path.home() / place.folder) / place.file
        if remove and not file.exists():
            continue
        try:
            before = file.read_bytes().decode("utf-8") if file.exists() else ""
            mark = BYTE_ORDER_MARK if before.startswith(BYTE_ORDER_MARK) else ""
            text = before.removeprefix(mark)
            if host == "codex":
                after = mark + _set_toml_table(text, None if remove else entry)
            else:
                after = mark + jsonc.edit_section(text, place.section, edit)
        except (ValueError, OSError, RecursionError) as error:
            by_hand = json.dumps({PLACES[host].section: {NAME: entry}}, indent=2)
            raise InvalidInput(
                f"Cannot change {file}: {error}. Add it by hand: {by_hand}"
            ) from error
        if before != after:
            changes.append(FileChange(path=file, before=before, after=after))
    return changes


def _program() -> list[str]:
    """Return the command that starts this program."""
    path = shutil.which("memorist")
    return [os.path.abspath(path)] if path else [sys.executable, "-m", "memorist"]


def _describe_server(host: str, command: Sequence[str], environment: Mapping[str, str]) -> Any:
    """Return the entry of this server in the form of a host."""
    entry: Json = {"command": command[0], "args": [*command[1:]]}
    variables = "env"
    if host == "vscode":
        entry = {"type": "stdio", **entry}
    elif host == "zed":
        entry = {"source": "custom", **entry}
    elif host == "opencode":
        entry = {"type": "local", "command": [*command], "enabled": True}
        variables = "environment"
    if environment:
        entry[variables] = dict(environment)
    return entry


def check_server(call: Call, options: Sequence[str]) -> None:
    """Start the server as a host would, and wait for its first answer. Raises Misconfigured."""
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "memorist mcp install", "version": "1"},
        },
    }
    command = [*_program(), "mcp", *options]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(hello) + "\n",
            capture_output=True,
            text=True,
            timeout=STARTS_WITHIN,
            env=os.environ | _export_settings(call),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Misconfigured(
            f"The server does not start, so nothing was written: {error}"
        ) from error
    if '"serverInfo"' not in done.stdout:
        why = done.stderr.strip().removeprefix("memorist: ") or f"it ended with {done.returncode}"
        raise Misconfigured(f"The server does not start, so nothing was written. {why}")


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


def _set_hooks(hooks: Json, command: str) -> None:
    """Add each hook once, in place of an older version of it; without a command, remove it."""
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
        if command:
            hook = {"type": "command", "command": f"{command} {argument}", "timeout": TIMEOUT}
            kept.append({"hooks": [hook]})
        if kept or event in hooks:
            hooks[event] = kept


def _set_toml_table(text: str, entry: Mapping[str, Any] | None) -> str:
    """Put our table at the end, or remove it. Comments and other tables stay as they are."""
    before = tomllib.loads(text)
    if before.get("mcp_servers", {}).get(NAME) == entry:
        return text
    lines = [_OUR_TABLES.sub("", text).rstrip()]
    if entry is not None:
        lines += ["", f"[mcp_servers.{NAME}]"]
        lines += [f"{name} = {_to_toml(value)}" for name, value in entry.items()]
    after = "\n".join([*lines, ""]).lstrip()
    rest = tomllib.loads(after)
    for data in (before, rest):
        data.setdefault("mcp_servers", {}).pop(NAME, None)
    if before != rest:
        raise ValueError("other settings in the file would change")
    return after


def _to_toml(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{name} = {_to_toml(each)}" for name, each in value.items())
        return f"{{ {pairs} }}"
    # A JSON string is a TOML string, except for DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
