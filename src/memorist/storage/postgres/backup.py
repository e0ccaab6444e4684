"""A copy of a PostgreSQL database as one SQLite file, which `memorist` opens like any other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from psycopg import sql

from .. import atomic
from ..database import EVERY
from ..sqlite import backup as checks
from ..sqlite.migrate import migrate
from ..sqlite.store import Thread
from . import pipeline
from .connection import translated
from .pipeline import Connection
from .sessions import Manner, Outside

_PAGE = 1000
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'migrations'"


async def backup(source: Outside, path: Path) -> None:
    """Copy every table as it is at one moment, while others write. Raises InvalidInput, StoreUnavailable."""
    target = await asyncio.to_thread(checks.new_path, path)
    made = await asyncio.to_thread(atomic.draft, target)
    try:
        file = Thread(str(made), name="backup")
        try:
            await file.run(lambda connection: migrate(connection, str(made)))
            expected = await _copied(source, file)
        finally:
            await file.close()
        await asyncio.to_thread(checks.verify, made, expected)
        await asyncio.to_thread(atomic.publish, made, target)
    except BaseException:
        await asyncio.to_thread(atomic.discard, made)
        raise


async def _copied(source: Outside, file: Thread) -> dict[str, int]:
    """Fill the file, and return how many rows each of its tables has to have."""
    await file.rows("PRAGMA foreign_keys = OFF")
    await file.rows("BEGIN IMMEDIATE")
    await file.rows("DELETE FROM meta")
    async with source.pool.lease() as connection:
        with translated(source.manner.place):
            copied = await _copy_tables(connection, file, source.manner)
    await file.rows("COMMIT")
    ((migrations,),) = await file.rows("SELECT count(*) FROM migrations")
    return {**copied, "migrations": migrations}


async def _copy_tables(connection: Connection, file: Thread, manner: Manner) -> dict[str, int]:
    await pipeline.asked(
        connection,
        [("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", ()), manner.settings(EVERY)],
    )
    copied = {
        table: await _copy_table(connection, file, table) for (table,) in await file.rows(_TABLES)
    }
    await pipeline.commit(connection)
    return copied


async def _copy_table(connection: Connection, file: Thread, table: str) -> int:
    names = [row[0] for row in await file.rows("SELECT name FROM pragma_table_info(?)", (table,))]
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    rows = 0
    async with connection.cursor("copying", binary=True) as cursor:
        await cursor.execute(sql.SQL("SELECT {} FROM {}").format(columns, sql.Identifier(table)))
        while page := await cursor.fetchmany(_PAGE):
            batch: list[tuple[Any, ...]] = page
            await file.many(insert, batch)
            rows += len(batch)
    return rows
