"""The embedded store: one SQLite file, any number of processes.

One thread owns the connection that writes, a few own connections that read; nothing blocks the event loop.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import apsw

from ...errors import MemoristError, StoreUnavailable
from ...types import Scope
from ..database import Session, Values
from ..store import Relational, secret_of
from ..transaction import Writings
from . import backup as checks
from .connection import DIALECT, IN_MEMORY, connect, private, translated, wait
from .migrate import migrate

T = TypeVar("T")
_READERS = 2
_LOOK_SECONDS = 1
_RESERVE = 1 << 20  # bytes kept aside, so that forgetting still works when the disk is full
_CLEAN_SECONDS = (
    2  # a forget waits so long for others to let go of the log; then the next write cleans it
)


class Thread:
    """A connection that lives in threads of its own. Implements `Session`."""

    dialect = DIALECT

    def __init__(self, path: str, *, name: str, threads: int = 1, create: bool = False) -> None:
        self.path, self._create = path, create
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"memorist-{name}")
        self._own = threading.local()
        self._opened: list[apsw.Connection] = []
        self._closed = False

    async def run(self, work: Callable[[apsw.Connection], T]) -> T:
        """Do something with the connection, in its thread."""
        if self._closed:
            raise MemoristError("This memory is closed: open it again")
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._work, work)

    def _work(self, work: Callable[[apsw.Connection], T]) -> T:
        with translated(self.path):
            connection = getattr(self._own, "connection", None)
            if connection is None:
                if not self._create and not self.path.startswith(IN_MEMORY):
                    _refuse_missing(self.path)
                connection = self._own.connection = connect(self.path, create=self._create)
                self._opened.append(connection)
            return work(connection)

    async def rows(
        self, sql: str, values: Values = (), *, scope: int | None = None
    ) -> list[tuple[Any, ...]]:
        return await self.run(lambda connection: connection.execute(sql, tuple(values)).fetchall())

    async def many(self, sql: str, values: Iterable[Values], *, scope: int | None = None) -> None:
        batch = [tuple(each) for each in values]
        if batch:
            await self.run(lambda connection: connection.executemany(sql, batch).fetchall())

    async def close(self) -> None:
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._pool.shutdown)
        for connection in self._opened:
            connection.close()


class SqliteStore(Relational):
    """Memories in one file. Implements `ports.Store`; open it with `SqliteStore.open`."""

    def __init__(
        self, path: str, *, language: str, secret: bytes, writer: Thread, reader: Thread
    ) -> None:
        super().__init__(reader, language=language, secret=secret)
        self.path = path
        self._writer, self._reader = writer, reader
        self._turn = (
            asyncio.Lock()
        )  # one transaction at a time in this process; SQLite sees to the other processes
        self._unclean = False  # erased words may still stand in the log

    @classmethod
    async def open(cls, path: str | Path, *, language: str = "english") -> SqliteStore:
        """Open or make the file. `:memory:` keeps everything in the process. Raises StoreUnavailable, StoreDamaged."""
        on_disk = str(path) != ":memory:"
        place = _made_ready(Path(path)) if on_disk else f"{IN_MEMORY}{uuid4().hex}?vfs=memdb"
        writer = Thread(place, name="writer", create=True)
        try:
            await writer.run(lambda connection: migrate(connection, place))
            secret = secret_of(
                await writer.rows("SELECT value FROM meta WHERE key = 'secret'"), place
            )
            if on_disk:
                await writer.run(
                    lambda connection: checkpoint(connection, seconds=0)
                )  # after a crash: see `_clean`
                await writer.run(lambda _: _keep_reserve(place))
        except BaseException:
            await writer.close()
            raise
        reader = Thread(place, name="reader", threads=_READERS)
        store = cls(place, language=language, secret=secret, writer=writer, reader=reader)
        try:
            await store._reanalyse()
        except BaseException:
            await store.close()
            raise
        return store

    @asynccontextmanager
    async def transaction(self, scope: Scope) -> AsyncIterator[Writings]:
        """Commits when the block ends, durably, and rolls back if it raises."""
        writings = Writings(
            self._writer, self._known, self._secret, scope=scope, language=self._language
        )
        async with self._together():
            yield writings
            if writings.failed is not None:
                raise writings.failed
            self._unclean |= writings.erased

    @asynccontextmanager
    async def _together(self) -> AsyncIterator[Session]:
        async with self._turn:
            try:
                await self._writer.run(_begin)
                yield self._writer
                await asyncio.shield(self._writer.rows("COMMIT"))
            except (
                BaseException
            ):  # cancelled too: whatever still runs in the thread is undone after it
                await asyncio.shield(self._writer.run(_rollback))
                raise
            if self._unclean:
                await self._clean()

    async def _clean(self) -> None:
        """Leave no erased word in the log. What was committed stands, so a failure waits for the next write."""
        with suppress(MemoristError):
            self._unclean = not await self._writer.run(checkpoint)

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[bool]:
        """Held by a lock on an empty file beside this one, which the system lets go of if the process dies."""
        in_memory = self.path.startswith(IN_MEMORY)
        place = self.path.replace("?", f"-{name}?") if in_memory else f"{self.path}-{name}.lock"
        lock = await asyncio.to_thread(_locked, place)
        try:
            yield lock is not None
        finally:
            if lock is not None:
                lock.close()

    async def changes(self, seconds: float) -> None:
        await asyncio.sleep(
            min(seconds, _LOOK_SECONDS)
        )  # nobody tells us, so whoever waits looks again

    async def _bytes(self) -> int:
        return await self._reader.run(
            lambda _: os.path.getsize(self.path) if os.path.exists(self.path) else 0
        )

    async def _unsound(self) -> list[str]:
        found = await self._session.rows("PRAGMA integrity_check(20)")
        return [str(row[0]) for row in found if row[0] != "ok"]

    async def backup(self, path: Path) -> None:
        """A complete copy of the file, taken while others write."""
        await self._reader.run(lambda connection: checks.backup(connection, path))

    async def vacuum(self) -> None:
        async with self._turn:
            await self._writer.rows("VACUUM")
            await self._clean()

    def make_room(self) -> bool:
        """Give the reserve back to a full disk; False if it was used up before."""
        reserve = Path(f"{self.path}-reserve")
        with suppress(OSError):
            reserve.unlink()
            return True
        return False

    async def close(self) -> None:
        await self._reader.close()
        await self._writer.close()


def checkpoint(connection: apsw.Connection, *, seconds: int = _CLEAN_SECONDS) -> bool:
    """Move what was committed into the file and empty the log; False if others would not let go of it in time."""
    if not connection.filename:  # in memory there is no log
        return True
    wait(connection, connection.filename, seconds)
    try:
        return connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0] == 0
    except apsw.BusyError:
        return False
    finally:
        wait(connection, connection.filename)


def _begin(connection: apsw.Connection) -> None:
    if connection.filename:
        _refuse_missing(connection.filename)  # SQLite would go on writing to nowhere
    connection.execute("BEGIN IMMEDIATE")


def _refuse_missing(path: str) -> None:
    if not os.path.exists(path):
        raise StoreUnavailable(f"{path!r} was moved or deleted while it was open: open it again")


def _locked(place: str) -> apsw.Connection | None:
    flags = (
        apsw.SQLITE_OPEN_READWRITE
        | apsw.SQLITE_OPEN_CREATE
        | apsw.SQLITE_OPEN_URI * place.startswith(IN_MEMORY)
    )
    with translated(place):
        connection = apsw.Connection(place, flags=flags)
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except BaseException as error:
            connection.close()
            if isinstance(error, apsw.BusyError):
                return None
            raise
        return connection


def _rollback(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _keep_reserve(path: str) -> None:
    """Set a little room aside, where there is plenty."""
    reserve = Path(f"{path}-reserve")
    with suppress(OSError):
        if reserve.exists() or shutil.disk_usage(reserve.parent).free < 4 * _RESERVE:
            return
        try:
            private(reserve)
            reserve.write_bytes(
                os.urandom(_RESERVE)
            )  # not zeros: some file systems keep those for nothing
        except OSError:
            reserve.unlink()


def _made_ready(path: Path) -> str:
    """The whole path of the file, its folder made: what begins with `file:` is a name like any other."""
    path = path.absolute()
    if "\0" in str(path):
        raise StoreUnavailable(f"{str(path)!r} is no name that a file can have: choose another one")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(
            f"The folder {str(path.parent)!r} cannot be made: choose another place"
        ) from error
    if path.is_dir():
        raise StoreUnavailable(
            f"{str(path)!r} is a folder: name a file in it, such as {str(path / 'memory.db')!r}"
        )
    private(path)
    return str(path)
