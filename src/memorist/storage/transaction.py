"""Open transactions, and change one scope in a transaction that holds the scope's write lock."""

from __future__ import annotations

import asyncio
from collections import ChainMap, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ..errors import InvalidInput, RevisionConflict
from ..text import clock
from ..text.second_process import LONG
from ..types import Memory, Op, Scope
from . import (
    Change,
    Event,
    Forget,
    HistoryEntry,
    Relation,
    Save,
    SeenMessage,
    Unrelated,
    erase,
    history,
    rows,
)
from .database import Batch, Connection, Database, LogRow, Values
from .queries import STATE, Reader

CAPACITY = "capacity"  # reason for hiding a memory of a full scope
THREAD_CHANGES_KEPT = 1000  # of each thread
_DELETE_STALE_VECTORS = """DELETE FROM vectors WHERE scope = ? AND memory =
(SELECT row FROM memories WHERE scope = ? AND id = ? AND text <> ?)"""
_MESSAGE = """INSERT INTO messages
(scope, id, session, role, name, at, text, digest, outcome) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (scope, id) DO UPDATE SET text = excluded.text, outcome = excluded.outcome
WHERE messages.digest = excluded.digest"""
_RELATE = """INSERT INTO relations
(id, scope, from_id, to_id, relation_type, strength, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (scope, from_id, to_id, relation_type) DO UPDATE SET strength = excluded.strength"""
_UNRELATE = """DELETE FROM relations
WHERE scope = ? AND from_id = ? AND to_id = ? AND relation_type = ?"""
_COMPARED = """INSERT INTO pair_fingerprints (scope, id_a, id_b, score, checked_at)
VALUES (?, ?, ?, ?, ?) ON CONFLICT (scope, id_a, id_b)
DO UPDATE SET score = excluded.score, checked_at = excluded.checked_at"""
_OLD_THREAD_CHANGES = """DELETE FROM change_log WHERE scope = ? AND rev <= (SELECT t.rev
FROM thread_revision t WHERE t.scope = change_log.scope
AND t.thread_id = change_log.thread_id) - ?"""
_SHOWN = """INSERT INTO thread_revision (scope, thread_id, rev, shown) VALUES (?, ?, 0, ?)
ON CONFLICT (scope, thread_id) DO UPDATE SET shown = excluded.shown
WHERE thread_revision.shown < excluded.shown"""
# The names of a memory's events in the history and in the event log.
_WORDS: dict[str | None, tuple[str, Op]] = {
    "created": ("ADD", "create"),
    "updated": ("UPDATE", "update"),
    "superseded": ("UPDATE", "update"),
    "merged": ("MERGE", "merge"),
    "deleted": ("DELETE", "delete"),
    "soft_deleted": ("TTL", "ttl"),
    "restored": ("RESTORE", "update"),
    "linked": ("LINK", "link"),
}


@dataclass(eq=False, repr=False, kw_only=True)
class Transaction(Reader):
    """Reads and writes under the scope's write lock: what it reads cannot change before it commits.

    After a failed write, nothing of the transaction is committed, even if the error is caught.
    """

    connection: Connection
    scope: Scope
    language: str
    operation: str = field(default_factory=clock.new_id)  # names it in the history
    is_command: bool = False  # the operation is a chat command, maybe with other transactions
    applied: list[Change] = field(default_factory=list)
    erased: dict[str, str] = field(default_factory=dict)  # texts by id, earlier versions included
    merged: list[str] = field(default_factory=list)  # wordings that were merged into erased ones
    failure: BaseException | None = None
    _is_changed: bool = False

    async def apply(self, changes: Sequence[Change]) -> None:
        """Apply all changes together with their history, or none of them."""
        if self.failure is not None:
            raise self.failure
        try:
            kinds: dict[type[Any], list[Any]] = defaultdict(list)
            for change in changes:
                if not isinstance(change, Change):
                    raise TypeError(f"{change!r:.60} is not a change")
                kinds[type(change)].append(change)
            events = kinds[Event]
            if kinds[Save]:
                await self._save(kinds[Save], events)
            elif events and (number := await self.number(self.scope)) >= 0:
                # Nothing is reported of a scope in which nothing was ever stored.
                user = self.scope.user
                await self._write_log([rows.event_row(number, user, event) for event in events])
            if related := kinds[Relation] + kinds[Unrelated]:
                await self._relate(related)
            gone: set[str] = set()
            for forget in kinds[Forget]:
                if forget.memory_id not in gone:
                    gone |= await self._forget(forget)
        except BaseException as error:
            self.failure = error
            raise
        self.applied += changes

    async def create_scope(self) -> int:
        """Return the scope's number; the first write to a scope creates it."""
        number = self.numbers.get(self.scope) or await self.number(self.scope)
        if number < 0:
            key = (self.scope.tenant, self.scope.user, self.scope.space)
            sql = "INSERT INTO scopes (tenant, user_id, space) VALUES (?, ?, ?) RETURNING id"
            ((created,),) = await self.connection.rows(sql, key)
            number = int(created)
            self.numbers[self.scope] = number
            self.held[number] = 0
        return number

    async def next_revision(self) -> tuple[int, int]:
        """Return the scope's number and the revision of all changes of this transaction."""
        number = await self.create_scope()
        if number not in self.held:
            (found,) = await self.connection.read([(STATE, (number,))], scope=number)
            for _, *state in found:
                self.note_state(number, *state)
        if not self._is_changed:
            self._is_changed = True
            self.held[number] += 1
            self.connection.notify_after_commit(number, self.held[number])
        return number, self.held[number]

    async def write(self, batches: Iterable[Batch]) -> None:
        """Run batches about this scope, in order, in one round trip to the database."""
        wanted = [(sql, values) for sql, values in batches if values]
        if not wanted:
            return
        try:
            await self.connection.run(wanted, scope=self.numbers.get(self.scope, -1))
        except BaseException as error:
            self.failure = error
            raise

    async def write_each(self, sql: str, values: Iterable[Values]) -> None:
        """Run a statement for each set of values, which the number of the scope precedes."""
        number = self.numbers.get(self.scope) or await self.number(self.scope)
        await self.write([(sql, [(number, *each) for each in values])])

    async def _write_log(self, log: Iterable[LogRow], *batches: Batch) -> None:
        """Run batches and write to the log in one round trip."""
        sealed = []
        for row in log:
            if row.meta is not None:
                seal = rows.seal(self.connection.secret, row.meta)
                row = row._replace(seal=seal)
            sealed.append(row)
        logged = self.connection.dialect.log(sealed)
        await self.write([*batches, *logged])

    async def touch(self, *batches: Batch, entries: Sequence[HistoryEntry] = ()) -> None:
        """Run batches as a change of the scope and append entries to the history."""
        number, changed = await self.next_revision()
        log = [rows.entry_row(number, entry) for entry in entries]
        move = "UPDATE scopes SET revision = ? WHERE id = ?"
        await self._write_log(log, *batches, (move, [(changed, number)]))

    async def _save(self, saves: Sequence[Save], events: Sequence[Event]) -> None:
        if any(save.memory.scope != self.scope for save in saves):
            raise InvalidInput("A memory can only be written to its own scope")
        number, changed = await self.next_revision()
        changing = [save.memory.id for save in saves if save.event not in (None, "created")]
        before: dict[str, Memory] = {}
        if changing:
            before = {memory.id: memory for memory in await self.get(self.scope, changing)}
        stale = []  # a vector belongs to one text, regardless of the model
        wanted = []
        reported = []
        replacing = set()  # a thread reports a memory once: as created, not as superseded
        for save in saves:
            memory = save.memory
            if save.event != "created":
                stale.append((number, number, memory.id, memory.text))
            is_wanted = memory.manually_saved or memory.pinned or save.event == "restored"
            if memory.state == "active" and is_wanted:
                wanted += [(number, digest) for digest in self.tombstone_digests(memory.text)]
            if save.event is not None:
                reported.append(save)
            if save.event in ("created", "merged"):
                replacing.add((memory.id, memory.labels.thread or memory.labels.session))
        log = [self._save_row(number, save, replacing, before) for save in reported]
        log += [rows.event_row(number, self.scope.user, event) for event in events]
        # If there is nothing to report, the log still sets the new revision of the scope.
        log = log or [LogRow(scope=number)]
        log[0] = log[0]._replace(revision=changed)
        vectors = []
        for save in saves:
            if save.vector is not None:
                vectors.append(rows.vector_row(save.model, save.vector, number, save.memory.id))
            if save.second is not None:
                vectors.append(rows.vector_row(*save.second, number, save.memory.id))
        memories = [save.memory for save in saves]
        size = sum(len(memory.text) for memory in memories)

        def make_rows() -> list[tuple[Any, ...]]:
            return [rows.row_values(memory, self.language) for memory in memories]

        values = make_rows() if size <= LONG else await asyncio.to_thread(make_rows)
        stored = [(number, changed, *each) for each in values]
        await self._write_log(
            log,
            (_DELETE_STALE_VECTORS, stale),
            (rows.UPSERT, stored),
            (rows.INSERT_VECTOR, vectors),
            ("DELETE FROM tombstones WHERE scope = ? AND digest = ?", wanted),
        )

    def _save_row(
        self,
        number: int,
        save: Save,
        replacing: Collection[tuple[str, str | None]],
        before: dict[str, Memory],
    ) -> LogRow:
        """Return the row of the log for a saved memory. The history gets what undo needs: the
        operation, the session and the previous values of changed fields."""
        memory = save.memory
        word, op = _WORDS[save.event]
        undo: dict[str, Any] = {"operation": self.operation}
        undo |= {"command": True} if self.is_command else {}
        session = memory.labels.session if save.event == "created" else None
        if session and "session" not in save.meta:
            undo["session"] = session
        if memory.id in before and "final" not in save.meta:  # the fields may quote what is erased
            undo["before"] = history.changed_fields(before[memory.id], memory)
        undo |= {"merged": list(save.merged)} if save.merged else {}
        if op == "update" and "pinned" in save.meta:
            op = "pin" if memory.pinned else "unpin"
        # A full scope is trimmed by the write that filled it, not by a worker.
        is_trimmed = save.meta.get("reason") == CAPACITY
        is_workers = save.actor == "worker" or (op == "ttl" and not is_trimmed)
        thread = memory.labels.thread or memory.labels.session  # whose change log it belongs to
        is_replaced = save.event == "superseded" and (memory.superseded_by, thread) in replacing
        has_line = thread is not None and save.event != "linked" and not is_replaced
        return LogRow(
            scope=number,
            at=clock.iso(memory.updated_at),
            id=clock.new_id(),
            event_id=clock.new_id(),
            line_id=clock.new_id() if has_line else None,
            memory_id=memory.id,
            event=word,
            old_ref=save.old_ref,
            new_ref=f"{memory.id}#{memory.revision}",
            actor=save.actor,
            meta=rows.dump_json({**save.meta, **undo}),
            user=self.scope.user,
            thread=thread,
            node="worker" if is_workers else rows.node_of(memory.kind),
            op=op,
            status="ok",
            category=memory.category,
            line_event="updated" if save.event == "superseded" else save.event,
            line_meta=rows.dump_json(save.meta),
        )

    async def import_history(self, entries: Sequence[HistoryEntry]) -> None:
        """Append entries of another store to the history; existing ones are left alone."""
        sql = "SELECT id FROM history WHERE scope = ?"
        found = await self.rows_in(self.scope, sql, "id", [entry.id for entry in entries])
        known = {row[0] for row in found}
        new = [entry for entry in entries if entry.id not in known]
        await self.touch(entries=new)

    async def link_history(self) -> None:
        """Link history entries that are not yet part of the hash chain."""
        await self.write(await history.chain(self, self.scope))

    async def _forget(self, change: Forget) -> set[str]:
        """Erase a memory with its earlier versions, and what was derived only from it. Return the
        ids of the erased rows."""
        traces = await erase.find(self, self.scope, change)
        if traces is None:  # another process has already erased it
            return set()
        texts = {each.id: each.text for each in traces.gone}
        self.erased |= texts
        self.merged += traces.merged
        number, changed = await self.next_revision()
        batches, log = await erase.prepare(self, self.scope, number, change, traces, changed)
        self.has_tombstones = self.has_tombstones or not change.purged
        self.connection.wipe_after_commit()
        await self._write_log(log, *batches)
        return set(texts)

    async def _relate(self, changes: Sequence[Relation | Unrelated]) -> None:
        number = await self.number(self.scope)
        new = []
        ended = []
        for each in changes:
            key = (number, each.from_id, each.to_id, each.type)
            if isinstance(each, Unrelated):
                ended.append(key)
            else:
                new.append((clock.new_id(), *key, each.strength, clock.iso(each.at)))
        await self.write([(_RELATE, new), (_UNRELATE, ended)])

    async def save_messages(self, messages: Sequence[SeenMessage]) -> None:
        """Store messages and their outcomes."""
        if not messages:
            return
        number, _ = await self.next_revision()
        values = []
        for seen in messages:
            message = seen.message
            at = clock.iso(message.at) if message.at else None
            about = (message.session, message.role, message.name, at)
            text = message.content if seen.keep_text else None
            outcome = rows.dump_outcome(seen.outcome)
            values.append((number, seen.id, *about, text, self.digest(seen.digest), outcome))
        await self.touch((_MESSAGE, values))

    async def record_comparisons(
        self, pairs: Iterable[tuple[str, str, float]], now: datetime
    ) -> None:
        """Store which pairs of memories a model compared: two ids, the smaller one first, and
        their cosine, rounded to two decimals."""
        await self.write_each(_COMPARED, [(*pair, clock.iso(now)) for pair in pairs])

    async def add_tombstones(
        self, texts: Collection[str], until: datetime | None, digests: Collection[str] = ()
    ) -> None:
        """Prevent automatic re-creation of texts, or of given digests, until a time or forever."""
        self.has_tombstones = True
        number = await self.create_scope()
        await self.write([erase.tombstones(self, number, texts, until, digests)])

    async def mark_shown(self, reader: str, revision: int) -> None:
        """Record the revision up to which the changes of a thread were shown to a reader."""
        await self.write_each(_SHOWN, [(reader, revision)])

    async def delete_old(self, before: datetime) -> None:
        """Delete events and comparisons older than a time, tombstones that expired before it, and
        all but the latest changes of each thread; link the history."""
        number = await self.number(self.scope)
        times = {"events": "ts", "pair_fingerprints": "checked_at", "tombstones": "until"}
        old = [(number, clock.iso(before))]
        batches: list[Batch] = [(_OLD_THREAD_CHANGES, [(number, THREAD_CHANGES_KEPT)])]
        for table, column in times.items():
            batches.append((f"DELETE FROM {table} WHERE scope = ? AND {column} < ?", old))
        await self.write(batches)
        await self.link_history()


class Transactions(Reader):
    """Reads any scope outside a transaction, and opens transactions on one scope."""

    def __init__(self, database: Database, language: str) -> None:
        super().__init__(database, {})
        self.database = database
        self.language = language
        self.on_commit: Callable[[Scope, Sequence[Change], int], None] | None = None

    @asynccontextmanager
    async def transaction(
        self, scope: Scope, *, command: str | None = None
    ) -> AsyncIterator[Transaction]:
        """Run the body in a transaction that holds the scope's write lock.

        Commits durably when the body ends, and rolls back if it raises. All transactions of one chat
        command are one operation of the history.
        """
        found: dict[Scope, int] = {}  # shared with others only after the commit
        number = self.numbers.get(scope)
        async with self.database.transaction(scope, number=number) as connection:
            tx = Transaction(
                connection=connection,
                numbers=ChainMap(found, self.numbers),
                scope=scope,
                language=self.language,
                operation=command or clock.new_id(),
                is_command=command is not None,
            )
            try:
                yield tx
            except RevisionConflict:  # the scope may have been erased
                self.numbers.pop(scope, None)
                raise
            if tx.failure is not None:
                raise tx.failure
        self.numbers.update(found)
        if self.on_commit is not None:
            revision = tx.held.get(self.numbers.get(scope, -1), 0)
            self.on_commit(scope, tx.applied, revision)
