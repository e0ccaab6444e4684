"""All tables of a store as one stream of pages: what copies and archives move, and how they
compare."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .database import EVERY, Connection, Rows
from .filters import placeholders
from .store import Store

PAGE = 500
KEYS = {
    "scopes": ("id",),
    "memories": ("scope", "row"),
    "erased": ("scope", "row"),
    "vectors": ("scope", "memory", "model"),
    "messages": ("scope", "id"),
    "history": ("scope", "id"),
    "thread_revision": ("scope", "thread_id"),
    "change_log": ("scope", "id"),
    "tombstones": ("scope", "digest"),
    "summaries": ("scope", "id"),
    "relations": ("scope", "id"),
    "events": ("scope", "id"),
    "supervisor_checkpoints": ("scope", "id"),
    "consent_queue": ("scope", "id"),
    "pair_fingerprints": ("scope", "id_a", "id_b"),
    "tasks": ("scope", "name", "key"),
    "spending": ("scope", "day", "task", "model"),
    "api_keys": ("id",),
    "space_settings": ("scope", "key"),
    "incognito_sessions": ("scope", "session"),
    "graph_checkpoints": ("scope", "thread_id", "ns", "checkpoint_id"),
    "graph_values": ("scope", "thread_id", "ns", "channel", "version"),
    "graph_writes": ("scope", "thread_id", "ns", "checkpoint_id", "task_id", "idx"),
    "items": ("scope", "namespace", "key"),
    "item_vectors": ("scope", "namespace", "key", "field"),
}
NOT_COPIED = {
    "migrations",
    "meta",
    "claims",
    "index_positions",
    "answered",
}  # each store has its own
MARK = "copying"  # in the target while it is not complete: the last key of each table
Progress = Mapping[str, list[Any]]  # the last key of each table


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What a copy moved, and what it counted on both sides."""

    rows: int  # in this run; fewer than there are if an earlier run had begun
    tables: dict[str, int]  # how many rows each table has


@dataclass(frozen=True, slots=True)
class TablePage:
    """Some rows of one table, by its key."""

    table: str
    columns: tuple[str, ...]
    rows: Rows
    last: list[Any]  # the key of the last row


async def columns_of(store: Store, table: str) -> tuple[str, ...]:
    """Return the names of a table's columns."""
    found = await store.database.rows(store.database.dialect.columns, (table,))
    return tuple(row[0] for row in found)


async def pages(
    store: Store, table: str, after: Sequence[Any] | None = None
) -> AsyncIterator[TablePage]:
    """Yield the rows of a table after a key, in the order of its key."""
    columns = await columns_of(store, table)
    keys = KEYS[table]
    order = ", ".join(keys)
    places = [columns.index(key) for key in keys]
    while True:
        where = f"WHERE ({order}) > ({placeholders(len(keys))})" if after else ""
        sql = f"SELECT {', '.join(columns)} FROM {table} {where} ORDER BY {order} LIMIT {PAGE}"
        found = await store.database.rows(sql, tuple(after or ()), scope=EVERY)
        if not found:
            return
        after = [found[-1][place] for place in places]
        yield TablePage(table, columns, found, after)


async def insert(
    connection: Connection, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """Insert rows as they were read."""
    sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({placeholders(len(columns))})"
    if table == "vectors":
        at = columns.index("embedding")
        rows = [(*row[:at], np.frombuffer(row[at], "<f4"), *row[at + 1 :]) for row in rows]
    if rows:
        await connection.run([(sql, rows)])


async def delete_all(connection: Connection, tables: Sequence[str]) -> None:
    """Empty tables, those that others refer to last."""
    for table in reversed(tables):
        await connection.rows(f"DELETE FROM {table}", scope=EVERY)


async def count(store: Store, table: str) -> int:
    """Return the number of rows of a table."""
    return int((await store.database.rows(f"SELECT count(*) FROM {table}", scope=EVERY))[0][0])


async def digest(store: Store, table: str) -> tuple[int, int]:
    """Return the number of rows, and a hash of them all that does not depend on their order."""
    rows = total = 0
    async for page in pages(store, table):
        places = [page.columns.index(name) for name in sorted(page.columns)]
        for row in page.rows:
            values = [_comparable(row[place]) for place in places]
            plain = repr(values).encode("utf-8", "surrogatepass")
            total += int.from_bytes(hashlib.blake2b(plain, digest_size=16).digest(), "big")
        rows += len(page.rows)
    return rows, total % 2**128


def _comparable(value: Any) -> Any:
    """Return JSON in one format, since engines format it differently."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.dumps(json.loads(value), sort_keys=True)
        except ValueError:
            return value
    return value


async def secret_of(store: Store) -> str:
    """Return the key of the digests, as it is stored now."""
    found = await store.database.rows("SELECT value FROM meta WHERE key = 'secret'")
    return str(found[0][0])


async def load_progress(store: Store) -> dict[str, list[Any]] | None:
    """Return how far a copy into this store is, or None if none is under way."""
    found = await store.database.rows("SELECT value FROM meta WHERE key = ?", (MARK,))
    progress: dict[str, list[Any]] | None = json.loads(found[0][0]) if found else None
    return progress


async def save_progress(connection: Connection, progress: Progress) -> None:
    """Store how far a copy is."""
    sql = "INSERT INTO meta (key, value) VALUES (?, ?) "
    sql += "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    await connection.rows(sql, (MARK, json.dumps(progress)))


async def begin(store: Store, secret: str) -> None:
    """Mark an empty store as the target of a copy, with the key of its source."""
    async with store.database.transaction() as connection:
        await delete_all(connection, list(KEYS))
        await connection.rows("UPDATE meta SET value = ? WHERE key = 'secret'", (secret,))
        await save_progress(connection, {})


async def finish(store: Store) -> None:
    """Make new rows get higher numbers than the copied ones, and take the mark away."""
    async with store.database.transaction() as connection:
        for sql in connection.dialect.renumber:
            await connection.rows(sql, scope=EVERY)
        await connection.rows("DELETE FROM meta WHERE key = ?", (MARK,))
