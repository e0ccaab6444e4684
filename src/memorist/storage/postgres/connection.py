"""Connect to PostgreSQL: a connection pool, notifications between processes, error translation.

The pool is our own, because one that connects in the background cannot report why it has no
connection, and every caller waits for the same timeout. There is no session state: each transaction
starts with its own settings, so a pooler such as PgBouncer may use another connection each time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ...errors import (
    Busy,
    InvalidInput,
    MemoristError,
    MigrationNeeded,
    Misconfigured,
    ProviderFailed,
    RevisionConflict,
    StoreDamaged,
    StoreFull,
    StoreUnavailable,
)
from . import pipeline
from .pipeline import Connection

CONNECT_SECONDS = 5
ANSWER_SECONDS = 30  # for one statement, including waiting for locks
_GRACE_SECONDS = 5  # after its own timeout, before a server is considered gone
_IDLE_SECONDS = 300
CHANNEL = "memorist"
_ASYNC_COMMIT = "SELECT set_config('synchronous_commit', 'off', true)"
_NOTIFY = "SELECT pg_notify(?, note) FROM unnest(?::text[]) note"
_COLLECT_SECONDS = 0.02
_RETRY_SECONDS = 1.0  # after the connection was lost
_SIZE = 10
_USUAL = {
    "connect_timeout": str(CONNECT_SECONDS),
    "application_name": "memorist",
    "tcp_user_timeout": "15000",
}
# The first match is used, so specific errors come before general ones.
_ERRORS: tuple[tuple[Any, type[MemoristError], str], ...] = (
    (
        (errors.DiskFull, errors.OutOfMemory),
        StoreFull,
        "{place} is out of disk space or memory: nothing was written. Free some and retry",
    ),
    (
        (errors.DataCorrupted, errors.IndexCorrupted),
        StoreDamaged,
        "{place} is damaged: restore a backup ({said})",
    ),
    (
        (errors.UndefinedTable, errors.UndefinedColumn),
        MigrationNeeded,
        "{place} lacks part of the schema: run `memorist db migrate` ({said})",
    ),
    (
        errors.DuplicateSchema,
        Misconfigured,
        "{place} has the tables of version 0.1 and another schema with the new name: "
        "rename or drop that schema ({said})",
    ),
    (
        errors.InsufficientPrivilege,
        Misconfigured,
        "{place} does not permit this: grant the privilege to the user you log in as ({said})",
    ),
    (
        (errors.QueryCanceled, errors.LockNotAvailable),
        Busy,
        "{place} waited too long for other transactions and canceled the statement: retry ({said})",
    ),
    (
        errors.ProgramLimitExceeded,
        InvalidInput,
        "A name or an id is too long for PostgreSQL: shorten it ({said})",
    ),
    (
        (errors.ReadOnlySqlTransaction, psycopg.OperationalError),
        StoreUnavailable,
        "The connection to {place} was lost: it is not known whether a change in progress was "
        "stored. Check that the server runs, and retry ({said})",
    ),
    (
        psycopg.IntegrityError,
        RevisionConflict,
        "This conflicts with stored data: read it again and repeat the change ({said})",
    ),
    (psycopg.DataError, InvalidInput, "PostgreSQL cannot store a value: {said}"),
    (psycopg.Error, ProviderFailed, "PostgreSQL reported: {said}"),
    (TimeoutError, StoreUnavailable, "{place} did not answer in time: retry"),
    (
        OSError,
        StoreUnavailable,
        "{place} cannot be reached ({said}): check that the server runs, and retry",
    ),
    (
        UnicodeEncodeError,
        InvalidInput,
        "A name or an id contains an unpaired surrogate: it cannot be stored",
    ),
)


class Pool:
    """Idle connections, and a limit on how many are in use.

    Who holds a connection must not wait for another one of the same pool.
    """

    def __init__(self, url: str, adapters: AdaptersMap, size: int = _SIZE) -> None:
        self.url = url
        self.place = hide_password(url)
        self.adapters = adapters
        self._idle: deque[tuple[float, Connection]] = deque()
        self._free = asyncio.Semaphore(size)
        self._is_closed = False

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[Connection]:
        """Yield a connection for a block; one that was interrupted or lost is not reused."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._free.acquire()
        except TimeoutError as error:
            raise Busy(
                f"All connections to {self.place} were busy for {ANSWER_SECONDS} s: retry"
            ) from error
        try:
            connection = await self._take()
            try:
                yield connection
            except BaseException as error:
                # An interrupted statement may still be running: roll back only after a failure.
                has_failed = isinstance(error, Exception)
                is_lost = isinstance(error, StoreUnavailable) and not isinstance(error, Busy)
                if is_lost or not has_failed:
                    await asyncio.shield(connection.close())
                else:
                    await self._roll_back(connection)
                raise
            self._give_back(connection)
        finally:
            self._free.release()

    async def _take(self) -> Connection:
        if self._is_closed:
            raise MemoristError("This memory is closed: open it again")
        while self._idle:
            _, connection = self._idle.pop()
            # Detect a connection that the server closed, without a round trip.
            with suppress(psycopg.Error):
                if not connection.closed:
                    connection.pgconn.consume_input()  # reads what the server sent last
                    connection.pgconn.consume_input()  # raises at the end of the stream
                    return connection
            await connection.close()
        return await connect(self.url, self.adapters)

    async def _roll_back(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(_GRACE_SECONDS):
                await asyncio.shield(pipeline.rollback(connection))
            self._give_back(connection)
        except (psycopg.Error, TimeoutError):
            await asyncio.shield(connection.close())

    def _give_back(self, connection: Connection) -> None:
        if connection.closed:
            return
        now = time.monotonic()
        self._idle.append((now, connection))
        while len(self._idle) > 1 and self._idle[0][0] < now - _IDLE_SECONDS:
            self._idle.popleft()[1].pgconn.finish()

    async def close(self) -> None:
        self._is_closed = True
        while self._idle:
            await self._idle.popleft()[1].close()


class Notifier:
    """Announces changes of this process and waits for those of others, with LISTEN and NOTIFY.

    A notification is a hint that may be lost, so listeners also poll. It is sent after the commit
    and for many commits together, because commits that notify are serialized on the whole server.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._new: dict[int, int] = {}  # revisions by the number of the scope
        self._sending: asyncio.Task[None] | None = None
        self._listener: Connection | None = None

    def notify(self, scope: int, revision: int) -> None:
        """Announce soon that a scope has a new revision."""
        self._new[scope] = revision
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._new:
            await asyncio.sleep(_COLLECT_SECONDS)
            notes = [f"{scope}:{revision}" for scope, revision in self._new.items()]
            self._new = {}
            statements = [(_ASYNC_COMMIT, ()), (_NOTIFY, (CHANNEL, notes))]
            with suppress(MemoristError):
                async with self._pool.lease() as connection:
                    with translate_errors(self._pool.place):
                        await pipeline.exchange(connection, statements)

    async def wait(self, seconds: float) -> None:
        """Wait for a notification, or until the time is up."""
        try:
            with translate_errors(self._pool.place):
                if self._listener is None:
                    self._listener = await connect(self._pool.url)
                    await self._listener.execute(f"LISTEN {CHANNEL}")
                async for _ in self._listener.notifies(timeout=seconds, stop_after=1):
                    pass
        except BaseException as error:
            await self._stop_listening()
            if not isinstance(error, MemoristError):
                raise
            await asyncio.sleep(min(seconds, _RETRY_SECONDS))

    async def _stop_listening(self) -> None:
        listener = self._listener
        self._listener = None
        if listener is not None:
            with suppress(psycopg.Error):
                await listener.close()

    async def close(self) -> None:
        if self._sending is not None:
            await self._sending
        await self._stop_listening()


async def connect(
    url: str, adapters: AdaptersMap | None = None, *, autocommit: bool = True
) -> Connection:
    """Return a new connection. Raises StoreUnavailable, Misconfigured."""
    place = hide_password(url)
    info = complete_url(url)
    with translate_errors(place):
        try:
            async with asyncio.timeout(2 * CONNECT_SECONDS):
                return await AsyncConnection.connect(info, autocommit=autocommit, context=adapters)
        except psycopg.OperationalError as error:
            said = " ".join(str(error).split())
            raise StoreUnavailable(
                f"{place} cannot be reached: check that the server runs and the URL is right, "
                f"and retry ({said})"
            ) from error


@asynccontextmanager
async def open_connection(url: str, *, autocommit: bool = True) -> AsyncIterator[Connection]:
    """Yield a new connection for a block, and translate its errors."""
    connection = await connect(url, autocommit=autocommit)
    try:
        with translate_errors(hide_password(url)):
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def limit_wait(place: str) -> AsyncIterator[None]:
    """Limit a block to a little more than the timeout of the server, which may be unreachable, and
    translate its errors."""
    with translate_errors(place):
        async with asyncio.timeout(ANSWER_SECONDS + _GRACE_SECONDS):
            yield


def complete_url(url: str) -> str:
    """Return the connection string with our defaults for what it leaves open."""
    with translate_errors(hide_password(url)):
        return make_conninfo(url, **(_USUAL | conninfo_to_dict(url)))


def hide_password(url: str) -> str:
    """Return a URL without its password, for messages.

    >>> hide_password("postgresql://ana:secret@db.example:5433/memories")
    'postgresql://ana@db.example:5433/memories'
    """
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error:
        return "postgresql://…"
    user = f"{parts['user']}@" if parts.get("user") else ""
    port = f":{parts['port']}" if parts.get("port") else ""
    host = str(parts.get("host", ""))
    name = parts.get("dbname", "")
    if host.startswith("/"):
        return f"postgresql://{user}/{name}?host={host}"
    return f"postgresql://{user}{host}{port}/{name}"


@contextmanager
def translate_errors(place: str) -> Iterator[None]:
    """Raise driver errors as Memorist errors that say what to do."""
    try:
        yield
    except (psycopg.Error, OSError, UnicodeEncodeError) as error:
        said = " ".join(str(error).split())
        if "ProactorEventLoop" in said:
            raise Misconfigured(
                "PostgreSQL needs another event loop on Windows: asyncio.run(…, "
                "loop_factory=asyncio.SelectorEventLoop)"
            ) from error
        if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
            raise Misconfigured(f"{place!r} is not a PostgreSQL URL: {said}") from error
        kind, message = next(each[1:] for each in _ERRORS if isinstance(error, each[0]))
        raise kind(message.format(place=place, said=said)) from error
