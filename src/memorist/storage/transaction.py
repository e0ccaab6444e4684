"""The statements that change one scope. They run inside a transaction that holds the scope's write lock."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

import numpy as np

from ..errors import InvalidInput, RevisionConflict, StoreDamaged
from ..results import Entry
from ..text import clock, derived, normalize
from ..text.clock import new_id
from ..types import Memory, Node, Scope
from . import history, rows
from .changes import (
    Bury,
    Change,
    Checked,
    Decided,
    Done,
    Embedded,
    Forget,
    Happened,
    Incognito,
    Put,
    Queue,
    Relation,
    Said,
    Setting,
    Shown,
    Summary,
    Unrelated,
    Used,
)
from .database import Session, Values
from .queries import Readings, digest

SOURCE_FORGOTTEN = (
    "source_forgotten"  # in a long-term record: the ids of what it rested on and is gone
)
CHANGES_KEPT = 1000  # of each thread
_WRITTEN = ("scope", "changed", *rows.COLUMNS, "flags", "terms")
_UPSERT = (
    f"INSERT INTO memories ({', '.join(_WRITTEN)}) VALUES ({', '.join('?' * len(_WRITTEN))}) "
    "ON CONFLICT (scope, id) DO UPDATE SET "
    f"{', '.join(f'{c} = excluded.{c}' for c in _WRITTEN if c not in ('id', 'scope'))}"
)
_VECTOR = (
    "INSERT INTO vectors (scope, memory, model, dims, embedding) "
    "SELECT scope, row, ?, ?, ? FROM memories WHERE scope = ? AND id = ? "
    "ON CONFLICT (scope, memory, model) DO UPDATE SET dims = excluded.dims, embedding = excluded.embedding"
)
_STALE_VECTORS = (
    "DELETE FROM vectors WHERE scope = ? AND memory = "
    "(SELECT row FROM memories WHERE scope = ? AND id = ? AND text <> ?)"
)


class Writings(Readings):
    """Reads and writes a scope through a session in a transaction. Implements `ports.Transaction`."""

    def __init__(
        self,
        session: Session,
        known: dict[Scope, int],
        secret: bytes,
        *,
        scope: Scope,
        language: str,
    ) -> None:
        super().__init__(session, known, secret)
        self._scope = scope
        self._language = language
        self._changed: int | None = None  # the scope's revision after this transaction
        self._made: int | None = (
            None  # the scope's number, where this transaction is the first to write there
        )
        self.erased = False
        self.operation = new_id()  # what this transaction is called in the history
        self._ledger = history.Ledger(session, secret, scope)
        self.failed: BaseException | None = (
            None  # a change was made by half, so nothing may be committed
        )

    @property
    def changed(self) -> tuple[int, int] | None:
        """The number of the scope and its new revision, if anything in it was changed."""
        number = self._made if self._made is not None else self._known.get(self._scope)
        return None if self._changed is None or number is None else (number, self._changed)

    async def apply(self, changes: Sequence[Change]) -> None:
        if self.failed is not None:
            raise self.failed
        try:
            await self._apply(changes)
        except BaseException as error:
            self.failed = error
            raise

    async def _apply(self, changes: Sequence[Change]) -> None:
        puts = [change for change in changes if isinstance(change, Put)]
        undo = await self._undo(puts)
        if brought := [change for change in changes if isinstance(change, Entry)]:
            await self._brought(brought)
        await self._put(puts)
        await self._log(puts, undo)
        if happened := [change for change in changes if isinstance(change, Happened)]:
            await self._happened(happened)
        await self._embedded([change for change in changes if isinstance(change, Embedded)])
        await self._said([change for change in changes if isinstance(change, Said)])
        await self._used([change for change in changes if isinstance(change, Used)])
        await self._related([change for change in changes if isinstance(change, Relation)])
        await self._unrelated([change for change in changes if isinstance(change, Unrelated)])
        await self._checked([change for change in changes if isinstance(change, Checked)])
        await self._queue([change for change in changes if isinstance(change, Queue)])
        for change in changes:
            if isinstance(change, Forget):
                await self._forget(change)
            elif isinstance(change, Done):
                await self._done(change)
            elif isinstance(change, Bury):
                await self._bury(change.texts, await self.place(), change.until)
            elif isinstance(change, Shown):
                await self._shown(change)
            elif isinstance(change, Summary):
                await self._summary(change)
            elif isinstance(change, Setting):
                await self._setting(change)
            elif isinstance(change, Incognito):
                await self._incognito(change)
            elif isinstance(change, Decided):
                await self._decided(change)

    async def reanalyse(self) -> None:
        """Make the terms and marks of all memories anew from their texts; give those fingerprints that have none.

        What has no vector is marked to get one.
        """
        number, changed = await self._begin()
        sql = f"SELECT row, {', '.join(rows.COLUMNS)} FROM memories WHERE scope = ? AND row > ? ORDER BY row LIMIT 500"
        after = 0
        while page := await self._rows(self._scope, sql, (after,)):
            made = [
                (row[0], memory) for row in page if (memory := self._readable(row[1:])) is not None
            ]
            known = "SELECT DISTINCT memory FROM vectors WHERE scope = ?"
            embedded = {
                row
                for (row,) in await self._in(known, self._scope, "memory", [row for row, _ in made])
            }
            mended = [_mended(memory, has_vector=row in embedded) for row, memory in made]
            await self._many(_UPSERT, [self._row(memory, number, changed) for memory in mended])
            after = page[-1][0]

    def _readable(self, row: Values) -> Memory | None:
        with suppress(StoreDamaged):  # `check` tells of it; the others can still be found
            return rows.memory(row, self._scope)
        return None

    async def place(self) -> int:
        """The scope's number, made if this is the first to write there."""
        number = await self.number(self._scope)
        if number < 0:
            key = (self._scope.tenant, self._scope.user, self._scope.space)
            sql = "INSERT INTO scopes (tenant, user_id, space) VALUES (?, ?, ?) RETURNING id"
            number = self._made = int((await self._session.rows(sql, key))[0][0])
        return number

    def wipe(self) -> None:
        """Words were removed: no trace of them is to stay behind."""
        self.erased = True

    async def _begin(self) -> tuple[int, int]:
        """The scope's number and its next revision, both made when they are first needed."""
        number = await self.place()
        if self._changed is None:
            sql = "UPDATE scopes SET revision = revision + 1 WHERE id = ? RETURNING revision"
            self._changed = (await self._session.rows(sql, (number,), scope=number))[0][0]
        return number, self._changed

    async def _put(self, puts: Sequence[Put]) -> None:
        if not puts:
            return
        if any(put.memory.scope != self._scope for put in puts):
            raise InvalidInput("A memory can only be written to its own scope")
        number, changed = await self._begin()
        made = [self._row(put.memory, number, changed) for put in puts]
        same = [(number, number, put.memory.id, put.memory.text) for put in puts]
        await self._many(_STALE_VECTORS, same)  # of whatever model: a vector belongs to one text
        await self._many(_UPSERT, made)
        vectors = [
            _vector(put.model, put.vector, number, put.memory.id)
            for put in puts
            if put.vector is not None
        ]
        await self._many(_VECTOR, vectors)
        wanted = [put.memory.text for put in puts if put.memory.is_active and _is_wanted(put)]
        unburied = [(number, digest(self._secret, normalize.wording(text))) for text in wanted]
        await self._many("DELETE FROM tombstones WHERE scope = ? AND digest = ?", unburied)

    def _row(self, memory: Memory, number: int, changed: int) -> tuple[Any, ...]:
        return (
            number,
            changed,
            *rows.values(memory),
            derived.flags_of(memory),
            derived.terms_of(memory, self._language),
        )

    async def number(self, scope: Scope) -> int:
        return (
            self._made
            if self._made is not None and scope == self._scope
            else await super().number(scope)
        )

    async def _many(self, sql: str, values: Sequence[Values]) -> None:
        if values:
            await self._session.many(sql, values, scope=await self.number(self._scope))

    async def _undo(self, puts: Sequence[Put]) -> dict[str, dict[str, Any]]:
        """What the history keeps beside each change so that it can be undone: operation, session, the fields before."""
        changed = [put.memory.id for put in puts if put.event not in (None, "created")]
        old = (
            {memory.id: memory for memory in await self.get(self._scope, changed)}
            if changed
            else {}
        )
        out: dict[str, dict[str, Any]] = {}
        for put in (each for each in puts if each.event is not None):
            kept = out[put.memory.id] = {"operation": self.operation}
            session = put.memory.labels.session if put.event == "created" else None
            kept |= {"session": session} if session and "session" not in put.meta else {}
            if put.memory.id in old:
                kept["before"] = derived.changed_fields(old[put.memory.id], put.memory)
        return out

    async def _log(self, puts: Sequence[Put], undo: Mapping[str, Mapping[str, Any]]) -> None:
        told = [put for put in puts if put.event is not None]
        if not told:
            return
        number, _ = await self._begin()
        await self._history(
            [
                (
                    put.memory.id,
                    put.event,
                    put.old_ref,
                    _ref(put.memory),
                    put.actor,
                    {**put.meta, **undo[put.memory.id]},
                    put.memory.updated_at,
                )
                for put in told
            ]
        )
        lines = (history.line_of(put, told) for put in told)
        await self._ledger.changes(number, [line for line in lines if line is not None])
        await self._ledger.events(number, [history.event_of(put) for put in told])

    async def _history(self, entries: Sequence[tuple[Any, ...]]) -> None:
        number, _ = await self._begin()
        made = [
            Entry(
                id=new_id(),
                memory_id=memory_id,
                event=history.HISTORY_OF[event],
                old_ref=old,
                new_ref=new,
                actor=actor,
                meta=meta,
                at=at,
            )
            for memory_id, event, old, new, actor, meta, at in entries
        ]
        await self._ledger.history(number, made)

    async def _brought(self, entries: Sequence[Entry]) -> None:
        """Entries from elsewhere; those that are here already stay as they are."""
        number, _ = await self._begin()
        there = await self._in(
            "SELECT id FROM history WHERE scope = ?", self._scope, "id", [e.id for e in entries]
        )
        await self._ledger.history(
            number, [entry for entry in entries if (entry.id,) not in set(there)]
        )

    async def _happened(self, lines: Sequence[Happened]) -> None:
        number = await self.number(self._scope)
        if number >= 0:  # nobody asks what happened where nothing was ever remembered
            await self._ledger.events(number, lines)

    async def _shown(self, change: Shown) -> None:
        number = await self.number(self._scope)
        sql = "UPDATE thread_revision SET shown = ? WHERE scope = ? AND thread_id = ? AND shown < ?"
        await self._many(sql, [(change.revision, number, change.thread, change.revision)])

    async def tidy(self, before: datetime) -> None:
        """Let go of what is from before a time, and of all but the last changes of each thread."""
        number = await self.number(self._scope)
        for old in (
            "events WHERE scope = ? AND ts",
            "pair_fingerprints WHERE scope = ? AND checked_at",
            "tombstones WHERE scope = ? AND until",
        ):
            await self._many(f"DELETE FROM {old} < ?", [(number, clock.iso(before))])
        sql = "DELETE FROM change_log WHERE scope = ? AND rev <= (SELECT t.rev FROM thread_revision t "
        sql += "WHERE t.scope = change_log.scope AND t.thread_id = change_log.thread_id) - ?"
        await self._many(sql, [(number, CHANGES_KEPT)])

    async def _embedded(self, made: Sequence[Embedded]) -> None:
        if not made:
            return
        number, changed = await self._begin()
        await self._many(_VECTOR, [_vector(e.model, e.vector, number, e.memory_id) for e in made])
        done = [
            replace(memory, needs_embedding=False)
            for memory in await self.get(self._scope, [e.memory_id for e in made])
        ]
        sql = "UPDATE memories SET needs_embedding = 0, row_hash = ?, changed = ? WHERE scope = ? AND id = ?"
        await self._many(
            sql, [(rows.values(m)[len(rows.HASHED)], changed, number, m.id) for m in done]
        )

    async def _said(self, messages: Sequence[Said]) -> None:
        if not messages:
            return
        number, _ = await self._begin()
        await self._many(
            "INSERT INTO messages (scope, id, session, role, name, at, text, digest, outcome) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, id) DO UPDATE SET "
            "text = excluded.text, outcome = excluded.outcome WHERE messages.digest = excluded.digest",
            [
                (
                    number,
                    s.id,
                    s.message.session,
                    s.message.role,
                    s.message.name,
                    clock.iso(s.message.at) if s.message.at else None,
                    s.message.content if s.keep_text else None,
                    digest(self._secret, s.digest),
                    rows.dump_outcome(s.outcome),
                )
                for s in messages
            ],
        )

    async def _used(self, uses: Sequence[Used]) -> None:
        number = await self.number(self._scope)
        await self._many(
            "UPDATE memories SET last_scores = ?, last_accessed = CASE WHEN ? THEN ? ELSE last_accessed END, "
            "access_count = access_count + ? WHERE scope = ? AND id = ?",
            [
                (
                    history.dumped(u.scores),
                    u.accessed,
                    clock.iso(u.at),
                    int(u.accessed),
                    number,
                    u.memory_id,
                )
                for u in uses
            ],
        )

    async def _related(self, relations: Sequence[Relation]) -> None:
        number = await self.number(self._scope)
        await self._many(
            "INSERT INTO relations (id, scope, from_id, to_id, relation_type, strength, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, from_id, to_id, relation_type) DO UPDATE SET "
            "strength = excluded.strength",
            [
                (new_id(), number, r.from_id, r.to_id, r.type, r.strength, clock.iso(r.at))
                for r in relations
            ],
        )

    async def _unrelated(self, ended: Sequence[Unrelated]) -> None:
        number = await self.number(self._scope)
        await self._many(
            "DELETE FROM relations WHERE scope = ? AND from_id = ? AND to_id = ? AND relation_type = ?",
            [(number, each.from_id, each.to_id, each.type) for each in ended],
        )

    async def _checked(self, pairs: Sequence[Checked]) -> None:
        number = await self.number(self._scope)
        sql = "INSERT INTO pair_fingerprints (scope, id_a, id_b, score, checked_at) VALUES (?, ?, ?, ?, ?) "
        sql += "ON CONFLICT (scope, id_a, id_b) DO UPDATE SET score = excluded.score, checked_at = excluded.checked_at"
        await self._many(
            sql, [(number, pair.a, pair.b, pair.score, clock.iso(pair.at)) for pair in pairs]
        )

    async def _queue(self, wanted: Sequence[Queue]) -> None:
        if not wanted:
            return
        number = await self.place()
        sql = "INSERT INTO tasks (scope, name, key, payload, due_at) VALUES (?, ?, ?, ?, ?) "
        sql += "ON CONFLICT (scope, name, key) DO UPDATE SET due_at = excluded.due_at, payload = excluded.payload "
        sql += "WHERE tasks.due_at > excluded.due_at"
        made = [
            (number, each.name, each.key, history.dumped(each.payload), clock.iso(each.due_at))
            for each in wanted
        ]
        await self._many(sql, made)

    async def _done(self, change: Done) -> None:
        number, task, again = await self.number(self._scope), change.task, change.again_at
        key = (number, task.name, task.key, task.lease)
        sql = (
            "DELETE FROM tasks"
            if again is None
            else "UPDATE tasks SET due_at = ?, attempts = 0, lease = NULL"
        )
        sql += " WHERE scope = ? AND name = ? AND key = ? AND lease = ? RETURNING key"
        values = key if again is None else (clock.iso(again), *key)
        if not await self._session.rows(sql, values, scope=number):
            raise RevisionConflict(
                f"The task {task.name!r} was given to somebody else in the meantime"
            )

    async def _forget(self, change: Forget) -> None:
        """Remove the words wherever they stand: row, vector, terms, message, history, earlier versions."""
        number, changed = await self._begin()
        id = change.memory_id
        sql = "SELECT row, id, source_ids, source_message_id, text, coalesce(thread, session), kind FROM memories"
        either = (f"{sql} WHERE scope = ? AND {column} = ?" for column in ("id", "superseded_by"))
        gone = await self._session.rows(
            " UNION ALL ".join(either), (number, id, number, id)
        )  # OR would use no index
        if not gone:  # somebody else was faster
            return
        if not change.purged:
            await self._bury({row[4] for row in gone}, number, change.until)
            await self._unsupported(
                [row[1] for row in gone], {normalize.wording(row[4]) for row in gone}, number
            )
            await self._unproposed([row[1] for row in gone], change.at)
        sources = {source for row in gone for source in (*_names(row[2]), row[3]) if source}
        for sql, keys in (
            (
                "INSERT INTO erased (scope, row, changed) VALUES (?, ?, ?)",
                [(row[0], changed) for row in gone],
            ),
            ("DELETE FROM vectors WHERE scope = ? AND memory = ?", [row[:1] for row in gone]),
            ("DELETE FROM memories WHERE scope = ? AND row = ?", [row[:1] for row in gone]),
            ("DELETE FROM relations WHERE scope = ? AND from_id = ?", [row[1:2] for row in gone]),
            ("DELETE FROM relations WHERE scope = ? AND to_id = ?", [row[1:2] for row in gone]),
            (
                "UPDATE history SET meta = '{}' WHERE scope = ? AND memory_id = ?",
                [row[1:2] for row in gone],
            ),
            (
                "UPDATE history SET meta = '{}' WHERE scope = ? AND old_ref = ?",
                [row[1:2] for row in gone],
            ),
            (
                "UPDATE change_log SET meta = '{}' WHERE scope = ? AND memory_id = ?",
                [row[1:2] for row in gone],
            ),
            (
                "UPDATE events SET category = NULL WHERE scope = ? AND memory_id = ?",
                [row[1:2] for row in gone],
            ),
            (
                "UPDATE messages SET text = NULL, name = NULL WHERE scope = ? AND id = ?",
                [(source,) for source in sources],
            ),
        ):
            await self._many(sql, [(number, *key) for key in keys])
        meta = {"reason": change.reason} if change.reason else {}
        await self._history([(id, "deleted", None, None, change.actor, meta, change.at)])
        await self._told_gone(change, *next((row for row in gone if row[1] == id), gone[0])[5:])
        self.erased = True

    async def _told_gone(self, change: Forget, thread: str | None, kind: str) -> None:
        number, id = await self.number(self._scope), change.memory_id
        if thread is not None:
            await self._ledger.changes(
                number, [(thread, id, "deleted", "{}", clock.iso(change.at))]
            )
        node: Node = "worker" if change.purged else history.node_of(kind)
        await self._ledger.events(
            number, [Happened(node=node, op="delete", at=change.at, thread=thread, memory_id=id)]
        )

    async def _unsupported(self, gone: Sequence[str], words: Collection[str], number: int) -> None:
        """Long-term records that rest on what is gone alone go too; others lose the reference, and are marked."""
        marks = ", ".join("?" * len(gone))
        sql = "SELECT id, data, evidence_ids FROM summaries WHERE scope = ? AND EXISTS (SELECT 1 FROM "
        sql += f"{self._session.dialect.each.format('evidence_ids')} WHERE value IN ({marks}))"
        for id, data, evidence in await self._rows(self._scope, sql, gone):
            left = [each for each in _names(evidence) if each not in gone]
            if not left:
                await self._many("DELETE FROM summaries WHERE scope = ? AND id = ?", [(number, id)])
                continue
            kept = _without(rows.loaded(data), words) | {SOURCE_FORGOTTEN: sorted(gone)}
            again = (history.dumped(kept), json.dumps(left), number, id)
            await self._many(
                "UPDATE summaries SET data = ?, evidence_ids = ? WHERE scope = ? AND id = ?",
                [again],
            )

    async def _bury(self, texts: Collection[str], number: int, until: datetime | None) -> None:
        """Leave a keyed digest of each text, so that it does not come back by itself; the longer time counts."""
        end = clock.iso(until) if until else None
        await self._many(
            "INSERT INTO tombstones (scope, digest, until) VALUES (?, ?, ?) "
            "ON CONFLICT (scope, digest) DO UPDATE SET until = CASE WHEN tombstones.until IS NULL "
            "OR tombstones.until > excluded.until THEN tombstones.until ELSE excluded.until END",
            [(number, digest(self._secret, normalize.wording(text)), end) for text in texts],
        )

    async def _summary(self, change: Summary) -> None:
        number, _ = await self._begin()
        evidence = json.dumps(list(change.evidence_ids))
        await self._session.rows(
            "INSERT INTO summaries (id, scope, record_type, name, data, evidence_ids, at) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (scope, id) DO UPDATE SET name = excluded.name, data = excluded.data, at = excluded.at, "
            "evidence_ids = excluded.evidence_ids WHERE summaries.at <= excluded.at",
            (
                change.id,
                number,
                change.record_type,
                change.name,
                history.dumped(change.data),
                evidence,
                clock.iso(change.at),
            ),
        )

    async def _setting(self, change: Setting) -> None:
        number = await self.place()
        sql = "INSERT INTO space_settings (scope, key, value) VALUES (?, ?, ?) "
        sql += "ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value"
        await self._many(sql, [(number, change.name, "true" if change.value else "false")])
        meta = {change.name: change.value}
        await self._history([("settings", "updated", None, None, change.actor, meta, change.at)])
        if change.name == "memory_enabled":
            turned = Happened(
                node="hotpath", op="enable" if change.value else "disable", at=change.at
            )
            await self._ledger.events(number, [turned])

    async def _incognito(self, change: Incognito) -> None:
        """Note it without a word of the session, not even its name; so nothing stands in the history.

        That there was one more on that day is counted.
        """
        number = await self.place()
        now, before = (
            self.mark(change.session, is_on) for is_on in (change.is_on, not change.is_on)
        )
        sql = "INSERT INTO incognito_sessions (scope, session, started_at) VALUES (?, ?, ?) "
        await self._many(
            sql + "ON CONFLICT (scope, session) DO NOTHING", [(number, now, clock.iso(change.at))]
        )
        await self._many(
            "DELETE FROM incognito_sessions WHERE scope = ? AND session = ?", [(number, before)]
        )
        if change.is_on:
            day = change.at.replace(hour=0, minute=0, second=0, microsecond=0)
            await self._ledger.events(number, [Happened(node="hotpath", op="incognito", at=day)])

    async def _decided(self, change: Decided) -> None:
        """Write a proposal as it stands; one that is denied, withdrawn or lapsed goes with its words."""
        number, made = await self.place(), change.proposal
        is_gone = change.decision in ("denied", "withdrawn", "lapsed")
        await self._many(
            "DELETE FROM consent_queue WHERE scope = ? AND id = ?", [(number, made.id)]
        )
        if change.decision == "denied":  # nobody is to ask the person the same thing again
            await self._bury({f"{made.field}: {made.value}"}, number, None)
        if not is_gone:
            await self._many(
                "INSERT INTO consent_queue (id, scope, field, proposal, decided, created_at, lapses_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        made.id,
                        number,
                        made.field,
                        rows.proposed(made, self._scope),
                        made.decided,
                        clock.iso(made.at),
                        clock.iso(made.lapses_at),
                    )
                ],
            )
        self.erased = self.erased or is_gone
        event = {"proposed": "created"}.get(change.decision, "deleted" if is_gone else "updated")
        meta = {"field": made.field, "decision": change.decision}
        await self._history([(made.id, event, None, None, change.actor, meta, change.at)])

    async def _unproposed(self, gone: Collection[str], at: datetime) -> None:
        """What was inferred from what is gone alone goes too, unless the person agreed to it."""
        with suppress(StoreDamaged):  # what cannot be trusted does not keep anybody from forgetting
            for made in await self.proposals(self._scope):
                left = {memory.id for memory in await self.get(self._scope, made.evidence)} - set(
                    gone
                )
                if made.decided in (None, "corroborated") and not left:
                    await self._decided(Decided(proposal=made, decision="withdrawn", at=at))


def _mended(memory: Memory, *, has_vector: bool) -> Memory:
    return replace(
        memory,
        simhash=memory.simhash or normalize.simhash64(memory.text),
        content_hash=memory.content_hash or normalize.content_hash(memory.text),
        needs_embedding=memory.needs_embedding or not has_vector,
    )


def _is_wanted(put: Put) -> bool:
    """Somebody wants this text kept, even if it was forgotten before."""
    return put.memory.manually_saved or put.memory.pinned or put.event == "restored"


def _without(data: Mapping[str, Any], words: Collection[str]) -> dict[str, Any]:
    """A record without the lines that say what was forgotten."""
    return {
        name: [
            each
            for each in lines
            if not isinstance(each, str) or normalize.wording(each) not in words
        ]
        if isinstance(lines, list)
        else lines
        for name, lines in data.items()
    }


def _names(text: str) -> list[str]:
    """A list of references, or none where the row was altered."""
    with suppress(ValueError):
        found = json.loads(text)
        return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
    return []


def _vector(model: str | None, vector: Any, number: int, memory_id: str) -> tuple[Any, ...]:
    numbers = np.asarray(vector, "<f4")
    return (model, len(numbers), numbers, number, memory_id)


def _ref(memory: Memory) -> str:
    return f"{memory.id}#{memory.revision}"
