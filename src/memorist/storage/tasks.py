"""Tasks that wait in the store. A claim is a lease, so nothing is done twice.

A task that was begun before, and perhaps killed its worker, comes after those that were not. A
lease that ends later than one could that begins now was given before the clock was set back: it
counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil
from typing import Any

from ..errors import RevisionConflict
from ..text import clock
from ..text.clock import new_id
from ..types import Scope
from . import rows
from .database import EVERY, Database
from .filters import placeholders
from .history import dump_json
from .queries import Reader
from .transaction import Transaction

MAX_ATTEMPTS = 8  # of a task with a key, before it is set aside
SEEDED = 1000  # scopes that get a recurring task at a time
RECENT = 1000  # events from which the figures of embedding come
_CLAIM = """
WITH free AS (
  SELECT m.scope, m.name, m.key FROM tasks m WHERE m.name IN ({names}) AND m.due_at <= ?
  AND (m.key = '' OR m.attempts < {most})
  AND (m.lease IS NULL OR m.until <= {now} OR m.until > {now} + ?)
  ORDER BY m.attempts, m.due_at, m.scope, m.name, m.key LIMIT ?
  {skip_locked})
UPDATE tasks SET lease = ?, until = {now} + ?, attempts = attempts + 1
WHERE (scope, name, key) IN (SELECT scope, name, key FROM free)
RETURNING scope, name, key, payload, due_at, attempts"""
_BACKLOG = """
SELECT name, count(CASE WHEN {free} AND NOT {aside} AND due_at <= ? THEN 1 END),
count(CASE WHEN NOT {free} THEN 1 END),
count(CASE WHEN {free} AND attempts > 0 THEN 1 END), count(CASE WHEN {free} AND {aside} THEN 1 END),
min(CASE WHEN {free} AND NOT {aside} AND due_at <= ? THEN due_at END)
FROM tasks GROUP BY name ORDER BY name"""
_FREE = "(lease IS NULL OR until <= {now})"
_ASIDE = f"(key <> '' AND attempts >= {MAX_ATTEMPTS})"
_UNSEEDED = """
SELECT s.id, s.tenant, s.user_id, s.space FROM scopes s
WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.scope = s.id AND t.name = ? AND t.key = '') {only}
ORDER BY s.id LIMIT ?"""
_WAITING = """
SELECT count(*), min(updated_at), count(CASE WHEN EXISTS (
  SELECT 1 FROM claims c
  WHERE c.scope = m.scope AND c.memory = m.row AND c.until > {now}) THEN 1 END)
FROM memories m WHERE m.needs_embedding = 1 AND m.state <> 'soft_deleted'"""
_EMBEDDED = """
SELECT e.status, e.ts, m.created_at, m.updated_at FROM events e
LEFT JOIN memories m ON m.scope = e.scope AND m.id = e.memory_id
WHERE e.node = 'worker' AND e.op = 'embed' ORDER BY e.ts DESC LIMIT ?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTask:
    """Work to do in a scope at some time. If the same waits already, the earlier time counts."""

    name: str
    due_at: datetime
    key: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A task that was claimed, until its lease ends."""

    scope: Scope
    name: str
    key: str  # what it is about; empty for a recurring task
    payload: Mapping[str, Any]  # ids and numbers, never text, which could be forgotten meanwhile
    due_at: datetime
    attempts: int  # how often it was begun, this time included
    lease: str  # names this claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """How many tasks of one name wait."""

    name: str
    waiting: int  # due and not claimed
    running: int  # claimed
    failing: int  # begun before and not finished
    oldest: datetime | None  # since when the oldest one is due
    set_aside: int = (
        0  # of the failing: begun too often, until `run_jobs(retry=True)` tries them again
    )
    p95_seconds: float | None = None  # of embedding: from being stored to having a vector, recently
    failure_rate: float | None = None  # of embedding: the share of batches that failed, recently


class Tasks:
    """Hands out the tasks of all scopes."""

    def __init__(self, database: Database, reader: Reader) -> None:
        self._database = database
        self._reader = reader

    async def claim(
        self, names: Sequence[str], *, now: datetime, limit: int, lease_seconds: float
    ) -> list[Task]:
        """Claim tasks of these names that are due, in all scopes, for so long.

        Longest due first, but those that were begun before come last, so that none holds up the
        others. One with a key that was begun eight times without being finished is set aside:
        nobody gets it.
        """
        dialect = self._database.dialect
        lease = new_id()
        sql = _CLAIM.format(
            names=placeholders(len(names)),
            now=dialect.now,
            most=MAX_ATTEMPTS,
            skip_locked=dialect.skip_locked,
        )
        values = (*names, clock.iso(now), lease_seconds, limit, lease, lease_seconds)
        async with self._database.transaction() as connection:
            found = await connection.rows(sql, values, scope=EVERY)
            numbers = sorted({row[0] for row in found})
            sql = "SELECT id, tenant, user_id, space FROM scopes WHERE id IN "
            scopes = []
            if numbers:
                scopes = await connection.rows(f"{sql}({placeholders(len(numbers))})", numbers)
        owners = {id: Scope(tenant=t, user=u, space=s) for id, t, u, s in scopes}
        claimed = []
        for scope, name, key, payload, due_at, attempts in found:
            claimed.append(
                Task(
                    scope=owners[scope],
                    name=name,
                    key=key,
                    payload=rows.loaded(payload),
                    due_at=rows.moment(due_at),
                    attempts=attempts,
                    lease=lease,
                )
            )
        return sorted(claimed, key=lambda task: (task.due_at, task.name, task.key))

    async def renew(self, task: Task, *, lease_seconds: float) -> bool:
        """Extend the lease of a task; False if it was lost or finished."""
        sql = f"UPDATE tasks SET until = {self._database.dialect.now} + ? "
        return await self._update(task, sql, lease_seconds)

    async def postpone(self, task: Task, *, due_at: datetime, failed: bool = True) -> None:
        """Give a task back for a later time, unless its lease was lost. One that did not fail
        counts as not begun."""
        sql = "UPDATE tasks SET due_at = ?, attempts = attempts - ?, lease = NULL, until = NULL "
        await self._update(task, sql, clock.iso(due_at), 0 if failed else 1)

    async def _update(self, task: Task, sql: str, *values: object) -> bool:
        """Update a claimed task; False if its lease was lost."""
        number = await self._reader.number(task.scope)
        sql += "WHERE scope = ? AND name = ? AND key = ? AND lease = ? RETURNING key"
        key = (number, task.name, task.key, task.lease)
        async with self._database.transaction() as connection:
            return bool(await connection.rows(sql, (*values, *key), scope=number))

    async def seed(
        self, name: str, *, due: Callable[[Scope], datetime], latest: datetime, whole: bool = False
    ) -> int:
        """Give a recurring task to each scope that lacks it, or to one scope for all; return how
        many got one.

        One that is due after `latest` was postponed by a clock that was ahead: it is due then.
        """
        late = "UPDATE tasks SET due_at = ? WHERE name = ? AND key = '' AND due_at > ? AND "
        until = (clock.iso(latest), name, clock.iso(latest))
        async with self._database.transaction() as connection:
            await connection.rows(late + self._free(), until, scope=EVERY)
        sql = _UNSEEDED.format(only="AND s.id = (SELECT min(id) FROM scopes)" if whole else "")
        add = (
            "INSERT INTO tasks (scope, name, key, payload, due_at) VALUES (?, ?, '', '{}', ?) "
            "ON CONFLICT DO NOTHING"
        )
        total = 0
        while True:
            async with self._database.transaction() as connection:
                found = await connection.rows(sql, (name, SEEDED), scope=EVERY)
                new = []
                for id, tenant, user, space in found:
                    at = due(Scope(tenant=tenant, user=user, space=space))
                    new.append((id, name, clock.iso(at)))
                if new:
                    await connection.run([(add, new)], scope=EVERY)
            total += len(found)
            if len(found) < SEEDED:
                return total

    async def retry(self, names: Sequence[str], *, now: datetime) -> int:
        """Make tasks that were set aside due again; return how many there were."""
        if not names:
            return 0
        sql = (
            f"UPDATE tasks SET attempts = 0, due_at = ? WHERE name IN ({placeholders(len(names))}) "
        )
        sql += f"AND {_ASIDE} AND {self._free()} RETURNING key"
        async with self._database.transaction() as connection:
            return len(await connection.rows(sql, (clock.iso(now), *names), scope=EVERY))

    def _free(self) -> str:
        return _FREE.format(now=self._database.dialect.now)

    async def backlog(self, now: datetime) -> list[Backlog]:
        """Return how many tasks wait, by name, in all scopes; `embed` counts memories without a
        vector."""
        at = clock.iso(now)
        found, ((waiting, oldest, running),), recent = await self._database.read(
            [
                (_BACKLOG.format(free=self._free(), aside=_ASIDE), (at, at)),
                (_WAITING.format(now=self._database.dialect.now), ()),
                (_EMBEDDED, (RECENT,)),
            ],
            scope=EVERY,
        )
        backlogs = []
        if waiting or recent:
            failed = {row[1] for row in recent if row[0] == "error"}
            tried = {row[1] for row in recent if row[0] in ("ok", "error")}
            backlogs.append(
                Backlog(
                    name="embed",
                    waiting=waiting - running,
                    running=running,
                    failing=0,
                    oldest=rows.moment(oldest) if oldest else None,
                    p95_seconds=_p95([_seconds_to_embed(row) for row in recent if row[2]]),
                    failure_rate=len(failed) / len(tried) if tried else None,
                )
            )
        for name, waiting, running, failing, aside, oldest in found:
            backlogs.append(
                Backlog(
                    name=name,
                    waiting=waiting,
                    running=running,
                    failing=failing,
                    set_aside=aside,
                    oldest=rows.moment(oldest) if oldest else None,
                )
            )
        return backlogs


async def add(tx: Transaction, *tasks: NewTask) -> None:
    """Add tasks in the transaction's scope."""
    if not tasks:
        return
    number = await tx.create_scope()
    sql = (
        "INSERT INTO tasks (scope, name, key, payload, due_at) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (scope, name, key) DO UPDATE SET due_at = excluded.due_at, "
        "payload = excluded.payload WHERE tasks.due_at > excluded.due_at"
    )
    values = [
        (number, task.name, task.key, dump_json(task.payload), clock.iso(task.due_at))
        for task in tasks
    ]
    await tx.write([(sql, values)])


async def finish(tx: Transaction, task: Task, *, again_at: datetime | None = None) -> None:
    """Finish a claimed task with this transaction, for good or until it is due again.

    Raises RevisionConflict if its lease was lost; then nothing of the transaction is committed.
    """
    number = await tx.number(tx.scope)
    sql = "DELETE FROM tasks"
    values: tuple[Any, ...] = (number, task.name, task.key, task.lease)
    if again_at is not None:
        sql = "UPDATE tasks SET due_at = ?, attempts = 0, lease = NULL"
        values = (clock.iso(again_at), *values)
    sql += " WHERE scope = ? AND name = ? AND key = ? AND lease = ? RETURNING key"
    if not await tx.connection.rows(sql, values, scope=number):
        tx.failure = RevisionConflict(
            f"The task {task.name!r} was given to another worker in the meantime"
        )
        raise tx.failure


def _seconds_to_embed(row: Sequence[Any]) -> float:
    """Return the seconds from when a memory got its text to when it got its vector."""
    at, created, updated = (rows.moment(each) for each in row[1:4])
    return max(0.0, (at - (updated if updated <= at else created)).total_seconds())


def _p95(values: Sequence[float]) -> float | None:
    """Return the value that 95 in 100 do not exceed.

    >>> _p95([float(n) for n in range(1, 101)])
    95.0
    """
    return sorted(values)[ceil(0.95 * len(values)) - 1] if values else None
