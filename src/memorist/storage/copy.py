"""Copy all data of a store, page by page: into another store, a backup or a text file, and from a
text file into a store.

Every row keeps its key, so references stay valid. So do the keyed digests, because the copy adopts
the secret. Each page is committed together with the progress: an interrupted copy resumes where it
stopped. At the end both sides are counted and hashed. A text file (an archive) has one row per line
and contains the secret of the digests: protect it like the store itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InvalidInput, RevisionConflict, StoreDamaged
from ..types import frozen
from . import atomic
from .atomic import new_file
from .database import EVERY, Connection, Database, Rows, execute
from .queries import placeholders
from .sqlite import SqliteDatabase
from .sqlite.connection import new_path
from .store import Store

PAGE = 500
# Each table with its key; referenced tables come first.
_TABLES = """
scopes: id
memories: scope, row
erased: scope, row
vectors: scope, memory, model
messages: scope, id
history: scope, id
thread_revision: scope, thread_id
change_log: scope, id
tombstones: scope, digest
summaries: scope, id
relations: scope, id
events: scope, id
supervisor_checkpoints: scope, id
consent_queue: scope, id
pair_fingerprints: scope, id_a, id_b
tasks: scope, name, key
spending: scope, day, task, model
api_keys: id
space_settings: scope, key
incognito_sessions: scope, session
graph_checkpoints: scope, thread_id, ns, checkpoint_id
graph_values: scope, thread_id, ns, channel, version
graph_writes: scope, thread_id, ns, checkpoint_id, task_id, idx
items: scope, namespace, key
item_vectors: scope, namespace, key, field
"""
KEYS = dict(line.split(": ") for line in _TABLES.split("\n") if line)
NOT_COPIED = {"migrations", "meta", "claims", "index_positions", "answered"}  # specific to a store
_NEW = {"memories": {"metadata", "expires_at"}, "item_vectors": {"terms"}, "api_keys": {"made_by"}}
MARK = "copying"  # in the target until it is complete: the last key of each table
ARCHIVE_FORMAT = 1
_SECRET = re.compile("[0-9a-f]{64}")
_SET = """INSERT INTO meta (key, value) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value"""

Report = Callable[[int, int], None]  # the work done, and the total
Progress = dict[str, Sequence[Any]]  # the last key of each table
Sums = dict[str, list[Any]]  # the number of rows of each table, and a hash of them


@frozen
class Copied:
    """The result of a copy."""

    rows: int  # copied in this run; fewer than the total if an earlier run was interrupted
    tables: dict[str, int]  # number of rows of each table


class TablePage(NamedTuple):
    """Some rows of one table, in the order of its key."""

    table: str
    columns: tuple[str, ...]
    rows: Rows
    last: Sequence[Any] = ()  # the key of the last row


async def read_pages(
    source: Database | Connection,
    progress: Progress,
    tables: Iterable[str] = KEYS,
) -> AsyncIterator[TablePage]:
    """Yield the rows of tables in the order of their keys, after the progress."""
    for table in tables:
        order = KEYS[table]
        keys = order.split(", ")
        columns = await _columns(source, table)
        after = progress.get(table)
        while True:
            where = f"WHERE ({order}) > ({placeholders(keys)})" if after else ""
            sql = f"SELECT {', '.join(columns)} FROM {table} {where} ORDER BY {order} LIMIT {PAGE}"
            found = await source.rows(sql, tuple(after or ()), scope=EVERY)
            if not found:
                break
            after = [found[-1][columns.index(key)] for key in keys]
            yield TablePage(table, columns, found, after)


async def copy(
    source: Store,
    target: Store,
    report: Report,
) -> Copied:
    """Make the target equal to the source. A complete copy is only compared.

    Raises RevisionConflict if the target contains other data, or if the source was changed during
    the copy.
    """
    progress = await begin_copy(source, target)
    counts = await _counts(source.database)
    work = 2 * sum(counts.values())
    copied = await _counts(target.database)
    done = sum(copied.values())
    moved = 0
    if progress is not None:
        async for page in read_pages(source.database, progress):
            await _insert(target.database, page, progress)
            moved += len(page.rows)
            report(min(done + moved, work), work)
    done += moved
    sums: Sums = {}
    for table, count in counts.items():
        sums[table] = await _digest(source.database, table)
        if sums[table] != await _digest(target.database, table):
            if progress is None:
                raise RevisionConflict(
                    f"{table!r} was changed in one of the two since the copy: use a new database"
                )
            await restart(target.database, table, progress)
            raise RevisionConflict(
                f"{table!r} was written to during the copy: run it again without other writers"
            )
        done += count
        report(min(done, work), work)
    await _finish(target.database)
    return _to_copied(moved, sums)


async def back_up(source: Connection, path: Path) -> None:
    """Copy everything that a transaction sees into a new SQLite file.

    Raises InvalidInput, StoreUnavailable, StoreDamaged.
    """
    with new_file(await asyncio.to_thread(new_path, path)) as draft:
        target = await SqliteDatabase.open(draft)
        try:
            kept = "SELECT key, value FROM meta WHERE key IN ('secret', 'analysis')"
            await _begin(target, dict(await source.rows(kept)))
            async for page in read_pages(source, {}):
                await _insert(target, page, {})
            await _finish(target)
            if await _counts(target) != await _counts(source):
                raise StoreDamaged(f"{str(path)!r} is not complete: check the disk and retry")
        finally:
            await target.close()


async def write_archive(
    store: Store,
    path: Path,
    report: Report,
) -> Copied:
    """Write everything to a new text file, with counts and hashes at the end.

    Raises RevisionConflict if the file exists, or if the store was changed during the copy.
    """
    database = store.database
    with atomic.create(path) as file:
        head = {
            "memorist": "archive",
            "format": ARCHIVE_FORMAT,
            "key": await _meta(database, "secret"),
            "analysis": await _meta(database, "analysis"),
        }
        await asyncio.to_thread(atomic.write_lines, file, [head])
        done = 0
        async for page in read_pages(database, {}):
            names = ("table", *page.columns)
            lines = [dict(zip(names, (page.table, *row), strict=True)) for row in page.rows]
            await asyncio.to_thread(atomic.write_lines, file, lines)
            done += len(lines)
            report(done, done)
        sums = {table: await _digest(database, table) for table in KEYS}
        copied = _to_copied(done, sums)
        if sum(copied.tables.values()) != done:
            raise RevisionConflict(
                "The store was written to during the copy: run it again without other writers"
            )
        await asyncio.to_thread(atomic.write_lines, file, [{"sums": sums}])
    return copied


async def read_archive(
    path: Path,
    store: Store,
    report: Report,
) -> Copied:
    """Fill a new store from a text file. A partly filled store is emptied first.

    Raises NotFound; RevisionConflict if the store contains other data; InvalidInput if the file is
    not an archive, or incomplete.
    """
    database = store.database
    records = atomic.read_lines(path)
    head: dict[str, Any] = await asyncio.to_thread(next, records, {})
    kind = head.get("memorist", head.get("recollect"))  # version 0.1 wrote "recollect"
    is_archive = kind == "archive" and head.get("format") == ARCHIVE_FORMAT
    secret = str(head.get("key"))
    if not is_archive or not _SECRET.fullmatch(secret):
        raise InvalidInput(
            f"{str(path)!r} is not an archive of a memory; `memorist import` reads an export"
        )
    if await _meta(database, MARK) is None and await store.scopes():
        raise RevisionConflict("The target already holds memories: use a new database")
    # Terms and flags of an earlier version are computed again when the store is opened.
    await _begin(database, {"secret": secret, "analysis": str(head.get("analysis"))})
    done = 0
    shapes: dict[str, Sequence[str]] = {}
    sums: Sums | None = None
    while batch := await asyncio.to_thread(lambda: list(islice(records, PAGE))):
        sums = batch.pop()["sums"] if "sums" in batch[-1] else None
        for (table, columns), group in groupby(batch, atomic.take_shape):
            own = set(await _columns(database, table)) if table in KEYS else set()
            if not set(columns) <= own or not own - set(columns) <= _NEW.get(table, set()):
                raise InvalidInput(
                    f"The archive contains {table!r} in a format that this version does not support"
                )
            rows = [tuple(record.values()) for record in group]
            await _insert(database, TablePage(table, columns, rows), {})
            shapes[table] = columns
        done += len(batch)
        report(done, done)
    if sums is None:
        raise InvalidInput(
            f"{str(path)!r} is cut off: the store stays unusable until a complete archive is read"
        )
    for table in KEYS:
        if await _digest(database, table, shapes.get(table, ())) != sums.get(table, [0, "0"]):
            raise InvalidInput(
                f"{str(path)!r} was altered: {table!r} differs from what was written"
            )
    await _finish(database)
    return _to_copied(done, sums)


async def begin_copy(source: Store, target: Store) -> Progress | None:
    """Return the progress of an earlier run, or None if it was completed. Raises
    RevisionConflict."""
    secret = await _meta(source.database, "secret")
    is_same = secret == await _meta(target.database, "secret")
    mark = await _meta(target.database, MARK)
    if mark is not None:
        if not is_same:
            raise RevisionConflict(
                "The target is an unfinished copy of another store:"
                " finish that copy, or use a new database"
            )
        progress: Progress = json.loads(mark)
        return progress
    if is_same:
        return None
    if await target.scopes():
        raise RevisionConflict(
            "The target already holds memories: use a new database, or `memorist import`"
        )
    await _begin(target.database, {"secret": str(secret)})
    return {}


async def _begin(database: Database, meta: dict[str, str]) -> None:
    """Empty a store and mark it as the target of a copy, with the secret of the source."""
    await _empty(database, list(KEYS), {**meta, MARK: "{}"})


async def restart(
    database: Database,
    table: str,
    progress: Progress,
) -> None:
    """Empty a table that differs and those that refer to it, so that the next run copies them
    again."""
    stale = [table]
    if table in ("scopes", "memories"):
        order = list(KEYS)
        stale = order[order.index(table) :]
    for name in stale:
        progress.pop(name, None)
    await _empty(database, stale, {MARK: json.dumps(progress)})


async def _empty(
    database: Database,
    tables: Sequence[str],
    meta: dict[str, str],
) -> None:
    """Delete all rows of tables and set `meta` values, in one transaction."""
    async with database.transaction() as connection:
        for table in reversed(tables):  # referenced tables last
            await connection.rows(f"DELETE FROM {table}", scope=EVERY)
        await connection.run([(_SET, list(meta.items()))])


async def _insert(
    database: Database,
    page: TablePage,
    progress: Progress,
) -> None:
    """Insert rows as they were read, and record the progress."""
    columns = page.columns
    rows: Sequence[Any] = page.rows
    if page.table == "vectors":
        at = columns.index("embedding")
        rows = [list(row) for row in rows]
        for row in rows:
            row[at] = np.frombuffer(row[at], "<f4")
    names = ", ".join(columns)
    sql = f"INSERT INTO {page.table} ({names}) VALUES ({placeholders(columns)})"
    progress[page.table] = page.last
    async with database.transaction() as connection:
        await connection.run([(sql, rows), (_SET, [(MARK, json.dumps(progress))])])


async def _finish(database: Database) -> None:
    """Make new rows get higher numbers than the copied ones, and remove the mark."""
    for sql in database.dialect.renumber:
        await execute(database, sql, scope=EVERY)
    await execute(database, "DELETE FROM meta WHERE key = ?", (MARK,))


async def _columns(source: Database | Connection, table: str) -> tuple[str, ...]:
    return tuple(row[0] for row in await source.rows(source.dialect.columns, (table,)))


async def _counts(source: Database | Connection) -> dict[str, int]:
    """Return the number of rows of each table."""
    counts = [f"SELECT '{table}', count(*) FROM {table}" for table in KEYS]
    return dict(await source.rows(" UNION ALL ".join(counts), scope=EVERY))


async def _digest(database: Database, table: str, columns: Sequence[str] = ()) -> list[Any]:
    """Return the number of rows and a hash of all rows that does not depend on their order.

    Only these columns are hashed, if given.
    """
    count = total = 0
    async for page in read_pages(database, {}, [table]):
        places = [page.columns.index(name) for name in sorted(columns or page.columns)]
        for row in page.rows:
            values = [comparable(row[place]) for place in places]
            plain = repr(values).encode("utf-8", "surrogatepass")
            digest = hashlib.blake2b(plain, digest_size=16).digest()
            total += int.from_bytes(digest, "big")
        count += len(page.rows)
    return [count, str(total % 2**128)]


def _to_copied(rows: int, sums: Sums) -> Copied:
    tables = {table: count for table, (count, _) in sums.items() if count}
    return Copied(rows=rows, tables=tables)


def comparable(value: Any) -> Any:
    """Return JSON in a canonical format, since engines format it differently."""
    if isinstance(value, str) and value.startswith(("{", "[")):
        with suppress(ValueError):
            return json.dumps(json.loads(value), sort_keys=True)
    return value


async def _meta(database: Database, key: str) -> str | None:
    """Return a value of the `meta` table."""
    found = await database.rows("SELECT value FROM meta WHERE key = ?", (key,))
    return found[0][0] if found else None
