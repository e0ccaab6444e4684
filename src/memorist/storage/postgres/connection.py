"""Connections to PostgreSQL: how they are opened and shared, how processes tell each other about
changes, and how errors become ours.

A pool of our own, because one that connects in the background cannot say why it has no connection,
and lets every caller wait for the same timeout. Nothing is kept in a session: each transaction
begins with its own settings, so a pooler between us and the server may hand out another connection
each time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeAlias

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.adapt import AdaptersMap
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ...errors import (
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
ANSWER_SECONDS = 30  # for one statement, waiting for locks included
_GRACE_SECONDS = 5  # after which a server that should have given up is taken for gone
_IDLE_SECONDS = 300
CHANNEL = "memorist"
_ASYNC_COMMIT = "SELECT set_config('synchronous_commit', 'off', true)"
_NOTIFY = "SELECT pg_notify($1, note) FROM unnest($2::text[]) note"
_COLLECT_SECONDS = 0.02
_RETRY_SECONDS = 1.0  # after the connection was lost
_SIZE = 10
_USUAL = {
    "connect_timeout": str(CONNECT_SECONDS),
    "application_name": "memorist",
    "tcp_user_timeout": "15000",
}


class Pool:
    """Connections that are open and idle, and a limit to how many are in use."""

    def __init__(self, url: str, *, adapters: AdaptersMap, size: int = _SIZE) -> None:
        self.place, self.adapters = hide_password(url), adapters
        self._info = complete_url(url)
        self._idle: deque[tuple[float, Connection]] = deque()
        self._free = asyncio.Semaphore(size)
        self._closed = False

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[Connection]:
        """A connection for the length of a block; one that was interrupted or lost is not used
        again."""
        await self._turn()
        try:
            connection = await self._taken()
            try:
                yield connection
            except BaseException as error:
                await self._after(error, connection)
                raise
            self._returned(connection)
        finally:
            self._free.release()

    async def _turn(self) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._free.acquire()
        except TimeoutError as error:
            raise StoreUnavailable(
                f"All connections to {self.place} were busy for {ANSWER_SECONDS} s: retry"
            ) from error

    async def _taken(self) -> Connection:
        if self._closed:
            raise MemoristError("This memory is closed: open it again")
        while self._idle:
            _, connection = self._idle.pop()
            if await _is_alive(connection):
                return connection
        return await connect(self._info, self.place, self.adapters, autocommit=True)

    async def _after(self, error: BaseException, connection: Connection) -> None:
        """Give back a connection that only said no. What was interrupted may still be under way:
        close it."""
        if isinstance(error, Exception) and not isinstance(error, StoreUnavailable):
            with suppress(psycopg.Error, TimeoutError):
                async with asyncio.timeout(_GRACE_SECONDS):
                    await asyncio.shield(pipeline.rollback(connection))
                self._returned(connection)
                return
        await asyncio.shield(connection.close())

    def _returned(self, connection: Connection) -> None:
        if connection.closed:
            return
        now = time.monotonic()
        self._idle.append((now, connection))
        while len(self._idle) > 1 and self._idle[0][0] < now - _IDLE_SECONDS:
            self._idle.popleft()[1].pgconn.finish()

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            await self._idle.popleft()[1].close()


class Notifier:
    """Announces changes made here, and waits for those made elsewhere, with LISTEN and NOTIFY.

    A notification is a hint that may be lost, so listeners also look again after a while. It is
    sent after the commit and for many commits together, because commits that notify wait for each
    other on the whole server.
    """

    def __init__(self, url: str, pool: Pool) -> None:
        self._info, self._pool = complete_url(url), pool
        self._new: dict[int, int] = {}  # revisions by the number of their scope
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
            notes, self._new = [f"{scope}:{revision}" for scope, revision in self._new.items()], {}
            with suppress(MemoristError):
                async with self._pool.lease() as connection:
                    with translated(self._pool.place):
                        await pipeline.exchange(
                            connection, [(_ASYNC_COMMIT, ()), (_NOTIFY, (CHANNEL, notes))]
                        )

    async def wait(self, seconds: float) -> None:
        """Wait for a notification, at most for so long."""
        try:
            with translated(self._pool.place):
                self._listener = self._listener or await self._start_listening()
                async for _ in self._listener.notifies(timeout=seconds, stop_after=1):
                    pass
        except MemoristError:
            await self._stop_listening()
            await asyncio.sleep(min(seconds, _RETRY_SECONDS))
        except BaseException:
            await self._stop_listening()
            raise

    async def _start_listening(self) -> Connection:
        connection = await connect(self._info, self._pool.place, autocommit=True)
        try:
            await connection.execute(f"LISTEN {CHANNEL}")
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            listener, self._listener = self._listener, None
            with suppress(psycopg.Error):
                await listener.close()

    async def close(self) -> None:
        if self._sending is not None:
            await self._sending
        await self._stop_listening()


async def _is_alive(connection: Connection) -> bool:
    """Whether the server has not hung up, as far as can be seen without asking it. Closes what
    is dead."""
    with suppress(psycopg.Error):
        if not connection.closed:
            connection.pgconn.consume_input()  # what it said last,
            connection.pgconn.consume_input()  # and that it said no more
            return True
    await connection.close()
    return False


async def connect(
    info: str, place: str, adapters: AdaptersMap | None = None, **given: Any
) -> Connection:
    """A new connection. Raises StoreUnavailable, Misconfigured."""
    with translated(place):
        try:
            async with asyncio.timeout(2 * CONNECT_SECONDS):
                return await AsyncConnection.connect(info, context=adapters, **given)
        except psycopg.OperationalError as error:
            wrong = (
                f"{place} cannot be reached: see that the server runs and the address is right, "
                "and retry"
            )
            raise StoreUnavailable(f"{wrong} ({' '.join(str(error).split())})") from error


@asynccontextmanager
async def answered(place: str) -> AsyncIterator[None]:
    """Wait no longer than the server itself would, for it may be gone without a word; its errors
    become ours."""
    with translated(place):
        async with asyncio.timeout(ANSWER_SECONDS + _GRACE_SECONDS):
            yield


def complete_url(url: str) -> str:
    """The address with what we add where it does not say otherwise."""
    with translated(hide_password(url)):
        given = conninfo_to_dict(url)
        return make_conninfo(
            url, **{name: value for name, value in _USUAL.items() if name not in given}
        )


def hide_password(url: str) -> str:
    """An address as it may be printed, without its password.

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
    if host.startswith("/"):
        return f"postgresql://{user}/{parts.get('dbname', '')}?host={host}"
    return f"postgresql://{user}{host}{port}/{parts.get('dbname', '')}"


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Turn the driver's errors into ours, with the way out."""
    try:
        yield
    except MemoristError:
        raise
    except TimeoutError as error:
        raise StoreUnavailable(f"{place} did not answer in time: retry") from error
    except psycopg.Error as error:
        raise _ours(error, place) from error
    except OSError as error:
        raise StoreUnavailable(
            f"{place} cannot be reached ({error}): see that the server runs, and retry"
        ) from error
    except UnicodeEncodeError as error:
        raise InvalidInput(
            "A name or an id holds half a surrogate pair: it is not text that can be kept"
        ) from error


_Answer: TypeAlias = Callable[[str, str], MemoristError]
# The first class that fits, so the particular stands before the general.
_ANSWERS: tuple[tuple[tuple[type[psycopg.Error], ...], _Answer], ...] = (
    (
        (errors.DiskFull, errors.OutOfMemory),
        lambda place, said: StoreFull(
            f"{place} has no room left: nothing was written. Free some space and retry"
        ),
    ),
    (
        (errors.DataCorrupted, errors.IndexCorrupted),
        lambda place, said: StoreDamaged(f"{place} is damaged: restore a backup ({said})"),
    ),
    (
        (errors.UndefinedTable, errors.UndefinedColumn),
        lambda place, said: MigrationNeeded(
            f"{place} lacks part of the schema: run `memorist db migrate` ({said})"
        ),
    ),
    (
        (errors.DuplicateSchema,),
        lambda place, said: Misconfigured(
            f"{place} holds the tables of version 0.1 and another schema with the new name: "
            "rename or drop that one "
            f"({said})"
        ),
    ),
    (
        (errors.InsufficientPrivilege,),
        lambda place, said: Misconfigured(
            f"{place} does not allow this: grant it to the user you log in as ({said})"
        ),
    ),
    (
        (errors.QueryCanceled, errors.LockNotAvailable),
        lambda place, said: StoreUnavailable(
            f"{place} was busy for {ANSWER_SECONDS} s and gave up: retry"
        ),
    ),
    (
        (errors.ProgramLimitExceeded,),
        lambda place, said: InvalidInput(
            f"A name or an id is too long for PostgreSQL: shorten it ({said})"
        ),
    ),
    (
        (errors.ReadOnlySqlTransaction, psycopg.OperationalError),
        lambda place, said: StoreUnavailable(
            f"{place} went away: whether a change that was under way is kept is not known. See "
            "that the server runs, "
            f"and retry ({said})"
        ),
    ),
    (
        (psycopg.IntegrityError,),
        lambda place, said: RevisionConflict(
            f"This contradicts what is already kept: read it again and repeat it ({said})"
        ),
    ),
    (
        (psycopg.DataError,),
        lambda place, said: InvalidInput(f"PostgreSQL cannot keep a value: {said}"),
    ),
)


def _ours(error: psycopg.Error, place: str) -> MemoristError:
    said = " ".join(str(error).split())
    if "ProactorEventLoop" in said:
        return Misconfigured(
            "PostgreSQL needs another event loop on Windows: asyncio.run(…, "
            "loop_factory=asyncio.SelectorEventLoop)"
        )
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return Misconfigured(
            f"{place!r} is not an address of PostgreSQL, or a value is of no type it knows: {said}"
        )
    for kinds, answer in _ANSWERS:
        if isinstance(error, kinds):
            return answer(place, said)
    return ProviderFailed(f"PostgreSQL said: {said}")
