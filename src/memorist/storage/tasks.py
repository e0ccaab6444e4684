"""Work that waits in the store: memories without a vector, and tasks. A claim is a lease, so nothing is done twice.

What was begun before, and perhaps ended whoever began it, comes after what was not.
A lease that ends later than one could that begins now was given before the clock was set back: it counts for nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from math import ceil
from typing import Any

from ..results import Backlog, Task
from ..text import clock
from ..text.clock import new_id
from ..types import Memory, Scope
from . import rows
from .database import EVERY, Session
from .queries import Readings

MOST_BEGUN = 8  # times that work with a key is begun before it is set aside
SEEDED = 1000  # scopes that get a duty at a time
LATELY = 1000  # events from which the figures of embedding come
_PAGE = 500
_COLUMNS = ", ".join(f"m.{column}" for column in rows.COLUMNS)
_WHOSE = f"SELECT s.tenant, s.user_id, s.space, m.row, {_COLUMNS} FROM memories m JOIN scopes s ON s.id = m.scope"
_UNSEEN = (
    "NOT EXISTS (SELECT 1 FROM vectors v WHERE v.scope = m.scope AND v.memory = m.row AND v.model = ? "
    "AND v.dims = coalesce(?, v.dims))"
)
_CLAIM = """
WITH free AS (
  SELECT m.scope, m.row FROM memories m WHERE {row} > ? AND m.state <> 'soft_deleted' {only} AND NOT EXISTS (
    SELECT 1 FROM claims c WHERE c.scope = m.scope AND c.memory = m.row AND c.model = ? AND c.worker <> ?
    AND c.until > {now} AND c.until <= {now} + ?)
  ORDER BY {row} LIMIT ? {skip_locked})
INSERT INTO claims (scope, memory, model, worker, until) SELECT scope, row, ?, ?, {now} + ? FROM free WHERE 1 = 1
ON CONFLICT (scope, memory, model) DO UPDATE SET worker = excluded.worker, until = excluded.until
WHERE claims.worker = excluded.worker OR claims.until <= {now} OR claims.until > {now} + ?
RETURNING memory"""

_CLAIM_TASKS = """
WITH free AS (
  SELECT m.scope, m.name, m.key FROM tasks m WHERE m.name IN ({names}) AND m.due_at <= ?
  AND (m.key = '' OR m.attempts < {most}) AND (m.lease IS NULL OR m.until <= {now} OR m.until > {now} + ?)
  ORDER BY m.attempts, m.due_at, m.scope, m.name, m.key LIMIT ?
  {skip_locked})
UPDATE tasks SET lease = ?, until = {now} + ?, attempts = attempts + 1
WHERE (scope, name, key) IN (SELECT scope, name, key FROM free)
RETURNING scope, name, key, payload, due_at, attempts"""
_BACKLOG = """
SELECT name, count(CASE WHEN {free} AND NOT {aside} AND due_at <= ? THEN 1 END), count(CASE WHEN NOT {free} THEN 1 END),
count(CASE WHEN {free} AND attempts > 0 THEN 1 END), count(CASE WHEN {free} AND {aside} THEN 1 END),
min(CASE WHEN {free} AND NOT {aside} AND due_at <= ? THEN due_at END)
FROM tasks GROUP BY name ORDER BY name"""
_FREE = "(lease IS NULL OR until <= {now})"
_ASIDE = f"(key <> '' AND attempts >= {MOST_BEGUN})"
_UNSEEDED = """
SELECT s.id, s.tenant, s.user_id, s.space FROM scopes s
WHERE NOT EXISTS (SELECT 1 FROM tasks t WHERE t.scope = s.id AND t.name = ? AND t.key = '') {only}
ORDER BY s.id LIMIT ?"""
_WAITING = """
SELECT count(*), min(updated_at), count(CASE WHEN EXISTS (
  SELECT 1 FROM claims c WHERE c.scope = m.scope AND c.memory = m.row AND c.until > {now}) THEN 1 END)
FROM memories m WHERE m.needs_embedding = 1 AND m.state <> 'soft_deleted'"""
_EMBEDDED = """
SELECT e.status, e.ts, m.created_at, m.updated_at FROM events e
LEFT JOIN memories m ON m.scope = e.scope AND m.id = e.memory_id
WHERE e.node = 'worker' AND e.op = 'embed' ORDER BY e.ts DESC LIMIT ?"""


class Together(Readings, ABC):
    """What can write to all scopes at once."""

    @abstractmethod
    def _together(self) -> AbstractAsyncContextManager[Session]:
        """A transaction over all scopes."""


class Work(Together):
    """The part of a store that hands out work."""

    async def unembedded(
        self,
        model: str,
        *,
        limit: int,
        everything: bool = False,
        after: int = 0,
        dimensions: int | None = None,
    ) -> list[tuple[int, Memory]]:
        only, values = ("", ()) if everything else (f"AND {_UNSEEN}", (model, dimensions))
        row = self._session.dialect.row
        sql = (
            f"{_WHOSE} WHERE {row} > ? AND m.state <> 'soft_deleted' {only} ORDER BY {row} LIMIT ?"
        )
        found = await self._session.rows(sql, (after, *values, limit), scope=EVERY)
        return [(row[3], _owned(row)) for row in found]

    async def claim_unembedded(
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
        only, values = ("", ()) if everything else (f"AND {_UNSEEN}", (model, dimensions))
        only = f"AND m.needs_embedding = 1 {only}" if waiting else only
        dialect = self._session.dialect
        sql = _CLAIM.format(
            only=only, now=dialect.now, row=dialect.row, skip_locked=dialect.skip_locked
        )
        free = (after, *values, model, worker, lease_seconds, limit)
        async with self._together() as session:
            found = await session.rows(
                sql, (*free, model, worker, lease_seconds, lease_seconds), scope=EVERY
            )
            numbers = sorted(row[0] for row in found)
            return [
                each
                for start in range(0, len(numbers), _PAGE)
                for each in await _at(session, numbers[start : start + _PAGE])
            ]

    async def release(self, worker: str) -> None:
        async with self._together() as session:
            await session.rows("DELETE FROM claims WHERE worker = ?", (worker,), scope=EVERY)

    async def claim_tasks(
        self, names: Sequence[str], *, now: datetime, limit: int, lease_seconds: float
    ) -> list[Task]:
        dialect, lease = self._session.dialect, new_id()
        sql = _CLAIM_TASKS.format(
            names=", ".join("?" * len(names)),
            now=dialect.now,
            most=MOST_BEGUN,
            skip_locked=dialect.skip_locked,
        )
        async with self._together() as session:
            values = (*names, clock.iso(now), lease_seconds, limit, lease, lease_seconds)
            found = await session.rows(sql, values, scope=EVERY)
            whose = await _scopes(session, {row[0] for row in found})
        made = [
            Task(
                scope=whose[scope],
                name=name,
                key=key,
                payload=rows.loaded(payload),
                due_at=rows.moment(due_at),
                attempts=attempts,
                lease=lease,
            )
            for scope, name, key, payload, due_at, attempts in found
        ]
        return sorted(made, key=lambda task: (task.due_at, task.name, task.key))

    async def renew(self, task: Task, *, lease_seconds: float) -> bool:
        sql = f"UPDATE tasks SET until = {self._session.dialect.now} + ? "
        return bool(await self._held(task, sql, lease_seconds))

    async def postpone(self, task: Task, *, due_at: datetime, failed: bool = True) -> None:
        sql = "UPDATE tasks SET due_at = ?, attempts = attempts - ?, lease = NULL, until = NULL "
        await self._held(task, sql, clock.iso(due_at), 0 if failed else 1)

    async def _held(self, task: Task, sql: str, *values: object) -> list[Any]:
        """Change claimed work, if it still is whose it was."""
        number = await self.number(task.scope)
        where = "WHERE scope = ? AND name = ? AND key = ? AND lease = ? RETURNING key"
        async with self._together() as session:
            return await session.rows(
                sql + where, (*values, number, task.name, task.key, task.lease), scope=number
            )

    async def seed(
        self, name: str, *, due: Callable[[Scope], datetime], latest: datetime, whole: bool = False
    ) -> int:
        late = f"UPDATE tasks SET due_at = ? WHERE name = ? AND key = '' AND due_at > ? AND {self._free}"
        async with self._together() as session:
            await session.rows(late, (clock.iso(latest), name, clock.iso(latest)), scope=EVERY)
        made = new = await self._seed(name, due, whole)
        while new == SEEDED:
            new = await self._seed(name, due, whole)
            made += new
        return made

    async def _seed(self, name: str, due: Callable[[Scope], datetime], whole: bool) -> int:
        sql = _UNSEEDED.format(only="AND s.id = (SELECT min(id) FROM scopes)" if whole else "")
        add = "INSERT INTO tasks (scope, name, key, payload, due_at) VALUES (?, ?, '', '{}', ?) ON CONFLICT DO NOTHING"
        async with self._together() as session:
            found = await session.rows(sql, (name, SEEDED), scope=EVERY)
            made = [
                (id, name, clock.iso(due(Scope(tenant=t, user=u, space=s))))
                for id, t, u, s in found
            ]
            await session.many(add, made, scope=EVERY)
        return len(found)

    async def retry(self, names: Sequence[str], *, now: datetime) -> int:
        marks = ", ".join("?" * len(names))
        sql = f"UPDATE tasks SET attempts = 0, due_at = ? WHERE name IN ({marks}) AND {_ASIDE} AND {self._free} "
        if not names:
            return 0
        async with self._together() as session:
            return len(
                await session.rows(sql + "RETURNING key", (clock.iso(now), *names), scope=EVERY)
            )

    async def backlog(self, now: datetime) -> list[Backlog]:
        sql = _BACKLOG.format(free=self._free, aside=_ASIDE)
        found = await self._session.rows(sql, (clock.iso(now), clock.iso(now)), scope=EVERY)
        return [
            *await self._unembedded(),
            *(
                Backlog(
                    name=name,
                    waiting=waiting,
                    running=running,
                    failing=failing,
                    set_aside=aside,
                    oldest=rows.moment(oldest) if oldest else None,
                )
                for name, waiting, running, failing, aside, oldest in found
            ),
        ]

    @property
    def _free(self) -> str:
        return _FREE.format(now=self._session.dialect.now)

    async def _unembedded(self) -> list[Backlog]:
        """What waits for a vector, and how long others did; nothing where nothing does and nothing did."""
        sql = _WAITING.format(now=self._session.dialect.now)
        ((waiting, oldest, running),) = await self._session.rows(sql, scope=EVERY)
        lately = await self._session.rows(_EMBEDDED, (LATELY,), scope=EVERY)
        if not waiting and not lately:
            return []
        took = _p95([_took(row) for row in lately if row[2]])
        failed, tried = (
            {row[1] for row in lately if row[0] in states}
            for states in (("error",), ("ok", "error"))
        )
        return [
            Backlog(
                name="embed",
                waiting=waiting - running,
                running=running,
                failing=0,
                oldest=rows.moment(oldest) if oldest else None,
                p95_seconds=took,
                failure_rate=len(failed) / len(tried) if tried else None,
            )
        ]


def _took(row: Sequence[Any]) -> float:
    """Seconds from when a memory got its words to when it got its vector."""
    at, created, updated = (rows.moment(each) for each in row[1:4])
    return max(0.0, (at - (updated if updated <= at else created)).total_seconds())


def _p95(values: Sequence[float]) -> float | None:
    """The value that 95 in 100 do not pass.

    >>> _p95([float(n) for n in range(1, 101)])
    95.0
    """
    return sorted(values)[ceil(0.95 * len(values)) - 1] if values else None


async def _scopes(session: Session, numbers: set[int]) -> dict[int, Scope]:
    """The scopes with these numbers."""
    wanted = sorted(numbers)
    sql = f"SELECT id, tenant, user_id, space FROM scopes WHERE id IN ({', '.join('?' * len(wanted))})"
    found: list[Any] = await session.rows(sql, wanted) if wanted else []
    return {
        number: Scope(tenant=tenant, user=user, space=space)
        for number, tenant, user, space in found
    }


async def _at(session: Session, numbers: Sequence[int]) -> list[tuple[int, Memory]]:
    """The memories of all scopes in these rows."""
    row = session.dialect.row
    sql = f"{_WHOSE} WHERE {row} IN ({', '.join('?' * len(numbers))}) ORDER BY {row}"
    return [(row[3], _owned(row)) for row in await session.rows(sql, numbers, scope=EVERY)]


def _owned(row: Sequence[Any]) -> Memory:
    """The memory in a row of `_WHOSE`."""
    return rows.memory(row[4:], Scope(tenant=row[0], user=row[1], space=row[2]))
