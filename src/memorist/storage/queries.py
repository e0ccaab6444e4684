"""Read one scope, inside or outside a transaction, with SQL that every engine understands."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from typing import Any, TypeVar

from ..errors import RevisionConflict
from ..ports import Delta
from ..text import clock, normalize
from ..text.cues import IS_EXTRACTED
from ..types import RELATED, REPLACES, Filter, Memory, Page, Scope
from . import Checks, Relation, SeenBefore, SpaceSettings, rows
from .conditions import DERIVED_FROM, NOT_CARRIED, condition
from .database import Readable, Rows, Values

Item = TypeVar("Item")
_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)
PAGE = 1000  # memories read at a time where all are wanted
_COLUMNS = ", ".join(rows.COLUMNS)
_INDEX = ", ".join(f"m.{name}" for name in rows.INDEX_COLUMNS)
_NULLS = ", ".join(["NULL"] * (len(rows.INDEX_COLUMNS) + 1))
_AND_ERASED = f"""UNION ALL SELECT e.row, 'erased', {_NULLS} FROM erased e
WHERE e.scope = ? AND e.changed > ?"""
_SOURCE = f"""CASE WHEN (m.flags & {IS_EXTRACTED}) <> 0 THEN (SELECT s.row FROM memories s
WHERE s.scope = m.scope AND s.id = {{}}) END"""  # the turn that a fact was extracted from
_VECTOR = "LEFT JOIN vectors {0} ON {0}.scope = ? AND {0}.memory = m.row AND {0}.model = ?"
_GONE = ("erased", "soft_deleted")
_TO = ("to_id", "from_id")
_ENDS = {RELATED: (("from_id", "to_id"), _TO), REPLACES: (_TO,)}  # the given one, the other one
_RELATION = "SELECT r.from_id, r.to_id, r.relation_type, r.created_at, r.strength FROM relations r"
_SETTINGS = """SELECT 'setting', key, value, '' FROM space_settings WHERE scope = ?
UNION ALL SELECT 'revision', CAST(revision AS TEXT), user_id, '' FROM scopes WHERE id = ?"""
STATE = """SELECT 'scope', CASE WHEN EXISTS (SELECT 1 FROM tombstones t WHERE t.scope = s.id)
THEN 'yes' ELSE '' END, CAST(revision AS TEXT), user_id FROM scopes s WHERE s.id = ?"""
_CHECKS = {
    "session": """SELECT 'session', session, '', '' FROM incognito_sessions WHERE scope = ?
        AND session IN (SELECT value FROM {})""",
    "tombstone": """SELECT 'tombstone', digest, '', '' FROM tombstones WHERE scope = ?
        AND digest IN (SELECT value FROM {}) AND (until IS NULL OR until > ?)""",
    "message": """SELECT 'message', id, digest, CAST(outcome AS TEXT) FROM messages WHERE scope = ?
        AND id IN (SELECT value FROM {})""",
    "same": """SELECT DISTINCT 'same', content_hash, '', '' FROM memories WHERE scope = ?
        AND content_hash IN (SELECT value FROM {})""",
    "sequence": """SELECT 'sequence', session, CAST(max(sequence) AS TEXT), '' FROM memories
        WHERE scope = ? AND session IN (SELECT value FROM {}) GROUP BY session""",
}


def placeholders(values: Sequence[Any], each: str = "?") -> str:
    """Return a list of placeholders for an IN or VALUES clause."""
    return ", ".join([each] * len(values))


def portions(values: Sequence[Item], size: int = 500) -> list[Sequence[Item]]:
    """Split values into portions that fit into one statement."""
    return [values[start : start + size] for start in range(0, len(values), size)]


@dataclass(eq=False, repr=False)
class Reader:
    """Reads one scope at a time. Memories of other scopes are never found, not even by id."""

    connection: Readable
    numbers: MutableMapping[Scope, int]  # of scopes, which never change
    scope: Scope | None = field(default=None, kw_only=True)  # whose write lock is held
    held: dict[int, int] = field(default_factory=dict, init=False)  # its revision, by its number
    has_tombstones: bool = field(default=True, init=False)  # it may have some

    async def number(self, scope: Scope) -> int:
        """Return the number of a scope, or -1 if nothing was ever stored in it."""
        if scope not in self.numbers:
            sql = "SELECT id FROM scopes WHERE tenant = ? AND user_id = ? AND space = ?"
            found = await self.connection.rows(sql, (scope.tenant, scope.user, scope.space))
            if not found:
                return -1
            self.numbers[scope] = found[0][0]
        return self.numbers[scope]

    async def rows(self, scope: Scope, sql: str, values: Values = ()) -> Rows:
        """Run a statement about one scope; the number of the scope is its first value."""
        number = self.numbers.get(scope) or await self.number(scope)
        if number < 0:
            return []
        (found,) = await self.connection.read([(sql, (number, *values))], scope=number)
        return found

    async def rows_in(
        self, scope: Scope, sql: str, column: str, wanted: Iterable[Any], *before: Any
    ) -> Rows:
        """Run a query about one scope in portions, for values of a column or tuples of several."""
        found: Rows = []
        for values in portions(list(dict.fromkeys(wanted))):
            marks = placeholders(values)
            if isinstance(values[0], tuple):
                each = f"({placeholders(values[0])})"
                marks = f"VALUES {placeholders(values, each)}"
                values = list(chain(*values))
            found += await self.rows(scope, f"{sql} AND {column} IN ({marks})", (*before, *values))
        return found

    def digest(self, text: str) -> str:
        """Return a keyed digest: without the key, a guess cannot be tested against it."""
        text_bytes = text.encode("utf-8", "surrogatepass")
        return hmac.new(self.connection.secret, text_bytes, hashlib.sha256).hexdigest()

    def tombstone_digests(self, text: str) -> tuple[str, str]:
        """Return the digest that recognizes a forgotten text, and the one of version 0.1."""
        old = normalize.compact(text) or normalize.one_line(text)
        return self.digest(f"said\0{normalize.wording(text)}"), self.digest(old)

    async def get(self, scope: Scope, ids: Sequence[str]) -> list[Memory]:
        """Return the memories with these ids, in any state and in this order, without missing ones.

        Each row is checked against its hash. Raises StoreDamaged if one was altered.
        """
        found = {each.id: each for each in (await self._find(scope, "id", ids)).values()}
        return [found[id] for id in dict.fromkeys(ids) if id in found]

    async def _find(self, scope: Scope, column: str, wanted: Iterable[Any]) -> dict[int, Memory]:
        sql = f"SELECT row, {_COLUMNS} FROM memories WHERE scope = ?"
        found = await self.rows_in(scope, sql, column, wanted)
        return await rows.memories(found, scope) if found else {}

    async def at_rows(self, scope: Scope, numbers: Sequence[int]) -> dict[int, Memory]:
        """Return the memories at these row numbers, checked like `get`."""
        return await self._find(scope, "row", numbers)

    async def page(
        self,
        scope: Scope,
        where: Filter,
        *,
        limit: int,
        cursor: str | None = None,
        current: bool = False,  # without versions that were hidden with their memory
    ) -> Page:
        """Return memories that pass a filter, newest first; pages never repeat or skip a memory."""
        before = rows.read_cursor(cursor)
        clause, values = condition(where, self.connection.dialect)
        sql = f"""SELECT row, {_COLUMNS} FROM memories m WHERE scope = ? AND row < ?
        AND {clause} {NOT_CARRIED if current else ""} ORDER BY row DESC LIMIT ?"""
        found = await self.rows(scope, sql, (before, *values, limit + 1))
        memories = await rows.memories(found[:limit], scope)
        last = f"r{found[limit - 1][0]}" if len(found) > limit else None
        return Page(tuple(memories.values()), last)

    async def find_all(self, scope: Scope, where: Filter) -> list[Memory]:
        """Return all memories that pass a filter, newest first."""
        page = await self.page(scope, where, limit=PAGE)
        found = [*page.memories]
        while page.cursor:
            page = await self.page(scope, where, limit=PAGE, cursor=page.cursor)
            found += page.memories
        return found

    async def rows_where(self, scope: Scope, where: Filter, column: str = "row") -> list[Any]:
        """Return the row numbers, or ids, of all memories that pass the filter, oldest first."""
        clause, values = condition(where, self.connection.dialect)
        sql = f"SELECT {column} FROM memories WHERE scope = ? AND {clause} ORDER BY row"
        return [row[0] for row in await self.rows(scope, sql, values)]

    async def changed_since(
        self,
        scope: Scope,
        revision: int,
        *,
        model: str,
        limit: int,
        after: int = 0,
        second: str | None = None,
    ) -> Delta:
        """Return the changes after a revision, in pages of at most `limit` rows, by row number."""
        number = await self.number(scope)
        if number < 0:
            return Delta(revision=0)
        # The plus keeps the planner from using an index on that column: a long delta is read in row
        # order without sorting, and a short one without scanning all rows.
        is_short = revision and not after
        changed = "m.changed > ? AND +m.row > ?" if is_short else "+m.changed > ? AND m.row > ?"
        joins = _VECTOR.format("v")
        last = "NULL"
        values: tuple[Any, ...] = (number, model)
        if second is not None:
            joins = f"{joins} {_VECTOR.format('w')}"
            last = "w.embedding"
            values += (number, second)
        source = _SOURCE.format(self.connection.dialect.first.format("m.evidence_ids"))
        sql = f"""SELECT {_INDEX}, v.embedding, {last}, {source} FROM memories m {joins}
        WHERE m.scope = ? AND {changed}"""
        values += (number, revision, after)
        if is_short:  # with erased rows; soft-deleted ones are among the others
            sql = f"{sql} {_AND_ERASED}"
            values += (number, revision)
        else:
            sql += " AND m.state <> 'soft_deleted'"
        query = (f"{sql} ORDER BY 1 LIMIT ?", (*values, limit))
        now = self.held.get(number)
        found: Rows = []
        if now is None:
            state = ("SELECT revision FROM scopes WHERE id = ?", (number,))
            current, found = await self.connection.read([state, query], scope=number)
            now = current[0][0] if current else 0
        elif now != revision:
            (found,) = await self.connection.read([query], scope=number)
        if now == revision:
            return Delta(revision=now)
        is_full = len(found) == limit
        gone = [row[0] for row in found if row[1] in _GONE]
        changed_rows = [rows.index_row(row) for row in found if row[1] not in _GONE]
        total = len(changed_rows)
        if is_full and not after:
            total, gone = await self._count_changes(number, revision)
        return Delta(
            revision=now,
            rows=changed_rows,
            gone=gone,
            next=found[-1][0] if is_full else None,
            total=total,
        )

    async def _count_changes(self, number: int, revision: int) -> tuple[int, list[int]]:
        """Return the number of rows that changed since a revision, and all rows that are gone."""
        changed = "FROM memories WHERE scope = ? AND changed > ? AND state"
        count = f"SELECT count(*) {changed} <> 'soft_deleted'"
        gone = f"""SELECT row FROM erased WHERE scope = ? AND changed > ?
        UNION ALL SELECT row {changed} = 'soft_deleted'"""
        since = (number, revision)
        queries = [(count, since), (gone, since + since)]
        counted, found = await self.connection.read(queries, scope=number)
        return counted[0][0], [row[0] for row in found] if revision else []

    async def vectors(
        self, scope: Scope, numbers: Sequence[int], *, model: str
    ) -> dict[int, bytes]:
        """Return the vectors of one model at these row numbers: float32, little-endian."""
        sql = "SELECT memory, embedding FROM vectors WHERE scope = ? AND model = ?"
        return dict(await self.rows_in(scope, sql, "memory", numbers, model))

    async def same_text(self, scope: Scope, hashes: Collection[str], *states: str) -> list[Memory]:
        """Return the memories with one of these content hashes that are active, or as given."""
        found = await self._find(scope, "content_hash", hashes)
        return [each for each in found.values() if each.state in (states or ("active",))]

    async def by_key(self, scope: Scope, keys: Iterable[str]) -> dict[str, Memory]:
        """Return active memories by key."""
        found = await self._find(scope, "key", keys)
        return {each.key: each for each in found.values() if each.is_active and each.key}

    async def checks(
        self,
        scope: Scope,
        *,
        sessions: Iterable[str | None] = (),
        texts: Iterable[str] = (),
        messages: Mapping[str, str] | None = None,
        hashes: Collection[str] = (),
        now: datetime | None = None,
    ) -> Checks:
        """Read what decides whether something may be stored, in one statement; see `Checks`.

        `messages` maps ids to digests of the content; None among the sessions means no session.
        """
        number = await self.number(scope)
        if number < 0:
            return Checks()
        asked = set(sessions)
        named = sorted(session for session in asked if session is not None)
        incognito = {self.session_mark(name, True): name for name in named}
        excepted = {self.session_mark(name, False): name for name in named}
        digests: dict[str, list[str]] = defaultdict(list)
        for text in texts:
            for digest in self.tombstone_digests(text):
                digests[digest].append(text)
        messages = messages or {}
        wanted: dict[str, Collection[str]] = {
            "session": [*incognito, *excepted],
            "tombstone": digests,
            "message": messages,
            "same": hashes,
            "sequence": named if hashes else (),
        }
        each = self.connection.dialect.each.format("?")
        parts = [_SETTINGS]
        values: list[Any] = [number, number]
        for kind, keys in wanted.items():
            if keys:
                parts.append(_CHECKS[kind].format(each))
                values += [number, json.dumps(list(keys))]
                values += [clock.iso(now or _LONG_AGO)] if kind == "tombstone" else []
        if scope == self.scope and number not in self.held:  # most transactions need it
            parts.append(STATE)
            values.append(number)
        by_kind: dict[str, dict[str, list[str]]] = defaultdict(dict)
        (found,) = await self.connection.read([(" UNION ALL ".join(parts), values)], scope=number)
        for kind, key, *rest in found:
            by_kind[kind][key] = rest
        for has_tombstones, state in by_kind["scope"].items():
            self.note_state(number, has_tombstones, *state)
        if [scope.user, ""] not in by_kind["revision"].values():  # the user was erased
            self.numbers.pop(scope, None)
            return Checks()
        stored = {name: value for name, (value, _) in by_kind["setting"].items()}
        flags = {name: stored[name] == "true" for name in stored if hasattr(SpaceSettings, name)}
        is_default = flags.get("incognito_default", False)
        marks = excepted if is_default else incognito
        marked = {name for mark, name in marks.items() if mark in by_kind["session"]}
        seen = {}
        for id, (kept, outcome) in by_kind["message"].items():
            is_same = kept == self.digest(messages[id])
            seen[id] = SeenBefore(same=is_same, outcome=rows.load_outcome(outcome, id))
        return Checks(
            settings=SpaceSettings(**flags),
            stored=stored,
            incognito=frozenset(asked - marked if is_default else marked),
            tombstones=frozenset(chain(*(digests[key] for key in by_kind["tombstone"]))),
            seen=seen,
            same=frozenset(by_kind["same"]),
            sequences={key: int(last) for key, (last, _) in by_kind["sequence"].items() if last},
            revision=int(next(iter(by_kind["revision"]))),
        )

    def note_state(self, number: int, has_tombstones: str, revision: str, user: str) -> None:
        """Note what `STATE` has read. Raises RevisionConflict."""
        if self.scope is not None and user != self.scope.user:
            raise RevisionConflict("Everything of this user was just erased: try again")
        self.has_tombstones = bool(has_tombstones)
        self.held[number] = int(revision)

    async def tombstones(self, scope: Scope, texts: Iterable[str], now: datetime) -> frozenset[str]:
        """Return those of the texts that were forgotten and must not be stored yet."""
        if scope == self.scope and not self.has_tombstones:
            return frozenset()
        return (await self.checks(scope, texts=texts, now=now)).tombstones

    def session_mark(self, session: str, is_on: bool) -> str:
        """Return the digest that marks a session as incognito, or as excepted from incognito."""
        return self.digest(f"{'incognito' if is_on else 'open'}\0{session}")

    async def versions(self, scope: Scope, id: str) -> list[str]:
        """Return the texts of a memory, earliest version first, even if a row was altered."""
        # OR would not use an index. The memory itself comes last, regardless of its row.
        sql = f"""SELECT text, {2**62} FROM memories WHERE scope = ? AND id = ? UNION ALL
        SELECT text, row FROM memories WHERE scope = ? AND superseded_by = ? ORDER BY 2"""
        number = await self.number(scope)
        found = await self.rows(scope, sql, (id, number, id))
        return [row[0] for row in found]

    async def earlier_versions(self, scope: Scope, ids: Sequence[str]) -> list[str]:
        """Return the ids of earlier versions of memories: of the first one, newest first, …"""
        sql = "SELECT row, id, superseded_by FROM memories WHERE scope = ?"
        found = await self.rows_in(scope, sql, "superseded_by", ids)
        places = {id: place for place, id in enumerate(ids)}
        found.sort(key=lambda row: (places[row[2]], -row[0]))
        return [row[1] for row in found]

    async def derived_from(self, scope: Scope, ids: Sequence[str]) -> dict[str, Memory]:
        """Return the memories, by id, that have one of these as evidence or source."""
        each = self.connection.dialect.each.format
        lists = {name: each(name) for name in ("evidence_ids", "source_ids")}
        found: dict[str, Memory] = {}
        for portion in portions(ids):
            clause = DERIVED_FROM.format(**lists, **{"in": placeholders(portion)})
            sql = f"SELECT row, {_COLUMNS} FROM memories WHERE scope = ? AND {clause} ORDER BY row DESC"
            page = await self.rows(scope, sql, (*portion, *portion))
            found |= {each.id: each for each in (await rows.memories(page, scope)).values()}
        return found

    async def relations(
        self, scope: Scope, type: str, *, limit: int, from_id: str | None = None
    ) -> list[Relation]:
        """Return the relations of a type in a scope, or of one memory, newest first."""
        only, values = ("", ()) if from_id is None else ("AND r.from_id = ?", (from_id,))
        sql = f"""{_RELATION} WHERE r.scope = ? AND r.relation_type = ? {only}
        ORDER BY r.created_at DESC, r.id DESC LIMIT ?"""
        return rows.parse_all(Relation, await self.rows(scope, sql, (type, *values, limit)))

    async def links(
        self, scope: Scope, ids: Sequence[str], type: str = RELATED, *, either_end: bool = False
    ) -> list[Relation]:
        """Return the relations of these memories whose other end is active, strongest first."""
        found: dict[tuple[str, str], Relation] = {}
        for here, there in _ENDS[RELATED if either_end else type]:
            sql = f"""{_RELATION} JOIN memories m ON m.scope = r.scope AND m.id = r.{there}
            AND m.state = 'active' WHERE r.scope = ? AND r.relation_type = ?"""
            for row in await self.rows_in(scope, sql, f"r.{here}", ids, type):
                found[row[0], row[1]] = rows.parse(Relation, row)
        return sorted(found.values(), key=lambda each: (-each.strength, each.from_id, each.to_id))

    async def last_sequence(self, scope: Scope, session: str) -> int:
        """Return the highest sequence number used in a session, or -1."""
        sql = "SELECT coalesce(max(sequence), -1) FROM memories WHERE scope = ? AND session = ?"
        return int((await self.rows(scope, sql, (session,)) or [(-1,)])[0][0])
