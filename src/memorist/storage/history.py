"""What happened, written beside what was changed and in the same transaction: history, thread
changes, events.

The history is a chain: each entry is sealed together with the one before, so that none is altered,
lost or moved unnoticed. The payload of an entry has a seal of its own, and the chain covers the
seal. Forgetting can therefore empty the payload and leave the chain whole: it still shows that
something happened, when and by whom.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias

from ..text import clock, tokens
from ..text.clock import new_id
from ..types import NODES, Memory, Node, Op, Scope
from . import rows
from .changes import Event, Save
from .database import EVERY, Batch
from .filters import placeholders
from .queries import Reader

HISTORY_OF = {
    "created": "ADD",
    "updated": "UPDATE",
    "superseded": "UPDATE",
    "merged": "MERGE",
    "deleted": "DELETE",
    "soft_deleted": "TTL",
    "restored": "RESTORE",
    "linked": "LINK",
}
_OPS: dict[str, Op] = {
    "created": "create",
    "updated": "update",
    "superseded": "update",
    "merged": "merge",
    "deleted": "delete",
    "soft_deleted": "ttl",
    "restored": "update",
    "linked": "link",
}
CAPACITY = "capacity"  # the reason why a memory is hidden in a full scope
ThreadLine: TypeAlias = tuple[str, str, str, str, str]  # thread, memory, event, payload, time
_THREAD_REVISION = (
    "INSERT INTO thread_revision (scope, thread_id, rev) VALUES (?, ?, ?) "
    "ON CONFLICT (scope, thread_id) DO UPDATE SET rev = thread_revision.rev + excluded.rev "
    "RETURNING rev"
)
_THREAD_CHANGE = (
    "INSERT INTO change_log (id, scope, thread_id, rev, memory_id, event, meta, ts) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
EMPTY = "{}"  # the payload of a forgotten memory's entries
_COLUMNS = "id, memory_id, event, old_ref, new_ref, actor, meta, ts"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One line of the history."""

    id: str
    memory_id: str
    event: str  # ADD · UPDATE · DELETE · MERGE · LINK · TTL · RESTORE
    old_ref: str | None
    new_ref: str | None
    actor: str | None
    meta: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadChange:
    """One change of a thread."""

    revision: int  # of the thread; each change has one of its own
    memory_id: str
    event: str  # created · updated · merged · deleted · soft_deleted · restored
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Updates:
    """What changed in a thread after a revision."""

    thread: str
    since: int
    revision: int  # of the last of these changes: ask again from here
    changes: tuple[ThreadChange, ...]
    text: str  # the header to put before the model; empty if nothing changed
    more: int = 0  # changes that came after these


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCount:
    """How often a part of the system did something on one day."""

    day: str  # 2026-11-16, UTC
    node: str
    op: str
    status: str
    count: int


class History:
    """Reads the history, the events and the changes of threads."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def entries(
        self, scope: Scope, memory_id: str | None = None, *, limit: int = 100
    ) -> list[HistoryEntry]:
        """Return what happened to one memory, or in the scope, newest first."""
        sql = f"SELECT {_COLUMNS} FROM history WHERE scope = ?"
        values: list[Any] = [limit]
        if memory_id is not None:
            sql += " AND memory_id = ?"
            values.insert(0, memory_id)
        found = await self._reader.rows(scope, f"{sql} ORDER BY row DESC LIMIT ?", values)
        return [parse_entry(row) for row in found]

    async def since(
        self, scope: Scope, name: Literal["operation", "session"], value: str
    ) -> list[HistoryEntry]:
        """Return what happened since the first entry of an operation or a session, oldest first."""
        first = f"SELECT min(row) FROM history WHERE scope = ? AND meta ->> '{name}' = ?"
        sql = f"SELECT {_COLUMNS} FROM history WHERE scope = ? AND row >= ({first}) ORDER BY row"
        number = await self._reader.number(scope)
        return [parse_entry(row) for row in await self._reader.rows(scope, sql, (number, value))]

    async def events(
        self, scope: Scope, *, node: str | None, op: str | None, limit: int
    ) -> list[Event]:
        """Return events, newest first."""
        sql = "SELECT node, op, status, thread_id, memory_id, category, sim, ts FROM events "
        sql += "WHERE scope = ? AND user_id = ?"
        values: list[Any] = [scope.user]
        for column, value in (("node", node), ("op", op)):
            if value is not None:
                sql += f" AND {column} = ?"
                values.append(value)
        found = await self._reader.rows(
            scope, f"{sql} ORDER BY ts DESC, id DESC LIMIT ?", (*values, limit)
        )
        names = ("node", "op", "status", "thread", "memory_id", "category", "sim")
        return [
            Event(**dict(zip(names, row[:-1], strict=True)), at=rows.moment(row[-1]))
            for row in found
        ]

    async def event_counts(
        self, scope: Scope | None, since: datetime, until: datetime | None = None
    ) -> list[EventCount]:
        """Count events from `since` on and before `until`, by day, in one scope or in all."""
        day = self._reader.connection.dialect.day.format("ts")
        times = [clock.iso(since)]
        before = ""
        if until is not None:
            times.append(clock.iso(until))
            before = "AND ts < ? "
        sql = (
            f"SELECT {day}, node, op, status, count(*) FROM events WHERE {{}} AND ts >= ? {before}"
        )
        sql += "GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
        if scope is None:  # by the index of nodes and times: older events are not looked at
            sql = sql.format(f"node IN ({placeholders(len(NODES))})")
            found = await self._reader.connection.rows(sql, (*NODES, *times), scope=EVERY)
        else:
            sql = sql.format("scope = ? AND user_id = ?")
            found = await self._reader.rows(scope, sql, (scope.user, *times))
        return [
            EventCount(day=day, node=node, op=op, status=status, count=count)
            for day, node, op, status, count in found
        ]


async def thread_changes(
    reader: Reader, scope: Scope, thread: str, since: int
) -> list[ThreadChange]:
    """Return the changes of a thread after a revision, oldest first, as far back as they are
    stored."""
    sql = "SELECT rev, memory_id, event, ts FROM change_log WHERE scope = ? AND thread_id = ? "
    found = await reader.rows(scope, f"{sql}AND rev > ? ORDER BY rev", (thread, since))
    return [
        ThreadChange(revision=revision, memory_id=id, event=event, at=rows.moment(at))
        for revision, id, event, at in found
    ]


async def shown_revision(reader: Reader, scope: Scope, thread: str) -> int:
    """Return the revision up to which the changes of a thread were shown."""
    sql = "SELECT shown FROM thread_revision WHERE scope = ? AND thread_id = ?"
    found = await reader.rows(scope, sql, (thread,))
    return int(found[0][0]) if found else 0


def parse_entry(row: Sequence[Any]) -> HistoryEntry:
    """Return a row of the history as an entry."""
    id, memory_id, event, old, new, actor, meta, at = row
    return HistoryEntry(
        id=id,
        memory_id=memory_id,
        event=event,
        old_ref=old,
        new_ref=new,
        actor=actor,
        meta=rows.loaded(meta),
        at=rows.moment(at),
    )


def chain(
    secret: bytes, head: str | None, number: int, entries: Sequence[HistoryEntry]
) -> tuple[list[Batch], str | None]:
    """Return the batch that appends entries to the history, and the digest of the last one."""
    values = []
    for entry in entries:
        meta = dump_json(entry.meta)
        plain = (
            entry.id,
            entry.memory_id,
            entry.event,
            entry.old_ref,
            entry.new_ref,
            entry.actor,
            clock.iso(entry.at),
        )
        seal = seal_payload(secret, meta)
        head = link(secret, head, plain, seal)
        values.append((number, *plain, meta, seal, head))
    sql = (
        "INSERT INTO history (scope, id, memory_id, event, old_ref, new_ref, actor, ts, meta, "
        "seal, digest) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    return [(sql, values)], head


def insert_events(number: int, user: str, events: Iterable[Event]) -> Batch:
    """Return the batch that stores events."""
    sql = (
        "INSERT INTO events (id, scope, user_id, thread_id, node, op, status, memory_id, "
        "category, sim, ts) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    )
    values = []
    for each in events:
        what = (each.thread, each.node, each.op, each.status, each.memory_id, each.category)
        values.append((new_id(), number, user, *what, each.sim, clock.iso(each.at)))
    return sql, values


async def thread_lines(reader: Reader, number: int, lines: Sequence[ThreadLine]) -> Batch:
    """Return the batch that gives each change of a thread the next revision of that thread."""
    last: dict[str, int] = {}
    threads = [line[0] for line in lines]
    for thread in sorted(set(threads)):
        count = threads.count(thread)
        values = (number, thread, count)
        found = await reader.connection.rows(_THREAD_REVISION, values, scope=number)
        last[thread] = int(found[0][0]) - count
    made = []
    for thread, *line in lines:
        last[thread] += 1
        made.append((new_id(), number, thread, last[thread], *line))
    return _THREAD_CHANGE, made


def thread_of(memory: Memory) -> str | None:
    """Return the thread whose changes a change of this memory belongs to."""
    return memory.labels.thread or memory.labels.session


def thread_change(save: Save, saves: Sequence[Save]) -> ThreadLine | None:
    """Return a change as its thread reports it; None where it does not, or another change says
    the same."""
    memory = save.memory
    thread = thread_of(memory)
    if thread is None or save.event in (None, "linked"):
        return None
    if save.event == "superseded":
        for other in saves:
            is_newer = other.memory.id == memory.superseded_by
            is_here = thread_of(other.memory) == thread
            if is_newer and is_here and other.event in ("created", "merged"):
                return None
    event = "updated" if save.event == "superseded" else str(save.event)
    return thread, memory.id, event, dump_json(save.meta), clock.iso(memory.updated_at)


async def undo_payloads(
    reader: Reader, scope: Scope, operation: str, saves: Sequence[Save]
) -> dict[str, dict[str, Any]]:
    """Return what the history needs to undo each change: operation, session, the fields
    before."""
    changed = [save.memory.id for save in saves if save.event not in (None, "created")]
    old: dict[str, Memory] = {}
    if changed:
        old = {memory.id: memory for memory in await reader.get(scope, changed)}
    undo: dict[str, dict[str, Any]] = {}
    for save in saves:
        if save.event is None:
            continue
        memory = save.memory
        kept = undo[memory.id] = {"operation": operation}
        session = memory.labels.session if save.event == "created" else None
        if session and "session" not in save.meta:
            kept["session"] = session
        if memory.id in old:
            kept["before"] = tokens.changed_fields(old[memory.id], memory)
    return undo


def event_of(save: Save) -> Event:
    """Return a change of a memory as an event."""
    memory = save.memory
    op = _OPS[str(save.event)]
    if op == "update" and "pinned" in save.meta:
        op = "pin" if memory.pinned else "unpin"
    # A full scope is trimmed by the one that filled it, and not by a worker.
    is_trimmed = save.meta.get("reason") == CAPACITY
    is_workers = save.actor == "worker" or (op == "ttl" and not is_trimmed)
    return Event(
        node="worker" if is_workers else node_of(memory.kind),
        op=op,
        at=memory.updated_at,
        thread=thread_of(memory),
        memory_id=memory.id,
        category=memory.category,
    )


def node_of(kind: str) -> Node:
    """Return the node that writes memories of a kind."""
    return "episodic" if kind == "episodic" else "hotpath"


def dump_json(value: Mapping[str, Any]) -> str:
    """Return a mapping as JSON with sorted keys."""
    return json.dumps(dict(value), ensure_ascii=False, sort_keys=True)


def seal_payload(secret: bytes, meta: str) -> str:
    """Return the seal of a payload; it does not depend on how an engine formats its JSON."""
    return _digest(secret, json.dumps(json.loads(meta, parse_int=float), sort_keys=True))


def link(secret: bytes, before: str | None, entry: Sequence[Any], seal: str) -> str:
    """Return the digest of an entry together with the digest of the one before."""
    return _digest(secret, repr((before, *entry, seal)))


def _digest(secret: bytes, text: str) -> str:
    plain = text.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(plain, key=secret[:64], digest_size=16).hexdigest()
