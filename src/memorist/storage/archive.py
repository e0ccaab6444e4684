"""A whole store as a text file, one row a line, and back, for any engine.

The file holds everything, the key of the digests too: protect it like the memory itself.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from ..errors import InvalidInput, NotFound, RevisionConflict
from . import atomic, tables
from .store import Store
from .tables import KEYS, Copied

FORMAT = 1
_KEY = re.compile("[0-9a-f]{64}")


async def write(store: Store, path: Path, report: Callable[[int, int], None]) -> Copied:
    """Write everything into a new file, with counts and hashes at its end.

    Raises RevisionConflict if the file exists, or the store was written to meanwhile.
    """
    draft, file = await asyncio.to_thread(_create, path)
    try:
        with file:
            secret = await tables.secret_of(store)
            head = {"memorist": "archive", "format": FORMAT, "key": secret}
            await asyncio.to_thread(_write_lines, file, [head])
            done = 0
            for table in KEYS:
                async for page in tables.pages(store, table):
                    lines = []
                    for row in page.rows:
                        values = map(_encode, row)
                        lines.append(
                            {"table": table, **dict(zip(page.columns, values, strict=True))}
                        )
                    await asyncio.to_thread(_write_lines, file, lines)
                    done += len(lines)
                    report(done, done)
            sums = {table: await tables.digest(store, table) for table in KEYS}
            if sum(count for count, _ in sums.values()) != done:
                raise RevisionConflict(
                    "It was written to meanwhile: run it again, with nobody writing"
                )
            end = {"sums": {table: [count, str(hash)] for table, (count, hash) in sums.items()}}
            await asyncio.to_thread(_write_lines, file, [end])
        await asyncio.to_thread(atomic.publish, draft, path)
    except BaseException:
        atomic.discard(draft)
        raise
    return Copied(rows=done, tables={table: count for table, (count, _) in sums.items() if count})


async def read(path: Path, store: Store, report: Callable[[int, int], None]) -> Copied:
    """Fill a new store from a file; one that was half filled is emptied and filled again.

    Raises NotFound; RevisionConflict if the store holds anything else; InvalidInput if the file is not an
    archive, or cut.
    """
    records = _read_lines(path)
    head: dict[str, Any] = await asyncio.to_thread(next, records, {})
    kind = head.get("memorist", head.get("recollect"))  # version 0.1 wrote "recollect"
    is_archive = (kind, head.get("format")) == ("archive", FORMAT)
    if not is_archive or not _KEY.fullmatch(str(head.get("key"))):
        raise InvalidInput(
            f"{str(path)!r} is not an archive of a memory; `memorist import` reads an export"
        )
    if await tables.load_progress(store) is None and await store.scopes():
        raise RevisionConflict("The target holds memories already: take a new database")
    await tables.begin(store, str(head["key"]))
    done = 0
    sums: dict[str, list[Any]] | None = None
    while batch := await asyncio.to_thread(lambda: list(islice(records, tables.PAGE))):
        sums = batch.pop()["sums"] if "sums" in batch[-1] else None
        await _insert(store, batch)
        done += len(batch)
        report(done, done)
    if sums is None:
        raise InvalidInput(
            f"{str(path)!r} is cut: it has no end. The store stays unfinished until a whole file "
            "is read"
        )
    for table in KEYS:
        count, hash = await tables.digest(store, table)
        if [count, str(hash)] != dict(sums).get(table, [0, "0"]):
            raise InvalidInput(f"{str(path)!r} was altered: {table!r} is not what was written")
    await tables.finish(store)
    return Copied(rows=done, tables={table: count for table, (count, _) in sums.items() if count})


async def _insert(store: Store, batch: Sequence[dict[str, Any]]) -> None:
    """Insert rows of few tables, in their order. A name becomes SQL only if the store knows it."""
    by_table: dict[str, list[dict[str, Any]]] = {}
    for record in batch:
        table = str(record.pop("table", None))
        by_table.setdefault(table, []).append(record)
    async with store.database.transaction() as connection:
        for table, records in by_table.items():
            columns = await tables.columns_of(store, table) if table in KEYS else ()
            if not columns or any(set(record) != set(columns) for record in records):
                raise InvalidInput(
                    f"The archive holds {table!r} in a form that this version does not know"
                )
            rows = [tuple(_decode(record[name]) for name in columns) for record in records]
            await tables.insert(connection, table, columns, rows)


def _encode(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"base64": base64.b64encode(value).decode()}
    return value


def _decode(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    try:
        return base64.b64decode(value["base64"], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput("The archive was altered: bytes in it cannot be read") from error


def _create(path: Path) -> tuple[Path, TextIO]:
    if path.exists():
        raise RevisionConflict(f"{str(path)!r} exists already: choose another name")
    draft = atomic.draft(path)
    return draft, open(draft, "w", encoding="utf-8")


def _write_lines(file: TextIO, records: Sequence[dict[str, Any]]) -> None:
    file.writelines(json.dumps(record) + "\n" for record in records)


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        raise NotFound(f"There is no file {str(path)!r}")
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if not isinstance(record, dict):
                raise InvalidInput(
                    f"Line {number} of {str(path)!r} cannot be read: it is not an archive, or cut "
                    "or altered"
                )
            yield record
