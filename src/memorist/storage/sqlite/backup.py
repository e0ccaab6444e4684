"""A copy of a database."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import apsw

from ...errors import InvalidInput, StoreDamaged
from .. import atomic
from .connection import translated

_TABLES = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
)


def backup(connection: apsw.Connection, path: Path) -> None:
    """Copy the database into a new file while others go on writing. Raises InvalidInput,
    StoreUnavailable."""
    target = new_path(path)
    with translated(str(target)):
        copy(connection, target)


def new_path(path: Path) -> Path:
    """Return the absolute path, in which no name is special to SQLite.

    Raises InvalidInput if the file exists, or the log of an earlier one, which SQLite would take
    for this one's.
    """
    for end in ("", *atomic.BESIDE):
        if os.path.exists(f"{path}{end}"):
            raise InvalidInput(f"'{path}{end}' exists already: choose a new name for the backup")
    return path.absolute()


def copy(source: apsw.Connection, path: Path) -> None:
    """Copy a database as it is at one moment. The file gets its name when the copy is complete,
    checked and on disk."""
    made = atomic.draft(path)
    try:
        source.execute(
            "BEGIN"
        )  # what is counted is what is copied, whatever others write meanwhile
        try:
            expected = counts(source)
            _copy_pages(source, made)
        finally:
            source.execute("ROLLBACK")
        verify(made, expected)
        atomic.publish(made, path)
    except BaseException:
        atomic.discard(made)
        raise


def _copy_pages(source: apsw.Connection, path: Path) -> None:
    target = apsw.Connection(str(path))
    try:
        with target.backup("main", source, "main") as copying:
            copying.step(-1)  # in smaller steps, each write of others would make it begin again
    finally:
        target.close()


def counts(connection: apsw.Connection) -> dict[str, int]:
    """Return the number of rows in each table."""
    tables = [str(row[0]) for row in connection.execute(_TABLES)]
    return {table: _number(connection, f'SELECT count(*) FROM "{table}"') for table in tables}


def _number(connection: apsw.Connection, sql: str) -> int:
    (row,) = connection.execute(sql)
    return int(str(row[0]))


def verify(path: Path, expected: dict[str, int]) -> None:
    """Open a copy and count what it holds. Raises StoreDamaged if that is not what was copied."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    copied = apsw.Connection(f"file:{quote(path.absolute().as_posix())}?immutable=1", flags=flags)
    try:
        found = counts(copied)
    finally:
        copied.close()
    wrong = sorted(name for name in expected | found if expected.get(name) != found.get(name))
    if wrong:
        raise StoreDamaged(
            f"The copy {str(path)!r} is not complete ({', '.join(wrong)}): check the disk and try "
            "again"
        )
