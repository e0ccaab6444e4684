"""JSON documents that an agent stores under namespaces and keys of its own (LangGraph calls them
items)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..text import clock
from ..types import Scope
from .filters import placeholders, portions
from .store import Store
from .transaction import Transaction

DocumentKey = tuple[str, str]  # the namespace, its labels joined by dots, and the key in it
FEW = 200  # values in one statement
_ALIVE = "(i.expires_at IS NULL OR i.expires_at > ?)"
_COLUMNS = "i.namespace, i.key, i.value, i.created_at, i.updated_at, i.ttl_minutes"


class Document(NamedTuple):
    """One document."""

    namespace: str
    key: str
    value: str
    created_at: str
    updated_at: str
    ttl_minutes: float | None


class NewDocument(NamedTuple):
    """A document to keep, in place of the one before; `vectors` by field, of one model."""

    namespace: str
    key: str
    value: str
    ttl_minutes: float | None = None
    vectors: Sequence[tuple[str, NDArray[np.float32]]] = ()


class Documents:
    """The documents of one scope. Expired ones are not found, and are deleted with the next
    write."""

    def __init__(self, store: Store, scope: Scope) -> None:
        self._store = store
        self._scope = scope

    async def get(self, keys: Sequence[DocumentKey], now: datetime) -> dict[DocumentKey, Document]:
        out: dict[DocumentKey, Document] = {}
        for some in portions(list(dict.fromkeys(keys)), FEW):
            found = await self._store.rows(
                self._scope,
                f"SELECT {_COLUMNS} FROM items i WHERE i.scope = ? AND {_ALIVE} "
                f"AND (i.namespace, i.key) IN (VALUES {placeholders(len(some), '(?, ?)')})",
                (clock.iso(now), *(each for key in some for each in key)),
            )
            out |= {(row[0], row[1]): Document(*row) for row in found}
        return out

    async def under(
        self, prefix: str, now: datetime, *, limit: int | None = None, offset: int = 0
    ) -> list[Document]:
        """The items in a namespace and in those below it, in the order in which they were first
        put."""
        within, values = _within(prefix)
        page = "" if limit is None else " LIMIT ? OFFSET ?"
        found = await self._store.rows(
            self._scope,
            f"SELECT {_COLUMNS} FROM items i WHERE i.scope = ? AND {_ALIVE}{within} "
            f"ORDER BY i.created_at, i.namespace, i.key{page}",
            (clock.iso(now), *values, *(() if limit is None else (limit, offset))),
        )
        return [Document(*row) for row in found]

    async def vectors(
        self, prefix: str, model: str, now: datetime
    ) -> list[tuple[DocumentKey, bytes]]:
        """The vectors of one model in a namespace and in those below it."""
        within, values = _within(prefix)
        sql = (
            "SELECT i.namespace, i.key, i.embedding FROM item_vectors i WHERE i.scope = "
            f"?{within} AND i.model = ?"
        )
        found = await self._store.rows(self._scope, sql, (*values, model))
        # few: cheaper than a join
        expired = "SELECT namespace, key FROM items WHERE scope = ? AND expires_at <= ?"
        gone = set(await self._store.rows(self._scope, expired, (clock.iso(now),)))
        return [
            ((namespace, key), embedding)
            for namespace, key, embedding in found
            if (namespace, key) not in gone
        ]

    async def namespaces(self, now: datetime) -> list[str]:
        sql = f"SELECT DISTINCT i.namespace FROM items i WHERE i.scope = ? AND {_ALIVE}"
        return [row[0] for row in await self._store.rows(self._scope, sql, (clock.iso(now),))]

    async def change(
        self, puts: Sequence[NewDocument], deletes: Sequence[DocumentKey], model: str, now: datetime
    ) -> None:
        """Make all the changes, or none of them."""
        async with self._store.transaction(self._scope) as tx:
            await tx.create_scope()
            await _delete_expired(tx, now)
            await tx.write_each(
                "DELETE FROM items WHERE scope = ? AND namespace = ? AND key = ?", deletes
            )
            stale = [*deletes, *((put.namespace, put.key) for put in puts)]
            await tx.write_each(
                "DELETE FROM item_vectors WHERE scope = ? AND namespace = ? AND key = ?", stale
            )
            at = clock.iso(now)
            await tx.write_each(
                "INSERT INTO items (scope, namespace, key, value, created_at, updated_at, "
                "ttl_minutes, expires_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, namespace, key) DO UPDATE SET "
                "value = excluded.value, updated_at = excluded.updated_at, ttl_minutes = "
                "excluded.ttl_minutes, "
                "expires_at = excluded.expires_at",
                [
                    (p.namespace, p.key, p.value, at, at, p.ttl_minutes, _until(p.ttl_minutes, now))
                    for p in puts
                ],
            )
            await tx.write_each(
                "INSERT INTO item_vectors (scope, namespace, key, field, model, embedding) VALUES "
                "(?, ?, ?, ?, ?, ?)",
                [
                    (p.namespace, p.key, field, model, np.asarray(vector, "<f4").tobytes())
                    for p in puts
                    for field, vector in p.vectors
                ],
            )
            if deletes:
                tx.connection.wipe_after_commit()

    async def refresh(self, read: Iterable[Document], now: datetime) -> None:
        """Extend the life of documents that were read, for as long as they were given when they
        were stored."""
        lasting = [each for each in read if each.ttl_minutes is not None]
        if not lasting:
            return
        sql = "UPDATE items SET expires_at = ? WHERE scope = ? AND namespace = ? AND key = ? "
        sql += "AND ttl_minutes = ?"
        async with self._store.transaction(self._scope) as tx:
            number = await tx.number(self._scope)
            values = []
            for each in lasting:
                until = _until(each.ttl_minutes, now)
                values.append((until, number, each.namespace, each.key, each.ttl_minutes))
            await tx.write([(sql, values)])

    async def sweep(self, now: datetime) -> int:
        """Remove what has expired, and say how many that were."""
        async with self._store.transaction(self._scope) as tx:
            await tx.create_scope()
            return await _delete_expired(tx, now)


async def _delete_expired(tx: Transaction, now: datetime) -> int:
    sql = "DELETE FROM items WHERE scope = ? AND expires_at <= ? RETURNING namespace, key"
    gone = await tx.rows(tx.scope, sql, (clock.iso(now),))
    if gone:
        await tx.write_each(
            "DELETE FROM item_vectors WHERE scope = ? AND namespace = ? AND key = ?", gone
        )
        tx.connection.wipe_after_commit()
    return len(gone)


def _within(prefix: str) -> tuple[str, list[str]]:
    """A namespace and those below it, as one range of the key: `/` comes right after the dot,
    and some before it."""
    if not prefix:
        return "", []
    sql = " AND i.namespace >= ? AND i.namespace < ? AND (i.namespace = ? OR i.namespace >= ?)"
    return sql, [prefix, f"{prefix}/", prefix, f"{prefix}."]


def _until(ttl_minutes: float | None, now: datetime) -> str | None:
    return None if ttl_minutes is None else clock.iso(now + timedelta(minutes=ttl_minutes))
