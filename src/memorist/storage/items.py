"""Items that an agent keeps under namespaces and keys of its own: JSON documents that come back as they were put."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..text import clock
from .repository import Shelf, Writing, few, marks

Key = tuple[str, str]  # the namespace, its labels joined by dots, and the key in it
_ALIVE = "(i.expires_at IS NULL OR i.expires_at > ?)"
_COLUMNS = "i.namespace, i.key, i.value, i.created_at, i.updated_at, i.ttl_minutes"


class Item(NamedTuple):
    """One document."""

    namespace: str
    key: str
    value: str
    created_at: str
    updated_at: str
    ttl_minutes: float | None


class Put(NamedTuple):
    """A document to keep, in place of the one before; `vectors` by field, of one model."""

    namespace: str
    key: str
    value: str
    ttl_minutes: float | None = None
    vectors: Sequence[tuple[str, NDArray[np.float32]]] = ()


class Items(Shelf):
    """The items of one scope. What has expired is not found, and goes when something else is written."""

    async def get(self, keys: Sequence[Key], now: datetime) -> dict[Key, Item]:
        out: dict[Key, Item] = {}
        for some in few(list(dict.fromkeys(keys))):
            found = await self._rows(
                f"SELECT {_COLUMNS} FROM items i WHERE i.scope = ? AND {_ALIVE} "
                f"AND (i.namespace, i.key) IN (VALUES {marks(len(some), '(?, ?)')})",
                (clock.iso(now), *(each for key in some for each in key)),
            )
            out |= {(row[0], row[1]): Item(*row) for row in found}
        return out

    async def under(
        self, prefix: str, now: datetime, *, limit: int | None = None, offset: int = 0
    ) -> list[Item]:
        """The items in a namespace and in those below it, in the order in which they were first put."""
        within, values = _within(prefix)
        page = "" if limit is None else " LIMIT ? OFFSET ?"
        found = await self._rows(
            f"SELECT {_COLUMNS} FROM items i WHERE i.scope = ? AND {_ALIVE}{within} "
            f"ORDER BY i.created_at, i.namespace, i.key{page}",
            (clock.iso(now), *values, *(() if limit is None else (limit, offset))),
        )
        return [Item(*row) for row in found]

    async def vectors(self, prefix: str, model: str, now: datetime) -> list[tuple[Key, bytes]]:
        """The vectors of one model in a namespace and in those below it."""
        within, values = _within(prefix)
        sql = f"SELECT i.namespace, i.key, i.embedding FROM item_vectors i WHERE i.scope = ?{within} AND i.model = ?"
        found = await self._rows(sql, (*values, model))
        expired = "SELECT namespace, key FROM items WHERE scope = ? AND expires_at <= ?"  # few: cheaper than a join
        gone = set(await self._rows(expired, (clock.iso(now),)))
        return [
            ((namespace, key), embedding)
            for namespace, key, embedding in found
            if (namespace, key) not in gone
        ]

    async def namespaces(self, now: datetime) -> list[str]:
        sql = f"SELECT DISTINCT i.namespace FROM items i WHERE i.scope = ? AND {_ALIVE}"
        return [row[0] for row in await self._rows(sql, (clock.iso(now),))]

    async def change(
        self, puts: Sequence[Put], deletes: Sequence[Key], model: str, now: datetime
    ) -> None:
        """Make all the changes, or none of them."""
        async with self._writing() as writing:
            await _expired(writing, now)
            await writing.many(
                "DELETE FROM items WHERE scope = ? AND namespace = ? AND key = ?", deletes
            )
            stale = [*deletes, *((put.namespace, put.key) for put in puts)]
            await writing.many(
                "DELETE FROM item_vectors WHERE scope = ? AND namespace = ? AND key = ?", stale
            )
            at = clock.iso(now)
            await writing.many(
                "INSERT INTO items (scope, namespace, key, value, created_at, updated_at, ttl_minutes, expires_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, namespace, key) DO UPDATE SET "
                "value = excluded.value, updated_at = excluded.updated_at, ttl_minutes = excluded.ttl_minutes, "
                "expires_at = excluded.expires_at",
                [
                    (p.namespace, p.key, p.value, at, at, p.ttl_minutes, _until(p.ttl_minutes, now))
                    for p in puts
                ],
            )
            await writing.many(
                "INSERT INTO item_vectors (scope, namespace, key, field, model, embedding) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (p.namespace, p.key, field, model, np.asarray(vector, "<f4").tobytes())
                    for p in puts
                    for field, vector in p.vectors
                ],
            )
            if deletes:
                writing.erased()

    async def refresh(self, read: Iterable[Item], now: datetime) -> None:
        """Items that were read live on, for as long as they were given when they were put."""
        lasting = [each for each in read if each.ttl_minutes is not None]
        if lasting:
            async with self._writing() as writing:
                await writing.many(
                    "UPDATE items SET expires_at = ? WHERE scope = ? AND namespace = ? AND key = ? AND ttl_minutes = ?",
                    [
                        (
                            _until(i.ttl_minutes, now),
                            writing.number,
                            i.namespace,
                            i.key,
                            i.ttl_minutes,
                        )
                        for i in lasting
                    ],
                    leads=False,
                )

    async def sweep(self, now: datetime) -> int:
        """Remove what has expired, and say how many that were."""
        async with self._writing() as writing:
            return await _expired(writing, now)


async def _expired(writing: Writing, now: datetime) -> int:
    sql = "DELETE FROM items WHERE scope = ? AND expires_at <= ? RETURNING namespace, key"
    gone = await writing.rows(sql, (clock.iso(now),))
    if gone:
        await writing.many(
            "DELETE FROM item_vectors WHERE scope = ? AND namespace = ? AND key = ?", gone
        )
        writing.erased()
    return len(gone)


def _within(prefix: str) -> tuple[str, list[str]]:
    """A namespace and those below it, as one range of the key: `/` comes right after the dot, and some before it."""
    if not prefix:
        return "", []
    sql = " AND i.namespace >= ? AND i.namespace < ? AND (i.namespace = ? OR i.namespace >= ?)"
    return sql, [prefix, f"{prefix}/", prefix, f"{prefix}."]


def _until(ttl_minutes: float | None, now: datetime) -> str | None:
    return None if ttl_minutes is None else clock.iso(now + timedelta(minutes=ttl_minutes))
