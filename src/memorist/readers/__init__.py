"""Read what other programs exported: one small reader per format, chosen by the shape of a file.

A reader is a generator of drafts, and of what it leaves out. It reads one conversation at a time,
and takes its ids from the file, so that importing twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ..errors import InvalidInput
from ..types import Draft
from . import chats, coding, messengers, notes
from .archive import find_sources
from .source import Damaged, ImportRun, Items, Skipped, Source

BETWEEN_PEOPLE = frozenset(("slack", "discord", "whatsapp", "telegram"))
_LINES = "lines object"  # a single line is an object
BEFORE_SINCE = "before the given date"
FEW_FILES = 5  # named of those that are not of a known format


class Format(NamedTuple):
    """How a format is recognized and read."""

    matches: Callable[[Source], bool]
    read: Callable[[Source, ImportRun], Items]


def _has(kinds: str, *alternatives: str) -> Callable[[Source], bool]:
    """Return a test for JSON of some kinds that has all keys of one of the alternatives."""

    def matches(source: Source) -> bool:
        kind, keys = source.shape
        return kind in kinds.split() and any(keys.issuperset(each.split()) for each in alternatives)

    return matches


def _is_slack(source: Source) -> bool:
    kind, keys = source.shape
    is_list = PurePosixPath(source.name).name in ("users.json", "channels.json")
    return kind == "array" and (keys >= {"type", "ts"} or (is_list and "id" in keys))


# In this order: the first that matches reads a file.
FORMATS = {
    "chatgpt": Format(_has("array", "mapping"), chats.read_chatgpt),
    "claude": Format(
        _has(
            "array object",
            "chat_messages",
            "conversations_memory",
            "memory_files",
            "docs prompt_template",
        ),
        chats.read_claude,
    ),
    "claude-code": Format(
        _has(_LINES, "sessionId parentUuid", "leafUuid summary"), coding.read_claude_code
    ),
    "codex": Format(_has(_LINES, "timestamp type payload"), coding.read_codex),
    "letta": Format(_has("object", "agents", "core_memory messages"), chats.read_letta),
    "server-memory": Format(
        _has(_LINES, "type observations", "type relationType", "type relation_type"),
        notes.read_server_memory,
    ),
    "slack": Format(_is_slack, messengers.read_slack),
    "discord": Format(_has("object", "guild channel messages"), messengers.read_discord),
    "telegram": Format(_has("object", "chats", "name type id messages"), messengers.read_telegram),
    "openai": Format(
        _has(
            "array object lines",
            "role content",
            "role tool_calls",
            "type role",
            "messages",
            "conversations",
        ),
        chats.read_messages,
    ),
    "mem0": Format(
        _has(
            "array object lines",
            "memory id",
            "results",
            "memories",
            "items",
            "text user_id",
            "data user_id",
        ),
        notes.read_mem0,
    ),
    "langgraph": Format(
        lambda source: source.head.startswith(b"SQLite") and b"CREATE TABLE store" in source.head,
        notes.read_langgraph,
    ),
    "whatsapp": Format(
        lambda source: source.suffix == ".txt" and messengers.has_stamps(source.head),
        messengers.read_whatsapp,
    ),
    "basic-memory": Format(lambda source: b"permalink:" in source.head[:2000], notes.read_markdown),
    "obsidian": Format(lambda source: b"[[" in source.head, notes.read_markdown),
    "markdown": Format(lambda source: True, notes.read_markdown),
}
_MARKDOWN = ("basic-memory", "obsidian", "markdown")


def detect(source: Source) -> str | None:
    """Return the format of a file; None if it is not known."""
    for name, each in FORMATS.items():
        if (name not in _MARKDOWN or notes.is_markdown(source)) and each.matches(source):
            return name
    return None


class FilesByFormat(NamedTuple):
    """What there is to import: the files of each format, and those of no known one."""

    files: dict[str, list[Source]]
    unknown: list[Source]

    @property
    def size(self) -> int:
        return sum(source.size for files in self.files.values() for source in files)


def find(path: Path, named: str = "auto") -> FilesByFormat:
    """Find the files to import at a path, by format.

    Raises InvalidInput if the format has no such name, or none of the files has a known one.
    """
    if named != "auto" and named not in FORMATS:
        raise InvalidInput(f"Unknown format {named!r}: use auto or one of {', '.join(FORMATS)}")
    found = FilesByFormat({}, [])
    sources = find_sources(path)
    for source in sources:
        name = detect(source)
        if named != "auto":
            # A folder has other files beside those of the format.
            is_note = named in _MARKDOWN and notes.is_markdown(source)
            name = named if name == named or len(sources) == 1 or is_note else None
        if name is None:
            found.unknown.append(source)
        else:
            found.files.setdefault(name, []).append(source)
    if found.files:
        return found
    if damages := [source.damage for source in sources if source.damage]:
        raise InvalidInput(f"{path.name!r} is damaged: {damages[0]}")
    if not any(source.size for source in sources):
        raise InvalidInput(f"{path.name!r} is empty")
    if named != "auto":
        raise InvalidInput(f"Nothing in {path.name!r} has the format {named}: leave out --from")
    raise InvalidInput(
        f"Cannot tell the format of {path.name!r}. If it is one of these, pass --from: "
        f"{', '.join(FORMATS)}"
    )


def read(found: FilesByFormat, how: ImportRun) -> Iterator[tuple[str, Draft | Skipped]]:
    """Yield each item of the files with its format. A damaged file ends with what is damaged."""
    names = [source.name for source in found.unknown if not source.damage]
    listed = ", ".join([*names[:FEW_FILES], *(["…"] if len(names) > FEW_FILES else [])])
    for source in found.unknown:
        other = f"a file without conversations: {listed}"
        yield "", Skipped(f"damaged: {source.damage}" if source.damage else other)
    for name, sources in found.files.items():
        # The lists of a workspace of Slack come before the messages, which have the key "ts".
        for source in sorted(sources, key=lambda source: "ts" in source.shape[1]):
            try:
                for item in FORMATS[name].read(source, how):
                    is_late = isinstance(item, Skipped) or how.includes(item.at)
                    yield name, item if is_late else Skipped(BEFORE_SINCE)
            except Damaged as error:
                how.damage = how.damage or str(error)
            if how.damage:
                yield name, Skipped(f"damaged from there on: {how.damage}")
                how.damage = ""
