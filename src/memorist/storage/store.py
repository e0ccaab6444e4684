"""The store: memories and related data, in any database that implements the port."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from ..errors import StoreDamaged
from ..ports import Vectors
from ..text import clock, normalize, tokens
from ..types import Scope, frozen
from . import erase, rows
from .accounts import Keys, Requests, UsageLedger
from .database import EVERY, Batch, Database, execute
from .history import History
from .tasks import EmbeddingQueue, Tasks
from .transaction import Transaction, Transactions

PAGE = 500
_TERMS = f"""SELECT row, EXISTS (SELECT 1 FROM vectors v WHERE v.scope = m.scope
AND v.memory = m.row), {", ".join(rows.COLUMNS)} FROM memories m WHERE scope = ? AND row > ?
ORDER BY row LIMIT {PAGE}"""
_MOST_RECALLED = """SELECT row FROM (
  SELECT row, access_count, count(*) OVER () AS total,
  row_number() OVER (ORDER BY access_count DESC, id) AS place
  FROM memories WHERE scope = ? AND state = 'active') m
WHERE place <= total / ? AND access_count > 0"""
_NAMELESS = """UPDATE scopes SET tenant = '', user_id = ?, space = '', head = NULL,
revision = revision + 1 WHERE id = ?"""
_ACCESSED = """UPDATE memories SET last_scores = ?, access_count = access_count + ?,
last_accessed = CASE WHEN ? THEN ? ELSE last_accessed END WHERE scope = ? AND id = ?"""


class Store(Transactions):
    """Stores memories. Reads any scope outside a transaction, and opens transactions on one scope.

    Raises StoreUnavailable if the database cannot be reached, StoreFull if the disk is full,
    StoreDamaged if its contents cannot be trusted. Any number of processes may use one store at the
    same time.
    """

    def __init__(self, database: Database, *, language: str = "english") -> None:
        super().__init__(database, language)
        self.tasks = Tasks(database, self)
        self.keys = Keys(database, self)
        self.requests = Requests(database, self)
        self.llm_usage = UsageLedger(database, self)
        self.embeddings = EmbeddingQueue(database)
        self.history = History(self)

    @classmethod
    async def open(cls, database: Database, *, language: str = "english") -> Store:
        """Open a store; recompute terms of another language or version. Closes the database if
        that fails."""
        store = cls(database, language=language)
        try:
            await store._update_terms()
        except BaseException:
            await database.close()
            raise
        return store

    async def name(self) -> str:
        """Return a short unique name of this store, for data derived from it."""
        digest = hashlib.blake2b(self.database.secret, digest_size=6, person=b"name")
        return digest.hexdigest()

    async def find_long(self, scope: Scope, chars: int, *, after: str, limit: int) -> list[str]:
        """Return the ids of active memories that are longer than that and have no summary, by id,
        after an id.
        """
        sql = """SELECT id FROM memories WHERE scope = ? AND state = 'active' AND summary IS NULL
        AND length(text) > ? AND id > ? ORDER BY id LIMIT ?"""
        found = await self.rows(scope, sql, (chars, after, limit))
        return [row[0] for row in found]

    async def count_compared(self, scope: Scope, since: datetime) -> int:
        """Count the pairs of memories of a user, in all spaces, that a model compared since then."""
        sql = """SELECT count(*) FROM pair_fingerprints p JOIN scopes s ON s.id = p.scope
        WHERE s.tenant = ? AND s.user_id = ? AND p.checked_at >= ?"""
        values = (scope.tenant, scope.user, clock.iso(since))
        ((count,),) = await self.database.rows(sql, values, scope=EVERY)
        return int(count)

    async def compared_since(self, scope: Scope, since: datetime) -> set[tuple[str, str, float]]:
        """Return the pairs of memories that a model compared since then, with their rounded
        cosine."""
        sql = "SELECT id_a, id_b, score FROM pair_fingerprints WHERE scope = ? AND checked_at >= ?"
        found = await self.rows(scope, sql, (clock.iso(since),))
        return {(a, b, score) for a, b, score in found}

    async def erase_scope(self, scope: Scope) -> None:
        """Delete all rows of a scope. Its number stays, without names, and is never used again."""
        async with self.transaction(scope) as tx:
            number = await tx.number(scope)
            tables = [f"DELETE FROM {table} WHERE scope = ?" for table in erase.TABLES]
            batches: list[Batch] = [(sql, [(number,)]) for sql in tables]
            await tx.write([*batches, (_NAMELESS, [(f"erased-{number}", number)])])
            tx.connection.wipe_after_commit()
        self.numbers.pop(scope, None)

    async def scopes(self, tenant: str | None = None, user: str | None = None) -> list[Scope]:
        """Return all scopes in which something was stored, or those of one user."""
        sql = "SELECT tenant, user_id, space FROM scopes WHERE tenant <> ''"
        values = () if user is None else (tenant, user)
        own = " AND tenant = ? AND user_id = ?" if values else ""
        found = await self.database.rows(f"{sql}{own} ORDER BY id", values)
        return [rows.scope_of(row) for row in found]

    async def nearest(
        self,
        scope: Scope,
        vector: Vectors,
        *,
        model: str,
        limit: int,
    ) -> list[tuple[int, float]]:
        """Return row numbers with their cosine, nearest first, if the database searches vectors
        itself."""
        number = await self.number(scope)
        if number < 0:
            return []
        return await self.database.nearest(number, vector, model=model, limit=limit)

    async def index_position(self, scope: Scope, name: str) -> int:
        """Return the revision of a scope that a vector index has reached; 0 if none."""
        sql = "SELECT revision FROM index_positions WHERE scope = ? AND name = ?"
        found = await self.rows(scope, sql, (name,))
        return found[0][0] if found else 0

    async def set_index_position(self, scope: Scope, name: str, revision: int) -> None:
        """Store the revision of a scope that a vector index has reached."""
        number = await self.number(scope)
        sql = """INSERT INTO index_positions (scope, name, revision) VALUES (?, ?, ?)
        ON CONFLICT (scope, name) DO UPDATE SET revision = excluded.revision"""
        await execute(self.database, sql, (number, name, revision), scope=number)

    async def most_recalled(self, scope: Scope, *, one_in: int) -> list[int]:
        """Return the row numbers of the active memories that were recalled most often."""
        found = await self.rows(scope, _MOST_RECALLED, (one_in,))
        return [row[0] for row in found]

    async def stats(self, scope: Scope | None, model: str) -> dict[str, Any]:
        """Return counts, sizes and pending work of one scope or of all."""
        number = EVERY
        where = ""
        values: tuple[int, ...] = ()
        if scope is not None:
            number = await self.number(scope)
            where = "WHERE m.scope = ?"
            values = (number,)
        by = f"SELECT {{}}, count(*) FROM memories m {where} GROUP BY 1 ORDER BY 1"
        totals = f"""SELECT count(*), count(v.memory), coalesce(sum(m.needs_embedding), 0)
        FROM memories m LEFT JOIN vectors v
        ON v.scope = m.scope AND v.memory = m.row AND v.model = ? {where}"""
        counted, states, kinds, scopes, size = await self.database.read(
            [
                (totals, (model, *values)),
                (by.format("m.state"), values),
                (by.format("m.kind"), values),
                ("SELECT count(*) FROM scopes", ()),
                (self.database.dialect.size, ()),
            ],
            scope=number,
        )
        total, embedded, waiting = counted[0]
        return {
            "memories": total,
            "with_embeddings": embedded,
            "without_embeddings": total - embedded,
            "waiting": waiting,
            "model": model,
            "states": dict(states),
            "kinds": dict(kinds),
            "scopes": scopes[0][0] if scope is None else 1,
            "bytes": int(size[0][0]),
        }

    async def is_unfinished(self) -> bool:
        """Return whether a copy into this store was started and not finished."""
        return bool(await self.database.rows("SELECT 1 FROM meta WHERE key = 'copying'"))

    async def close(self) -> None:
        await self.database.close()

    async def _update_terms(self) -> None:
        """Recompute the terms of all texts if they are of another version or language."""
        wanted = f"{tokens.ANALYSIS}:{self.language}"
        sql = "SELECT 1 FROM meta WHERE key = 'analysis' AND value = ?"
        if await self.database.rows(sql, (wanted,)):
            return
        for scope in await self.scopes():
            async with self.transaction(scope) as tx:
                await _update_terms(tx)
        sql = """INSERT INTO meta VALUES ('analysis', ?)
        ON CONFLICT (key) DO UPDATE SET value = excluded.value"""
        await execute(self.database, sql, (wanted,))


async def _update_terms(tx: Transaction) -> None:
    """Rewrite all memories of a scope with new terms. Missing fingerprints are computed, and
    memories without a vector are marked for embedding."""
    number, changed = await tx.next_revision()
    after = 0
    while page := await tx.rows(tx.scope, _TERMS, (after,)):
        after = page[-1][0]
        written = []
        for _, has_vector, *row in page:
            with suppress(StoreDamaged):  # `check` reports it; the others can still be found
                memory = rows.memory(row, tx.scope)
                updated = replace(
                    memory,
                    simhash=memory.simhash or normalize.simhash64(memory.text),
                    content_hash=memory.content_hash or normalize.content_hash(memory.text),
                    needs_embedding=memory.needs_embedding or not has_vector,
                )
                written.append((number, changed, *rows.row_values(updated, tx.language)))
        await tx.touch((rows.UPSERT, written))


@frozen
class MemoryAccess:
    """A memory was recalled. This does not create a revision or a history entry."""

    memory_id: str
    at: datetime
    scores: Mapping[str, Any]
    accessed: bool = True


async def record_access(tx: Transaction, uses: Sequence[MemoryAccess]) -> None:
    """Store when memories were recalled and with which scores."""
    number = await tx.number(tx.scope)
    values = []
    for use in uses:
        at = clock.iso(use.at)
        scores = rows.dump_json({**use.scores, "computed_at": at})
        values.append((scores, int(use.accessed), use.accessed, at, number, use.memory_id))
    await tx.write([(_ACCESSED, values)])
