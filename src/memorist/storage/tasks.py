"""Work queues in the store: tasks, and memories without a vector. A claim is a lease, so nothing is
done twice.

Tasks that were started before come last, since one may have crashed its worker. A lease that ends
later than one that starts now was granted before the clock was set back: it is ignored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import ceil
from typing import Any, Literal

from ..errors import RevisionConflict
from ..text import clock
from ..text.clock import new_id
from ..types import Memory, Scope, frozen
from . import rows
from .database import EVERY, Database, execute
from .queries import Reader, placeholders, portions
from .transaction import Transaction

Where = Literal["each", "one", "queued"]  # scopes that have a recurring task
MAX_ATTEMPTS = 8  # of a task with a key, before it is set aside
SEEDED = 1000  # scopes that get a recurring task in one transaction
RECENT = 1000  # events that the embedding statistics are computed from
_CLAIM = """
WITH free AS (
  SELECT m.scope, m.name, m.key FROM tasks m WHERE m.name IN ({names}) AND m.due_at <= ?
  AND (m.key = '' OR m.attempts < {most})
  AND (m.lease IS NULL OR m.until <= {now} OR m.until > {now} + ?)
  ORDER BY m.attempts, m.due_at, m.scope, m.name, m.key LIMIT ?
  {skip_locked})
UPDATE tasks SET lease = ?, until = {now} + ?, attempts = attempts + 1
WHERE (scope, name, key) IN (SELECT scope, name, key FROM free)
RETURNING (SELECT tenant FROM scopes WHERE id = tasks.scope),
  (SELECT user_id FROM scopes WHERE id = tasks.scope),
  (SELECT space FROM scopes WHERE id = tasks.scope), name, key, payload, due_at, attempts"""
_BACKLOG = """
SELECT name, count(CASE WHEN {free} AND NOT {aside} AND due_at <= ? THEN 1 END),
count(CASE WHEN NOT {free} THEN 1 END),
count(CASE WHEN {free} AND attempts > 0 THEN 1 END),
min(CASE WHEN {free} AND NOT {aside} AND due_at <= ? THEN due_at END),
count(CASE WHEN {free} AND {aside} THEN 1 END), NULL, NULL
FROM tasks GROUP BY name ORDER BY name"""
_FREE = "(lease IS NULL OR until <= {now})"
_ASIDE = f"(key <> '' AND attempts >= {MAX_ATTEMPTS})"
_UNSEEDED = """
SELECT s.tenant, s.user_id, s.space, s.id FROM scopes s
WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.scope = s.id AND t.name = ? AND t.key = '') {only}
ORDER BY s.id LIMIT ?"""
_ADD = """INSERT INTO tasks (scope, name, key, payload, due_at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (scope, name, key) DO """
_BE_EARLIER = """UPDATE SET due_at = excluded.due_at, payload = excluded.payload
WHERE tasks.due_at > excluded.due_at"""
_DISCARD = """DELETE FROM tasks WHERE scope = ? AND name = ? AND key = ? AND lease IS NULL
AND CAST(payload AS TEXT) = ?"""
_WAITING = """
SELECT count(*), min(updated_at), count(CASE WHEN EXISTS (
  SELECT 1 FROM claims c
  WHERE c.scope = m.scope AND c.memory = m.row AND c.until > {now}) THEN 1 END)
FROM memories m WHERE m.needs_embedding = 1 AND m.state <> 'soft_deleted'"""
_EMBEDDED = """
SELECT e.status, e.ts, m.created_at, m.updated_at FROM events e
LEFT JOIN memories m ON m.scope = e.scope AND m.id = e.memory_id
WHERE e.node = 'worker' AND e.op = 'embed' ORDER BY e.ts DESC LIMIT ?"""
_COLUMNS = ", ".join(f"m.{name}" for name in rows.COLUMNS)
_MEMORIES = f"""SELECT s.tenant, s.user_id, s.space, m.row, {_COLUMNS}
FROM memories m JOIN scopes s ON s.id = m.scope"""
_UNEMBEDDED = """AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.scope = m.scope
AND v.memory = m.row AND v.model = ? AND v.dims = coalesce(?, v.dims))"""
_CLAIM_MEMORIES = """
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


@frozen
class NewTask:
    """Work to do in a scope. If the same task is queued already, the earlier time counts."""

    name: str
    due_at: datetime
    key: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)


@frozen
class Task:
    """A claimed task, until its lease ends."""

    scope: Scope
    name: str
    key: str  # what it is about; empty for a recurring task
    payload: Mapping[str, Any]  # ids and numbers, never text, which could be forgotten
    due_at: datetime
    attempts: int  # how often it was started, including this time
    lease: str  # id of this claim


@frozen
class Backlog:
    """The number of queued tasks of one name."""

    name: str
    waiting: int  # due and not claimed
    running: int  # claimed
    failing: int  # started before and not finished
    oldest: datetime | None  # when the oldest one became due
    set_aside: int = 0  # of the failing: started too often, until `run_jobs(retry=True)`
    p95_seconds: float | None = None  # embedding: from storing to having a vector, recently
    failure_rate: float | None = None  # embedding: share of recent batches that failed


@frozen
class Embedding:
    """The vector of a memory that was stored without one."""

    memory_id: str
    model: str
    vector: Any  # float32


@dataclass(frozen=True, slots=True)
class Tasks:
    """Hands out the tasks of all scopes."""

    database: Database
    reader: Reader

    async def claim(
        self,
        names: Sequence[str],
        *,
        now: datetime,
        limit: int,
        lease_seconds: float,
    ) -> list[Task]:
        """Claim due tasks of these names in all scopes.

        Longest due first, but those that were started before come last, so that none blocks the
        others. One with a key that was started eight times and never finished is set aside.
        """
        dialect = self.database.dialect
        lease = new_id()
        sql = _CLAIM.format(
            names=placeholders(names),
            now=dialect.now,
            most=MAX_ATTEMPTS,
            skip_locked=dialect.skip_locked,
        )
        values = (*names, clock.iso(now), lease_seconds, limit, lease, lease_seconds)
        found = await execute(self.database, sql, values, scope=EVERY)
        tasks = [rows.parse(Task, (rows.scope_of(row), *row[3:], lease)) for row in found]
        return sorted(tasks, key=lambda task: (task.due_at, task.name, task.key))

    async def renew(self, task: Task, *, lease_seconds: float) -> bool:
        """Extend the lease of a task. Return False if it was lost or finished."""
        sql = f"UPDATE tasks SET until = {self.database.dialect.now} + ?"
        return await self._update(task, sql, lease_seconds)

    async def postpone(self, task: Task, *, due_at: datetime, failed: bool = True) -> None:
        """Give a task back until later. One that did not fail counts as not started."""
        sql = "UPDATE tasks SET due_at = ?, attempts = attempts - ?, lease = NULL, until = NULL"
        await self._update(task, sql, clock.iso(due_at), 0 if failed else 1)

    async def _update(self, task: Task, sql: str, *values: object) -> bool:
        """Update a claimed task. Return False if its lease was lost."""
        number = await self.reader.number(task.scope)
        sql += " WHERE scope = ? AND name = ? AND key = ? AND lease = ? RETURNING key"
        key = (number, task.name, task.key, task.lease)
        return bool(await execute(self.database, sql, (*values, *key), scope=number))

    async def seed(
        self,
        name: str,
        *,
        due: Callable[[Scope], datetime],
        latest: datetime,
        where: Where = "each",
    ) -> int:
        """Add a recurring task to scopes that lack it, unless writes queue it; return how many.

        A task due after `latest` was postponed by a clock that was ahead: it becomes due then.
        """
        late = f"""UPDATE tasks SET due_at = ? WHERE name = ? AND key = '' AND due_at > ?
        AND {self._free}"""
        until = clock.iso(latest)
        await execute(self.database, late, (until, name, until), scope=EVERY)
        only = "AND s.id = (SELECT min(id) FROM scopes)" if where == "one" else ""
        sql = _UNSEEDED.format(only=only)
        total = 0
        is_left = where != "queued"
        while is_left:
            async with self.database.transaction() as connection:
                found = await connection.rows(sql, (name, SEEDED), scope=EVERY)
                new = [(r[3], name, "", "{}", clock.iso(due(rows.scope_of(r)))) for r in found]
                if new:
                    await connection.run([(_ADD + "NOTHING", new)], scope=EVERY)
            total += len(found)
            is_left = len(found) == SEEDED
        return total

    async def has_due(self, name: str, now: datetime) -> bool:
        """Return whether a task of this name can be claimed, without writing."""
        sql = (
            f"SELECT 1 FROM tasks WHERE name = ? AND due_at <= ? AND {self._free} AND NOT {_ASIDE}"
        )
        return bool(await self.database.rows(f"{sql} LIMIT 1", (name, clock.iso(now)), scope=EVERY))

    async def bring_forward(self, name: str, now: datetime, until: datetime) -> None:
        """Make recurring tasks due now that are due by `until`, except those that failed."""
        sql = f"""UPDATE tasks SET due_at = ? WHERE name = ? AND key = '' AND attempts = 0
        AND due_at > ? AND due_at <= ? AND {self._free}"""
        at = clock.iso(now)
        await execute(self.database, sql, (at, name, at, clock.iso(until)), scope=EVERY)

    async def retry(self, names: Sequence[str], *, now: datetime) -> int:
        """Make tasks that were set aside due again; return how many."""
        if not names:
            return 0
        sql = f"""UPDATE tasks SET attempts = 0, due_at = ? WHERE name IN ({placeholders(names)})
        AND {_ASIDE} AND {self._free} RETURNING key"""
        return len(await execute(self.database, sql, (clock.iso(now), *names), scope=EVERY))

    @property
    def _free(self) -> str:
        return _FREE.format(now=self.database.dialect.now)

    async def backlog(self, now: datetime) -> list[Backlog]:
        """Count the queued tasks by name; those of `embed` are memories without a vector."""
        at = clock.iso(now)
        found, ((waiting, oldest, running),), recent = await self.database.read(
            [
                (_BACKLOG.format(free=self._free, aside=_ASIDE), (at, at)),
                (_WAITING.format(now=self.database.dialect.now), ()),
                (_EMBEDDED, (RECENT,)),
            ],
            scope=EVERY,
        )
        if waiting or recent:
            times: dict[str, set[str]] = defaultdict(set)  # of batches, by status
            for row in recent:
                times[row[0]].add(row[1])
            tried = len(times["ok"] | times["error"])
            rate = len(times["error"]) / tried if tried else None
            seconds = _p95([_seconds_to_embed(row) for row in recent if row[2]])
            embed = ("embed", waiting - running, running, 0, oldest, 0, seconds, rate)
            found.insert(0, embed)
        return rows.parse_all(Backlog, found)


async def add(tx: Transaction, *tasks: NewTask, once: bool = False) -> None:
    """Add tasks in the transaction's scope; with `once`, leave those that are queued alone."""
    if not tasks:
        return
    await tx.create_scope()
    values = [(t.name, t.key, rows.dump_json(t.payload), clock.iso(t.due_at)) for t in tasks]
    await tx.write_each(_ADD + ("NOTHING" if once else _BE_EARLIER), values)


async def finish(tx: Transaction, task: Task, *, again_at: datetime | None = None) -> None:
    """Finish a claimed task in this transaction, permanently or until it is due again.

    Raises RevisionConflict if the lease was lost; then the transaction is rolled back.
    """
    number = await tx.number(tx.scope)
    sql = "DELETE FROM tasks"
    values: tuple[Any, ...] = (number, task.name, task.key, task.lease)
    if again_at is not None:
        sql = "UPDATE tasks SET due_at = ?, attempts = 0, lease = NULL"
        values = (clock.iso(again_at), *values)
    sql += " WHERE scope = ? AND name = ? AND key = ? AND lease = ? RETURNING key"
    if not await tx.connection.rows(sql, values, scope=number):
        message = f"The task {task.name!r} was given to another worker in the meantime"
        tx.failure = RevisionConflict(message)
        raise tx.failure


async def discard(tx: Transaction, task: NewTask) -> None:
    """Remove a task that nobody has claimed, because its work was done otherwise."""
    await tx.write_each(_DISCARD, [(task.name, task.key, rows.dump_json(task.payload))])


def _seconds_to_embed(row: Sequence[Any]) -> float:
    """Return the seconds between storing the text of a memory and storing its vector."""
    at, created, updated = map(rows.parse_time, row[1:4])
    return max(0.0, (at - (updated if updated <= at else created)).total_seconds())


def _p95(values: Sequence[float]) -> float | None:
    """Return the 95th percentile.

    >>> _p95([float(n) for n in range(1, 101)])
    95.0
    """
    return sorted(values)[ceil(0.95 * len(values)) - 1] if values else None


@dataclass(frozen=True, slots=True)
class EmbeddingQueue:
    """Hands out memories of all scopes that need a vector."""

    database: Database

    async def count(
        self,
        model: str,
        *,
        everything: bool = False,
        dimensions: int | None = None,
    ) -> int:
        """Count the memories that this model has not embedded yet, in this size, or all memories."""
        only, values = ("", ()) if everything else (_UNEMBEDDED, (model, dimensions))
        sql = f"SELECT count(*) FROM memories m WHERE m.state <> 'soft_deleted' {only}"
        found = await self.database.rows(sql, values, scope=EVERY)
        return int(found[0][0])

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
        """Claim the memories that `count` counts, by row number. Those that are not embedded when
        the lease ends can be claimed again.

        `waiting` selects only those that no model has embedded, which is fast in a large store.
        """
        only, values = ("", ()) if everything else (_UNEMBEDDED, (model, dimensions))
        only = f"AND m.needs_embedding = 1 {only}" if waiting else only
        dialect = self.database.dialect
        sql = _CLAIM_MEMORIES.format(
            only=only, now=dialect.now, row=dialect.row, skip_locked=dialect.skip_locked
        )
        free = (after, *values, model, worker, lease_seconds, limit)
        claim = (model, worker, lease_seconds, lease_seconds)
        claimed: list[tuple[int, Memory]] = []
        async with self.database.transaction() as connection:
            found = await connection.rows(sql, (*free, *claim), scope=EVERY)
            numbers = sorted(row[0] for row in found)
            for some in portions(numbers):
                sql = f"""{_MEMORIES} WHERE {dialect.row} IN ({placeholders(some)})
                ORDER BY {dialect.row}"""
                page = await connection.rows(sql, some, scope=EVERY)
                for row in page:
                    memory = rows.memory(row[4:], rows.scope_of(row))
                    claimed.append((row[3], memory))
        return claimed

    async def release(self, worker: str) -> None:
        """Release the claims of a worker."""
        sql = "DELETE FROM claims WHERE worker = ?"
        await execute(self.database, sql, (worker,), scope=EVERY)

    async def drop_vectors(self, *keep: str) -> int:
        """Delete the vectors of all models but these; return how many."""
        others = f"FROM vectors WHERE model NOT IN ({placeholders(keep)})"
        queries = [(f"SELECT count(*) {others}", keep), (f"DELETE {others}", keep)]
        async with self.database.transaction() as connection:
            counted, _ = await connection.read(queries, scope=EVERY)
        return int(counted[0][0])


async def save_embeddings(
    tx: Transaction,
    made: Sequence[Embedding],
    *,
    second: bool = False,
) -> None:
    """Store vectors of memories that were stored without one; `second`: of the second model."""
    if not made:
        return
    number, changed = await tx.next_revision()
    ids = [each.memory_id for each in made]
    vectors = [rows.vector_row(each.model, each.vector, number, each.memory_id) for each in made]
    done = []
    for memory in await tx.get(tx.scope, ids):
        needs = memory.needs_embedding and second  # the first model is still missing
        row_hash = rows.values(replace(memory, needs_embedding=needs))[len(rows.HASHED)]
        done.append((int(needs), row_hash, changed, number, memory.id))
    sql = """UPDATE memories SET needs_embedding = ?, row_hash = ?, changed = ?
    WHERE scope = ? AND id = ?"""
    await tx.touch((rows.INSERT_VECTOR, vectors), (sql, done))
