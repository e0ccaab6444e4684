"""Files to import: where they are, how they begin, and what is read from them."""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import PurePosixPath
from typing import IO, Any, NamedTuple

import ijson

from ..text import cues, normalize
from ..text.clock import parse
from ..types import Draft, Labels

HEAD = 65_536  # bytes by which a format is recognized
LINES = 40  # of a file of lines, whose keys are read
SHAPE = 8 << 20  # bytes in which the first line or object should end
PIECE = 4096  # bytes read at a time: at most so much before a damage is lost
# What an unreadable file, or a damaged or encrypted archive, raises. NotImplementedError, for
# a method of compression, is a RuntimeError.
UNREADABLE = (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NO_TEXT = "no text"
TITLE = "title"  # of the conversation, in the metadata of its messages
LONGEST_TITLE = 200
_COUNTED = re.compile(
    r"an? ((?:[@\w]+ ){0,2}?)(message|notice|file|conversation|record|line|relation|entity"
    r"|value|document|answer|prompt|call|command)\b"
)


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
    place: str = ""  # the name of its archive or folder, if that is imported

    def _read(self, most: int) -> tuple[bytes, str]:
        """Return the first bytes, and why there are fewer if they cannot be read."""
        pieces = []
        try:
            with self.open() as file:
                while most > 0 and (piece := file.read(min(most, PIECE))):
                    pieces.append(piece)
                    most -= len(piece)
        except UNREADABLE as error:
            return b"".join(pieces), f"{self.name}: {error}"
        return b"".join(pieces), ""

    @cached_property
    def _beginning(self) -> tuple[bytes, str]:
        return self._read(HEAD)

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

        A first line or object may be far longer than the head.
        """
        if self.head.removeprefix(BYTE_ORDER_MARK).lstrip()[:1] not in (b"[", b"{"):
            return "", frozenset()
        return read_shape(self._read(SHAPE)[0].removeprefix(BYTE_ORDER_MARK).lstrip())

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


@contextmanager
def opened(source: Source, how: ImportRun) -> Iterator[IO[bytes]]:
    """Open a file after its byte order mark, and count the bytes that are read.

    One that cannot be opened is empty, and its damage is noted.
    """
    before = how.read
    with ExitStack() as stack:
        file: IO[bytes] = io.BytesIO()
        try:
            file = stack.enter_context(source.open())
            if source.head.startswith(BYTE_ORDER_MARK):
                file.read(len(BYTE_ORDER_MARK))
        except UNREADABLE as error:
            how.damage = f"{source.name}: {error}"
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
        except UNREADABLE as error:  # an end for the reader, which keeps what it has
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
            raise Damaged(name_damage(source, error)) from error


def name_damage(source: Source, error: Exception) -> str:
    """Return which file cannot be read, and why."""
    return f"{source.name}: {str(error).splitlines()[0]}"


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
        return decode(file.read())


def decode(data: bytes) -> str:
    """Return a text in UTF-8, or in UTF-16 if it begins with the mark of that.

    >>> decode("Grüße".encode("utf-16"))
    'Grüße'
    """
    is_utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    return data.decode("utf-16" if is_utf16 else "utf-8", "replace").removeprefix("\ufeff")


def read_shape(text: bytes) -> tuple[str, frozenset[str]]:
    """Return how the beginning of a JSON file is structured, and the keys of its first objects.

    >>> kind, keys = read_shape(b'[{"role": "user", "content": "Hel')
    >>> kind, sorted(keys)
    ('array', ['content', 'role'])
    """
    first, *others = text.split(b"\n", LINES)[:LINES]
    keys: set[str] = set()
    if others and first.startswith(b"{") and first.rstrip().endswith(b"}"):
        for line in (first, *others):
            with suppress(ValueError, RecursionError):
                keys.update(as_object(json.loads(line)))
        return "lines", frozenset(keys)
    is_array = text.startswith(b"[")
    prefix = "item" if is_array else ""
    with suppress(ijson.JSONError, UnicodeDecodeError):  # the text ends somewhere
        for place, event, value in ijson.parse(io.BytesIO(text)):
            if event == "map_key" and place == prefix:
                keys.add(value)
            elif is_array and event == "end_map" and place == prefix:
                break
    return ("array" if is_array else "object"), frozenset(keys)


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
