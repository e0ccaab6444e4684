"""Files of records, one JSON object a line: read with line numbers, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ...errors import InvalidInput, NotFound, StoreUnavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One record and where it stands."""

    number: int
    record: dict[str, Any]
    read: int  # bytes up to its end

    @property
    def is_message(self) -> bool:
        return "content" in self.record


def standard_input() -> str:
    """All of stdin as text. Raises InvalidInput."""
    return _decoded(sys.stdin.buffer.read(), "The input")


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """A file to read from; `-` is stdin. Raises NotFound, InvalidInput."""
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below, while errors of the block pass through
    except FileNotFoundError as error:
        raise NotFound(f"There is no file {path!r}") from error
    except OSError as error:
        raise InvalidInput(f"{path!r} cannot be read: {error.strerror}") from error
    with file:
        yield file


def lines(file: IO[bytes]) -> Iterator[Line]:
    """The records of a file; blank lines are passed over. Raises InvalidInput, naming the line."""
    read = 0
    for number, raw in enumerate(file, 1):
        read += len(raw)
        text = _decoded(raw, f"Line {number}").strip().removeprefix("\ufeff")
        if text:
            yield Line(number=number, record=_object(text, number), read=read)


def _decoded(raw: bytes, what: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{what} is not UTF-8 text") from error


def _object(text: str, number: int) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            f'Line {number} is not JSON: each line is one object, such as {{"content": "…"}}'
        ) from error
    if not isinstance(found, dict):
        raise InvalidInput(
            f'Line {number} is no object: each line is one, such as {{"content": "…"}}'
        )
    return found


def named(found: Iterable[Line], *, file: str, session: str | None) -> Iterator[Line]:
    """The same lines, where each message has a session and an id, so that reading a file twice changes nothing.

    Messages that name no session were said together: it is called after the file and its first message.
    """
    seen: Counter[str] = Counter()
    together = session
    for line in found:
        if not line.is_message:
            yield line
            continue
        digest = _digest(line.record)
        together = together or f"{Path(file).stem if file != '-' else 'stdin'}-{digest[:8]}"
        record = {**line.record, "session": line.record.get("session") or together}
        if record.get("id") is None:
            same = _digest(record)
            record["id"] = f"import-{_digest(record, seen[same])[:24]}"
            seen[same] += 1
        yield Line(number=line.number, record=record, read=line.read)


def _digest(record: dict[str, Any], again: int = 0) -> str:
    told = json.dumps(
        {name: value for name, value in record.items() if name != "id"}, sort_keys=True
    )
    return hashlib.sha256(f"{again}:{told}".encode()).hexdigest()


@contextmanager
def written(path: str | None) -> Iterator[IO[str]]:
    """A file to write to, which appears under its name when it is complete; without a name it is stdout."""
    if path is None or path == "-":
        yield sys.stdout
        return
    target = Path(path)
    if target.exists() and not target.is_file():  # a device or a pipe is written to, not replaced
        with open(target, "w", encoding="utf-8") as file:
            yield file
        return
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise StoreUnavailable(
            f"{path!r} cannot be written: {error.strerror}. Choose another place"
        ) from error
    try:
        with open(handle, "w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
