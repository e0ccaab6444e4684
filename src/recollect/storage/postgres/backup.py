"""A copy of a PostgreSQL database as one SQLite file, which `recollect` opens like any other."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from psycopg import sql

from ...errors import InvalidInput
from ..session import EVERY
from ..sqlite.migrate import migrate
from ..sqlite.store import Thread
from . import wire
from .connection import translated
from .sessions import Manner, Outside
from .wire import Connection

_PAGE = 1000
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'migrations'"


async def backup(source: Outside, path: Path) -> None:
    """Copy every table as it is at one moment, while others write. Raises InvalidInput, StoreUnavailable."""
    target = await asyncio.to_thread(_new, path)
    file = Thread(target, name="backup", create=True)
    try:
        await file.run(lambda connection: migrate(connection, target))
        await _copied(source, file)
    except BaseException:
        await file.close()
        with suppress(FileNotFoundError):
            await asyncio.to_thread(os.remove, target)
        raise
    await file.close()


def _new(path: Path) -> str:
    if path.exists():
        raise InvalidInput(f"{str(path)!r} exists already: choose a new name for the backup")
    return str(path.absolute())


async def _copied(source: Outside, file: Thread) -> None:
    await file.rows("PRAGMA foreign_keys = OFF")
    await file.rows("BEGIN IMMEDIATE")
    await file.rows("DELETE FROM meta")
    async with source.pool.lease() as connection:
        with translated(source.manner.place):
            await _copy_tables(connection, file, source.manner)
    await file.rows("COMMIT")


async def _copy_tables(connection: Connection, file: Thread, manner: Manner) -> None:
    await wire.asked(connection, [("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", ()), manner.settings(EVERY)])
    for (table,) in await file.rows(_TABLES):
        await _copy_table(connection, file, table)
    await wire.commit(connection)


async def _copy_table(connection: Connection, file: Thread, table: str) -> None:
    names = [row[0] for row in await file.rows("SELECT name FROM pragma_table_info(?)", (table,))]
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    async with connection.cursor("copying", binary=True) as cursor:
        await cursor.execute(sql.SQL("SELECT {} FROM {}").format(columns, sql.Identifier(table)))
        while page := await cursor.fetchmany(_PAGE):
            batch: list[tuple[Any, ...]] = page
            await file.many(insert, batch)
