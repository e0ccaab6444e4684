"""What happened, written beside what was changed and in the same transaction: history, changes of threads, events."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from ..results import Entry
from ..text import clock
from ..text.clock import new_id
from ..types import Memory, Node, Op, Scope
from . import chain
from .changes import Happened, Put
from .database import Session

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
CAPACITY = "capacity"  # why a memory is put away in a scope that is full
Line = tuple[str, str, str, str, str]  # of a thread's log: thread, memory, event, payload, time


class Ledger:
    """Writes for one scope, in a transaction that holds its lock."""

    def __init__(self, session: Session, secret: bytes, scope: Scope) -> None:
        self._session, self._secret, self._scope = session, secret, scope
        self._head: list[str | None] = []  # the digest of the last entry, once it was read

    async def history(self, number: int, entries: Sequence[Entry]) -> None:
        """Add entries to the end of the chain."""
        if not entries:
            return
        if not self._head:
            self._head = list(
                (await self._session.rows("SELECT head FROM scopes WHERE id = ?", (number,)))[0]
            )
        await self._session.many(
            "INSERT INTO history (scope, id, memory_id, event, old_ref, new_ref, actor, ts, meta, seal, digest) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(number, *self._chained(entry)) for entry in entries],
            scope=number,
        )
        await self._session.rows(
            "UPDATE scopes SET head = ? WHERE id = ?", (self._head[0], number), scope=number
        )

    def _chained(self, entry: Entry) -> tuple[Any, ...]:
        meta = dumped(entry.meta)
        plain = (
            entry.id,
            entry.memory_id,
            entry.event,
            entry.old_ref,
            entry.new_ref,
            entry.actor,
            clock.iso(entry.at),
        )
        seal = chain.sealed(self._secret, meta)
        self._head = [chain.linked(self._secret, self._head[0], plain, seal)]
        return (*plain, meta, seal, self._head[0])

    async def changes(self, number: int, lines: Sequence[Line]) -> None:
        """Give each change of a thread the next revision of that thread."""
        revisions = {}
        for thread in sorted({line[0] for line in lines}):
            revisions[thread] = await self._taken(
                number, thread, sum(line[0] == thread for line in lines)
            )
        await self._session.many(
            "INSERT INTO change_log (id, scope, thread_id, rev, memory_id, event, meta, ts) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [(new_id(), number, line[0], next(revisions[line[0]]), *line[1:]) for line in lines],
            scope=number,
        )

    async def _taken(self, number: int, thread: str, many: int) -> count[int]:
        sql = (
            "INSERT INTO thread_revision (scope, thread_id, rev) VALUES (?, ?, ?) "
            "ON CONFLICT (scope, thread_id) DO UPDATE SET rev = thread_revision.rev + excluded.rev RETURNING rev"
        )
        last = int((await self._session.rows(sql, (number, thread, many), scope=number))[0][0])
        return count(last - many + 1)

    async def events(self, number: int, lines: Sequence[Happened]) -> None:
        """Note what the parts did."""
        await self._session.many(
            "INSERT INTO events (id, scope, user_id, thread_id, node, op, status, memory_id, category, sim, ts) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    new_id(),
                    number,
                    self._scope.user,
                    each.thread,
                    each.node,
                    each.op,
                    each.status,
                    each.memory_id,
                    each.category,
                    each.sim,
                    clock.iso(each.at),
                )
                for each in lines
            ],
            scope=number,
        )


def thread_of(memory: Memory) -> str | None:
    """The thread whose log a change of this memory belongs to."""
    return memory.labels.thread or memory.labels.session


def line_of(put: Put, told: Sequence[Put]) -> Line | None:
    """A change as its thread is told of it; None where it is not, or another one says the same."""
    memory, thread = put.memory, thread_of(put.memory)
    if thread is None or put.event in (None, "linked"):
        return None
    newer = [(memory.superseded_by, event, thread) for event in ("created", "merged")]
    if put.event == "superseded" and any(
        (p.memory.id, p.event, thread_of(p.memory)) in newer for p in told
    ):
        return None
    event = "updated" if put.event == "superseded" else str(put.event)
    return thread, memory.id, event, dumped(put.meta), clock.iso(memory.updated_at)


def event_of(put: Put) -> Happened:
    """A change as an event."""
    memory, op = put.memory, _OPS[str(put.event)]
    if op == "update" and "pinned" in put.meta:
        op = "pin" if memory.pinned else "unpin"
    is_trimmed = (
        put.meta.get("reason") == CAPACITY
    )  # by whoever filled the scope, and not by a worker
    is_workers = put.actor == "worker" or (op == "ttl" and not is_trimmed)
    node: Node = "worker" if is_workers else node_of(memory.kind)
    return Happened(
        node=node,
        op=op,
        at=memory.updated_at,
        thread=thread_of(memory),
        memory_id=memory.id,
        category=memory.category,
    )


def node_of(kind: str) -> Node:
    """Where memories of a kind are written."""
    return "episodic" if kind == "episodic" else "hotpath"


def dumped(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), ensure_ascii=False, sort_keys=True)
