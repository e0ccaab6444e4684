"""The stores that the contract is held against. Another engine joins as one more entry of `OPEN`."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import apsw
import pytest

from memorist.storage.store import Store
from stores import open_sqlite

Tamper = Callable[..., Awaitable[list[Any]]]


async def _sqlite_file(request: pytest.FixtureRequest) -> Store:
    return await open_sqlite(request.getfixturevalue("tmp_path") / "memory.db")


async def _sqlite_memory(request: pytest.FixtureRequest) -> Store:
    return await open_sqlite(":memory:")


async def _postgres(request: pytest.FixtureRequest) -> Any:
    from stores import open_postgres

    return await open_postgres(request.getfixturevalue("ready_database"))


OPEN = {"sqlite": _sqlite_file, "sqlite-memory": _sqlite_memory, "postgres": _postgres}


@pytest.fixture(params=OPEN)
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A new and empty store of each engine."""
    opened = await OPEN[request.param](request)
    yield opened
    await opened.close()


@pytest.fixture
def tamper(store: Any) -> Tamper:
    """Run a statement on the database behind the store's back."""
    database = store.database
    if hasattr(database, "url"):
        return _tamper_postgres(database.url)
    return _tamper_sqlite(database.path)


def _tamper_sqlite(path: str) -> Tamper:
    async def run(sql: str, values: Sequence[Any] = ()) -> list[Any]:
        flags = apsw.SQLITE_OPEN_READWRITE | (
            apsw.SQLITE_OPEN_URI if path.startswith("file:") else 0
        )
        connection = apsw.Connection(path, flags=flags)
        connection.set_busy_timeout(5000)
        try:
            return connection.execute(sql, tuple(values)).fetchall()
        finally:
            connection.close()

    return run


def _tamper_postgres(url: str) -> Tamper:
    """As a superuser, above row-level security and foreign keys."""
    import psycopg

    def translated(sql: str) -> str:
        sql = re.sub(
            r"CAST\(X'(\w+)' AS TEXT\)", r"convert_from('\\x\1', 'LATIN1')", sql
        )  # PostgreSQL keeps only UTF-8
        sql = sql.replace("X'00000000')", "'[0]')")  # a vector
        return re.sub(r"X'(\w+)'", r"'\\x\1'", sql).replace("?", "%s")

    async def run(sql: str, values: Sequence[Any] = ()) -> list[Any]:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute("SET session_replication_role = replica")
            await connection.execute("SET search_path = memorist, public")
            cursor = await connection.execute(translated(sql).encode(), tuple(values))
            return await cursor.fetchall() if cursor.description else []

    return run
