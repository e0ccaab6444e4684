"""One SQLite connection: how it is opened, how its errors become ours.

WAL lets readers go on while one writes; `synchronous=FULL` makes a commit survive power loss (`NORMAL` does not);
`BEGIN IMMEDIATE` keeps what a transaction read from changing under it; `secure_delete` overwrites what is erased.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import apsw

from ...errors import (
    InvalidInput,
    MemoristError,
    ProviderFailed,
    RevisionConflict,
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
)
from ..database import Dialect

DIALECT = Dialect(
    lower="lower({})",
    each="json_each({})",
    head="json_extract({}, '$[1][0]')",
    now="unixepoch('subsec')",
    size="length(embedding) / 4",
    row="m.row",
    skip_locked="",
    lock="",
    day="substr({}, 1, 10)",
    columns="SELECT name FROM pragma_table_info(?)",
)
BUSY_SECONDS = 30  # with eight writers 5 s failed now and then
IN_MEMORY = (
    "file:/"  # what the name of a database in memory begins with; a path on disk is absolute
)
_MOMENT = 0.001  # seconds
_OURS = {"migrations", "meta", "scopes", "memories"}
_PRAGMAS = (
    "synchronous = FULL",
    "foreign_keys = ON",
    "secure_delete = ON",
    "temp_store = MEMORY",
)


def private(path: Path) -> None:
    """Make a file that nobody else can read; one that is there stays as it is. What fails, SQLite tells."""
    with suppress(OSError):
        path.touch(mode=0o600, exist_ok=False)


def connect(path: str, *, create: bool = True) -> apsw.Connection:
    """Open a database file, made if it does not exist. Raises StoreUnavailable, StoreDamaged.

    A file that is not ours is left as it is.
    """
    with translated(path):
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        connection = apsw.Connection(
            path, flags=flags | (apsw.SQLITE_OPEN_URI if path.startswith(IN_MEMORY) else 0)
        )
        try:
            _prepare(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def _prepare(connection: apsw.Connection, path: str) -> None:
    wait(connection, path)
    # SQLite's own knows only the case of ASCII, and a tag is found in any case of any script.
    connection.create_scalar_function("lower", _lower, 1, deterministic=True)
    tables = {
        row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    }
    if tables and not tables >= _OURS:
        raise StoreDamaged(
            f"{path!r} is a SQLite database, but not one of Memorist: choose another file"
        )
    _use_wal(connection)
    for pragma in _PRAGMAS:
        connection.execute(
            f"PRAGMA {pragma}"
        ).fetchall()  # a pragma that is not read to its end may not happen


def wait(connection: apsw.Connection, path: str, seconds: int = BUSY_SECONDS) -> None:
    """Wait so long for the locks of others. In memory a writer keeps readers out, so they look again every moment."""
    if path.startswith(IN_MEMORY):
        connection.set_busy_handler(partial(_again, seconds))
    else:
        connection.set_busy_timeout(seconds * 1000)


def _again(seconds: int, tries: int) -> bool:
    time.sleep(_MOMENT)
    return tries * _MOMENT < seconds


def _use_wal(connection: apsw.Connection) -> None:
    """Changing the journal does not wait for others by itself, so it is tried again while they are at it."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def _lower(*values: Any) -> Any:
    (text,) = values
    return text.lower() if isinstance(text, str) else text


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turn the driver's errors into ours, with the way out."""
    try:
        yield
    except MemoristError:
        raise
    except apsw.Error as error:
        raise _ours(error, path) from error
    except UnicodeDecodeError as error:
        raise StoreDamaged(_damaged(path)) from error
    except UnicodeEncodeError as error:
        raise InvalidInput(
            "A name or an id holds half a surrogate pair: it is not text that can be kept"
        ) from error
    except OverflowError as error:
        raise InvalidInput("A number is too large: it has to fit into 64 bits") from error


def _ours(error: apsw.Error, path: str) -> MemoristError:
    if isinstance(error, apsw.FullError) or _no_room(error):
        return StoreFull(
            f"The disk that holds {path!r} is full: nothing was written. Free some space and retry"
        )
    if isinstance(error, (apsw.NotADBError, apsw.CorruptError, apsw.FormatError)):
        return StoreDamaged(_damaged(path))
    if isinstance(
        error, (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError)
    ):
        return StoreUnavailable(
            f"{path!r} cannot be opened for writing: check the folder and its permissions, or choose another place"
        )
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return StoreUnavailable(
            f"{path!r} stayed locked for {BUSY_SECONDS} s by another process: retry"
        )
    if isinstance(error, apsw.ConstraintError):
        return RevisionConflict(
            f"This contradicts what is already kept: read it again and repeat the change ({error})"
        )
    if isinstance(error, (apsw.TooBigError, apsw.RangeError)):
        return InvalidInput(f"SQLite cannot keep a value of that size: {error}")
    if isinstance(error, apsw.IOError):
        return StoreUnavailable(f"Reading or writing {path!r} failed: {error}")
    return ProviderFailed(f"SQLite said: {error}")


def _no_room(error: apsw.Error) -> bool:
    """The index of the log is mapped into memory, and where it cannot grow SQLite speaks of an I/O error."""
    extended = getattr(error, "extendedresult", 0)
    return extended == apsw.SQLITE_IOERR_SHMSIZE or getattr(error, "errno", None) == errno.ENOSPC


def _damaged(path: str) -> str:
    if not Path(path).exists():
        return f"{path!r} is not a database that can be read"
    return (
        f"{path!r} is damaged or not a Memorist database: restore a backup, or choose another file"
    )
