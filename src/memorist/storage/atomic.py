"""A new file that has its name only once it is complete and on disk: written beside, synced,
renamed.

A process that is killed in between leaves a hidden file ending in `.partial`, which can be deleted.
"""

from __future__ import annotations

import base64
import errno
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

from ..errors import InvalidInput, NotFound, RevisionConflict, StoreFull, StoreUnavailable

BESIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a database while it is open


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield the path of an empty file that only its owner can read; it gets its name, durably, when
    the body ends, and is deleted if that raises. Raises StoreUnavailable, StoreFull."""
    draft = path.with_name(f".{path.name[:40]}.{uuid4().hex[:8]}.partial")
    try:
        with _translated(path):
            os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        yield draft
        with _translated(path):
            sync(draft, os.O_RDWR)
            os.replace(draft, path)
            if os.name == "posix":  # elsewhere a folder cannot be opened
                sync(path.parent)
    except BaseException:
        for end in ("", *BESIDE):
            with suppress(OSError):
                os.remove(f"{draft}{end}")
        raise


def open_private(path: str, flags: int) -> int:
    """Open a file that only its owner can read, also if it was there before. Raises OSError."""
    opened = os.open(path, flags, 0o600)
    with suppress(OSError):  # it belongs to somebody else
        os.chmod(path, 0o600)
    return opened


def sync(path: Path, flags: int = os.O_RDONLY) -> None:
    """Wait until a file, or the list of files in a folder, is on disk. Raises OSError."""
    opened = os.open(path, flags)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Lock a file or a folder among processes; without `wait`, yield False if another one has it.

    The system releases the lock if its holder dies. Raises OSError; ImportError on Windows.
    """
    import fcntl

    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    opened = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(opened)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StoreFull(
                f"The disk has no room for {str(path)!r}: it was not written"
            ) from error
        message = f"{str(path)!r} cannot be written: {error.strerror}"
        if not path.parent.is_dir():
            message = f"The folder {str(path.parent)!r} does not exist: create it"
        raise StoreUnavailable(message) from error


# Archives: text files with the rows of a store, one JSON object per line


@contextmanager
def create(path: Path) -> Iterator[TextIO]:
    """Open a new text file. Raises RevisionConflict if it exists."""
    if path.exists():
        raise RevisionConflict(f"{str(path)!r} already exists: choose another name")
    with new_file(path) as draft, open(draft, "w", encoding="utf-8") as file:
        yield file


def write_lines(file: TextIO, records: Sequence[dict[str, Any]]) -> None:
    """Write records, with bytes as Base64."""

    def encode(data: bytes) -> dict[str, str]:
        return {"base64": base64.b64encode(data).decode()}

    file.writelines(json.dumps(record, default=encode) + "\n" for record in records)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of an archive. Raises NotFound, InvalidInput."""

    def decode(found: dict[str, Any]) -> Any:
        if found.keys() != {"base64"}:
            return found
        return base64.b64decode(found["base64"], validate=True)

    if not path.exists():
        raise NotFound(f"File {str(path)!r} does not exist")
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            record = None
            with suppress(ValueError, TypeError):
                record = json.loads(line, object_hook=decode)
            if not isinstance(record, dict):
                raise InvalidInput(
                    f"Line {number} of {str(path)!r} cannot be read: "
                    "it is not an archive, or it is cut off or altered"
                )
            yield record


def take_shape(record: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Remove the table from a record; return it with the names of the columns."""
    table = str(record.pop("table", None))
    return table, tuple(record)
