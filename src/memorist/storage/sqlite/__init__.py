"""SQLite as a `Database`: one file, any number of processes.

One thread has the connection that writes, a few have connections that read, so the event loop is
never blocked. After a commit that erases, the WAL and unused space in the file are overwritten.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar
from uuid import uuid4

import apsw

from ...errors import MemoristError, Misconfigured
from ...ports import Vectors
from ...types import Scope
from ..database import Batch, Query, Rows, read_one
from . import connection as files
from .cleaning import copy_log, delete_copies, find_pages, overwrite_unused
from .connection import BUSY_SECONDS, DIALECT, DRIVER_ERRORS, translate

T = TypeVar("T")
READERS = 2
LONGEST_PAUSE = 0.01  # seconds between two attempts to begin to write
LOOK_SECONDS = 1  # SQLite does not notify other processes, so they poll
CHECKPOINT_SECONDS = 2  # a forget waits for readers of the WAL; after that the next write cleans it
IN_MEMORY = "file:/"  # prefix of a database in memory; a path on disk is absolute
_RETRY_SECONDS = 0.001


class SqliteConnection:
    """A pool of threads, each with its own connection. The one that writes is the `Connection` of
    every transaction."""

    dialect = DIALECT
    rows = read_one

    def __init__(self, path: str, name: str, *, threads: int = 1) -> None:
        self.path = path
        self.secret = b""
        self.must_clean = False  # the transaction erases something
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
            name = f"memorist-{self._name}"
            thread = threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True)
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
            is_file = not self.path.startswith(IN_MEMORY)
            if is_file and not can_create and not os.path.exists(self.path):
                raise files.lost(self.path)
            connection = files.connect(self.path, create=can_create)
            wait(connection)
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
        self.must_clean = True

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
        self._cleaning = asyncio.Lock()
        self._erasures = 0  # commits that erased something
        self._cleaned = 0  # erasures that left nothing

    @classmethod
    async def open(cls, path: str | Path) -> SqliteDatabase:
        """Open or create the file; `:memory:` keeps everything in the process.

        Raises StoreUnavailable, StoreDamaged.
        """
        is_file = str(path) != ":memory:"
        place = files.prepare_file(Path(path)) if is_file else f"{IN_MEMORY}{uuid4().hex}?vfs=memdb"
        database = cls(place)
        writer = database._writer

        def prepare(connection: apsw.Connection) -> None:
            database.secret = writer.secret = files.prepare(connection, place)
            if is_file:
                checkpoint(connection, seconds=0)  # a crash may have left deleted text in the WAL
                files.reserve_space(place)

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
            async with self._write():
                yield self._writer
                if self._writer.must_clean:
                    delete_copies(self.path)  # they may hold what is erased
            is_erased = self._writer.must_clean
            if is_erased:
                self._writer.must_clean = False
                self._erasures += 1
        has_failed = self._cleaned < self._erasures and not self._cleaning.locked()
        if is_erased or has_failed:
            await asyncio.shield(self._clean(self._erasures))

    @asynccontextmanager
    async def _write(self) -> AsyncIterator[None]:
        """Begin to write, and commit."""
        try:
            await self._begin()
            yield
            await asyncio.shield(self._writer.call(_commit))
        except BaseException:  # also if canceled: a statement may still run in the thread
            await asyncio.shield(self._writer.call(_rollback))
            raise

    async def _begin(self) -> None:
        """Begin to write as soon as no other process does; a canceled task does not wait on."""
        until = time.monotonic() + BUSY_SECONDS
        while not await self._writer.call(begin):
            if time.monotonic() > until:
                raise translate(apsw.BusyError(), self.path)
            # Not longer with each attempt: whoever waits longest would try least often.
            await asyncio.sleep(random.uniform(0, LONGEST_PAUSE))

    async def _clean(self, erasures: int) -> None:
        """Remove deleted text from the WAL and from unused space, once for all tasks that wait.

        After a failure, the commit stands and the next write tries again. No thread waits for the
        write lock: a transaction that has the lock may need one.
        """
        async with self._cleaning:
            if erasures <= self._cleaned:
                return
            erasures = self._erasures
            with suppress(MemoristError, *DRIVER_ERRORS):
                async with self._turn:
                    is_truncated = await self._writer.call(checkpoint)
                if pages := await self._reader.call(find_pages):
                    async with self._turn:
                        await self._overwrite(pages)
                if is_truncated:
                    self._cleaned = erasures

    async def _overwrite(self, pages: Sequence[int]) -> None:
        """Overwrite the unused space of pages. Raises Busy if another process reads the WAL, since
        it may copy pages from there into the file meanwhile."""
        async with self._write():
            if not await self._reader.call(copy_log):
                raise translate(apsw.BusyError(), self.path)
            await self._writer.call(partial(overwrite_unused, pages=pages))

    @asynccontextmanager
    async def try_lock(self, name: str) -> AsyncIterator[bool]:
        """Lock an empty file next to the database; the system releases it if the process dies."""
        place = f"{self.path}-{name}.lock"
        if self.path.startswith(IN_MEMORY):
            place = self.path.replace("?", f"-{name}?")
        lock = await asyncio.to_thread(files.lock_file, place)
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
        await self._reader.call(partial(files.back_up, path=path))

    async def vacuum(self) -> None:
        async with self._turn:
            await self._writer.read([("VACUUM", ())])
            await self._writer.call(checkpoint)

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


def wait(connection: apsw.Connection) -> None:
    """Set how long to wait for locks. In memory, a writer blocks readers, so they retry often."""
    if connection.filename:
        connection.set_busy_timeout(BUSY_SECONDS * 1000)
    else:
        connection.set_busy_handler(_retry)


def _retry(tries: int, *, seconds: float = BUSY_SECONDS) -> bool:
    time.sleep(_RETRY_SECONDS)
    return tries * _RETRY_SECONDS < seconds


def begin(connection: apsw.Connection) -> bool:
    """Begin to write; return False if another connection writes."""
    check_place(connection)
    connection.set_busy_timeout(0)
    try:
        connection.execute("BEGIN IMMEDIATE")
        return True
    except apsw.BusyError:
        return False
    finally:
        wait(connection)


def check_place(connection: apsw.Connection) -> None:
    """Raise StoreUnavailable if the file was moved or deleted: SQLite would keep using it."""
    is_moved = ctypes.c_int()
    connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(is_moved))
    if is_moved:
        raise files.lost(connection.filename)


def checkpoint(connection: apsw.Connection, *, seconds: int = CHECKPOINT_SECONDS) -> bool:
    """Move committed pages into the file and truncate the WAL; return False if others read it."""
    if not connection.filename:  # a database in memory has no WAL
        return True
    connection.set_busy_handler(partial(_retry, seconds=seconds))
    try:
        return connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0] == 0
    except apsw.BusyError:
        return False
    finally:
        wait(connection)
