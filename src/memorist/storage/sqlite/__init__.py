"""SQLite as a `Database`: one file, any number of processes.

One thread has the connection that writes, a few have connections that read, so the event loop is
never blocked.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from tempfile import gettempdir
from typing import Any, TypeVar
from uuid import uuid4

import apsw

from ...errors import MemoristError, Misconfigured
from ...ports import Vectors
from ...types import Scope
from ..database import Batch, Dialect, JsonPath, LogRow, Query, Rows, parse_secret
from ..rows import read_one
from .connection import (
    BUSY_SECONDS,
    DRIVER_ERRORS,
    FLAGS,
    IN_MEMORY,
    begin,
    check_place,
    checkpoint,
    connect,
    copy,
    create_private,
    delete_copies,
    lost,
    migrate,
    new_path,
    prepare_file,
    translate,
    translate_errors,
)
from .pages import overwrite_unused

T = TypeVar("T")
READERS = 2
LONGEST_PAUSE = 0.05  # seconds between two attempts to begin to write
LOOK_SECONDS = 1  # SQLite does not notify other processes, so they poll
RESERVE_BYTES = 1 << 20  # reserved so that forgetting works on a full disk


_LOG = f"INSERT INTO log VALUES ({', '.join('?' * len(LogRow._fields))})"
# A row of the log is inserted into a view, and a trigger distributes it: one statement for all.
_LOG_VIEW = (
    f"""CREATE TEMP VIEW log AS
    SELECT {", ".join(f"NULL AS {name}" for name in LogRow._fields)}""",
    """CREATE TEMP TRIGGER write_log INSTEAD OF INSERT ON log BEGIN
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
    END""",
)


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


class SqliteConnection:
    """A pool of threads, each with its own connection. The one that writes is the `Connection` of
    every transaction."""

    dialect = DIALECT
    rows = read_one

    def __init__(self, path: str, name: str, *, threads: int = 1) -> None:
        self.path = path
        self.secret = b""
        self.must_wipe = False  # deleted text may still be in the WAL
        self._name = name
        self._most = threads
        self._threads: list[threading.Thread] = []
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._unfinished = 0
        self._local = threading.local()
        self._opened: list[apsw.Connection] = []
        self._is_closed = False

    def call(self, work: Callable[[apsw.Connection], T]) -> asyncio.Future[T]:
        """Call a function with a connection, in the thread of that connection.

        Each call passes through a plain queue, which takes half the time of an executor.
        """
        if self._is_closed:
            raise MemoristError("This memory is closed: open it again")
        self._unfinished += 1
        if len(self._threads) < min(self._unfinished, self._most):
            thread = threading.Thread(
                target=_serve, args=(self._jobs,), name=f"memorist-{self._name}", daemon=True
            )
            thread.start()
            self._threads.append(thread)
        future = asyncio.get_running_loop().create_future()
        self._jobs.put(partial(self._run, work, future))
        return future

    def _run(self, work: Callable[[apsw.Connection], T], future: asyncio.Future[T | None]) -> None:
        """Call the function in this thread, unless it was canceled."""
        try:
            result = None if future.cancelled() else self._work(work)
            finish = partial(future.set_result, result)
        except BaseException as error:
            finish = partial(future.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            future.get_loop().call_soon_threadsafe(self._finish, future, finish)

    def _finish(self, future: asyncio.Future[Any], finish: Callable[[], None]) -> None:
        self._unfinished -= 1
        if not future.cancelled():
            finish()

    def _work(self, work: Callable[[apsw.Connection], T]) -> T:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            can_create = self._name == "writer"
            is_lost = not self.path.startswith(IN_MEMORY) and not os.path.exists(self.path)
            if is_lost and not can_create:
                raise lost(self.path)
            connection = connect(self.path, create=can_create)
            self._local.connection = connection
            self._opened.append(connection)
        try:
            return work(connection)
        except DRIVER_ERRORS as error:
            raise translate(error, self.path) from error

    async def read(self, queries: Sequence[Query], *, scope: int | None = None) -> list[Rows]:
        def work(connection: apsw.Connection) -> list[Rows]:
            return [connection.execute(sql, tuple(values)).fetchall() for sql, values in queries]

        return await self.call(work)

    async def run(self, batches: Sequence[Batch], *, scope: int | None = None) -> None:
        def work(connection: apsw.Connection) -> None:
            for sql, batch in batches:
                connection.executemany(sql, batch).fetchall()

        await self.call(work)

    def wipe_after_commit(self) -> None:
        self.must_wipe = True

    def notify_after_commit(self, scope: int, revision: int) -> None:
        """Do nothing: processes that wait for changes poll."""

    async def close(self) -> None:
        self._is_closed = True
        self._stop()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        for connection in self._opened:
            connection.close()

    def _stop(self) -> None:
        """End the threads after what was called before."""
        for _ in self._threads:
            self._jobs.put(None)

    __del__ = _stop


def _serve(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    """Run jobs until there is a None instead of one."""
    while job := jobs.get():
        job()
        del job  # so that the database can be dropped while this waits


class SqliteDatabase:
    """One SQLite file, or a database in memory. Implements `Database`."""

    dialect = DIALECT
    rows = read_one

    def __init__(self, path: str) -> None:
        self.path = path
        self.secret = b""
        self._writer = SqliteConnection(path, "writer")
        self._reader = SqliteConnection(path, "reader", threads=READERS)
        self.read = self._reader.read
        self._turn = asyncio.Lock()  # for tasks of this process; SQLite serializes processes

    @classmethod
    async def open(cls, path: str | Path) -> SqliteDatabase:
        """Open or create the file; `:memory:` keeps everything in the process.

        Raises StoreUnavailable, StoreDamaged.
        """
        is_file = str(path) != ":memory:"
        place = prepare_file(Path(path)) if is_file else f"{IN_MEMORY}{uuid4().hex}?vfs=memdb"
        database = cls(place)
        writer = database._writer

        def prepare(connection: apsw.Connection) -> None:
            migrate(connection, place)
            for statement in _LOG_VIEW:
                connection.execute(statement)
            found = connection.execute("SELECT value FROM meta WHERE key = 'secret'").fetchall()
            database.secret = writer.secret = parse_secret(found, place)
            if is_file:
                checkpoint(connection, seconds=0)  # a crash may have left deleted text in the WAL
                reserve_space(place)

        try:
            await writer.call(prepare)
        except BaseException:
            await writer.close()
            raise
        return database

    async def nearest(
        self, scope: int, vector: Vectors, *, model: str, limit: int
    ) -> list[tuple[int, float]]:
        raise Misconfigured("This database does not search vectors: use PostgreSQL")

    @asynccontextmanager
    async def transaction(
        self, scope: Scope | None = None, *, number: int | None = None
    ) -> AsyncIterator[SqliteConnection]:
        async with self._turn:
            try:
                await self._begin()
                yield self._writer
                if self._writer.must_wipe:
                    delete_copies(self.path)  # they may hold what is erased
                await asyncio.shield(self._writer.call(_commit))
            except BaseException:  # also if canceled: a statement may still run in the thread
                await asyncio.shield(self._writer.call(_rollback))
                raise
            must_wipe = self._writer.must_wipe
            if must_wipe:
                await self._wipe()
        if must_wipe and not self.path.startswith(IN_MEMORY):
            with suppress(MemoristError):
                await asyncio.to_thread(overwrite_unused, self.path)

    async def _begin(self) -> None:
        """Begin to write as soon as no other process does; a canceled task does not wait on."""
        until = time.monotonic() + BUSY_SECONDS
        pause = 0.001
        while not await self._writer.call(partial(begin, path=self.path)):
            if time.monotonic() > until:
                raise translate(apsw.BusyError(), self.path)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _wipe(self) -> None:
        """Remove deleted text from the WAL. After a failure, the commit stands and the next write
        tries again."""
        with suppress(MemoristError):
            self._writer.must_wipe = not await self._writer.call(checkpoint)

    @asynccontextmanager
    async def try_lock(self, name: str) -> AsyncIterator[bool]:
        """Lock an empty file next to the database; the system releases it if the process dies."""
        place = f"{self.path}-{name}.lock"
        if self.path.startswith(IN_MEMORY):
            place = self.path.replace("?", f"-{name}?")
        lock = await asyncio.to_thread(lock_file, place)
        try:
            yield lock is not None
        finally:
            if lock is not None:
                lock.close()

    async def ping(self) -> None:
        await self._reader.call(check_place)

    async def wait_for_change(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, LOOK_SECONDS))

    async def backup(self, path: Path) -> None:
        def work(connection: apsw.Connection) -> None:
            target = new_path(path)
            with translate_errors(str(target)):
                copy(connection, target)

        await self._reader.call(work)

    async def vacuum(self) -> None:
        async with self._turn:
            await self._writer.read([("VACUUM", ())])
            await self._wipe()

    def make_room(self) -> bool:
        with suppress(OSError):
            Path(f"{self.path}-reserve").unlink()
            return True
        return False

    async def close(self) -> None:
        await self._reader.close()
        await self._writer.close()
        # SQLite removes the WAL when the last process closes the database.
        if not await asyncio.to_thread(os.path.exists, f"{self.path}-wal"):
            self.make_room()


def _commit(connection: apsw.Connection) -> None:
    connection.execute("COMMIT")


def _rollback(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


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
