"""Files to import: where they are, how they begin, and what is read from them."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import ijson

from ..errors import InvalidInput, NotFound
from ..text import cues, normalize
from ..text.clock import parse
from ..types import Draft, Labels

HEAD = 65_536  # bytes by which a format is recognized
PIECE = 4096  # bytes read at a time: at most so much before a damage is lost
# What a damaged or encrypted archive raises; NotImplementedError is a RuntimeError.
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
IN_MEMORY = 32 << 20  # an archive inside an archive is copied to disk from this size on
NO_TEXT = "no text"
TITLE = "title"  # of the conversation, in the metadata of its messages
LONGEST_TITLE = 200
_COUNTED = re.compile(
    r"an? ((?:[@\w]+ ){0,2}?)(message|notice|file|conversation|record|line|relation|entity"
    r"|value|document|answer|prompt|call|command)\b"
)
_LEFT_OUT = {".git", ".obsidian", ".trash", "node_modules", "__MACOSX"}


class Skipped(NamedTuple):
    """Something in a file that is not imported, and why."""

    reason: str


def count_skipped(reason: str, count: int) -> str:
    """Return how much was left out for a reason.

    >>> count_skipped("a hidden system message", 13), count_skipped("a system notice", 1)
    ('13 hidden system messages', '1 system notice')
    >>> count_skipped("a line that is not JSON", 2), count_skipped("no text", 2)
    ('2 lines that are not JSON', '2: no text')
    """
    found = _COUNTED.match(reason)
    if found is None:
        return f"{count}: {reason}"
    before, noun = found.groups()
    rest = reason[found.end() :]
    if count > 1:
        noun = f"{noun}s".replace("ys", "ies")
        rest = rest.replace(" that is ", " that are ").replace(" its result", " their results")
    return f"{count} {before}{noun}{rest}"


Items = Iterator[Draft | Skipped]


class Damaged(Exception):
    """A file that cannot be read from some place on. What came before it is imported."""


@dataclass(frozen=True)
class Source:
    """One file, on disk or in a ZIP archive."""

    name: str  # its path within the folder or archive
    size: int
    open: Callable[[], AbstractContextManager[IO[Any]]]  # of bytes

    @cached_property
    def _beginning(self) -> tuple[bytes, str]:
        head = b""
        try:
            with self.open() as file:
                while len(head) < HEAD and (piece := file.read(PIECE)):
                    head += piece
        except _UNREADABLE as error:
            return head, f"{self.name}: {error}"
        return head, ""

    @property
    def head(self) -> bytes:
        """The first bytes, as far as they can be read."""
        return self._beginning[0]

    @property
    def damage(self) -> str:
        """Why the head ends early."""
        return self._beginning[1]

    @cached_property
    def shape(self) -> tuple[str, frozenset[str]]:
        """How a JSON file begins: "array", "object" or "lines", and the keys of its first object.

        As much of the head is parsed as there is.
        """
        text = self.head.removeprefix(BYTE_ORDER_MARK).lstrip()
        if text[:1] not in (b"[", b"{"):
            return "", frozenset()
        first, *others = text.split(b"\n")[:40]
        keys: set[str] = set()
        if others and first.startswith(b"{") and first.rstrip().endswith(b"}"):
            for line in (first, *others):
                with suppress(ValueError, RecursionError):
                    keys.update(as_object(json.loads(line)))
            return "lines", frozenset(keys)
        is_array = text[:1] == b"["
        prefix = "item" if is_array else ""
        with suppress(ijson.JSONError, UnicodeDecodeError):  # the head ends somewhere
            for place, event, value in ijson.parse(io.BytesIO(text)):
                if event == "map_key" and place == prefix:
                    keys.add(value)
                elif is_array and event == "end_map" and place == prefix:
                    break
        return ("array" if is_array else "object"), frozenset(keys)

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix.lower()


@dataclass
class ImportRun:
    """One import: the person's name in chats between people, since when, and what was read."""

    me: str | None = None
    since: datetime | None = None
    user: str = ""
    names: Counter[str] = field(default_factory=Counter)  # of the speakers
    people: dict[str, str] = field(default_factory=dict)  # names by the ids of a workspace
    read: int = 0  # bytes
    damage: str = ""  # of the file that is being read

    def includes(self, at: datetime | None) -> bool:
        """Return whether something of that time is to be read; without a time, only if all is."""
        return self.since is None or (at is not None and at >= self.since)

    def is_me(self, name: str) -> bool:
        """Count a speaker of a chat between people, and return whether it is the person."""
        self.names[name] += 1
        return name.casefold() == (self.me or self.user).casefold()


def find_sources(path: Path) -> list[Source]:
    """Return the files at a path: a file, a folder, or what is in a ZIP archive."""
    if not path.exists():
        raise NotFound(f"No such file or folder: {str(path)!r}")
    found: list[Source] = []
    for name, file in list_files(path):
        found += _expand(Source(name, file.stat().st_size, partial(open, file, "rb")))
    return found


def list_files(path: Path) -> Iterator[tuple[str, Path]]:
    """Yield a file, or the files in a folder that may be imported, with their names in it."""
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        name = file.relative_to(path) if path.is_dir() else Path(path.name)
        if file.is_file() and _LEFT_OUT.isdisjoint(name.parts):
            yield name.as_posix(), file


def _expand(source: Source) -> Iterator[Source]:
    """Yield a file, or the files in it if it is a ZIP archive."""
    if not source.head.startswith(b"PK\x03\x04"):
        yield source
        return
    try:
        with _open_archive(source) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
    except (*_UNREADABLE, OSError) as error:
        raise InvalidInput(f"{source.name!r} is a damaged ZIP archive: {error}") from error
    for info in sorted(members, key=lambda info: info.filename):
        if _LEFT_OUT.isdisjoint(PurePosixPath(info.filename).parts):
            member = Source(info.filename, info.file_size, partial(_open_member, source, info))
            yield from _expand(member)


@contextmanager
def _open_member(source: Source, info: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    with _open_archive(source) as archive, archive.open(info) as file:
        yield file


@contextmanager
def _open_archive(source: Source) -> Iterator[zipfile.ZipFile]:
    with source.open() as file:
        if file.seekable() and isinstance(file, io.BufferedReader):
            with zipfile.ZipFile(file) as archive:
                yield archive
            return
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as copy:
            shutil.copyfileobj(file, copy)
            with zipfile.ZipFile(copy) as archive:
                yield archive


@contextmanager
def opened(source: Source, how: ImportRun) -> Iterator[IO[bytes]]:
    """Open a file after its byte order mark, and count the bytes that are read."""
    before = how.read
    with source.open() as file:
        if source.head.startswith(BYTE_ORDER_MARK):
            file.read(len(BYTE_ORDER_MARK))
        yield io.BufferedReader(_Counted(file, how, source.name))
    how.read = before + source.size


class _Counted(io.RawIOBase):
    def __init__(self, file: IO[bytes], how: ImportRun, name: str) -> None:
        self.file = file
        self.how = how
        self.name = name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            found = self.file.read(min(len(buffer), PIECE))
        except _UNREADABLE as error:  # an end for the reader, which keeps what it has
            self.how.damage = f"{self.name}: {error}"
            found = b""
        buffer[: len(found)] = found
        self.how.read += len(found)
        return len(found)


def read_items(source: Source, how: ImportRun, prefix: str = "item") -> Iterator[Any]:
    """Yield the values at a place of a JSON file, one at a time. Raises Damaged."""
    with opened(source, how) as file:
        try:
            yield from ijson.items(file, prefix, use_float=True)
        except (ijson.JSONError, UnicodeDecodeError) as error:
            raise Damaged(f"{source.name}: {str(error).splitlines()[0]}") from error


def read_json_lines(source: Source, how: ImportRun) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Yield the number and the object of each line; None for a line that is none."""
    with opened(source, how) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                value = None
            yield number, value if isinstance(value, dict) else None


def read_text(source: Source, how: ImportRun) -> str:
    """Return a text file, with its characters as far as they can be read."""
    with opened(source, how) as file:
        data = file.read()
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8", "replace")


def message(
    text: str,
    *,
    id: str,
    session: str,
    role: str = "user",
    name: str | None = None,
    at: datetime | None = None,
    title: object = None,
) -> Draft | Skipped:
    """Return a turn of a conversation, which may have a title."""
    labels = Labels(session=session, role=role)
    speaker = cues.speaker_of(role, name)
    metadata = {}
    if isinstance(title, str) and title.strip():
        metadata[TITLE] = normalize.storable(title).strip()[:LONGEST_TITLE]
    return note(text, id=id, at=at, labels=labels, speaker=speaker, metadata=metadata)


def note(text: str, *, id: str, tags: Iterable[str] = (), **fields: Any) -> Draft | Skipped:
    """Return a text that was written down, without a conversation."""
    text = normalize.storable(text).strip()
    if not text:
        return Skipped(NO_TEXT)
    known = dict.fromkeys(tag.strip().lower() for tag in tags if tag.strip())
    return Draft(text=text, message_id=id, source_ids=(id,), tags=tuple(known), **fields)


def moment(value: object) -> datetime | None:
    """Return a time that is given in seconds or milliseconds, or as text; None if it is none.

    >>> moment(1700000000.5), moment("2023-11-14T22:13:20Z") == moment("1700000000")
    (datetime.datetime(2023, 11, 14, 22, 13, 20, 500000, tzinfo=datetime.timezone.utc), True)
    """
    if isinstance(value, str) and re.fullmatch(r"\d{9,13}(?:\.\d{1,9})?", value):
        value = float(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if 1e11 < value < 4e12:
            value /= 1000
        return datetime.fromtimestamp(value, UTC) if 1e8 <= value < 4e9 else None
    if isinstance(value, str) and value:
        with suppress(ValueError, TypeError):
            return parse(value)
    return None


def as_object(value: object) -> dict[str, Any]:
    """Return a JSON object; an empty one in place of anything else, which has no fields to read."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a JSON list; an empty one in place of anything else."""
    return value if isinstance(value, list) else []


def digest(*parts: object) -> str:
    """Return a short name for some values, which is the same at each import."""
    joined = "\0".join(map(str, parts))
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()[:24]
