"""JSON documents that agents store: checkpoints of threads, documents with a namespace and a key
(LangGraph calls them items), and transcripts, which are documents in an order."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from ..errors import StoreDamaged
from ..text import clock
from ..text.clock import new_id
from ..types import Scope, frozen
from . import rows
from .store import Store
from .transaction import Transaction

T = TypeVar("T")
DocumentKey = tuple[str, str]  # the namespace, its labels joined by dots, and the key in it
_ALIVE = "(i.expires_at IS NULL OR i.expires_at > ?)"
_DOCUMENT = f"""SELECT i.namespace, i.key, i.value, i.created_at, i.updated_at, i.ttl_minutes
FROM items i WHERE i.scope = ? AND {_ALIVE}"""
_BY_KEY = "WHERE scope = ? AND namespace = ? AND key = ?"
_PUT = """INSERT INTO items
(scope, namespace, key, value, created_at, updated_at, ttl_minutes, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, namespace, key) DO UPDATE SET
value = excluded.value, updated_at = excluded.updated_at,
ttl_minutes = excluded.ttl_minutes, expires_at = excluded.expires_at"""
_PUT_TEXT = """INSERT INTO item_vectors (scope, namespace, key, field, model, embedding, terms)
VALUES (?, ?, ?, ?, ?, ?, ?)"""
_SAVE = """INSERT INTO supervisor_checkpoints
(scope, id, user_id, thread_id, checkpoint_data, created_at, updated_at)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, user_id, thread_id)
DO UPDATE SET checkpoint_data = excluded.checkpoint_data, updated_at = excluded.updated_at
RETURNING thread_id, created_at, updated_at"""


class IndexedText(NamedTuple):
    """A text of a document, as search needs it."""

    namespace: str
    key: str
    field: str
    model: str  # that embedded it; empty if none did
    vector: bytes  # float32, little-endian
    terms: bytes | None  # as `text.tokens` packs them; version 0.1 stored none


class Document(NamedTuple):
    """A JSON document with its dates."""

    namespace: str
    key: str
    value: str
    created_at: str
    updated_at: str
    ttl_minutes: float | None


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents of one scope. Expired ones are not returned; the next write deletes them.

    Namespaces that begin with a dot are private: they are read by their name, and not listed.
    """

    store: Store
    scope: Scope

    async def get(self, keys: Sequence[DocumentKey], now: datetime) -> dict[DocumentKey, Document]:
        """Return the documents with these keys."""
        column = "(i.namespace, i.key)"
        at = clock.iso(now)
        found = await self.store.rows_in(
            self.scope,
            _DOCUMENT,
            column,
            keys,
            at,
        )
        return {(row[0], row[1]): Document(*row) for row in found}

    async def under(
        self,
        prefix: str,
        now: datetime,
        *,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Document]:
        """Return the documents in a namespace and those below it, in the order in which they were
        first stored."""
        within, values = _within(prefix)
        page = "" if limit is None else f" LIMIT {int(limit)} OFFSET {int(offset)}"
        sql = f"{_DOCUMENT}{within} ORDER BY i.created_at, i.namespace, i.key{page}"
        found = await self.store.rows(self.scope, sql, (clock.iso(now), *values))
        return [Document(*row) for row in found]

    async def texts(self, prefix: str, now: datetime) -> list[IndexedText]:
        """Return the indexed texts in a namespace and those below it."""
        within, values = _within(prefix)
        # Few have expired: excluding them is cheaper than a join.
        sql = f"""SELECT i.namespace, i.key, i.field, i.model, i.embedding, i.terms
        FROM item_vectors i WHERE i.scope = ?{within} AND (i.namespace, i.key) NOT IN
        (SELECT namespace, key FROM items WHERE scope = ? AND expires_at <= ?)"""
        expired = (await self.store.number(self.scope), clock.iso(now))
        found = await self.store.rows(self.scope, sql, (*values, *expired))
        return [IndexedText(*row) for row in found]

    async def namespaces(self, now: datetime) -> list[str]:
        """Return the namespaces that have documents."""
        within, _ = _within("")
        sql = f"SELECT DISTINCT i.namespace FROM items i WHERE i.scope = ? AND {_ALIVE}{within}"
        return [row[0] for row in await self.store.rows(self.scope, sql, (clock.iso(now),))]

    async def change(
        self,
        puts: Sequence[Document],
        deletes: Sequence[DocumentKey],
        now: datetime,
        texts: Sequence[IndexedText] = (),
    ) -> None:
        """Apply all changes or none. A document replaces the previous one and keeps its creation
        date."""
        documents = []
        stale = list(deletes)
        for put in puts:
            documents.append((*put, _until(put.ttl_minutes, now)))
            stale.append((put.namespace, put.key))
        async with self.store.transaction(self.scope) as tx:
            await tx.create_scope()
            await _delete_expired(tx, now)
            await tx.write_each(f"DELETE FROM items {_BY_KEY}", deletes)
            await tx.write_each(f"DELETE FROM item_vectors {_BY_KEY}", stale)
            await tx.write_each(_PUT, documents)
            await tx.write_each(_PUT_TEXT, texts)
            if deletes:
                tx.connection.wipe_after_commit()

    async def edit(
        self,
        namespace: str,
        edit: Callable[[dict[str, str]], T],
        now: datetime,
    ) -> T:
        """Let a function change the values of a namespace, by key, under the write lock.

        Return what the function returns. If it raises, nothing is changed.
        """
        sql = "SELECT key, value FROM items WHERE scope = ? AND namespace = ?"
        at = clock.iso(now)
        async with self.store.transaction(self.scope) as tx:
            found = await tx.rows(self.scope, sql, (namespace,))
            before: dict[str, str] = dict(found)
            after = dict(before)
            result = edit(after)
            if after == before:
                return result
            await tx.create_scope()
            puts = []
            for key, value in after.items():
                if before.get(key) != value:
                    puts.append((namespace, key, value, at, at, None, None))
            gone = [(namespace, key) for key in before if key not in after]
            await tx.write_each(f"DELETE FROM items {_BY_KEY}", gone)
            await tx.write_each(_PUT, puts)
            tx.connection.wipe_after_commit()
            return result

    async def refresh(self, read: Iterable[Document], now: datetime) -> None:
        """Extend the lifetime of documents that were read by the TTL they were stored with."""
        expiring = [each for each in read if each.ttl_minutes is not None]
        if not expiring:
            return
        sql = f"UPDATE items SET expires_at = ? {_BY_KEY} AND ttl_minutes = ?"
        async with self.store.transaction(self.scope) as tx:
            number = await tx.number(self.scope)
            values = []
            for each in expiring:
                until = _until(each.ttl_minutes, now)
                values.append((until, number, each.namespace, each.key, each.ttl_minutes))
            await tx.write([(sql, values)])

    async def sweep(self, now: datetime) -> int:
        """Delete expired documents and return how many."""
        async with self.store.transaction(self.scope) as tx:
            await tx.create_scope()
            return await _delete_expired(tx, now)


@dataclass(frozen=True, slots=True)
class Transcript:
    """The documents of one private namespace, in the order in which they were appended."""

    store: Store
    scope: Scope
    namespace: str

    async def append(self, values: Sequence[str], now: datetime) -> dict[str, str]:
        """Append documents, all or none, and return them by key. Those of another call do not come
        between them."""
        sql = "SELECT max(key) FROM items WHERE scope = ? AND namespace = ?"
        at = clock.iso(now)
        async with self.store.transaction(self.scope) as tx:
            await tx.create_scope()
            ((newest,),) = await tx.rows(self.scope, sql, (self.namespace,))
            first = int(newest or 0) + 1
            appended = {f"{number:012}": value for number, value in enumerate(values, first)}
            puts = []
            for key, value in appended.items():
                puts.append((self.namespace, key, value, at, at, None, None))
            await tx.write_each(_PUT, puts)
        return appended

    async def remove(self, appended: Mapping[str, str]) -> None:
        """Delete what a call of `append` returned, as far as it is still there."""
        # The key of a document that was popped is used again.
        sql = f"DELETE FROM items {_BY_KEY} AND value = ?"
        documents = [(self.namespace, key, value) for key, value in appended.items()]
        async with self.store.transaction(self.scope) as tx:
            await tx.write_each(sql, documents)
            tx.connection.wipe_after_commit()

    async def last(self, limit: int | None = None) -> list[str]:
        """Return the last documents, or all, oldest first."""
        sql = "SELECT value FROM items WHERE scope = ? AND namespace = ? ORDER BY key DESC"
        if limit is not None:
            sql += f" LIMIT {int(limit)}"
        found = await self.store.rows(self.scope, sql, (self.namespace,))
        return [value for (value,) in reversed(found)]

    async def pop(self) -> str | None:
        """Delete the last document and return it; None if there is none."""
        sql = """SELECT key, value FROM items WHERE scope = ? AND namespace = ?
        ORDER BY key DESC LIMIT 1"""
        async with self.store.transaction(self.scope) as tx:
            for key, value in await tx.rows(self.scope, sql, (self.namespace,)):
                await tx.write_each(f"DELETE FROM items {_BY_KEY}", [(self.namespace, key)])
                tx.connection.wipe_after_commit()
                return str(value)
        return None

    async def clear(self) -> None:
        """Delete all documents."""
        sql = "DELETE FROM items WHERE scope = ? AND namespace = ?"
        async with self.store.transaction(self.scope) as tx:
            await tx.write_each(sql, [(self.namespace,)])
            tx.connection.wipe_after_commit()


async def _delete_expired(tx: Transaction, now: datetime) -> int:
    sql = "DELETE FROM items WHERE scope = ? AND expires_at <= ? RETURNING namespace, key"
    gone = await tx.rows(tx.scope, sql, (clock.iso(now),))
    if gone:
        await tx.write_each(f"DELETE FROM item_vectors {_BY_KEY}", gone)
        tx.connection.wipe_after_commit()
    return len(gone)


def _within(prefix: str) -> tuple[str, list[str]]:
    """Return the condition for a namespace and those below it, as one range of the key.

    `/` follows the dot in the order of characters; some others come before it.
    """
    if not prefix:
        return " AND substr(i.namespace, 1, 1) <> '.'", []
    sql = " AND i.namespace >= ? AND i.namespace < ? AND (i.namespace = ? OR i.namespace >= ?)"
    return sql, [prefix, f"{prefix}/", prefix, f"{prefix}."]


def _until(ttl_minutes: float | None, now: datetime) -> str | None:
    return None if ttl_minutes is None else clock.iso(now + timedelta(minutes=ttl_minutes))


@frozen
class SavedCheckpoint:
    """A thread that has a saved checkpoint."""

    thread: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class ThreadCheckpoints:
    """One JSON document for each thread of a scope."""

    store: Store
    scope: Scope

    async def save(
        self,
        thread: str,
        data: str,
        at: datetime,
    ) -> SavedCheckpoint:
        """Store the document of a thread durably. It replaces the previous one."""
        now = clock.iso(at)
        values = (new_id(), self.scope.user, thread, data, now, now)
        async with self.store.transaction(self.scope) as tx:
            await tx.create_scope()
            found = await tx.rows(self.scope, _SAVE, values)
        return rows.parse(SavedCheckpoint, found[0])

    async def load(self, thread: str) -> str | None:
        """Return the document of a thread as it was last saved."""
        sql = """SELECT checkpoint_data FROM supervisor_checkpoints
        WHERE scope = ? AND user_id = ? AND thread_id = ?"""
        found = await self.store.rows(self.scope, sql, (self.scope.user, thread))
        if found and not isinstance(found[0][0], str):
            raise StoreDamaged(f"The checkpoint of thread {thread!r} is not text: restore a backup")
        return found[0][0] if found else None

    async def list(self, *, limit: int) -> builtins.list[SavedCheckpoint]:
        """Return the threads that have a checkpoint, most recently saved first."""
        sql = """SELECT thread_id, created_at, updated_at FROM supervisor_checkpoints
        WHERE scope = ? ORDER BY updated_at DESC, id DESC LIMIT ?"""
        found = await self.store.rows(self.scope, sql, (limit,))
        return rows.parse_all(SavedCheckpoint, found)

    async def delete(self, thread: str) -> bool:
        """Delete a checkpoint. Return False if there was none."""
        sql = """DELETE FROM supervisor_checkpoints
        WHERE scope = ? AND user_id = ? AND thread_id = ? RETURNING id"""
        async with self.store.transaction(self.scope) as tx:
            tx.connection.wipe_after_commit()
            return bool(await tx.rows(self.scope, sql, (self.scope.user, thread)))
