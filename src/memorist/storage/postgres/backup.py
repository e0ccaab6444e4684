"""A copy of a PostgreSQL database as one SQLite file, which `memorist` opens like any other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
from psycopg import sql

from .. import atomic
from ..sqlite import backup as copies
from ..sqlite.connection import connect
from ..sqlite.connection import translated as translated_file
from ..sqlite.migrate import migrate
from . import pipeline
from .connection import Pool, translated

PAGE = 1000
_TABLES = (
    "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' "
    "AND name <> 'migrations'"
)


async def backup(pool: Pool, settings: pipeline.Statement, path: Path) -> None:
    """Copy every table as it is at one moment, while others write.

    `settings` is the statement that makes all scopes visible. Raises InvalidInput,
    StoreUnavailable.
    """
    target = await asyncio.to_thread(copies.new_path, path)
    draft = await asyncio.to_thread(atomic.draft, target)
    try:
        async with pool.lease() as connection:
            with translated(pool.place), translated_file(str(target)):
                begin = ("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", ())
                await pipeline.exchange(connection, [begin, settings])
                file = await asyncio.to_thread(_create, draft)
                try:
                    expected = await _copy_tables(connection, file)
                finally:
                    await asyncio.to_thread(file.close)
                await pipeline.commit(connection)
        await asyncio.to_thread(copies.verify, draft, expected)
        await asyncio.to_thread(atomic.publish, draft, target)
    except BaseException:
        await asyncio.to_thread(atomic.discard, draft)
        raise


def _create(path: Path) -> apsw.Connection:
    """Create an empty database, and begin to fill it."""
    file = connect(str(path))
    migrate(file, str(path))
    file.execute("PRAGMA foreign_keys = OFF")
    file.execute("BEGIN IMMEDIATE")
    file.execute("DELETE FROM meta")
    return file


async def _copy_tables(connection: pipeline.Connection, file: apsw.Connection) -> dict[str, int]:
    """Fill the file; return how many rows each of its tables has to have."""
    copied: dict[str, int] = {}
    for (table,) in file.execute(_TABLES).fetchall():
        copied[str(table)] = await _copy_table(connection, file, str(table))
    await asyncio.to_thread(file.execute, "COMMIT")
    ((migrations,),) = file.execute("SELECT count(*) FROM migrations").fetchall()
    copied["migrations"] = int(str(migrations))
    return copied


async def _copy_table(connection: pipeline.Connection, file: apsw.Connection, table: str) -> int:
    columns = file.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
    names = [str(row[0]) for row in columns]
    query = sql.SQL("SELECT {} FROM {}").format(
        sql.SQL(", ").join(map(sql.Identifier, names)), sql.Identifier(table)
    )
    insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    count = 0
    async with connection.cursor("copying", binary=True) as cursor:
        await cursor.execute(query)
        while page := await cursor.fetchmany(PAGE):
            rows: list[tuple[Any, ...]] = page
            await asyncio.to_thread(_insert, file, insert, rows)
            count += len(rows)
    return count


def _insert(file: apsw.Connection, statement: str, rows: list[tuple[Any, ...]]) -> None:
    file.executemany(statement, rows).fetchall()
