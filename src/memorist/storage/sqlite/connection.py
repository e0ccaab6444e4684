"""One SQLite connection: how it is opened, how its schema becomes the newest, how its errors become
ours.

WAL lets readers go on while one writes; `synchronous=FULL` makes a commit survive power loss
(`NORMAL` does not); `BEGIN IMMEDIATE` keeps what a transaction read from changing under it;
`secure_delete` overwrites what is erased.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

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
from ..atomic import BESIDE, new_file
from ..database import Migration, missing_migrations, shipped_migrations

BUSY_SECONDS = 30  # with eight writers 5 s failed now and then
IN_MEMORY = "file:/"  # prefix of a database in memory; a path on disk is absolute
_RETRY_SECONDS = 0.001
_TABLES = """SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
ORDER BY name"""
_MIGRATIONS = (
    "CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT, checksum TEXT NOT NULL)"
)
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

    def lower(*values: Any) -> Any:
        (text,) = values
        return text.lower() if isinstance(text, str) else text

    with translated(path):
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        uri = apsw.SQLITE_OPEN_URI if path.startswith(IN_MEMORY) else 0
        connection = apsw.Connection(path, flags=flags | uri)
        try:
            wait(connection, path)
            # SQLite's own knows only the case of ASCII; a tag is found in any case of any script.
            connection.create_scalar_function("lower", lower, 1, deterministic=True)
            tables = {row[0] for row in connection.execute(_TABLES)}
            if tables and not tables >= _OURS:
                raise StoreDamaged(
                    f"{path!r} is a SQLite database, but not one of Memorist: choose another file"
                )
            use_wal(connection)
            for pragma in _PRAGMAS:
                # takes effect only if read to its end
                connection.execute(f"PRAGMA {pragma}").fetchall()
        except BaseException:
            connection.close()
            raise
        return connection


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


def use_wal(connection: apsw.Connection) -> None:
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


def migrations() -> list[Migration]:
    """Return the migrations in the package, in order."""
    return shipped_migrations(__package__)


def migrate(
    connection: apsw.Connection, path: str, steps: Sequence[Migration] | None = None
) -> list[int]:
    """Bring the database to the newest schema, in one transaction, after a backup of what was
    there.

    Any number of processes may call it at once: one migrates, the others find it done. Raises
    MigrationNeeded for a database from a newer version, StoreDamaged for an altered one.
    """
    steps = migrations() if steps is None else steps
    if not missing_migrations(_done(connection), steps, path):
        return []
    connection.execute("BEGIN IMMEDIATE")
    try:
        missing = missing_migrations(_done(connection), steps, path)
        is_changed = any(step.statements for step in missing)
        if is_changed and missing[0].number > 1 and Path(path).exists():
            source = apsw.Connection(path)
            try:
                copy(source, Path(f"{path}.before-{missing[0].number}"))
            finally:
                source.close()
        for step in missing:
            if step.number == 1:
                connection.execute(_MIGRATIONS)
            for statement in step.statements:
                connection.execute(statement)
            made = (step.number, step.name, step.checksum)
            connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", made)
            if step.number == 1:
                secret = (secrets.token_hex(32),)
                connection.execute("INSERT INTO meta VALUES ('secret', ?)", secret)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return [step.number for step in missing]


def _done(connection: apsw.Connection) -> dict[int, str]:
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'").fetchall():
        return {}
    rows: list[Any] = connection.execute("SELECT number, checksum FROM migrations").fetchall()
    return dict(rows)


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
