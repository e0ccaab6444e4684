"""History, thread changes and events: the log of what happened, written in the same transaction as
the change.

The payload of an entry is sealed when it is written. Later, a job or a check links the entries into
a hash chain, so that altered, lost or moved entries are detected. The chain covers the seal, not the
payload: forgetting can clear the payload without breaking the chain, which still shows that
something happened, when and by whom.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Literal

from ..text import clock
from ..types import NODES, Memory, Scope, frozen
from . import Event, HistoryEntry, rows
from .database import EVERY, Batch
from .queries import Reader, placeholders

EMPTY = "{}"  # the payload of a forgotten memory's entries
_ENTRY = "SELECT id, memory_id, event, old_ref, new_ref, actor, meta, ts FROM history"
CHAINED = "id, memory_id, event, old_ref, new_ref, actor, ts"  # what the chain covers
_EVENT = "SELECT node, op, ts, status, thread_id, memory_id, category, sim FROM events"
_UNLINKED = f"""SELECT row, seal, meta, {CHAINED} FROM history WHERE scope = ? AND row > coalesce(
(SELECT max(row) FROM history WHERE scope = ? AND digest IS NOT NULL), 0) ORDER BY row LIMIT ?"""
LINKED_AT_ONCE = 10_000
FOREVER = datetime.max.replace(tzinfo=UTC)
# Fields that are not content: where a memory is stored, how often it was used or changed.
_ASIDE = (
    "id scope labels updated_at revision needs_embedding last_accessed access_count last_scores"
).split()
_CONTENT = tuple(each.name for each in fields(Memory) if each.name not in _ASIDE)
_TIMES = tuple(filter(re.compile("valid_|.*_at$").match, _CONTENT))
_LISTS = ("tags", "source_ids", "evidence", "evidence_ids")


@frozen
class ThreadChange:
    """One change of a thread."""

    revision: int  # of the thread; unique for each change
    memory_id: str
    event: str  # created · updated · merged · deleted · soft_deleted · restored
    at: datetime


@frozen
class Updates:
    """What changed in a thread after a revision."""

    thread: str
    since: int
    revision: int  # of the last of these changes: ask again from here
    changes: tuple[ThreadChange, ...]
    text: str  # the header for the prompt; empty if nothing changed
    more: int = 0  # changes that came after these


@frozen
class EventCount:
    """How often a part of the system did something on one day."""

    day: str  # 2026-11-16, UTC
    node: str
    op: str
    status: str
    count: int


@dataclass(frozen=True, slots=True)
class History:
    """Reads the history, the events and the changes of threads."""

    reader: Reader

    async def entries(
        self,
        scope: Scope,
        memory_id: str | None = None,
        *,
        limit: int = 100,
    ) -> list[HistoryEntry]:
        """Return the history of one memory, or of the scope, newest first."""
        only, values = ("", ()) if memory_id is None else ("AND memory_id = ?", (memory_id,))
        sql = f"{_ENTRY} WHERE scope = ? {only} ORDER BY row DESC LIMIT ?"
        found = await self.reader.rows(scope, sql, (*values, limit))
        return rows.parse_all(HistoryEntry, found)

    async def decisions(self, scope: Scope, ids: Sequence[str]) -> list[HistoryEntry]:
        """Return the entries of decisions about conflicts between these memories, oldest first."""
        sql = f"{_ENTRY} WHERE scope = ? AND meta ->> 'between' IS NOT NULL"
        found = await self.reader.rows_in(scope, sql, "memory_id", ids)
        entries = rows.parse_all(HistoryEntry, found)
        return sorted(entries, key=lambda entry: (entry.at, entry.id))

    async def find_spaces(self, tenant: str, user: str, memory_id: str) -> list[str]:
        """Return the spaces of a user in which a memory has this id, or had it, by name."""
        sql = """SELECT space FROM scopes s WHERE tenant = ? AND user_id = ?
        AND (EXISTS (SELECT 1 FROM memories WHERE scope = s.id AND id = ?)
        OR EXISTS (SELECT 1 FROM history WHERE scope = s.id AND memory_id = ?)) ORDER BY space"""
        values = (tenant, user, memory_id, memory_id)
        found = await self.reader.connection.rows(sql, values, scope=EVERY)
        return [space for (space,) in found]

    async def since(
        self,
        scope: Scope,
        name: Literal["operation", "session"],
        value: str,
    ) -> list[HistoryEntry]:
        """Return the entries since the first one of an operation or session, oldest first."""
        sql = f"""{_ENTRY} WHERE scope = ? AND row >= (SELECT min(row) FROM history
        WHERE scope = ? AND meta ->> '{name}' = ?) ORDER BY row"""
        found = await self.reader.rows(scope, sql, (await self.reader.number(scope), value))
        return rows.parse_all(HistoryEntry, found)

    async def events(
        self,
        scope: Scope,
        *,
        node: str | None,
        op: str | None,
        limit: int,
    ) -> list[Event]:
        """Return events, newest first."""
        sql = f"""{_EVENT} WHERE scope = ? AND user_id = ? AND node = coalesce(?, node)
        AND op = coalesce(?, op) ORDER BY ts DESC, id DESC LIMIT ?"""
        found = await self.reader.rows(scope, sql, (scope.user, node, op, limit))
        return rows.parse_all(Event, found)

    async def event_counts(
        self,
        scope: Scope | None,
        since: datetime,
        until: datetime = FOREVER,
    ) -> list[EventCount]:
        """Count events from `since` on and before `until`, by day, in one scope or in all."""
        connection = self.reader.connection
        times = (clock.iso(since), clock.iso(until))
        sql = f"""SELECT {connection.dialect.day.format("ts")}, node, op, status, count(*)
        FROM events WHERE {{}} AND ts >= ? AND ts < ? GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"""
        if scope is None:  # uses the index of nodes and times: older events are not read
            sql = sql.format(f"node IN ({placeholders(NODES)})")
            found = await connection.rows(sql, (*NODES, *times), scope=EVERY)
        else:
            sql = sql.format("scope = ? AND user_id = ?")
            found = await self.reader.rows(scope, sql, (scope.user, *times))
        return rows.parse_all(EventCount, found)


async def thread_changes(
    reader: Reader,
    scope: Scope,
    thread: str,
    since: int,
) -> list[ThreadChange]:
    """Return the changes of a thread after a revision that are still stored, oldest first."""
    sql = """SELECT rev, memory_id, event, ts FROM change_log
    WHERE scope = ? AND thread_id = ? AND rev > ? ORDER BY rev"""
    found = await reader.rows(scope, sql, (thread, since))
    return rows.parse_all(ThreadChange, found)


async def shown_revision(reading: Reader, scope: Scope, reader: str) -> int:
    """Return the revision up to which the changes of a thread were shown to a reader."""
    sql = "SELECT shown FROM thread_revision WHERE scope = ? AND thread_id = ?"
    found = await reading.rows(scope, sql, (reader,))
    return int(found[0][0]) if found else 0


async def chain(reader: Reader, scope: Scope) -> list[Batch]:
    """Return the batches that link the entries written since the last run, oldest first."""
    number = await reader.number(scope)
    heads = await reader.rows(scope, "SELECT head FROM scopes WHERE id = ?")
    head = heads[0][0] if heads else None
    secret = reader.connection.secret
    linked = []
    for row, seal, meta, *entry in await reader.rows(scope, _UNLINKED, (number, LINKED_AT_ONCE)):
        sealed = seal or rows.seal(secret, meta)
        head = link(secret, head, entry, sealed)
        linked.append((sealed, head, number, row))
    if not linked:
        return []
    return [
        ("UPDATE history SET seal = ?, digest = ? WHERE scope = ? AND row = ?", linked),
        ("UPDATE scopes SET head = ? WHERE id = ?", [(head, number)]),
    ]


def link(
    secret: bytes,
    before: str | None,
    entry: Sequence[Any],
    seal: str,
) -> str:
    """Return the digest of an entry together with that of the previous entry."""
    return rows.keyed_digest(secret, repr((before, *entry, seal)))


def changed_fields(old: Memory, new: Memory) -> dict[str, Any]:
    """Return the old values, as JSON, of the content fields that differ.

    Of a list that was continued, only what was added to its end or dropped from its beginning.
    """
    changed = {}
    for name in _CONTENT:
        before = getattr(old, name)
        after = getattr(new, name)
        if before == after:
            continue
        changed[name] = _read_field(old, name)
        if name in _LISTS and before:
            added = [each for each in after if each not in set(before)]
            kept = after[: len(after) - len(added)]
            dropped = before[: len(before) - len(kept)]
            if added and kept and (*dropped, *kept) == before:
                changed[name] = {"dropped": list(dropped), "added": added}
    return changed


def _read_field(of: Memory, name: str) -> Any:
    """Return one field of a memory as a JSON value."""
    value = getattr(of, name)
    if isinstance(value, datetime):
        return clock.iso(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if name in _LISTS else value


def with_fields(of: Memory, plain: Mapping[str, Any]) -> Memory:
    """Return the memory with some fields replaced, given as `changed_fields` returns them."""
    values = dict(plain)
    for name, value in plain.items():
        if name in _TIMES and value is not None:
            values[name] = clock.parse(value)
        elif name in _LISTS and isinstance(value, Mapping):
            added = set(value["added"])
            kept = [each for each in getattr(of, name) if each not in added]
            values[name] = (*value["dropped"], *kept)
        elif name in _LISTS:
            values[name] = tuple(value)
    return replace(of, **values)
