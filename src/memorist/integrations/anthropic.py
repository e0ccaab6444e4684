"""Anthropic: a backend for the memory tool of Claude. Its files are documents of one scope, in the
database of the memory.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ..errors import MissingExtra
from ..manage import privacy
from ..storage.documents import Documents
from ..sync import verb
from ..text import normalize
from . import Adapter, AnyScope, Bridge, on_loop

try:
    import anthropic  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra('Anthropic is not installed: pip install "memorist[anthropic]"') from error

from anthropic.lib.tools import ToolError
from anthropic.tools.memory import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool
from anthropic.types.beta import BetaCacheControlEphemeralParam

__all__ = ["AsyncMemoristMemoryTool", "MemoristMemoryTool"]

ROOT = "/memories"
_NAMESPACE = ".anthropic-memory"
_MOST_LINES = 999_999
_LONGEST_PATH = 1_000  # bytes

Files = dict[str, str]  # the text of each file, by its path


class _MemoryTool(Adapter):
    """What both tools share."""

    def __init__(
        self,
        scope: AnyScope,
        *,
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)  # type: ignore[call-arg]
        self._loop = Bridge(scope)

    @on_loop
    async def _apply(self, command: Any) -> str:
        """Run a command on the files. Raises ToolError, whose message is for the model."""
        scope = self._loop.scope
        if why := await privacy.find_disabled_reason(scope):
            raise ToolError(f"The memory directory is not available: {why}")
        most = scope.ctx.settings.max_checkpoint_mb << 20

        def edit(values: dict[str, str]) -> str:
            files = {path: json.loads(value)["text"] for path, value in values.items()}
            answer = COMMANDS[command.command](files, command)
            values.clear()
            for path, text in files.items():
                values[path] = json.dumps({"text": text})
                if len(values[path]) > most:
                    raise ToolError(f"{path} is too large: split it into several files")
            return answer

        documents = Documents(scope.ctx.store, scope.scope)
        return await documents.edit(_NAMESPACE, edit, scope.ctx.clock())

    @on_loop
    async def _clear(self) -> str:
        """Delete all files."""
        return await self._apply(SimpleNamespace(command="clear"))


class MemoristMemoryTool(_MemoryTool, BetaAbstractMemoryTool):
    """The memory tool for the blocking client. Every command is applied as a whole or not at all,
    for any number of threads and processes.
    """

    _run: Any = verb(_MemoryTool._apply)
    view = create = str_replace = insert = delete = rename = _run
    clear_all_memory = verb(_MemoryTool._clear)


class AsyncMemoristMemoryTool(_MemoryTool, BetaAsyncAbstractMemoryTool):
    """The memory tool for the async client, in any event loop."""

    _run: Any = _MemoryTool._apply
    view = create = str_replace = insert = delete = rename = _run
    clear_all_memory = _MemoryTool._clear


def view(files: Files, command: Any) -> str:
    """Return the numbered lines of a file, or the files of a directory."""
    path = _resolve(command.path)
    if path not in files:
        return _list(files, path, command.path)
    lines = files[path].split("\n")
    if len(lines) > _MOST_LINES:
        raise ToolError(f"File {command.path} exceeds maximum line limit of {_MOST_LINES:,} lines.")
    first, last = 1, len(lines)
    if command.view_range and len(command.view_range) == 2:
        first = max(1, command.view_range[0])
        last = last if command.view_range[1] == -1 else command.view_range[1]
    shown = _number(lines[first - 1 : last], first)
    return f"Here's the content of {command.path} with line numbers:\n{shown}"


def create(files: Files, command: Any) -> str:
    """Create a file."""
    path = _resolve(command.path)
    if path in files or _below(files, path):
        raise ToolError(f"File {command.path} already exists")
    _check_parents(files, path)
    files[path] = command.file_text
    return f"File created successfully at: {command.path}"


def str_replace(files: Files, command: Any) -> str:
    """Replace a text that occurs once."""
    path = _find_file(files, command.path)
    text = files[path]
    old = command.old_str
    count = text.count(old) if old else 0
    if count == 0:
        raise ToolError(
            f"No replacement was performed, old_str `{old}` did not appear verbatim in"
            f" {command.path}."
        )
    before, *rest = text.split(old)
    line = before.count("\n") + 1
    if count > 1:
        found = [line]
        for part in rest[:-1]:
            line += old.count("\n") + part.count("\n")
            found.append(line)
        lines = ", ".join(map(str, found))
        raise ToolError(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines:"
            f" {lines}. Please ensure it is unique"
        )
    files[path] = text.replace(old, command.new_str)
    first = max(1, line - 2)
    shown = _number(files[path].split("\n")[first - 1 : line + 2], first)
    return (
        "The memory file has been edited. Here is the snippet showing the change"
        f" (with line numbers):\n{shown}"
    )


def insert(files: Files, command: Any) -> str:
    """Insert a text after a line."""
    path = _find_file(files, command.path)
    lines = files[path].removesuffix("\n").split("\n") if files[path] else []
    if not 0 <= command.insert_line <= len(lines):
        raise ToolError(
            f"Invalid `insert_line` parameter: {command.insert_line}. It should be within the range"
            f" [0, {len(lines)}]."
        )
    lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
    files[path] = "\n".join(lines) + "\n"
    return f"The file {command.path} has been edited."


def delete(files: Files, command: Any) -> str:
    """Delete a file or a directory."""
    path = _resolve(command.path)
    if path == ROOT:
        raise ToolError(f"Cannot delete the {ROOT} directory itself")
    for each in _find(files, path, command.path):
        del files[each]
    return f"Successfully deleted {command.path}"


def rename(files: Files, command: Any) -> str:
    """Rename or move a file or a directory."""
    old = _resolve(command.old_path)
    new = _resolve(command.new_path)
    if old == ROOT:
        raise ToolError(f"Cannot rename the {ROOT} directory itself")
    moved = _find(files, old, command.old_path)
    if new == ROOT or new in files or _below(files, new):
        raise ToolError(f"The destination {command.new_path} already exists")
    _check_parents(files, new)
    if f"{new}/".startswith(f"{old}/"):
        raise ToolError(f"Cannot move {command.old_path} into itself")
    for each in moved:
        files[_resolve(new + each.removeprefix(old))] = files.pop(each)
    return f"Successfully renamed {command.old_path} to {command.new_path}"


def clear(files: Files, command: Any) -> str:
    """Delete all files."""
    files.clear()
    return "All memory cleared"


COMMANDS: dict[str, Callable[[Files, Any], str]] = {
    each.__name__: each for each in (view, create, str_replace, insert, delete, rename, clear)
}


def _resolve(path: str) -> str:
    """Return a path without `.`, `..` and a final slash. Raises ToolError outside of the root.

    >>> _resolve("/memories/a/../b/")
    '/memories/b'
    """
    if not path.startswith(ROOT):
        raise ToolError(f"Path must start with {ROOT}, got: {path}")
    resolved = posixpath.normpath(path)
    if not f"{resolved}/".startswith(f"{ROOT}/"):
        raise ToolError(f"Path {path} would escape {ROOT} directory")
    if resolved != normalize.storable(resolved) or len(resolved.encode()) > _LONGEST_PATH:
        raise ToolError(f"A path is text of at most {_LONGEST_PATH:,} bytes")
    return resolved


def _below(files: Files, path: str) -> list[str]:
    return [each for each in files if each.startswith(f"{path}/")]


def _find(files: Files, path: str, given: str) -> list[str]:
    """Return the file at a path, or the files below it. Raises ToolError if there are none."""
    found = [path] if path in files else _below(files, path)
    if not found:
        raise ToolError(f"The path {given} does not exist")
    return found


def _find_file(files: Files, given: str) -> str:
    path = _resolve(given)
    if path in files:
        return path
    if path == ROOT or _below(files, path):
        raise ToolError(f"The path {given} is not a file.")
    raise ToolError(f"The path {given} does not exist. Please provide a valid path.")


def _check_parents(files: Files, path: str) -> None:
    while path != ROOT:
        path = posixpath.dirname(path)
        if path in files:
            raise ToolError(f"The path {path} is a file, not a directory")


def _list(files: Files, path: str, given: str) -> str:
    """Return the sizes and names of what is in a directory, two levels deep."""
    sizes = {path: 0}
    for file in _below(files, path):
        parts = file.removeprefix(f"{path}/").split("/")
        size = len(files[file].encode("utf-8", "replace"))
        sizes[path] += size
        for depth in (1, 2):
            shown = parts[:depth]
            if len(parts) < depth or any(part.startswith(".") for part in shown):
                break
            name = "/".join((path, *shown)) + ("/" if len(parts) > depth else "")
            sizes[name] = sizes.get(name, 0) + size
    if path != ROOT and not _below(files, path):
        raise ToolError(f"The path {given} does not exist. Please provide a valid path.")
    lines = [f"{_to_size(sizes[name])}\t{name}" for name in sorted(sizes)]
    header = (
        f"Here're the files and directories up to 2 levels deep in {given}, excluding hidden items:"
    )
    return "\n".join((header, *lines))


def _to_size(size: float) -> str:
    """Return a number of bytes as people read it.

    >>> _to_size(512), _to_size(1536), _to_size(2 << 20)
    ('512B', '1.5K', '2M')
    """
    units = ["B", "K", "M"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.1f}".removesuffix(".0") + units[0]


def _number(lines: list[str], first: int) -> str:
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, first))
