"""What a store is on any relational engine: the statements that go beyond one scope or one transaction.

An engine adds what differs: its connections and transactions, its size and soundness, copies, waiting, locks.
"""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import InvalidInput, MemoristError, StoreDamaged
from ..results import Entry, Tally
from ..text import clock, derived, normalize
from ..types import NODES, Message, Scope
from . import chain, rows
from .changes import Happened, Summary
from .checkpoints import Checkpoints
from .database import EVERY, Session
from .keys import Keys
from .llm_usage import Spendings
from .tasks import Work
from .transaction import Writings

_PAGE = 500
_VERSIONED = (
    "SELECT DISTINCT superseded_by FROM memories WHERE scope = ? AND superseded_by IS NOT NULL"
)
_COLUMNS = ", ".join(f"m.{column}" for column in rows.COLUMNS)
_KEPT = "EXISTS (SELECT 1 FROM memories m WHERE m.scope = h.scope AND m.id = {})"
_ENTRIES = (
    f"SELECT h.row, h.digest, h.seal, h.meta, {_KEPT.format('h.memory_id')} AND (h.old_ref IS NULL OR "
    f"{_KEPT.format('h.old_ref')}), {', '.join(f'h.{name}' for name in chain.COLUMNS.split(', '))} "
    f"FROM history h WHERE h.scope = ? AND h.row > ? ORDER BY h.row LIMIT {_PAGE}"
)


class Relational(Work, Spendings, Keys, ABC):
    """Memories in a relational database. Implements `ports.Store`, but for what the engine adds."""

    def __init__(self, session: Session, *, language: str, secret: bytes) -> None:
        super().__init__(session, {}, secret)
        self._language = language

    @abstractmethod
    def transaction(self, scope: Scope) -> AbstractAsyncContextManager[Writings]:
        """Commits when the block ends, durably, and rolls back if it raises."""

    @abstractmethod
    async def _bytes(self) -> int:
        """How much room the database takes."""

    @abstractmethod
    async def _unsound(self) -> list[str]:
        """What the engine itself finds wrong."""

    @abstractmethod
    async def backup(self, path: Path) -> None:
        """A complete copy, taken while others write."""

    @abstractmethod
    async def vacuum(self) -> None:
        """Give unused space back and leave no trace of erased words."""

    @abstractmethod
    def make_room(self) -> bool:
        """Release what was kept aside for a full disk."""

    @abstractmethod
    def alone(self, name: str) -> AbstractAsyncContextManager[bool]:
        """A duty that one process does at a time."""

    @abstractmethod
    async def changes(self, seconds: float) -> None:
        """Wait until something changed somewhere, or so long."""

    @abstractmethod
    async def close(self) -> None: ...

    def checkpoints(self, scope: Scope) -> Checkpoints:
        return Checkpoints(self, scope)

    async def messages(self, scope: Scope, ids: Sequence[str]) -> dict[str, Message]:
        sql = "SELECT id, text, role, name, at, session FROM messages WHERE scope = ?"
        return {
            id: Message(
                id=id,
                content=text,
                role=role,
                name=name,
                at=rows.moment(at) if at else None,
                session=session,
            )
            for id, text, role, name, at, session in await self._in(sql, scope, "id", ids)
            if text is not None
        }

    async def history(
        self, scope: Scope, memory_id: str | None = None, *, limit: int = 100
    ) -> list[Entry]:
        sql = "SELECT id, memory_id, event, old_ref, new_ref, actor, meta, ts FROM history WHERE scope = ?"
        one = " AND memory_id = ?" if memory_id is not None else ""
        values = [*([memory_id] if memory_id is not None else []), limit]
        return [
            rows.entry(row)
            for row in await self._rows(scope, f"{sql}{one} ORDER BY row DESC LIMIT ?", values)
        ]

    async def history_since(self, scope: Scope, name: str, value: str) -> list[Entry]:
        one = f"meta ->> '{name}' = ?"
        found = await self._rows(
            scope,
            "SELECT id, memory_id, event, old_ref, new_ref, actor, meta, ts FROM history WHERE scope = ? AND row >= "
            f"(SELECT min(row) FROM history WHERE scope = ? AND {one}) ORDER BY row",
            (await self.number(scope), value),
        )
        return [rows.entry(row) for row in found]

    async def events(
        self, scope: Scope, *, node: str | None, op: str | None, limit: int
    ) -> list[Happened]:
        sql = "SELECT node, op, status, thread_id, memory_id, category, sim, ts FROM events "
        sql += "WHERE scope = ? AND user_id = ?"
        given = {
            column: value for column, value in (("node", node), ("op", op)) if value is not None
        }
        sql += (
            "".join(f" AND {column} = ?" for column in given) + " ORDER BY ts DESC, id DESC LIMIT ?"
        )
        found = await self._rows(scope, sql, (scope.user, *given.values(), limit))
        return [
            Happened(
                node=n,
                op=o,
                status=s,
                thread=t,
                memory_id=m,
                category=c,
                sim=sim,
                at=rows.moment(ts),
            )
            for n, o, s, t, m, c, sim, ts in found
        ]

    async def tallies(
        self, scope: Scope | None, since: datetime, until: datetime | None = None
    ) -> list[Tally]:
        day, times = (
            self._session.dialect.day.format("ts"),
            [clock.iso(each) for each in (since, until) if each],
        )
        sql = f"SELECT {day}, node, op, status, count(*) FROM events WHERE {{}} AND ts >= ? "
        sql += "AND ts < ? " if until else ""
        sql += "GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
        if scope is None:  # by the index of parts and times: what is older is not looked at
            every = f"node IN ({', '.join('?' * len(NODES))})"
            found = await self._session.rows(sql.format(every), (*NODES, *times), scope=EVERY)
        else:
            found = await self._rows(
                scope, sql.format("scope = ? AND user_id = ?"), (scope.user, *times)
            )
        return [
            Tally(day=d, node=node, op=op, status=status, count=n)
            for d, node, op, status, n in found
        ]

    async def summaries(self, scope: Scope, record_type: str) -> list[Summary]:
        sql = "SELECT id, record_type, name, data, evidence_ids, at FROM summaries WHERE scope = ? AND record_type = ?"
        found = await self._rows(scope, f"{sql} ORDER BY at DESC, id DESC", (record_type,))
        return [
            Summary(
                id=id,
                record_type=kind,
                name=name,
                data=rows.loaded(data),
                evidence_ids=tuple(rows.loaded(ids)),
                at=rows.moment(at),
            )
            for id, kind, name, data, ids, at in found
        ]

    @property
    def session(self) -> Session:
        return self._session

    def together(self) -> AbstractAsyncContextManager[Session]:
        return self._together()

    async def is_unfinished(self) -> bool:
        """Whether a copy into this store was begun and has not come to its end."""
        return bool(await self._session.rows("SELECT 1 FROM meta WHERE key = 'copying'"))

    async def columns(self, table: str) -> tuple[str, ...]:
        """The names of a table's columns."""
        return tuple(
            row[0] for row in await self._session.rows(self._session.dialect.columns, (table,))
        )

    async def renumber(self) -> None:
        """After rows were written with their numbers: new ones get higher numbers."""

    async def drop_vectors(self, keep: str) -> int:
        counted = await self._session.rows(
            "SELECT count(*) FROM vectors WHERE model <> ?", (keep,), scope=EVERY
        )
        async with self._together() as session:
            await session.rows("DELETE FROM vectors WHERE model <> ?", (keep,), scope=EVERY)
        return int(counted[0][0])

    async def name(self) -> str:
        return hashlib.blake2b(self._secret, digest_size=6, person=b"name").hexdigest()

    async def position(self, scope: Scope, name: str) -> int:
        found = await self._rows(
            scope, "SELECT revision FROM index_positions WHERE scope = ? AND name = ?", (name,)
        )
        return found[0][0] if found else 0

    async def move(self, scope: Scope, name: str, revision: int) -> None:
        number = await self.number(scope)
        sql = "INSERT INTO index_positions (scope, name, revision) VALUES (?, ?, ?) "
        sql += "ON CONFLICT (scope, name) DO UPDATE SET revision = excluded.revision"
        async with self._together() as session:
            await session.rows(sql, (number, name, revision), scope=number)

    async def scopes(self) -> list[Scope]:
        found = await self._session.rows("SELECT tenant, user_id, space FROM scopes ORDER BY id")
        return [Scope(tenant=tenant, user=user, space=space) for tenant, user, space in found]

    async def stats(self, scope: Scope | None, model: str) -> dict[str, Any]:
        number = EVERY if scope is None else await self.number(scope)
        where, values = ("", ()) if scope is None else ("WHERE m.scope = ?", (number,))

        async def counted(column: str) -> dict[str, int]:
            sql = f"SELECT {column}, count(*) FROM memories m {where} GROUP BY 1 ORDER BY 1"
            return dict(await self._session.rows(sql, values, scope=number))

        sql = "SELECT count(*), count(v.memory), coalesce(sum(m.needs_embedding), 0) "
        sql += "FROM memories m LEFT JOIN vectors v "
        sql += f"ON v.scope = m.scope AND v.memory = m.row AND v.model = ? {where}"
        total, embedded, waiting = (await self._session.rows(sql, (model, *values), scope=number))[
            0
        ]
        return {
            "memories": total,
            "with_embeddings": embedded,
            "without_embeddings": total - embedded,
            "waiting": waiting,
            "model": model,
            "states": await counted("m.state"),
            "kinds": await counted("m.kind"),
            "scopes": (await self._session.rows("SELECT count(*) FROM scopes"))[0][0]
            if scope is None
            else 1,
            "bytes": await self._bytes(),
        }

    async def export(self, scope: Scope | None) -> AsyncIterator[dict[str, Any]]:
        for each in [scope] if scope is not None else await self.scopes():
            async for record in self._export(each):
                yield record

    async def _export(self, scope: Scope) -> AsyncIterator[dict[str, Any]]:
        async for record in self._export_history(scope):
            yield record
        after = 0
        sql = f"SELECT m.row, {_COLUMNS} FROM memories m WHERE m.scope = ? AND m.row > ? ORDER BY m.row LIMIT {_PAGE}"
        while page := await self._rows(scope, sql, (after,)):
            for row in page:
                try:
                    yield {"record_type": "memory", "data": rows.memory(row[1:], scope)}
                except StoreDamaged as error:  # what can still be read is more than nothing
                    yield {"record_type": "damaged", "data": {"id": row[1], "reason": str(error)}}
            after = page[-1][0]
        async for record in self._export_rest(scope):
            yield record

    async def _export_history(self, scope: Scope) -> AsyncIterator[dict[str, Any]]:
        sql = "SELECT row, id, memory_id, event, old_ref, new_ref, actor, meta, ts FROM history WHERE scope = ? "
        sql += f"AND row > ? ORDER BY row LIMIT {_PAGE}"
        after = 0
        while page := await self._rows(scope, sql, (after,)):
            for row in page:
                try:
                    entry = rows.entry(row[1:])
                except StoreDamaged as error:
                    yield {"record_type": "damaged", "data": {"id": row[1], "reason": str(error)}}
                    continue
                plain = {
                    **asdict(entry),
                    "meta": dict(entry.meta),
                    "at": clock.iso(entry.at),
                    "scope": asdict(scope),
                }
                yield {"record_type": "history", "data": plain}
            after = page[-1][0]

    async def _first_said(self, scope: Scope, message: str, head: str) -> str | None:
        """Return the wording of a memory, or of one it replaced, that is the message word for word."""
        for words in await self.wordings(scope, head):
            said = await self.said(scope, {message: normalize.digest(words)})
            if message in said and said[message].same:
                return words
        return None

    async def _export_rest(self, scope: Scope) -> AsyncIterator[dict[str, Any]]:
        whose = {"tenant": scope.tenant, "user": scope.user, "space": scope.space}
        found = await self._rows(
            scope,
            "SELECT s.id, s.session, s.role, s.name, s.at, s.text, s.outcome, m.id, m.text FROM messages s "
            f"LEFT JOIN memories m ON m.scope = s.scope AND m.id = {self._session.dialect.head.format('s.outcome')} "
            "WHERE s.scope = ? ORDER BY s.row",
        )
        versioned = {row[0] for row in await self._rows(scope, _VERSIONED)}
        for id, session, role, name, at, text, outcome, head, words in found:
            if text is None and head in versioned:  # an earlier version may hold what was said
                words = await self._first_said(scope, id, head) or words
            found_outcome = rows.load_outcome(outcome, id)
            made = {
                "status": found_outcome.status,
                "ids": list(found_outcome.ids),
                "reason": found_outcome.reason,
                "message_id": id,
            }
            if found_outcome.supersedes is not None:
                made["supersedes"] = found_outcome.supersedes
            said = {
                "text": words if text is None else text,
                "kept": text is not None,
                "outcome": made,
                "scope": whose,
            }
            place = {"id": id, "session": session, "role": role, "name": name, "at": at}
            yield {"record_type": "message", "data": {**place, **said}}
        for kind in ("user_profile", "project_memory"):
            for each in await self.summaries(scope, kind):
                plain = {
                    "at": clock.iso(each.at),
                    "evidence_ids": list(each.evidence_ids),
                    "scope": whose,
                }
                yield {"record_type": kind, "data": {**asdict(each), **plain}}
        try:
            for one in await self.proposals(scope):
                about = {
                    "field": one.field,
                    "value": one.value,
                    "decided": one.decided,
                    "at": clock.iso(one.at),
                }
                yield {
                    "record_type": "proposal",
                    "data": {**about, "evidence": list(one.evidence), "scope": whose},
                }
        except StoreDamaged as error:
            yield {"record_type": "damaged", "data": {"id": "proposals", "reason": str(error)}}

    async def check(self) -> list[str]:
        try:
            return [
                *await self._unsound(),
                *await self._altered(),
                *await self._orphans(),
                *await self._unchained(),
            ]
        except (StoreDamaged, InvalidInput) as error:  # so badly that it cannot be read to the end
            return [str(error)]

    async def _altered(self) -> list[str]:
        """Rows that are not what was written, and terms that are not those of their text."""
        found: list[str] = []
        names = await self._session.rows("SELECT id, tenant, user_id, space FROM scopes")
        scopes = {
            number: Scope(tenant=tenant, user=user, space=space)
            for number, tenant, user, space in names
        }
        row = self._session.dialect.row
        sql = (
            f"SELECT m.row, m.scope, m.terms, m.flags, {_COLUMNS} FROM memories m WHERE {row} > ? "
        )
        sql += f"ORDER BY {row} LIMIT {_PAGE}"
        after = -(2**62)
        while page := await self._session.rows(sql, (after,), scope=EVERY):
            found += await asyncio.to_thread(_problems, page, scopes, self._language)
            after = page[-1][0]
        return found

    async def _orphans(self) -> list[str]:
        same = "m.scope = v.scope AND m.row = v.memory"
        questions = {
            "vectors without a memory in their scope": "SELECT count(*) FROM vectors v WHERE NOT EXISTS "
            f"(SELECT 1 FROM memories m WHERE {same})",
            "vectors of a wrong size": f"SELECT count(*) FROM vectors WHERE {self._session.dialect.size} <> dims",
            "memories that are called embedded and have no vector": "SELECT count(*) FROM memories m "
            f"WHERE needs_embedding = 0 AND NOT EXISTS (SELECT 1 FROM vectors v WHERE {same})",
            "memories without a history": "SELECT count(*) FROM memories m WHERE superseded_by IS NULL AND NOT EXISTS "
            "(SELECT 1 FROM history h WHERE h.memory_id = m.id AND h.scope = m.scope)",
            "memories newer than their scope": "SELECT count(*) FROM memories m JOIN scopes s ON s.id = m.scope "
            "WHERE m.changed > s.revision",
        }
        counts = {
            name: (await self._session.rows(sql, scope=EVERY))[0][0]
            for name, sql in questions.items()
        }
        return [f"{count} {name}" for name, count in counts.items() if count]

    async def _unchained(self) -> list[str]:
        """Entries of the history that were altered, taken out or moved."""
        found: list[str] = []
        for scope in await self.scopes():
            head = (await self._rows(scope, "SELECT head FROM scopes WHERE id = ?"))[0][0]
            erased = "SELECT memory_id, max(row) FROM history WHERE scope = ? AND event = 'DELETE' GROUP BY memory_id"
            gone = dict(await self._rows(scope, erased))
            last: str | None = None
            after = 0
            while page := await self._rows(scope, _ENTRIES, (after,)):
                found += await asyncio.to_thread(chain.broken, self._secret, page, last, gone)
                after, last = page[-1][:2]
            if last != head:
                found.append(
                    f"The end of the history of {scope.user!r} is missing: restore a backup"
                )
        return found

    async def _reanalyse(self) -> None:
        """Make terms and marks anew if the analysis or the language is not the one they were made with."""
        wanted = f"{derived.ANALYSIS}:{self._language}"
        sql = "SELECT 1 FROM meta WHERE key = 'analysis' AND value = ?"
        if await self._session.rows(sql, (wanted,)):
            return
        for scope in await self.scopes():
            async with self.transaction(scope) as tx:
                await tx.reanalyse()
        change = "INSERT INTO meta VALUES ('analysis', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        async with self._together() as session:
            await session.rows(change, (wanted,))


def _problems(page: Sequence[Sequence[Any]], scopes: dict[Any, Scope], language: str) -> list[str]:
    found = []
    for _, number, kept, flags, *row in page:
        try:
            memory = rows.memory(row, scopes.get(number, Scope(user="")))
        except MemoristError as error:
            found.append(str(error))
            continue
        if (kept, flags) != (derived.terms_of(memory, language), derived.flags_of(memory)):
            found.append(
                f"The terms of memory {memory.id!r} are not those of its text: run `memorist index --force`"
            )
    return found


def secret_of(found: Sequence[Sequence[Any]], place: str) -> bytes:
    """The key of the digests. Raises StoreDamaged."""
    try:
        return bytes.fromhex(found[0][0])
    except (IndexError, TypeError, ValueError) as error:
        raise StoreDamaged(f"{place!r} has lost its key: restore a backup") from error
