"""Changing one scope, inside a transaction that holds the scope's write lock."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from ..errors import InvalidInput
from ..text import clock, normalize, tokens
from ..text.clock import new_id
from ..types import Memory, Scope
from . import erase, history, proposals, rows
from .changes import (
    Change,
    Comparison,
    Event,
    Forget,
    Relation,
    Save,
    SeenMessage,
    Unrelated,
)
from .database import Batch, Connection, Query, Rows, Values
from .history import HistoryEntry
from .proposals import Proposal
from .queries import Reader

THREAD_CHANGES_KEPT = 1000  # of each thread
_WRITTEN = ("scope", "changed", *rows.COLUMNS, "flags", "terms")
UPSERT = (
    f"INSERT INTO memories ({', '.join(_WRITTEN)}) VALUES ({', '.join('?' * len(_WRITTEN))}) "
    "ON CONFLICT (scope, id) DO UPDATE SET "
    f"{', '.join(f'{c} = excluded.{c}' for c in _WRITTEN if c not in ('id', 'scope'))}"
)
INSERT_VECTOR = (
    "INSERT INTO vectors (scope, memory, model, dims, embedding) "
    "SELECT scope, row, ?, ?, ? FROM memories WHERE scope = ? AND id = ? "
    "ON CONFLICT (scope, memory, model) DO UPDATE SET dims = excluded.dims, embedding = "
    "excluded.embedding"
)
_STALEINSERT_VECTORS = (
    "DELETE FROM vectors WHERE scope = ? AND memory = "
    "(SELECT row FROM memories WHERE scope = ? AND id = ? AND text <> ?)"
)
_MESSAGE = (
    "INSERT INTO messages (scope, id, session, role, name, at, text, digest, outcome) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, id) DO UPDATE SET "
    "text = excluded.text, outcome = excluded.outcome WHERE messages.digest = excluded.digest"
)
_STATE = (
    "SELECT 'scope', CASE WHEN EXISTS (SELECT 1 FROM tombstones t WHERE t.scope = s.id) THEN "
    "'yes' ELSE '' END, "
    "coalesce(head, ''), CAST(revision AS TEXT) FROM scopes s WHERE s.id = ?"
)


class Transaction(Reader):
    """Reads and writes under the scope's write lock: what it read cannot change before it commits.

    After a write that failed, nothing of the transaction is committed, even if the error is caught.
    """

    connection: Connection

    def __init__(
        self,
        connection: Connection,
        numbers: dict[Scope, int],
        *,
        scope: Scope,
        language: str,
    ) -> None:
        super().__init__(connection, numbers)
        self.scope = scope
        self.language = language
        self.operation = new_id()  # the name of this transaction in the history
        self.applied: list[Change] = []
        self.failure: BaseException | None = None
        self.new_number: int | None = None  # of a scope that this transaction created
        self._revision: int | None = None  # of the scope, before this transaction
        self._head: str | None = None  # the digest of the last entry of the history
        self._has_tombstones = True
        self._is_changed = False
        self._is_moved = False  # the new revision is written

    async def apply(self, changes: Sequence[Change]) -> None:
        """Make all the changes together with their history, or none of them."""
        if self.failure is not None:
            raise self.failure
        try:
            if wrong := [change for change in changes if not isinstance(change, Change)]:
                raise TypeError(f"{wrong[0]!r:.60} is not a change")
            saves = [change for change in changes if isinstance(change, Save)]
            events = [change for change in changes if isinstance(change, Event)]
            relations = [change for change in changes if isinstance(change, Relation)]
            ended = [change for change in changes if isinstance(change, Unrelated)]
            if saves:
                await self._save(saves, events)
            elif events and await self.number(self.scope) >= 0:
                # Where nothing was ever stored there is nothing to report.
                await self._insert_events(events)
            if relations or ended:
                await self._relate(relations, ended)
            for change in changes:
                if isinstance(change, Forget):
                    await self._forget(change)
        except BaseException as error:
            self.failure = error
            raise
        self.applied += changes

    async def number(self, scope: Scope) -> int:
        if self.new_number is not None and scope == self.scope:
            return self.new_number
        return await super().number(scope)

    async def create_scope(self) -> int:
        """Return the scope's number; the first write to a scope creates it."""
        number = await self.number(self.scope)
        if number < 0:
            key = (self.scope.tenant, self.scope.user, self.scope.space)
            sql = "INSERT INTO scopes (tenant, user_id, space) VALUES (?, ?, ?) RETURNING id"
            number = self.new_number = int((await self.connection.rows(sql, key))[0][0])
            self._revision = 0
        return number

    async def next_revision(self) -> tuple[int, int]:
        """Return the scope's number, and the revision that all changes of this transaction bear."""
        number = await self.create_scope()
        if self._revision is None:
            self._note_state((await self.connection.rows(_STATE, (number,), scope=number))[0])
        assert self._revision is not None
        if not self._is_changed:
            self._is_changed = True
            self.connection.notify_after_commit(number, self._revision + 1)
        return number, self._revision + 1

    def _note_state(self, row: Sequence[Any]) -> None:
        self._has_tombstones = bool(row[1])
        self._head = row[2] or None
        self._revision = int(row[3])

    async def revision(self, scope: Scope) -> int:
        if scope != self.scope or self._revision is None:
            return await super().revision(scope)
        return self._revision + self._is_changed

    async def _read_revision(self, number: int, query: Query) -> tuple[int, Rows]:
        if self._revision is None or number != await self.number(self.scope):
            return await super()._read_revision(number, query)
        return self._revision + self._is_changed, await self.connection.rows(*query, scope=number)

    async def _read_checks(self, number: int, sql: str, values: list[Any]) -> Rows:
        """Read the state of the scope in the same statement, since most transactions need it."""
        if self._revision is not None or number != await self.number(self.scope):
            return await super()._read_checks(number, sql, values)
        sql += f" UNION ALL {_STATE}"
        found = await self.connection.rows(sql, [*values, number], scope=number)
        for row in found:
            if row[0] == "scope":
                self._note_state(row)
        return found

    async def tombstones(self, scope: Scope, texts: Iterable[str], now: datetime) -> frozenset[str]:
        if not self._has_tombstones and scope == self.scope:
            return frozenset()
        return await super().tombstones(scope, texts, now)

    async def write(self, batches: Iterable[Batch]) -> None:
        """Run batches about this scope, in order, in one trip to the database."""
        wanted = [(sql, values) for sql, values in batches if values]
        if not wanted:
            return
        try:
            await self.connection.run(wanted, scope=await self.number(self.scope))
        except BaseException as error:
            self.failure = error
            raise

    async def write_each(self, sql: str, values: Iterable[Values]) -> None:
        """Run a statement for each set of values; the number of the scope is the first value of
        each."""
        number = await self.number(self.scope)
        await self.write([(sql, [(number, *each) for each in values])])

    async def _save(self, saves: Sequence[Save], events: Sequence[Event]) -> None:
        if any(save.memory.scope != self.scope for save in saves):
            raise InvalidInput("A memory can only be written to its own scope")
        number, changed = await self.next_revision()
        undo = await history.undo_payloads(self, self.scope, self.operation, saves)
        batches: list[Batch] = []
        known = [save for save in saves if save.event != "created"]
        # A vector belongs to one text, whatever its model.
        stale = [(number, number, save.memory.id, save.memory.text) for save in known]
        batches.append((_STALEINSERT_VECTORS, stale))
        batches.append((UPSERT, [self.memory_row(save.memory, number, changed) for save in saves]))
        vectors = []
        unburied = []
        for save in saves:
            memory = save.memory
            if save.vector is not None:
                vectors.append(vector_row(save.model, save.vector, number, memory.id))
            is_wanted = memory.manually_saved or memory.pinned or save.event == "restored"
            if memory.is_active and is_wanted:
                unburied.append((number, self.digest(normalize.wording(memory.text))))
        batches.append((INSERT_VECTOR, vectors))
        batches.append(("DELETE FROM tombstones WHERE scope = ? AND digest = ?", unburied))
        reported = [save for save in saves if save.event is not None]
        entries = []
        for save in reported:
            memory = save.memory
            entries.append(
                HistoryEntry(
                    id=new_id(),
                    memory_id=memory.id,
                    event=history.HISTORY_OF[str(save.event)],
                    old_ref=save.old_ref,
                    new_ref=f"{memory.id}#{memory.revision}",
                    actor=save.actor,
                    meta={**save.meta, **undo[memory.id]},
                    at=memory.updated_at,
                )
            )
        batches += self._append_history(number, changed, entries)
        lines = [history.thread_change(save, reported) for save in reported]
        batches.append(await history.thread_lines(self, number, [line for line in lines if line]))
        made = [history.event_of(save) for save in reported]
        batches.append(history.insert_events(number, self.scope.user, [*made, *events]))
        await self.write(batches)

    def memory_row(self, memory: Memory, number: int, changed: int) -> tuple[Any, ...]:
        """Return the values of `UPSERT`."""
        values = rows.values(memory)  # refuses what cannot be stored
        terms = tokens.terms_of(memory, self.language)
        return (number, changed, *values, tokens.flags_of(memory), terms)

    def _append_history(
        self, number: int, changed: int, entries: Sequence[HistoryEntry]
    ) -> list[Batch]:
        """Return the batches that append to the history and move the scope to its new revision."""
        batches, self._head = history.chain(self.connection.secret, self._head, number, entries)
        if entries or not self._is_moved:
            self._is_moved = True
            move = "UPDATE scopes SET revision = ?, head = ? WHERE id = ?"
            batches.append((move, [(changed, self._head, number)]))
        return batches

    async def touch(self, *batches: Batch, entries: Sequence[HistoryEntry] = ()) -> None:
        """Run batches as a change of the scope, and append entries to the history."""
        number, changed = await self.next_revision()
        await self.write([*batches, *self._append_history(number, changed, entries)])

    async def import_history(self, entries: Sequence[HistoryEntry]) -> None:
        """Append entries from elsewhere to the history; those that exist already stay as they
        are."""
        sql = "SELECT id FROM history WHERE scope = ?"
        ids = [entry.id for entry in entries]
        known = {row[0] for row in await self.rows_in(self.scope, sql, "id", ids)}
        await self.touch(entries=[entry for entry in entries if entry.id not in known])

    async def _forget(self, change: Forget) -> None:
        """Erase a memory with its earlier versions, and what rests on it alone."""
        gone = await erase.find(self, self.scope, change.memory_id)
        if not gone:  # another process was faster
            return
        number, changed = await self.next_revision()
        batches, entries = await erase.prepare(self, self.scope, change, gone, changed)
        self._has_tombstones = self._has_tombstones or not change.purged
        batches += self._append_history(number, changed, entries)
        thread = gone[0].thread
        if thread is not None:
            line = (thread, change.memory_id, "deleted", history.EMPTY, clock.iso(change.at))
            batches.append(await history.thread_lines(self, number, [line]))
        event = Event(
            node="worker" if change.purged else history.node_of(gone[0].kind),
            op="delete",
            at=change.at,
            thread=thread,
            memory_id=change.memory_id,
        )
        batches.append(history.insert_events(number, self.scope.user, [event]))
        self.connection.wipe_after_commit()
        await self.write(batches)

    async def decide_proposal(
        self, proposal: Proposal, decision: str, *, at: datetime, actor: str | None = None
    ) -> None:
        """Store a proposal as it now is; one that is denied, withdrawn or lapsed is deleted with
        its text."""
        number = await self.create_scope()
        batches = proposals.write(self.scope, number, proposal, decision)
        if decision == "denied":  # the person is never asked the same again
            batches.append(
                erase.tombstones(self, number, {f"{proposal.field}: {proposal.value}"}, None)
            )
        if decision in proposals.GONE:
            self.connection.wipe_after_commit()
        await self.touch(*batches, entries=[proposals.entry(proposal, decision, at, actor)])

    async def _insert_events(self, events: Sequence[Event]) -> None:
        number = await self.number(self.scope)
        await self.write([history.insert_events(number, self.scope.user, events)])

    async def _relate(self, relations: Sequence[Relation], ended: Sequence[Unrelated]) -> None:
        number = await self.number(self.scope)
        values = [
            (
                new_id(),
                number,
                each.from_id,
                each.to_id,
                each.type,
                each.strength,
                clock.iso(each.at),
            )
            for each in relations
        ]
        sql = (
            "INSERT INTO relations (id, scope, from_id, to_id, relation_type, strength, "
            "created_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, from_id, to_id, relation_type) "
            "DO UPDATE SET strength = excluded.strength"
        )
        gone = [(number, each.from_id, each.to_id, each.type) for each in ended]
        delete = (
            "DELETE FROM relations WHERE scope = ? AND from_id = ? AND to_id = ? AND "
            "relation_type = ?"
        )
        await self.write([(sql, values), (delete, gone)])

    async def save_messages(self, messages: Sequence[SeenMessage]) -> None:
        """Store messages and their outcomes."""
        if not messages:
            return
        number, _ = await self.next_revision()
        values = []
        for seen in messages:
            message = seen.message
            at = clock.iso(message.at) if message.at else None
            text = message.content if seen.keep_text else None
            who = (message.session, message.role, message.name, at)
            values.append(
                (
                    number,
                    seen.id,
                    *who,
                    text,
                    self.digest(seen.digest),
                    rows.dump_outcome(seen.outcome),
                )
            )
        await self.touch((_MESSAGE, values))

    async def record_comparisons(self, pairs: Sequence[Comparison]) -> None:
        """Store which pairs of memories were compared."""
        number = await self.number(self.scope)
        sql = (
            "INSERT INTO pair_fingerprints (scope, id_a, id_b, score, checked_at) VALUES (?, ?, "
            "?, ?, ?) "
            "ON CONFLICT (scope, id_a, id_b) DO UPDATE SET score = excluded.score, "
            "checked_at = excluded.checked_at"
        )
        values = [(number, each.a, each.b, each.score, clock.iso(each.at)) for each in pairs]
        await self.write([(sql, values)])

    async def add_tombstones(self, texts: Collection[str], until: datetime | None) -> None:
        """Prevent automatic re-creation of texts until then, or for ever."""
        self._has_tombstones = True
        await self.write([erase.tombstones(self, await self.create_scope(), texts, until)])

    async def mark_shown(self, thread: str, revision: int) -> None:
        """Store up to which revision the changes of a thread were shown."""
        number = await self.number(self.scope)
        sql = "UPDATE thread_revision SET shown = ? WHERE scope = ? AND thread_id = ? AND shown < ?"
        await self.write([(sql, [(revision, number, thread, revision)])])

    async def delete_old(self, before: datetime) -> None:
        """Delete events and comparisons from before a time, tombstones that ended before it, and
        all but the last changes of each thread."""
        number = await self.number(self.scope)
        old = (number, clock.iso(before))
        sql = (
            "DELETE FROM change_log WHERE scope = ? AND rev <= (SELECT t.rev FROM thread_revision "
            "t "
        )
        sql += "WHERE t.scope = change_log.scope AND t.thread_id = change_log.thread_id) - ?"
        await self.write(
            [
                ("DELETE FROM events WHERE scope = ? AND ts < ?", [old]),
                ("DELETE FROM pair_fingerprints WHERE scope = ? AND checked_at < ?", [old]),
                ("DELETE FROM tombstones WHERE scope = ? AND until < ?", [old]),
                (sql, [(number, THREAD_CHANGES_KEPT)]),
            ]
        )


def vector_row(model: str | None, vector: Any, number: int, memory_id: str) -> Values:
    numbers = np.asarray(vector, "<f4")
    return (model, len(numbers), numbers, number, memory_id)
