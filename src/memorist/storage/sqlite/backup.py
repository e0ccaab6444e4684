"""Copies of a database, and new files that get their name only once they are complete and on disk.

A process that is killed in between leaves a hidden file ending in `.partial`, which can be deleted.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

import apsw

from ...errors import InvalidInput, StoreDamaged, StoreFull, StoreUnavailable

BESIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a database while it is open
_TABLES = """SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
ORDER BY name"""


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
            _sync(draft, os.O_RDWR)
            os.replace(draft, path)
            if os.name == "posix":  # elsewhere a folder cannot be opened
                _sync(path.parent, os.O_RDONLY)
    except BaseException:
        for end in ("", *BESIDE):
            with suppress(OSError):
                os.remove(f"{draft}{end}")
        raise


def _sync(path: Path, flags: int) -> None:
    opened = os.open(path, flags)
    try:
        os.fsync(opened)
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


def new_path(path: Path) -> Path:
    """Return the absolute path, in which no name is special to SQLite.

    Raises InvalidInput if the file exists, or the log of an earlier one, which SQLite would take
    for this one's.
    """
    for end in ("", *BESIDE):
        if os.path.exists(f"{path}{end}"):
            raise InvalidInput(f"'{path}{end}' exists already: choose a new name for the backup")
    return path.absolute()


def copy(source: apsw.Connection, path: Path) -> None:
    """Copy a database as it is at one moment, while others go on writing. Raises StoreDamaged if
    the copy is not complete."""
    with new_file(path) as draft:
        source.execute("BEGIN")  # what is counted is what is copied, whatever others write
        try:
            expected = _count_rows(source)
            target = apsw.Connection(str(draft))
            try:
                with target.backup("main", source, "main") as copying:
                    copying.step(-1)  # in smaller steps, each write of others would restart it
            finally:
                target.close()
        finally:
            source.execute("ROLLBACK")
        verify(draft, expected)


def _count_rows(connection: apsw.Connection) -> dict[str, int]:
    """Return the number of rows in each table."""
    counts = {}
    for (table,) in connection.execute(_TABLES).fetchall():
        ((count,),) = connection.execute(f'SELECT count(*) FROM "{table}"').fetchall()
        counts[str(table)] = int(str(count))
    return counts


def verify(path: Path, expected: dict[str, int]) -> None:
    """Open a copy and count what it holds. Raises StoreDamaged if that is not what was copied."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    copied = apsw.Connection(f"file:{quote(path.absolute().as_posix())}?immutable=1", flags=flags)
    try:
        found = _count_rows(copied)
    finally:
        copied.close()
    wrong = sorted(name for name in expected | found if expected.get(name) != found.get(name))
    if wrong:
        raise StoreDamaged(
            f"The copy {str(path)!r} is not complete ({', '.join(wrong)}): check the disk and retry"
        )
