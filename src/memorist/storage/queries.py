"""The statements that read one scope, in the SQL that every engine understands."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from ..errors import InvalidInput
from ..ports import Delta, SaidBefore
from ..results import Logged, Page, Proposal, SpaceSettings
from ..text import clock
from ..types import RELATED, Filter, Memory, Scope
from . import filters, rows
from .changes import Relation
from .database import Session, Values

_SELECT = f"SELECT {', '.join(rows.COLUMNS)} FROM memories"
_INDEX = ", ".join(f"m.{name.strip()}" for name in rows.INDEX_COLUMNS.split(","))
_FEW = 500  # values in one IN (…)
SETTINGS = tuple(each.name for each in fields(SpaceSettings))


class Readings:
    """Reads a scope through a session. Implements `ports.Reading`."""

    def __init__(self, session: Session, known: dict[Scope, int], secret: bytes) -> None:
        self._session = session
        self._known = known  # scopes by their number, which never changes
        self._secret = secret

    async def number(self, scope: Scope) -> int:
        """The number of a scope, or -1 if nothing was ever remembered in it."""
        if scope not in self._known:
            sql = "SELECT id FROM scopes WHERE tenant = ? AND user_id = ? AND space = ?"
            found = await self._session.rows(sql, (scope.tenant, scope.user, scope.space))
            if not found:
                return -1
            self._known[scope] = found[0][0]
        return self._known[scope]

    async def get(self, scope: Scope, ids: Sequence[str]) -> list[Memory]:
        found = {memory.id: memory for memory in await self._memories(scope, "id", ids)}
        return [found[id] for id in dict.fromkeys(ids) if id in found]

    async def at_rows(self, scope: Scope, numbers: Sequence[int]) -> dict[int, Memory]:
        sql = f"SELECT row, {', '.join(rows.COLUMNS)} FROM memories WHERE scope = ?"
        found = await self._in(sql, scope, "row", numbers)
        return {row[0]: rows.memory(row[1:], scope) for row in found}

    async def page(
        self, scope: Scope, where: Filter, *, limit: int, cursor: str | None = None
    ) -> Page:
        condition, values = filters.condition(where, self._session.dialect)
        sql = f"SELECT row, {', '.join(rows.COLUMNS)} FROM memories WHERE scope = ? AND row < ? AND {condition}"
        before = _row_of(cursor) if cursor else 2**62
        found = await self._rows(
            scope, f"{sql} ORDER BY row DESC LIMIT ?", (before, *values, limit + 1)
        )
        memories = tuple(rows.memory(row[1:], scope) for row in found[:limit])
        return Page(memories, f"r{found[limit - 1][0]}" if len(found) > limit else None)

    async def rows_where(self, scope: Scope, where: Filter) -> list[int]:
        condition, values = filters.condition(where, self._session.dialect)
        sql = f"SELECT row FROM memories WHERE scope = ? AND {condition} ORDER BY row"
        return [row[0] for row in await self._rows(scope, sql, values)]

    async def revision(self, scope: Scope) -> int:
        found = await self._rows(scope, "SELECT revision FROM scopes WHERE id = ?")
        return found[0][0] if found else 0

    async def changed_since(
        self, scope: Scope, revision: int, *, model: str, limit: int, after: int = 0
    ) -> Delta:
        now = await self.revision(scope)
        if now == revision:
            return Delta(revision=now, rows=[], gone=[], next=None)
        # Where everything changed, the plus keeps the planner from that index: by row there is nothing to sort.
        changed = "m.changed > ?" if revision else "+m.changed > ?"
        some = f"WHERE m.scope = ? AND {changed} AND m.state <> 'soft_deleted'"
        number = await self.number(scope)
        found = await self._rows(
            scope,
            f"SELECT {_INDEX}, v.embedding FROM memories m "
            f"LEFT JOIN vectors v ON v.scope = ? AND v.memory = m.row AND v.model = ? {some} "
            "AND m.row > ? ORDER BY m.row LIMIT ?",
            (model, number, revision, after, limit),
        )
        several = len(found) == limit and after == 0
        total = (
            await self._rows(scope, f"SELECT count(*) FROM memories m {some}", (revision,))
            if several
            else None
        )
        gone = await self._gone(scope, revision) if revision and not after else []
        return Delta(
            revision=now,
            rows=[rows.index_row(row) for row in found],
            gone=gone,
            next=found[-1][0] if len(found) == limit else None,
            total=total[0][0] if total else len(found),
        )

    async def _gone(self, scope: Scope, revision: int) -> list[int]:
        found = await self._rows(
            scope,
            "SELECT row FROM erased WHERE scope = ? AND changed > ? UNION ALL "
            "SELECT row FROM memories WHERE scope = ? AND changed > ? AND state = 'soft_deleted'",
            (revision, await self.number(scope), revision),
        )
        return [row[0] for row in found]

    async def vectors(
        self, scope: Scope, numbers: Sequence[int], *, model: str
    ) -> dict[int, bytes]:
        sql = "SELECT memory, embedding FROM vectors WHERE scope = ?"
        return dict(await self._in(f"{sql} AND model = ?", scope, "memory", numbers, model))

    async def same_text(self, scope: Scope, hashes: Iterable[str]) -> dict[str, list[Memory]]:
        out: dict[str, list[Memory]] = {}
        for memory in await self._memories(scope, "content_hash", list(hashes)):
            if memory.is_active:
                out.setdefault(memory.content_hash, []).append(memory)
        return out

    async def by_key(self, scope: Scope, keys: Iterable[str]) -> dict[str, Memory]:
        found = await self._memories(scope, "key", list(keys))
        return {memory.key: memory for memory in found if memory.is_active and memory.key}

    async def said(self, scope: Scope, digests: Mapping[str, str]) -> dict[str, SaidBefore]:
        found = await self._in(
            "SELECT id, digest, outcome FROM messages WHERE scope = ?", scope, "id", list(digests)
        )
        return {
            id: SaidBefore(
                same=kept == digest(self._secret, digests[id]),
                outcome=rows.load_outcome(outcome, id),
            )
            for id, kept, outcome in found
        }

    async def wordings(self, scope: Scope, id: str) -> list[str]:
        sql = "SELECT text FROM memories WHERE scope = ? AND superseded_by = ? ORDER BY row"  # OR would use no index
        older = await self._rows(scope, sql, (id,))
        own = await self._rows(scope, "SELECT text FROM memories WHERE scope = ? AND id = ?", (id,))
        return [row[0] for row in (*older, *own)]

    async def relations(
        self, scope: Scope, type: str, *, limit: int, from_id: str | None = None
    ) -> list[Relation]:
        sql = "SELECT from_id, to_id, strength, created_at FROM relations WHERE scope = ? AND relation_type = ?"
        sql += " AND from_id = ?" if from_id is not None else ""
        values = (type, limit) if from_id is None else (type, from_id, limit)
        found = await self._rows(scope, f"{sql} ORDER BY created_at DESC, id DESC LIMIT ?", values)
        return [
            Relation(from_id=a, to_id=b, type=type, strength=s, at=rows.moment(at))
            for a, b, s, at in found
        ]

    async def links(self, scope: Scope, ids: Sequence[str]) -> list[Relation]:
        found: dict[tuple[str, str], Relation] = {}
        for here, there in (("from_id", "to_id"), ("to_id", "from_id")):
            sql = (
                "SELECT r.from_id, r.to_id, r.strength, r.created_at FROM relations r "
                f"JOIN memories m ON m.scope = r.scope AND m.id = r.{there} AND m.state = 'active' "
                "WHERE r.scope = ? AND r.relation_type = ?"
            )
            for a, b, strength, at in await self._in(sql, scope, f"r.{here}", ids, RELATED):
                found[a, b] = Relation(
                    from_id=a, to_id=b, type=RELATED, strength=strength, at=rows.moment(at)
                )
        return sorted(found.values(), key=lambda each: (-each.strength, each.from_id, each.to_id))

    async def last_sequence(self, scope: Scope, session: str) -> int:
        sql = "SELECT coalesce(max(sequence), -1) FROM memories WHERE scope = ? AND session = ?"
        found = await self._rows(scope, sql, (session,))
        return int(found[0][0]) if found else -1

    async def logged(self, scope: Scope, thread: str, since: int) -> list[Logged]:
        sql = "SELECT rev, memory_id, event, ts FROM change_log WHERE scope = ? AND thread_id = ? AND rev > ?"
        found = await self._rows(scope, f"{sql} ORDER BY rev", (thread, since))
        return [
            Logged(revision=rev, memory_id=id, event=event, at=rows.moment(ts))
            for rev, id, event, ts in found
        ]

    async def shown(self, scope: Scope, thread: str) -> int:
        sql = "SELECT shown FROM thread_revision WHERE scope = ? AND thread_id = ?"
        found = await self._rows(scope, sql, (thread,))
        return int(found[0][0]) if found else 0

    async def tombstones(self, scope: Scope, texts: Iterable[str], now: datetime) -> set[str]:
        if not await self._rows(scope, "SELECT 1 FROM tombstones WHERE scope = ? LIMIT 1"):
            return set()
        digests = {digest(self._secret, text): text for text in texts}
        sql = "SELECT digest, until FROM tombstones WHERE scope = ?"
        found = await self._in(sql, scope, "digest", list(digests))
        return {digests[d] for d, until in found if until is None or until > clock.iso(now)}

    async def space_settings(
        self, scope: Scope, sessions: Iterable[str | None]
    ) -> tuple[SpaceSettings, set[str | None]]:
        asked = set(sessions)
        marks = {
            each: (self.mark(each, True), self.mark(each, False))
            for each in asked
            if each is not None
        }
        wanted = [mark for both in marks.values() for mark in both] or [""]
        found = await self._rows(
            scope,
            "SELECT key, value FROM space_settings WHERE scope = ? UNION ALL "
            "SELECT session, '' FROM incognito_sessions "
            f"WHERE scope = ? AND session IN ({', '.join('?' * len(wanted))})",
            (await self.number(scope), *wanted),
        )
        told = dict(found)
        settings = SpaceSettings(
            **{key: value == "true" for key, value in found if key in SETTINGS}
        )
        started, ended = ({each for each, both in marks.items() if both[i] in told} for i in (0, 1))
        return settings, started | (asked - ended if settings.incognito_default else set())

    def mark(self, session: str, is_on: bool) -> str:
        """What stands for a session that is incognito, or is not although the others are."""
        return digest(self._secret, f"{'incognito' if is_on else 'open'}\0{session}")

    async def checked(self, scope: Scope, since: datetime) -> set[tuple[str, str, float]]:
        sql = "SELECT id_a, id_b, score FROM pair_fingerprints WHERE scope = ? AND checked_at >= ?"
        return {(a, b, score) for a, b, score in await self._rows(scope, sql, (clock.iso(since),))}

    async def proposals(self, scope: Scope) -> list[Proposal]:
        sql = "SELECT id, field, proposal, decided, created_at, lapses_at FROM consent_queue WHERE scope = ?"
        return [
            rows.proposal(row, scope)
            for row in await self._rows(scope, f"{sql} ORDER BY created_at, id")
        ]

    async def _memories(self, scope: Scope, column: str, values: Sequence[Any]) -> list[Memory]:
        found = await self._in(f"{_SELECT} WHERE scope = ?", scope, column, values)
        return [rows.memory(row, scope) for row in found]

    async def _in(
        self, sql: str, scope: Scope, column: str, values: Sequence[Any], *before: Any
    ) -> list[tuple[Any, ...]]:
        """Run a query for each few of the values, so that no statement takes too many."""
        distinct = list(dict.fromkeys(values)) if await self.number(scope) >= 0 else []
        out: list[tuple[Any, ...]] = []
        for start in range(0, len(distinct), _FEW):
            few = distinct[start : start + _FEW]
            marks = ", ".join("?" * len(few))
            out += await self._rows(scope, f"{sql} AND {column} IN ({marks})", (*before, *few))
        return out

    async def _rows(self, scope: Scope, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Run a statement about one scope; the number of the scope is its first value."""
        number = await self.number(scope)
        return [] if number < 0 else await self._session.rows(sql, (number, *values), scope=number)


def digest(secret: bytes, text: str) -> str:
    """A keyed digest: without the key nobody can test a guess against it."""
    return hmac.new(secret, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _row_of(cursor: str) -> int:
    if not (
        isinstance(cursor, str)
        and cursor.startswith("r")
        and cursor[1:].isdecimal()
        and len(cursor) < 20
    ):
        raise InvalidInput(f"{cursor!r} is not a cursor: pass the `cursor` of the page before")
    return int(cursor[1:])
