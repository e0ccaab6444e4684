"""A whole store as a text file, one row a line, and back: nothing is lost, whatever engine kept it.

The file holds everything, the key of the digests too: keep it as you keep the memory itself.
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
from . import atomic
from .copy import KEYS, MARK, PAGE, Copied, insert, key_of, mark, note, pages, summed
from .database import EVERY
from .store import Relational

FORMAT = 1
_KEY = re.compile("[0-9a-f]{64}")


async def write(store: Relational, path: Path, progress: Callable[[int, int], None]) -> Copied:
    """Write everything into a new file, and how much there is at its end.

    Raises RevisionConflict if it was written to.
    """
    made, file = await asyncio.to_thread(_created, path)
    try:
        with file:
            head = {"memorist": "archive", "format": FORMAT, "key": await key_of(store)}
            await asyncio.to_thread(_put, file, [head])
            done = 0
            for table, keys in KEYS.items():
                async for page in pages(store, table, keys, None):
                    lines = [
                        {"table": table, **dict(zip(page.columns, map(_plain, row), strict=True))}
                        for row in page.rows
                    ]
                    await asyncio.to_thread(_put, file, lines)
                    done += len(lines)
                    progress(done, done)
            sums = {table: await summed(store, table, keys) for table, keys in KEYS.items()}
            if sum(count for count, _ in sums.values()) != done:
                raise RevisionConflict(
                    "It was written to meanwhile: run it again, with nobody writing"
                )
            await asyncio.to_thread(
                _put, file, [{"sums": {table: [n, str(hash)] for table, (n, hash) in sums.items()}}]
            )
        await asyncio.to_thread(atomic.publish, made, path)
    except BaseException:
        atomic.discard(made)
        raise
    return Copied(rows=done, tables={table: count for table, (count, _) in sums.items() if count})


async def read(path: Path, store: Relational, progress: Callable[[int, int], None]) -> Copied:
    """Fill a new store from a file. One that was filled by half is emptied and filled anew.

    Raises NotFound; RevisionConflict if the store holds anything else; InvalidInput if the file is no archive, or cut.
    """
    records = await asyncio.to_thread(_records, path)
    head = next(records, {})
    kind = head.get("memorist", head.get("recollect"))  # version 0.1 wrote "recollect"
    is_archive = (kind, head.get("format")) == ("archive", FORMAT)
    if not is_archive or not _KEY.fullmatch(str(head.get("key"))):
        raise InvalidInput(
            f"{str(path)!r} is no archive of a memory; `memorist import` takes in an export"
        )
    await _begin(store, str(head["key"]))
    done, sums = 0, None
    while batch := await asyncio.to_thread(lambda: list(islice(records, PAGE))):
        sums = batch.pop()["sums"] if "sums" in batch[-1] else None
        await _insert(store, batch)
        done += len(batch)
        progress(done, done)
    if sums is None:
        raise InvalidInput(
            f"{str(path)!r} is cut: it has no end. The store stays unfinished until a whole file is read"
        )
    for table, keys in KEYS.items():
        count, hash = await summed(store, table, keys)
        if [count, str(hash)] != dict(sums).get(table, [0, "0"]):
            raise InvalidInput(f"{str(path)!r} was altered: {table!r} is not what was written")
    await store.renumber()
    async with store.together() as session:
        await session.rows("DELETE FROM meta WHERE key = ?", (MARK,))
    return Copied(rows=done, tables={table: count for table, (count, _) in sums.items() if count})


async def _begin(store: Relational, key: str) -> None:
    if await mark(store) is None and await store.scopes():
        raise RevisionConflict("The target holds memories already: take a new database")
    async with store.together() as session:
        for table in reversed(KEYS):
            await session.rows(f"DELETE FROM {table}", scope=EVERY)
        await session.rows("UPDATE meta SET value = ? WHERE key = 'secret'", (key,))
        await note(session, {})


async def _insert(store: Relational, batch: Sequence[dict[str, Any]]) -> None:
    """Rows of few tables, in the order in which they come. A name becomes SQL only if the store knows it."""
    tables = list(dict.fromkeys(str(each.get("table")) for each in batch))
    async with store.together() as session:
        for table in tables:
            rows = [
                {name: v for name, v in each.items() if name != "table"}
                for each in batch
                if each.get("table") == table
            ]
            columns = await store.columns(table) if table in KEYS else ()
            if any(set(row) != set(columns) for row in rows) or not columns:
                raise InvalidInput(
                    f"The archive holds {table!r} in a form that this version does not know"
                )
            await insert(
                session,
                table,
                columns,
                [tuple(_typed(row[name]) for name in columns) for row in rows],
            )


def _plain(value: Any) -> Any:
    return (
        {"base64": base64.b64encode(value).decode()}
        if isinstance(value, bytes | bytearray | memoryview)
        else value
    )


def _typed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    try:
        return base64.b64decode(value["base64"], validate=True)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput("The archive was altered: bytes in it cannot be read") from error


def _created(path: Path) -> tuple[Path, TextIO]:
    if path.exists():
        raise RevisionConflict(f"{str(path)!r} exists already: choose another name")
    made = atomic.draft(path)
    return made, open(made, "w", encoding="utf-8")


def _put(file: TextIO, records: Sequence[dict[str, Any]]) -> None:
    file.writelines(json.dumps(record) + "\n" for record in records)


def _records(path: Path) -> Iterator[dict[str, Any]]:
    if not path.exists():
        raise NotFound(f"There is no file {str(path)!r}")
    return _lines(path)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if not isinstance(record, dict):
                raise InvalidInput(
                    f"Line {number} of {str(path)!r} cannot be read: it is no archive, or cut or altered"
                )
            yield record
