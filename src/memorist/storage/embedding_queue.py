"""Memories that a model has not embedded yet. A claim is a lease, so none is embedded twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..types import Memory, Scope
from . import rows
from .database import EVERY, Database
from .filters import placeholders, portions
from .transaction import INSERT_VECTOR, Transaction, vector_row

_COLUMNS = ", ".join(f"m.{column}" for column in rows.COLUMNS)
_MEMORIES = (
    f"SELECT s.tenant, s.user_id, s.space, m.row, {_COLUMNS} "
    "FROM memories m JOIN scopes s ON s.id = m.scope"
)
_UNEMBEDDED = (
    "NOT EXISTS (SELECT 1 FROM vectors v WHERE v.scope = m.scope AND v.memory = m.row AND v.model "
    "= ? "
    "AND v.dims = coalesce(?, v.dims))"
)
_CLAIM = """
WITH free AS (
  SELECT m.scope, m.row FROM memories m
  WHERE {row} > ? AND m.state <> 'soft_deleted' {only} AND NOT EXISTS (
    SELECT 1 FROM claims c
    WHERE c.scope = m.scope AND c.memory = m.row AND c.model = ? AND c.worker <> ?
    AND c.until > {now} AND c.until <= {now} + ?)
  ORDER BY {row} LIMIT ? {skip_locked})
INSERT INTO claims (scope, memory, model, worker, until)
SELECT scope, row, ?, ?, {now} + ? FROM free WHERE 1 = 1
ON CONFLICT (scope, memory, model) DO UPDATE SET worker = excluded.worker, until = excluded.until
WHERE claims.worker = excluded.worker OR claims.until <= {now} OR claims.until > {now} + ?
RETURNING memory"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """The vector of a memory that was stored without one."""

    memory_id: str
    model: str
    vector: Any  # float32


class EmbeddingQueue:
    """Hands out memories of all scopes that need a vector."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def pending(
        self,
        model: str,
        *,
        limit: int,
        everything: bool = False,
        after: int = 0,
        dimensions: int | None = None,
    ) -> list[tuple[int, Memory]]:
        """Return memories that this model has not embedded yet (or all of them), by row number.

        Where `dimensions` are given, a vector of another size counts as none.
        """
        only, values = ("", ()) if everything else (f"AND {_UNEMBEDDED}", (model, dimensions))
        row = self._database.dialect.row
        sql = f"{_MEMORIES} WHERE {row} > ? AND m.state <> 'soft_deleted' {only} "
        sql += f"ORDER BY {row} LIMIT ?"
        found = await self._database.rows(sql, (after, *values, limit), scope=EVERY)
        return [_parse(row) for row in found]

    async def claim(
        self,
        model: str,
        *,
        worker: str,
        limit: int,
        lease_seconds: float,
        everything: bool = False,
        waiting: bool = False,
        after: int = 0,
        dimensions: int | None = None,
    ) -> list[tuple[int, Memory]]:
        """Claim memories as `pending` returns them; after the lease, those that were not embedded
        are free again.

        `waiting` asks only for those that no model has embedded, which is fast however many others
        there are.
        """
        only, values = ("", ()) if everything else (f"AND {_UNEMBEDDED}", (model, dimensions))
        only = f"AND m.needs_embedding = 1 {only}" if waiting else only
        dialect = self._database.dialect
        sql = _CLAIM.format(
            only=only, now=dialect.now, row=dialect.row, skip_locked=dialect.skip_locked
        )
        free = (after, *values, model, worker, lease_seconds, limit)
        claimed: list[tuple[int, Memory]] = []
        async with self._database.transaction() as connection:
            found = await connection.rows(
                sql, (*free, model, worker, lease_seconds, lease_seconds), scope=EVERY
            )
            for some in portions(sorted(row[0] for row in found)):
                marks = placeholders(len(some))
                sql = f"{_MEMORIES} WHERE {dialect.row} IN ({marks}) ORDER BY {dialect.row}"
                page = await connection.rows(sql, some, scope=EVERY)
                claimed += [_parse(row) for row in page]
        return claimed

    async def release(self, worker: str) -> None:
        """Give back what this worker has claimed."""
        async with self._database.transaction() as connection:
            await connection.rows("DELETE FROM claims WHERE worker = ?", (worker,), scope=EVERY)

    async def drop_vectors(self, keep: str) -> int:
        """Delete the vectors of all models but one; return how many there were."""
        async with self._database.transaction() as connection:
            counted, _ = await connection.read(
                [
                    ("SELECT count(*) FROM vectors WHERE model <> ?", (keep,)),
                    ("DELETE FROM vectors WHERE model <> ?", (keep,)),
                ],
                scope=EVERY,
            )
        return int(counted[0][0])


async def save(tx: Transaction, made: Sequence[Embedding]) -> None:
    """Store vectors of memories that had none."""
    if not made:
        return
    number, changed = await tx.next_revision()
    vectors = [vector_row(each.model, each.vector, number, each.memory_id) for each in made]
    done = []
    for memory in await tx.get(tx.scope, [each.memory_id for each in made]):
        row_hash = rows.values(replace(memory, needs_embedding=False))[len(rows.HASHED)]
        done.append((row_hash, changed, number, memory.id))
    sql = (
        "UPDATE memories SET needs_embedding = 0, row_hash = ?, changed = ? WHERE scope = ? "
        "AND id = ?"
    )
    await tx.touch((INSERT_VECTOR, vectors), (sql, done))


def _parse(row: Sequence[Any]) -> tuple[int, Memory]:
    """Return the row number and the memory in a row of `_MEMORIES`."""
    scope = Scope(tenant=row[0], user=row[1], space=row[2])
    return row[3], rows.memory(row[4:], scope)
