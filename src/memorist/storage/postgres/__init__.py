"""PostgreSQL with pgvector as a `Database`, for any number of servers and workers.

Row-level security compares every row with a setting of the transaction, so even one SELECT follows
another that makes the setting; they travel together, in one trip.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import numpy as np

from ...ports import Vectors
from ...types import Scope, frozen
from .. import copy
from ..database import EVERY, Batch, Dialect, JsonPath, LogRow, Query, Rows, parse_secret, read_one
from ..queries import portions
from . import migrate, pipeline
from .connection import (
    ANSWER_SECONDS,
    Notifier,
    Pool,
    hide_password,
    limit_wait,
    open_connection,
)
from .pipeline import adapters

T = TypeVar("T")
_COLLATIONS = ("pg_unicode_fast", "und-x-icu", "pg_c_utf8")  # with the case of every script
_OURS = f"relnamespace = '{migrate.SCHEMA}'::regnamespace AND relkind IN ('r', 'p')"
_SETTINGS = """SELECT set_config('role', ?, true), set_config('search_path', ?, true),
set_config('memorist.scope', ?, true), set_config('memorist.every_scope', ?, true),
set_config('statement_timeout', ?, true)"""
_DURABLE = """SELECT set_config('synchronous_commit', 'on', true)
WHERE current_setting('synchronous_commit') = 'off'"""
_READ_ALL = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_RENUMBER = (
    "SELECT setval('memories_row', (SELECT coalesce(max(row), 0) + 1 FROM memories), false)",
    "SELECT setval('messages_row', (SELECT coalesce(max(row), 0) + 1 FROM messages), false)",
    "SELECT setval('history_row', (SELECT coalesce(max(row), 0) + 1 FROM history), false)",
    "SELECT setval('scopes_id_seq', (SELECT coalesce(max(id), 0) + 1 FROM scopes), false)",
)
_INTEGRITY = f"""SELECT 'Row-level security does not guard ' || relname ||
': run `memorist db migrate` as its owner' FROM pg_class c
WHERE {_OURS} AND NOT relispartition AND EXISTS
(SELECT 1 FROM pg_attribute WHERE attrelid = c.oid AND attname = 'scope')
AND NOT row_security_active(oid) ORDER BY relname"""
_MOVE = "UPDATE scopes SET revision = ? WHERE id = ? AND revision < ?"
_ENTRY = """INSERT INTO history
(scope, id, memory_id, event, old_ref, new_ref, actor, ts, meta, seal)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_EVENT = """INSERT INTO events
(id, scope, user_id, thread_id, node, op, status, memory_id, category, sim, ts)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_LINE = """WITH line AS (INSERT INTO thread_revision (scope, thread_id, rev) VALUES (?, ?, 1)
ON CONFLICT (scope, thread_id) DO UPDATE SET rev = thread_revision.rev + 1
RETURNING scope, thread_id, rev)
INSERT INTO change_log (id, scope, thread_id, rev, memory_id, event, meta, ts)
SELECT ?::uuid, scope, thread_id, rev, ?::text, ?::text, ?::jsonb, ?::timestamptz FROM line"""
# Statement and values for each table of the log, by the field that a row needs to be written to it.
_LOG = {
    "revision": (_MOVE, "revision scope revision"),
    "id": (
        _ENTRY,
        "scope id memory_id event old_ref new_ref actor at meta seal",
    ),
    "event_id": (
        _EVENT,
        "event_id scope user thread node op status memory_id category sim at",
    ),
    "line_id": (_LINE, "scope thread line_id memory_id line_event line_meta at"),
}
_FEW = """SELECT count(*) FROM
(SELECT 1 FROM vectors WHERE scope = ? AND model = ? LIMIT ?) few"""
_EXACT = """SELECT v.memory, 1 - (v.embedding <=> ?) FROM vectors v
WHERE v.scope = ? AND v.model = ? AND v.dims = ? ORDER BY 2 DESC, 1 LIMIT ?"""
# The planner uses the partial index only if its condition is spelled out as literals. Candidates are
# scored again in full precision.
_NEAR = """WITH near AS MATERIALIZED (SELECT memory, embedding FROM vectors
WHERE scope = ? AND model = {model} AND dims = {dims}
ORDER BY (embedding::halfvec({dims})) <=> (?::vector::halfvec({dims})) LIMIT ?)
SELECT memory, 1 - (embedding <=> ?) FROM near ORDER BY 2 DESC, 1 LIMIT ?"""
_SEARCH_SETTINGS = """SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true),
set_config('hnsw.ef_search', ?, true)"""
_WIDER = 4  # times as many candidates as requested, to be scored again
_PORTION = 256  # statements per round trip
_LOCKS = 2  # named locks that a process holds at the same time


@frozen
class ServerInfo:
    """What is read from a database when it is opened."""

    place: str  # the URL without its password
    dialect: Dialect
    role: str  # for transactions: the one that logged in may bypass row-level security
    path: str  # search path for tables and types
    vector: int  # OID of pgvector's type
    secret: bytes

    def settings(self, scope: int | None) -> Query:
        """Return the statement that a transaction begins with: role, visible scope, timeout."""
        one = "" if scope is None or scope == EVERY else str(scope)
        every = "on" if scope == EVERY else "off"
        return _SETTINGS, (self.role, self.path, one, every, f"{ANSWER_SECONDS}s")


class PostgresConnection:
    """Statements in one transaction. Implements `Connection`."""

    rows = read_one

    def __init__(
        self, connection: pipeline.Connection, info: ServerInfo, scope: int | None
    ) -> None:
        self._connection = connection
        self._info = info
        self._scope = scope
        self.dialect = info.dialect
        self.secret = info.secret
        self.changed: tuple[int, int] | None = None

    async def wait(self, answer: Awaitable[T]) -> T:
        async with limit_wait(self._info.place):
            return await answer

    async def read(self, queries: Sequence[Query], *, scope: int | None = None) -> list[Rows]:
        statements = [*self._show_scope(scope), *queries]
        found = await self.wait(pipeline.exchange(self._connection, statements))
        return found[-len(queries) :]

    async def run(self, batches: Sequence[Batch], *, scope: int | None = None) -> None:
        if settings := self._show_scope(scope):
            await self.read(settings)
        together: list[Batch] = []
        size = 0
        for sql, values in batches:
            for portion in portions(values, _PORTION):
                if size + len(portion) > _PORTION:
                    await self.wait(pipeline.repeat(self._connection, together))
                    together = []
                    size = 0
                together.append((sql, portion))
                size += len(portion)
        if together:
            await self.wait(pipeline.repeat(self._connection, together))

    def _show_scope(self, scope: int | None) -> list[Query]:
        """Return the statement that makes a scope visible, unless it already is."""
        if scope is None or scope == self._scope:
            return []
        self._scope = scope
        return [self._info.settings(scope)]

    def wipe_after_commit(self) -> None:
        """Do nothing: the server manages its files."""

    def notify_after_commit(self, scope: int, revision: int) -> None:
        self.changed = (scope, revision)


class PostgresDatabase:
    """A PostgreSQL database. Implements `Database`."""

    rows = read_one

    def __init__(self, url: str, info: ServerInfo) -> None:
        self.url = url
        self.info = info
        self.dialect = info.dialect
        self.secret = info.secret
        self.pool = Pool(url, adapters(info.vector))
        self._lock_pool = Pool(url, adapters(info.vector), size=_LOCKS)  # used beside `pool`
        self.hnsw_from = migrate.HNSW_FROM
        self._large: set[tuple[int, str]] = set()  # scopes and models that are searched with HNSW
        self._turns: WeakValueDictionary[Scope, asyncio.Lock] = WeakValueDictionary()
        self._notifier = Notifier(self.pool)

    @classmethod
    async def open(cls, url: str) -> PostgresDatabase:
        """Connect, and create or migrate the schema. Raises StoreUnavailable, Misconfigured,
        MigrationNeeded."""
        await migrate.migrate(url)
        return cls(url, await read_info(url))

    async def read(self, queries: Sequence[Query], *, scope: int | None = None) -> list[Rows]:
        statements = [self.info.settings(scope), *queries]
        async with self.pool.lease() as connection, limit_wait(self.info.place):
            return (await pipeline.exchange(connection, statements))[1:]

    @asynccontextmanager
    async def transaction(
        self, scope: Scope | None = None, *, number: int | None = None
    ) -> AsyncIterator[PostgresConnection]:
        if scope is None:
            async with self._begin(EVERY) as connection:
                yield connection
        else:
            # Tasks that wait for their turn do not hold a connection.
            turn = self._turns.setdefault(scope, asyncio.Lock())
            lock = lock_number(scope.tenant, scope.user, scope.space)
            async with turn, self._begin(number, lock) as connection:
                yield connection
        if connection.changed is not None:
            self._notifier.notify(*connection.changed)

    @asynccontextmanager
    async def _begin(
        self,
        number: int | None,
        lock: int | None = None,
        begin: str = "BEGIN",
        pool: Pool | None = None,
    ) -> AsyncIterator[PostgresConnection]:
        async with (pool or self.pool).lease() as leased:
            connection = PostgresConnection(leased, self.info, number)
            statements = [(begin, ()), self.info.settings(number), (_DURABLE, ())]
            if lock is not None:
                statements.append(("SELECT pg_advisory_xact_lock(?)", (lock,)))
            await connection.read(statements)
            yield connection
            committing = asyncio.ensure_future(connection.wait(pipeline.commit(leased)))
            try:
                await asyncio.shield(committing)
            except asyncio.CancelledError:  # a commit must not be interrupted
                with suppress(Exception):
                    await committing
                raise

    @asynccontextmanager
    async def try_lock(self, name: str) -> AsyncIterator[bool]:
        """Hold the lock in a separate transaction, so it is released with the connection."""
        async with self._begin(None, pool=self._lock_pool) as connection:
            endless = "SELECT set_config('idle_in_transaction_session_timeout', '0', true)"
            lock = "SELECT pg_try_advisory_xact_lock(?)"
            _, found = await connection.read([(endless, ()), (lock, (lock_number(name),))])
            yield bool(found[0][0])

    async def nearest(
        self, scope: int, vector: Vectors, *, model: str, limit: int
    ) -> list[tuple[int, float]]:
        """Return row numbers with their cosine, nearest first: exact in small scopes,
        approximate in large ones."""
        wanted = np.asarray(vector, "<f4")
        if (scope, model) not in self._large:
            found = await self.rows(_FEW, (scope, model, self.hnsw_from), scope=scope)
            if found[0][0] < self.hnsw_from:
                values = (wanted, scope, model, len(wanted), limit)
                return await self.rows(_EXACT, values, scope=scope)
            self._large.add((scope, model))  # assumed to stay large
        quoted = "'" + model.replace("'", "''") + "'"
        statement = _NEAR.format(model=quoted, dims=len(wanted))
        wider = _WIDER * limit
        settings = (_SEARCH_SETTINGS, (str(min(1000, max(100, wider))),))
        near = (statement, (scope, wanted, wider, wanted, limit))
        async with self._begin(scope) as connection:
            _, found = await connection.read([settings, near])
        return found

    async def ping(self) -> None:
        await self.rows("SELECT 1")

    async def wait_for_change(self, seconds: float) -> None:
        await self._notifier.wait(seconds)

    async def backup(self, path: Path) -> None:
        async with self._begin(EVERY, begin=_READ_ALL) as connection:
            await copy.back_up(connection, path)

    async def vacuum(self) -> None:
        """Release unused space; each table is locked while it is rewritten."""
        found = await self.rows(f"SELECT relname FROM pg_class WHERE {_OURS} AND relkind = 'r'")
        async with open_connection(self.url) as connection:
            await connection.execute("SET statement_timeout = 0")
            for (name,) in found:
                statement = f"VACUUM (FULL, ANALYZE) {migrate.SCHEMA}.{name}"
                await connection.execute(statement.encode())

    def make_room(self) -> bool:
        return False  # the server manages its disk

    async def close(self) -> None:
        await self._notifier.close()
        await self._lock_pool.close()
        await self.pool.close()


async def read_info(url: str) -> ServerInfo:
    """Read what the settings of every transaction depend on."""
    place = hide_password(url)
    async with open_connection(url) as connection, limit_wait(place):
        path = await migrate.search_path(connection)
        await pipeline.rows(connection, "SELECT set_config('search_path', ?, false)", path)
        role = migrate.ROLE if await migrate.is_above(connection) else "none"
        ((vector,),) = await pipeline.rows(connection, "SELECT 'vector'::regtype::oid::bigint")
        secret = await pipeline.rows(connection, "SELECT value FROM meta WHERE key = 'secret'")
        names = "SELECT collname::text FROM pg_collation WHERE collencoding IN (-1, 6)"
        known = {row[0] for row in await pipeline.rows(connection, names)}
    return ServerInfo(
        place=place,
        dialect=choose_dialect(known),
        role=role,
        path=path,
        vector=vector,
        secret=parse_secret(secret, place),
    )


def choose_dialect(collations: set[str]) -> Dialect:
    """Return the dialect of a server with these collations."""
    collation = next((f' COLLATE "{name}"' for name in _COLLATIONS if name in collations), "")
    return Dialect(
        lower=f"lower({{}}{collation})",
        each="json_array_elements_text({}::json) AS each (value)",
        first="({} ->> 0)",
        head="{} -> 1 ->> 0",
        now="extract(epoch FROM clock_timestamp())::double precision",
        dimensions="vector_dims(embedding)",
        row="(m.row + 0)",  # has a separate index, which queries within one scope cannot use
        skip_locked="FOR NO KEY UPDATE OF m SKIP LOCKED",
        lock="LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE",
        day="to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
        columns="""SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(?)
        AND attnum > 0 AND NOT attisdropped""",
        size=f"""SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class
        WHERE {_OURS}""",
        integrity=_INTEGRITY,
        log=log_batches,
        match=match,
        renumber=_RENUMBER,
    )


def match(path: JsonPath, operator: str, values: Sequence[Any]) -> Query:
    """Return the condition that a value in the metadata, or one in a list there, compares so."""
    sign = {"=": "==", "exists": "!="}.get(operator, operator)
    bounds = [None] if operator == "exists" else values
    tests = " || ".join(f"@ {sign} {json.dumps(bound)}" for bound in bounds)
    place = "$" + "".join(f".{json.dumps(name)}" for name in path)
    # In strict mode, a list is neither compared nor passed through unless the path says so.
    wanted = f"strict exists({place} ? ({tests})) || exists({place}[*] ? ({tests}))"
    return "metadata IS NOT NULL AND metadata::jsonb @@ ?::jsonpath", [wanted]


def log_batches(rows: Sequence[LogRow]) -> list[Batch]:
    """Return a batch for each table of the log."""
    batches: list[Batch] = []
    for needed, (sql, fields) in _LOG.items():
        pick = attrgetter(*fields.split())
        batches.append((sql, [pick(row) for row in rows if getattr(row, needed)]))
    return batches


def lock_number(*names: str) -> int:
    """Return the number of an advisory lock; names with the same number share the lock."""
    digest = hashlib.blake2b(repr(names).encode("ascii", "backslashreplace"), digest_size=8)
    return int.from_bytes(digest.digest(), "big", signed=True)
