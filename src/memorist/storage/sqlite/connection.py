"""SQLite files: open, migrate, copy and lock them; the SQL that only SQLite understands, and its
errors.

With WAL, readers are not blocked by a writer. `synchronous=FULL` makes a commit survive power loss
(`NORMAL` does not). With `BEGIN IMMEDIATE`, what a transaction has read cannot change before it
writes. `secure_delete` overwrites erased content.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import gettempdir
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
from ..database import (
    Dialect,
    JsonPath,
    LogRow,
    Migration,
    Query,
    missing_migrations,
    parse_secret,
    plan,
    shipped_migrations,
)

BUSY_SECONDS = 30  # 5 s failed occasionally with eight writers
RESERVE_BYTES = 1 << 20  # reserved so that forgetting works on a full disk
FLAGS = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_URI
_TABLES = """SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'
ORDER BY name"""
_OURS = {"migrations", "meta", "scopes", "memories"}
_PRAGMAS = (
    "synchronous = FULL",
    "foreign_keys = ON",
    "secure_delete = ON",
    "temp_store = MEMORY",
)
DRIVER_ERRORS = (apsw.Error, UnicodeError, OverflowError)
# The first match is used, so specific errors come before general ones.
_ERRORS: tuple[tuple[Any, type[MemoristError], str], ...] = (
    (
        UnicodeEncodeError,
        InvalidInput,
        "A name or an id contains an unpaired surrogate: it cannot be stored",
    ),
    (OverflowError, InvalidInput, "A number is too large: it has to fit into 64 bits"),
    (
        apsw.FullError,
        StoreFull,
        "The disk that holds {path!r} is full: nothing was written. Free some space and retry",
    ),
    (
        (UnicodeError, apsw.NotADBError, apsw.CorruptError, apsw.FormatError),
        StoreDamaged,
        "{path!r} is damaged or not a Memorist database: restore a backup, or choose another file",
    ),
    (
        (apsw.CantOpenError, apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError),
        StoreUnavailable,
        "{path!r} cannot be opened for writing: check the folder and its permissions, "
        "or choose another place",
    ),
    (
        (apsw.BusyError, apsw.LockedError),
        StoreUnavailable,
        f"{{path!r}} stayed locked for {BUSY_SECONDS} s by another process: retry",
    ),
    (
        apsw.ConstraintError,
        RevisionConflict,
        "This conflicts with stored data: read it again and repeat the change ({error})",
    ),
    (
        (apsw.TooBigError, apsw.RangeError),
        InvalidInput,
        "SQLite cannot store a value of that size: {error}",
    ),
    (apsw.IOError, StoreUnavailable, "Reading or writing {path!r} failed: {error}"),
    (Exception, ProviderFailed, "SQLite reported: {error}"),
)


_LOG = f"INSERT INTO log VALUES ({', '.join('?' * len(LogRow._fields))})"
# A row of the log is inserted into a view, and a trigger distributes it: one statement for all.
LOG_VIEW = f"""CREATE TEMP VIEW log AS
    SELECT {", ".join(f"NULL AS {name}" for name in LogRow._fields)};
    CREATE TEMP TRIGGER write_log INSTEAD OF INSERT ON log BEGIN
    UPDATE scopes SET revision = NEW.revision WHERE id = NEW.scope AND revision < NEW.revision;
    INSERT INTO history (scope, id, memory_id, event, old_ref, new_ref, actor, ts, meta, seal)
    SELECT NEW.scope, NEW.id, NEW.memory_id, NEW.event, NEW.old_ref, NEW.new_ref,
    NEW.actor, NEW.at, NEW.meta, NEW.seal WHERE NEW.id IS NOT NULL;
    INSERT INTO events
    (id, scope, user_id, thread_id, node, op, status, memory_id, category, sim, ts)
    SELECT NEW.event_id, NEW.scope, NEW.user, NEW.thread, NEW.node, NEW.op, NEW.status,
    NEW.memory_id, NEW.category, NEW.sim, NEW.at WHERE NEW.event_id IS NOT NULL;
    INSERT INTO thread_revision (scope, thread_id, rev)
    SELECT NEW.scope, NEW.thread, 1 WHERE NEW.line_id IS NOT NULL
    ON CONFLICT (scope, thread_id) DO UPDATE SET rev = rev + 1;
    INSERT INTO change_log (id, scope, thread_id, rev, memory_id, event, meta, ts)
    SELECT NEW.line_id, scope, thread_id, rev, NEW.memory_id, NEW.line_event, NEW.line_meta, NEW.at
    FROM thread_revision
    WHERE scope = NEW.scope AND thread_id = NEW.thread AND NEW.line_id IS NOT NULL;
    END"""


def match(path: JsonPath, operator: str, values: Sequence[Any]) -> Query:
    """Return the condition that a value in the metadata, or one in a list there, compares so."""
    place = "$" + "".join(f'."{name}"' for name in path)
    if operator == "exists":
        return "metadata IS NOT NULL AND json_type(metadata, ?) <> 'null'", [place]
    sql = f"""metadata IS NOT NULL AND json_type(metadata, ?) <> 'object' AND EXISTS
    (SELECT 1 FROM json_each(metadata, ?) a, json_each(?) b WHERE a.value {operator} b.value
    AND replace(a.type, 'real', 'integer') = replace(b.type, 'real', 'integer'))"""
    given = [place, place, json.dumps(list(values))]
    if operator == "=" and len(values) == 1 and isinstance(values[0], str):
        sql = f"instr(metadata, ?) AND {sql}"  # most rows lack the text, and are not parsed
        given.insert(0, json.dumps(values[0], ensure_ascii=False))
    return sql, given


DIALECT = Dialect(
    lower="lower({})",
    each="json_each({})",
    first="json_extract({}, '$[0]')",
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
    log=lambda rows: [(_LOG, rows)],
    match=match,
)


def create_private(path: Path) -> None:
    """Create a file that only its owner can read, unless it exists. SQLite reports failures."""
    with suppress(OSError):
        path.touch(mode=0o600, exist_ok=False)


def prepare_file(path: Path) -> str:
    """Create the file; return the absolute path, which is never a `file:` URI."""
    path = path.absolute()
    if "\0" in str(path):
        raise StoreUnavailable(f"{str(path)!r} is not a valid file name: choose another one")
    if not path.parent.is_dir():
        raise StoreUnavailable(
            f"The folder {str(path.parent)!r} does not exist: create it, or choose another place"
        )
    if path.is_dir():
        raise StoreUnavailable(
            f"{str(path)!r} is a folder: name a file in it, such as {str(path / 'memory.db')!r}"
        )
    create_private(path)
    return str(path)


def connect(path: str, *, create: bool = True) -> apsw.Connection:
    """Open a database file. Raises StoreUnavailable, StoreDamaged.

    A database of another program is not changed.
    """

    def lower(*values: Any) -> Any:
        (text,) = values
        return text.lower() if isinstance(text, str) else text

    with translate_errors(path):
        flags = FLAGS | (apsw.SQLITE_OPEN_CREATE if create else 0)
        connection = apsw.Connection(path, flags=flags)
        try:
            connection.set_busy_timeout(BUSY_SECONDS * 1000)
            # The built-in function knows only ASCII; tags are compared in any script.
            connection.create_scalar_function("lower", lower, 1, deterministic=True)
            tables = {row[0] for row in connection.execute(_TABLES)}
            if tables and not tables >= _OURS:
                raise StoreDamaged(
                    f"{path!r} is a SQLite database of another program: choose another file"
                )
            use_wal(connection)
            for pragma in _PRAGMAS:
                # takes effect only if all rows are read
                connection.execute(f"PRAGMA {pragma}").fetchall()
        except BaseException:
            connection.close()
            raise
        return connection


def lost(path: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{path!r} was moved, deleted or replaced while it was open: open it again"
    )


def use_wal(connection: apsw.Connection) -> None:
    """Switch to WAL. Changing the journal mode does not wait for locks, so it is retried."""
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)


def prepare(connection: apsw.Connection, path: str) -> bytes:
    """Migrate a database and prepare it for writing; return the key of its digests."""
    migrate(connection, path)
    connection.execute(LOG_VIEW)
    found = connection.execute("SELECT value FROM meta WHERE key = 'secret'").fetchall()
    return parse_secret(found, path)


migrations = partial(shipped_migrations, __package__)


def migrate(connection: apsw.Connection, path: str, steps: Sequence[Migration] = ()) -> list[int]:
    """Migrate the database to the newest schema, in one transaction, after a backup; return the
    steps that were applied.

    Any number of processes may call it at once; only one migrates. Raises MigrationNeeded for a
    database of a newer version, StoreDamaged for an altered one.
    """
    steps = steps or migrations()
    if not missing_migrations(_done(connection), steps, path):
        return []
    connection.execute("BEGIN IMMEDIATE")
    try:
        missing = missing_migrations(_done(connection), steps, path)
        is_changed = any(step.statements for step in missing)
        if is_changed and missing[0].number > 1 and Path(path).exists():
            with closing(apsw.Connection(path)) as source:
                copy(source, Path(f"{path}.before-{missing[0].number}"))
        for sql, values in plan(missing):
            connection.execute(sql, tuple(values))
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
    """Return the absolute path, since SQLite treats some relative names specially.

    Raises InvalidInput if the file exists, or the WAL or journal of an earlier one, which SQLite
    would apply to the new file.
    """
    for end in ("", *BESIDE):
        if os.path.exists(f"{path}{end}"):
            raise InvalidInput(f"'{path}{end}' already exists: choose a new name for the backup")
    return path.absolute()


def back_up(source: apsw.Connection, path: Path) -> None:
    """Copy a database into a new file. Raises InvalidInput, StoreUnavailable, StoreDamaged."""
    target = new_path(path)
    with translate_errors(str(target)):
        copy(source, target)


def copy(source: apsw.Connection, path: Path) -> None:
    """Copy a consistent snapshot of a database; writes may continue. Raises StoreDamaged if the
    copy, opened again, has another number of rows."""
    with new_file(path) as draft:
        source.execute("BEGIN")  # count and copy the same snapshot
        try:
            expected = _count_rows(source)
            with (
                closing(apsw.Connection(str(draft))) as target,
                target.backup("main", source, "main") as copying,
            ):
                copying.step(-1)  # with smaller steps, each write would restart the copy
        finally:
            source.execute("ROLLBACK")
        uri = f"file:{quote(draft.absolute().as_posix())}?immutable=1"
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        with closing(apsw.Connection(uri, flags=flags)) as copied:
            wrong = {table for table, _ in expected ^ _count_rows(copied)}
        if wrong:
            tables = ", ".join(sorted(wrong))
            raise StoreDamaged(
                f"The copy {str(draft)!r} is not complete ({tables}): check the disk and retry"
            )


def _count_rows(connection: apsw.Connection) -> set[tuple[str, int]]:
    """Return each table with the number of its rows."""
    counts = set()
    for (table,) in connection.execute(_TABLES).fetchall():
        ((count,),) = connection.execute(f'SELECT count(*) FROM "{table}"').fetchall()
        counts.add((str(table), int(str(count))))
    return counts


@contextmanager
def translate_errors(path: str) -> Iterator[None]:
    """Raise driver errors as Memorist errors that say what to do."""
    try:
        yield
    except DRIVER_ERRORS as error:
        raise translate(error, path) from error


def translate(error: Exception, path: str) -> MemoristError:
    # The WAL index is mapped into memory; if it cannot grow, SQLite reports an I/O error.
    no_room = getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHMSIZE
    if no_room or getattr(error, "errno", None) == errno.ENOSPC:
        error = apsw.FullError()
    kind, message = next(each[1:] for each in _ERRORS if isinstance(error, each[0]))
    if kind is StoreDamaged and not Path(path).exists():
        message = "{path!r} is not a database that can be read"
    return kind(message.format(path=path, error=error))


def lock_file(place: str) -> apsw.Connection | None:
    """Return a connection that holds a lock; None if another process holds it."""
    with translate_errors(place):
        connection = apsw.Connection(place, flags=FLAGS | apsw.SQLITE_OPEN_CREATE)
        try:
            connection.execute("BEGIN EXCLUSIVE")
            return connection
        except BaseException as error:
            connection.close()
            if isinstance(error, apsw.BusyError):
                return None
            raise


def reserve_space(path: str) -> None:
    """Reserve some disk space if possible, unless the database is temporary."""
    reserve = Path(f"{path}-reserve")
    if reserve.exists() or is_temporary(reserve):
        return
    try:
        if shutil.disk_usage(reserve.parent).free >= 4 * RESERVE_BYTES:
            create_private(reserve)
            # Random, since some file systems do not allocate space for zeros.
            reserve.write_bytes(os.urandom(RESERVE_BYTES))
    except OSError:
        with suppress(OSError):
            reserve.unlink()


def is_temporary(path: Path) -> bool:
    """Return whether a file is in a temporary folder of the system."""
    folder = path.parent
    return folder.name.startswith("tmp") and folder.parent == Path(gettempdir())
