"""The store that grows: PostgreSQL with pgvector, any number of servers and workers."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np

from ...ports import Vectors
from ...types import Scope
from ..database import Dialect, Session
from ..store import Relational, secret_of
from ..transaction import Writings
from . import backup, hnsw, migrate, pipeline
from .connection import Pool, answered, completed, connect, shown, translated
from .notify import Bell
from .pipeline import Connection
from .sessions import Manner, Outside
from .types import adapters

_COLLATIONS = (
    "pg_unicode_fast",
    "und-x-icu",
    "pg_c_utf8",
)  # that know the case of every script, best first
_OURS = f"relnamespace = '{migrate.SCHEMA}'::regnamespace AND relkind IN ('r', 'p')"


_NUMBERED = (
    ("memories_row", "row", "memories"),
    ("messages_row", "row", "messages"),
    ("history_row", "row", "history"),
    ("scopes_id_seq", "id", "scopes"),
)


class PostgresStore(Relational):
    """Memories in a PostgreSQL database. Implements `ports.Store`; open it with `PostgresStore.open`."""

    def __init__(self, url: str, outside: Outside, *, language: str, secret: bytes) -> None:
        super().__init__(outside, language=language, secret=secret)
        self.url, self.path, self._outside = url, shown(url), outside
        self.hnsw_from = hnsw.HNSW_FROM
        self._large: set[tuple[int, str]] = (
            set()
        )  # scopes with so many vectors of a model that HNSW pays
        self._turns: WeakValueDictionary[Scope, asyncio.Lock] = WeakValueDictionary()
        self._bell = Bell(url, outside.pool)

    @classmethod
    async def open(cls, url: str, *, language: str = "english") -> PostgresStore:
        """Connect, and make or bring up the schema. Raises StoreUnavailable, Misconfigured, MigrationNeeded."""
        await migrate.migrate(url)
        known = await _known(url)
        outside = Outside(Pool(url, adapters=adapters(known.vector)), known.manner)
        store = cls(url, outside, language=language, secret=known.secret)
        try:
            await store._reanalyse()
        except BaseException:
            await store.close()
            raise
        return store

    @asynccontextmanager
    async def transaction(self, scope: Scope) -> AsyncIterator[Writings]:
        """Commits when the block ends, durably, and rolls back if it raises."""
        turn = self._turns.setdefault(
            scope, asyncio.Lock()
        )  # so that those who wait here hold no connection
        number = self._known.get(scope)
        lock = lock_of(scope.tenant, scope.user, scope.space)
        async with turn, self._outside.begun(number, lock=lock) as session:
            writings = Writings(
                session, self._known, self._secret, scope=scope, language=self._language
            )
            yield writings
            if writings.failed is not None:
                raise writings.failed
        if writings.changed is not None:
            self._known[scope] = writings.changed[0]
            self._bell.ring(*writings.changed)

    @asynccontextmanager
    async def _together(self) -> AsyncIterator[Session]:
        async with self._outside.begun(0) as session:
            yield session

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[bool]:
        """Held by a transaction that does nothing else, so it ends with the connection."""
        async with self._outside.begun(None) as session:
            await session.rows(
                "SELECT set_config('idle_in_transaction_session_timeout', '0', true)"
            )
            yield bool(
                (await session.rows("SELECT pg_try_advisory_xact_lock(?)", (lock_of(name),)))[0][0]
            )

    async def nearest(
        self, scope: Scope, vector: Vectors, *, model: str, limit: int
    ) -> list[tuple[int, float]]:
        """Row numbers with their cosine, nearest first; exact in small scopes, about right in large ones."""
        number = await self.number(scope)
        if number < 0:
            return []
        wanted = np.asarray(vector, "<f4")
        if not await self._is_large(number, model):
            values = (wanted, number, model, len(wanted), limit)
            return [
                (row, cosine)
                for row, cosine in await self._session.rows(hnsw.EXACT, values, scope=number)
            ]
        quoted = "'" + model.replace("'", "''") + "'"
        statement = hnsw.NEAR.format(model=quoted, dims=len(wanted))
        async with self._outside.begun(number) as session:
            await session.rows(hnsw.MANNER, (str(min(1000, max(100, hnsw.WIDER * limit))),))
            found = await session.rows(
                statement, (number, wanted, hnsw.WIDER * limit, wanted, limit)
            )
        return [(row, cosine) for row, cosine in found]

    async def _is_large(self, number: int, model: str) -> bool:
        """Whether an exact scan of the scope would be slow; once it is, it is taken to stay so."""
        if (number, model) not in self._large:
            few = "SELECT 1 FROM vectors WHERE scope = ? AND model = ? LIMIT ?"
            sql = f"SELECT count(*) FROM ({few}) few"
            found = await self._session.rows(sql, (number, model, self.hnsw_from), scope=number)
            if found[0][0] < self.hnsw_from:
                return False
            self._large.add((number, model))
        return True

    async def changes(self, seconds: float) -> None:
        await self._bell.heard(seconds)

    async def _bytes(self) -> int:
        sql = f"SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class WHERE {_OURS}"
        return int((await self._session.rows(sql))[0][0])

    async def _unsound(self) -> list[str]:
        """Tables whose rows row-level security does not guard, for whoever we are."""
        scoped = "EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = c.oid AND attname = 'scope')"
        sql = f"SELECT relname FROM pg_class c WHERE {_OURS} AND NOT relispartition AND {scoped} "
        found = await self._session.rows(f"{sql} AND NOT row_security_active(oid) ORDER BY 1")
        return [
            f"Row-level security does not guard {row[0]}: run `memorist db migrate` as its owner"
            for row in found
        ]

    async def renumber(self) -> None:
        async with self._outside.begun(0) as session:
            for sequence, column, table in _NUMBERED:
                sql = (
                    f"SELECT setval(?, (SELECT coalesce(max({column}), 0) + 1 FROM {table}), false)"
                )
                await session.rows(sql, (sequence,))

    async def backup(self, path: Path) -> None:
        """A complete copy as one SQLite file, taken while others write."""
        await backup.backup(self._outside, path)

    async def vacuum(self) -> None:
        """Give unused space back; each table is locked while it is written anew."""
        found = await self._session.rows(
            f"SELECT relname FROM pg_class WHERE {_OURS} AND relkind = 'r'"
        )
        connection = await connect(completed(self.url), self.path, autocommit=True)
        try:
            with translated(self.path):
                await connection.execute("SET statement_timeout = 0")
                for (name,) in found:
                    await connection.execute(
                        f"VACUUM (FULL, ANALYZE) {migrate.SCHEMA}.{name}".encode()
                    )
        finally:
            await connection.close()

    def make_room(self) -> bool:
        return False  # the disk is the server's

    async def close(self) -> None:
        await self._bell.close()
        await self._outside.pool.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What has to be known of a database before it is used."""

    manner: Manner
    vector: int
    secret: bytes


async def _known(url: str) -> _Known:
    place = shown(url)
    connection = await connect(completed(url), place, autocommit=True)
    try:
        async with answered(place):
            path = await migrate.search_path(connection)
            await pipeline.rows(connection, "SELECT set_config('search_path', $1, false)", path)
            role = migrate.ROLE if await migrate.is_above(connection) else "none"
            ((vector,),) = await pipeline.rows(connection, "SELECT 'vector'::regtype::oid::bigint")
            secret = await pipeline.rows(connection, "SELECT value FROM meta WHERE key = 'secret'")
            manner = Manner(place=place, dialect=await _dialect(connection), role=role, path=path)
            return _Known(manner=manner, vector=vector, secret=secret_of(secret, place))
    finally:
        await connection.close()


async def _dialect(connection: Connection) -> Dialect:
    names = "SELECT collname::text FROM pg_collation WHERE collencoding IN (-1, 6)"
    known = {row[0] for row in await pipeline.rows(connection, names)}
    collation = next((f' COLLATE "{name}"' for name in _COLLATIONS if name in known), "")
    return Dialect(
        lower=f"lower({{}}{collation})",
        each="json_array_elements_text({}::json) AS each (value)",
        head="{} -> 1 ->> 0",
        now="extract(epoch FROM clock_timestamp())::double precision",
        size="vector_dims(embedding)",
        row="(m.row + 0)",  # has an index of its own, which a query within one scope cannot take by mistake
        skip_locked="FOR NO KEY UPDATE OF m SKIP LOCKED",
        lock="LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE",
        day="to_char({} AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
        columns="SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass(?) "
        "AND attnum > 0 AND NOT attisdropped",
    )


def lock_of(*names: str) -> int:
    """A number for a lock, known before the thing is; two that share one only wait for each other."""
    return int.from_bytes(
        hashlib.blake2b(repr(names).encode("ascii", "backslashreplace"), digest_size=8).digest(),
        "big",
        signed=True,
    )
