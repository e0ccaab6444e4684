"""All data of a store as one stream of pages of its tables: into another store, into a backup, into
a text file and out of one.

Every row keeps its key, so no reference has to be changed, and the keyed digests stay valid because
the copy takes the key over. Each page is committed together with the progress: an interrupted copy
goes on where it stopped. At the end both sides are counted and hashed. A text file (an archive)
holds one row a line, the key of the digests too: protect it like the memory itself.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from ..errors import InvalidInput, NotFound, RevisionConflict, StoreDamaged
from ..types import frozen
from .atomic import new_file
from .database import EVERY, Connection, Database, Rows, execute
from .rows import placeholders
from .sqlite import SqliteDatabase
from .sqlite.connection import new_path
from .store import Store

PAGE = 500
# Each table with its key, those that others refer to first.
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
NOT_COPIED = {"migrations", "meta", "claims", "index_positions", "answered"}  # each store's own
MARK = "copying"  # in the target while it is not complete: the last key of each table
ARCHIVE_FORMAT = 1
_SECRET = re.compile("[0-9a-f]{64}")
_SET = """INSERT INTO meta (key, value) VALUES (?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value"""

Report = Callable[[int, int], None]  # how much is done, and of how much
Progress = dict[str, Sequence[Any]]  # the last key of each table
Sums = dict[str, list[Any]]  # of each table the number of rows, and a hash of them


@frozen
class Copied:
    """What a copy moved, and what it counted on both sides."""

    rows: int  # in this run; fewer than there are if an earlier run had begun
    tables: dict[str, int]  # how many rows each table has


class TablePage(NamedTuple):
    """Some rows of one table, by its key."""

    table: str
    columns: tuple[str, ...]
    rows: Rows
    last: Sequence[Any] = ()  # the key of the last row


async def read_pages(
    source: Database | Connection, progress: Progress, tables: Iterable[str] = KEYS
) -> AsyncIterator[TablePage]:
    """Yield the rows of tables by their keys, after those that were read before."""
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


async def copy(source: Store, target: Store, report: Report) -> Copied:
    """Make the target equal to the source; a copy that is complete is only compared.

    Raises RevisionConflict if the target holds anything else, or if the source was written to
    meanwhile.
    """
    progress = await begin_copy(source, target)
    counts = await _counts(source.database)
    work = 2 * sum(counts.values())
    done = sum((await _counts(target.database)).values())
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
                    f"{table!r} was written to since the copy, in one of them: take a new database"
                )
            await restart(target.database, table, progress)
            raise RevisionConflict(
                f"{table!r} was written to during the copy: run it again, with nobody writing"
            )
        done += count
        report(min(done, work), work)
    await _finish(target.database)
    return _to_copied(moved, sums)


async def back_up(source: Connection, path: Path) -> None:
    """Write everything that a transaction sees into a new SQLite file.

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


async def write_archive(store: Store, path: Path, report: Report) -> Copied:
    """Write everything into a new text file, with counts and hashes at its end.

    Raises RevisionConflict if the file exists, or the store was written to meanwhile.
    """
    database = store.database
    with new_archive(path) as file:
        key = await _meta(database, "secret")
        head = {"memorist": "archive", "format": ARCHIVE_FORMAT, "key": key}
        await asyncio.to_thread(_write_lines, file, [head])
        done = 0
        async for page in read_pages(database, {}):
            names = ("table", *page.columns)
            lines = [dict(zip(names, (page.table, *row), strict=True)) for row in page.rows]
            await asyncio.to_thread(_write_lines, file, lines)
            done += len(lines)
            report(done, done)
        sums = {table: await _digest(database, table) for table in KEYS}
        if sum(count for count, _ in sums.values()) != done:
            raise RevisionConflict("It was written to meanwhile: run it again, with nobody writing")
        await asyncio.to_thread(_write_lines, file, [{"sums": sums}])
    return _to_copied(done, sums)


async def read_archive(path: Path, store: Store, report: Report) -> Copied:
    """Fill a new store from a text file; one that was half filled is emptied and filled again.

    Raises NotFound; RevisionConflict if the store holds anything else; InvalidInput if the file is
    not an archive, or cut.
    """
    database = store.database
    records = read_lines(path)
    head: dict[str, Any] = await asyncio.to_thread(next, records, {})
    kind = head.get("memorist", head.get("recollect"))  # version 0.1 wrote "recollect"
    is_archive = (kind, head.get("format")) == ("archive", ARCHIVE_FORMAT)
    if not is_archive or not _SECRET.fullmatch(str(head.get("key"))):
        raise InvalidInput(
            f"{str(path)!r} is not an archive of a memory; `memorist import` reads an export"
        )
    if await _meta(database, MARK) is None and await store.scopes():
        raise RevisionConflict("The target holds memories already: take a new database")
    await _begin(database, {"secret": head["key"]})
    done = 0
    sums: Sums | None = None
    while batch := await asyncio.to_thread(lambda: list(islice(records, PAGE))):
        sums = batch.pop()["sums"] if "sums" in batch[-1] else None
        for (table, columns), group in groupby(batch, take_shape):
            if table not in KEYS or set(columns) != set(await _columns(database, table)):
                raise InvalidInput(
                    f"The archive holds {table!r} in a form that this version does not know"
                )
            rows = [tuple(record.values()) for record in group]
            await _insert(database, TablePage(table, columns, rows), {})
        done += len(batch)
        report(done, done)
    if sums is None:
        raise InvalidInput(
            f"{str(path)!r} is cut: the store stays unfinished until a whole file is read"
        )
    for table in KEYS:
        if await _digest(database, table) != sums.get(table, [0, "0"]):
            raise InvalidInput(f"{str(path)!r} was altered: {table!r} is not what was written")
    await _finish(database)
    return _to_copied(done, sums)


async def begin_copy(source: Store, target: Store) -> Progress | None:
    """Return the progress of an earlier run, or None if it was finished. Raises
    RevisionConflict."""
    secret = await _meta(source.database, "secret")
    is_same = secret == await _meta(target.database, "secret")
    mark = await _meta(target.database, MARK)
    if mark is not None:
        if not is_same:
            raise RevisionConflict(
                "The target is an unfinished copy of another store:"
                " finish that one, or take a new one"
            )
        progress: Progress = json.loads(mark)
        return progress
    if is_same:
        return None
    if await target.scopes():
        raise RevisionConflict(
            "The target holds memories: copy into a new database, or `memorist import` into this"
        )
    await _begin(target.database, {"secret": str(secret)})
    return {}


async def _begin(database: Database, meta: dict[str, str]) -> None:
    """Empty a store and mark it as the target of a copy, with the key of its source."""
    await _empty(database, list(KEYS), {**meta, MARK: "{}"})


async def restart(database: Database, table: str, progress: Progress) -> None:
    """Empty a table that differs, and those that refer to it, so that the next run copies them
    again."""
    stale = [table]
    if table in ("scopes", "memories"):
        order = list(KEYS)
        stale = order[order.index(table) :]
    left = {name: last for name, last in progress.items() if name not in stale}
    await _empty(database, stale, {MARK: json.dumps(left)})


async def _empty(database: Database, tables: Sequence[str], meta: dict[str, str]) -> None:
    """Delete all rows of tables and set values of the store in one transaction."""
    async with database.transaction() as connection:
        for table in reversed(tables):  # those that others refer to last
            await connection.rows(f"DELETE FROM {table}", scope=EVERY)
        await connection.run([(_SET, list(meta.items()))])


async def _insert(database: Database, page: TablePage, progress: Progress) -> None:
    """Insert rows as they were read, and note how far the copy is."""
    columns = page.columns
    rows: Sequence[Sequence[Any]] = page.rows
    if page.table == "vectors":
        at = columns.index("embedding")
        rows = [(*row[:at], np.frombuffer(row[at], "<f4"), *row[at + 1 :]) for row in rows]
    names = ", ".join(columns)
    sql = f"INSERT INTO {page.table} ({names}) VALUES ({placeholders(columns)})"
    progress[page.table] = page.last
    async with database.transaction() as connection:
        await connection.run([(sql, rows), (_SET, [(MARK, json.dumps(progress))])])


async def _finish(database: Database) -> None:
    """Make new rows get higher numbers than the copied ones, and take the mark away."""
    for sql in database.dialect.renumber:
        await execute(database, sql, scope=EVERY)
    await execute(database, "DELETE FROM meta WHERE key = ?", (MARK,))


async def _columns(source: Database | Connection, table: str) -> tuple[str, ...]:
    return tuple(row[0] for row in await source.rows(source.dialect.columns, (table,)))


async def _counts(source: Database | Connection) -> dict[str, int]:
    """Return the number of rows of each table."""
    counts = [f"SELECT '{table}', count(*) FROM {table}" for table in KEYS]
    return dict(await source.rows(" UNION ALL ".join(counts), scope=EVERY))


async def _digest(database: Database, table: str) -> list[Any]:
    """Return the number of rows, and a hash of them all that does not depend on their order."""
    count = total = 0
    async for page in read_pages(database, {}, [table]):
        places = [page.columns.index(name) for name in sorted(page.columns)]
        for row in page.rows:
            values = [comparable(row[place]) for place in places]
            plain = repr(values).encode("utf-8", "surrogatepass")
            total += int.from_bytes(hashlib.blake2b(plain, digest_size=16).digest(), "big")
        count += len(page.rows)
    return [count, str(total % 2**128)]


def _to_copied(rows: int, sums: Sums) -> Copied:
    return Copied(rows=rows, tables={table: count for table, (count, _) in sums.items() if count})


def comparable(value: Any) -> Any:
    """Return JSON in one format, since engines format it differently."""
    if isinstance(value, str) and value.startswith(("{", "[")):
        with suppress(ValueError):
            return json.dumps(json.loads(value), sort_keys=True)
    return value


async def _meta(database: Database, key: str) -> str | None:
    """Return what the database stores about itself under a key."""
    found = await database.rows("SELECT value FROM meta WHERE key = ?", (key,))
    return found[0][0] if found else None


def take_shape(record: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Take the table out of a record of an archive; return it with the names of the columns."""
    return str(record.pop("table", None)), tuple(record)


@contextmanager
def new_archive(path: Path) -> Iterator[TextIO]:
    if path.exists():
        raise RevisionConflict(f"{str(path)!r} exists already: choose another name")
    with new_file(path) as draft, open(draft, "w", encoding="utf-8") as file:
        yield file


def _write_lines(file: TextIO, records: Sequence[dict[str, Any]]) -> None:
    def encode(data: bytes) -> dict[str, str]:
        return {"base64": base64.b64encode(data).decode()}

    file.writelines(json.dumps(record, default=encode) + "\n" for record in records)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of an archive. Raises NotFound, InvalidInput."""

    def decode(found: dict[str, Any]) -> Any:
        is_bytes = found.keys() == {"base64"}
        return base64.b64decode(found["base64"], validate=True) if is_bytes else found

    if not path.exists():
        raise NotFound(f"There is no file {str(path)!r}")
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            record = None
            with suppress(ValueError, TypeError):
                record = json.loads(line, object_hook=decode)
            if not isinstance(record, dict):
                raise InvalidInput(
                    f"Line {number} of {str(path)!r} cannot be read: "
                    "it is not an archive, or cut or altered"
                )
            yield record
