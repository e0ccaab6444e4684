"""A whole store into another one, table by table and row by row, whatever engine keeps either.

Every row keeps its key, so nothing that points to another row has to be changed, and the keyed digests stay good
because the copy takes the key over. Each page is committed together with how far it goes: what was interrupted goes on
where it stopped. At the end both sides are counted and hashed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import RevisionConflict
from .database import EVERY, Session
from .store import Relational

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
LEFT = {"migrations", "meta", "claims", "index_positions", "answered"}  # of each store its own
MARK = "copying"  # in the target while it is not complete: the last key of each table
Done = dict[str, list[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What a copy moved, and what it counted on both sides."""

    rows: int  # in this run; fewer than there are if an earlier run had begun
    tables: dict[str, int]  # how many rows each table has


async def copy(
    source: Relational, target: Relational, progress: Callable[[int, int], None]
) -> Copied:
    """Make the target what the source is; `progress` gets how much is done, and of how much.

    A copy that is complete is only compared.
    Raises RevisionConflict if the target holds anything else, or if the source was
    written to meanwhile.
    """
    done = await _begun(source, target)
    counts = {table: await _count(source, table) for table in KEYS}
    steps = _Steps(2 * sum(counts.values()), progress)
    moved = 0 if done is None else await _moved(source, target, done, steps)
    await _compared(source, target, done, counts, steps)
    await target.renumber()
    async with target.together() as session:
        await session.rows("DELETE FROM meta WHERE key = ?", (MARK,))
    return Copied(rows=moved, tables={table: count for table, count in counts.items() if count})


class _Steps:
    """How far it is."""

    def __init__(self, work: int, progress: Callable[[int, int], None]) -> None:
        self._work, self._progress, self._done = work, progress, 0

    def made(self, steps: int) -> None:
        self._done += steps
        self._progress(min(self._done, self._work), self._work)


async def _moved(source: Relational, target: Relational, done: Done, steps: _Steps) -> int:
    moved = 0
    for table, keys in KEYS.items():
        steps.made(await _count(target, table))
        async for page in pages(source, table, keys, done.get(table)):
            done[table] = page.last
            await _put(target, table, page, done)
            moved += len(page.rows)
            steps.made(len(page.rows))
    return moved


async def _compared(
    source: Relational, target: Relational, done: Done | None, counts: dict[str, int], steps: _Steps
) -> None:
    for table, keys in KEYS.items():
        if await summed(source, table, keys) != await summed(target, table, keys):
            if done is None:
                raise RevisionConflict(
                    f"One of them was written to since the copy, as {table!r} shows: take a new database"
                )
            await _again(target, table, done)
            raise RevisionConflict(
                f"{table!r} was written to during the copy: run it again, with nobody writing"
            )
        steps.made(counts[table])


@dataclass(frozen=True, slots=True)
class Page:
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    last: list[Any]  # the key of the last row


async def _begun(source: Relational, target: Relational) -> Done | None:
    """How far an earlier run came, or None if it came to its end.

    Raises RevisionConflict if the target holds anything else.
    """
    secret, theirs, begun = await key_of(source), await key_of(target), await mark(target)
    if begun is not None:
        if secret != theirs:
            raise RevisionConflict(
                "The target is a half-finished copy of another store: finish that one, or take a new one"
            )
        return begun
    if secret == theirs:
        return None
    if await target.scopes():
        raise RevisionConflict(
            "The target holds memories already: copy into a new database, or `memorist import` into this"
        )
    async with target.together() as session:
        await session.rows("UPDATE meta SET value = ? WHERE key = 'secret'", (secret,))
        await note(session, {})
    return {}


async def key_of(store: Relational) -> str:
    """The key of the digests."""
    return str((await store.session.rows("SELECT value FROM meta WHERE key = 'secret'"))[0][0])


async def mark(store: Relational) -> Done | None:
    """How far a copy into this store is, or None if none is under way."""
    found = await store.session.rows("SELECT value FROM meta WHERE key = ?", (MARK,))
    kept: Done | None = json.loads(found[0][0]) if found else None
    return kept


async def note(session: Session, done: Done) -> None:
    """Keep how far it is."""
    sql = "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    await session.rows(sql, (MARK, json.dumps(done)))


async def _count(store: Relational, table: str) -> int:
    return int((await store.session.rows(f"SELECT count(*) FROM {table}", scope=EVERY))[0][0])


async def pages(
    store: Relational, table: str, keys: Sequence[str], after: Sequence[Any] | None
) -> AsyncIterator[Page]:
    columns = await store.columns(table)
    names, order = ", ".join(columns), ", ".join(keys)
    places = [columns.index(key) for key in keys]
    while True:
        where = f"WHERE ({order}) > ({', '.join('?' * len(keys))})" if after else ""
        sql = f"SELECT {names} FROM {table} {where} ORDER BY {order} LIMIT {PAGE}"
        found = await store.session.rows(sql, tuple(after or ()), scope=EVERY)
        if not found:
            return
        after = [found[-1][place] for place in places]
        yield Page(columns, found, after)


async def _put(target: Relational, table: str, page: Page, done: Done) -> None:
    async with target.together() as session:
        await insert(session, table, page.columns, page.rows)
        await note(session, done)


async def insert(
    session: Session, table: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """Rows as they were read, into a table."""
    sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    await session.many(sql, [_written(table, columns, row) for row in rows])


def _written(table: str, columns: Sequence[str], row: Sequence[Any]) -> tuple[Any, ...]:
    if table != "vectors":
        return tuple(row)
    at = columns.index("embedding")
    return (*row[:at], np.frombuffer(row[at], "<f4"), *row[at + 1 :])


async def summed(store: Relational, table: str, keys: Sequence[str]) -> tuple[int, int]:
    """How many rows there are, and a hash of them all that does not depend on their order."""
    count = total = 0
    async for page in pages(store, table, keys, None):
        names = sorted(page.columns)
        places = [page.columns.index(name) for name in names]
        for row in page.rows:
            plain = repr([_plain(row[place]) for place in places]).encode("utf-8", "surrogatepass")
            total += int.from_bytes(hashlib.blake2b(plain, digest_size=16).digest(), "big")
        count += len(page.rows)
    return count, total % 2**128


def _plain(value: Any) -> Any:
    """A value as it counts: engines lay JSON out differently."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.dumps(json.loads(value), sort_keys=True)
        except ValueError:
            return value
    return value


async def _again(target: Relational, table: str, done: Done) -> None:
    """Empty a table that did not come out equal, and what hangs on it, so that the next run copies it anew."""
    order = list(KEYS)
    tables = order[order.index(table) :] if table in ("scopes", "memories") else [table]
    async with target.together() as session:
        for each in reversed(tables):
            await session.rows(f"DELETE FROM {each}", scope=EVERY)
        await note(session, {name: at for name, at in done.items() if name not in tables})
