"""One SQLite connection: how it is opened, how its errors become ours.

WAL lets readers go on while one writes; `synchronous=FULL` makes a commit survive power loss
(`NORMAL` does not); `BEGIN IMMEDIATE` keeps what a transaction read from changing under it;
`secure_delete` overwrites what is erased.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    dimensions="length(embedding) / 4",
    row="m.row",
    skip_locked="",
    lock="",
    day="substr({}, 1, 10)",
    columns="SELECT name FROM pragma_table_info(?)",
    size="SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
    integrity="PRAGMA integrity_check(20)",
)
BUSY_SECONDS = 30  # with eight writers 5 s failed now and then
IN_MEMORY = "file:/"  # prefix of a database in memory; a path on disk is absolute
_RETRY_SECONDS = 0.001
_OURS = {"migrations", "meta", "scopes", "memories"}
_PRAGMAS = (
    "synchronous = FULL",
    "foreign_keys = ON",
    "secure_delete = ON",
    "temp_store = MEMORY",
)


def create_private(path: Path) -> None:
    """Create a file that only its owner can read; an existing one stays as it is. SQLite reports
    failures."""
    with suppress(OSError):
        path.touch(mode=0o600, exist_ok=False)


def connect(path: str, *, create: bool = True) -> apsw.Connection:
    """Open a database file. Raises StoreUnavailable, StoreDamaged.

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
        connection.execute(f"PRAGMA {pragma}").fetchall()  # takes effect only if read to its end


def wait(connection: apsw.Connection, path: str, seconds: int = BUSY_SECONDS) -> None:
    """Set how long to wait for locks. In memory a writer locks readers out, so they retry every
    moment."""
    if not path.startswith(IN_MEMORY):
        connection.set_busy_timeout(seconds * 1000)
        return

    def retry(tries: int) -> bool:
        time.sleep(_RETRY_SECONDS)
        return tries * _RETRY_SECONDS < seconds

    connection.set_busy_handler(retry)


def _use_wal(connection: apsw.Connection) -> None:
    """Switch to WAL. Changing the journal does not wait for locks by itself, so it is retried."""
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
    """Turn the driver's errors into ours."""
    try:
        yield
    except (apsw.Error, UnicodeError, OverflowError) as error:
        raise translate(error, path) from error


def translate(error: Exception, path: str) -> MemoristError:
    """Return our error for one of the driver's, with the way out."""
    if isinstance(error, UnicodeEncodeError):
        return InvalidInput("A name or an id holds half a surrogate pair: it cannot be stored")
    if isinstance(error, OverflowError):
        return InvalidInput("A number is too large: it has to fit into 64 bits")
    # The index of the log is mapped into memory; where it cannot grow, SQLite reports an I/O error.
    no_room = getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
    no_room = no_room or getattr(error, "errno", None) == errno.ENOSPC
    if isinstance(error, apsw.FullError) or no_room:
        return StoreFull(
            f"The disk that holds {path!r} is full: nothing was written. Free some space and retry"
        )
    damaged = (UnicodeError, apsw.NotADBError, apsw.CorruptError, apsw.FormatError)
    if isinstance(error, damaged):
        if not Path(path).exists():
            return StoreDamaged(f"{path!r} is not a database that can be read")
        return StoreDamaged(
            f"{path!r} is damaged or not a Memorist database: restore a backup, or choose another "
            "file"
        )
    closed = (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError)
    if isinstance(error, closed):
        return StoreUnavailable(
            f"{path!r} cannot be opened for writing: check the folder and its permissions, "
            "or choose another place"
        )
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return StoreUnavailable(
            f"{path!r} stayed locked for {BUSY_SECONDS} s by another process: retry"
        )
    if isinstance(error, apsw.ConstraintError):
        return RevisionConflict(
            "This contradicts what is already stored: read it again and repeat the change "
            f"({error})"
        )
    if isinstance(error, (apsw.TooBigError, apsw.RangeError)):
        return InvalidInput(f"SQLite cannot store a value of that size: {error}")
    if isinstance(error, apsw.IOError):
        return StoreUnavailable(f"Reading or writing {path!r} failed: {error}")
    return ProviderFailed(f"SQLite reported: {error}")
