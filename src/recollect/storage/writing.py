"""The statements that change one scope. They run inside a transaction that holds the scope's write lock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import InvalidInput, StoreDamaged
from ..ids import new_id
from ..model import (
    Change,
    Embedded,
    Forget,
    Memory,
    Outcome,
    Put,
    Relation,
    Said,
    Scope,
    Summary,
    Unrelated,
    Used,
)
from ..text import clock, index, normalise
from . import rows
from .reading import Readings, digest
from .session import Session, Values

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
        self, session: Session, known: dict[Scope, int], secret: bytes, *, scope: Scope, language: str
    ) -> None:
        super().__init__(session, known, secret)
        self._scope = scope
        self._language = language
        self._changed: int | None = None  # the scope's revision after this transaction
        self._made: int | None = None  # the scope's number, where this transaction is the first to write there
        self.erased = False
        self.failed: BaseException | None = None  # a change was made by half, so nothing may be committed

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
        await self._put(puts)
        await self._log(puts)
        await self._embedded([change for change in changes if isinstance(change, Embedded)])
        await self._said([change for change in changes if isinstance(change, Said)])
        await self._used([change for change in changes if isinstance(change, Used)])
        await self._related([change for change in changes if isinstance(change, Relation)])
        await self._unrelated([change for change in changes if isinstance(change, Unrelated)])
        for change in changes:
            if isinstance(change, Forget):
                await self._forget(change)
            elif isinstance(change, Summary):
                await self._summary(change)

    async def reanalyse(self) -> None:
        """Make the terms and marks of all memories anew from their texts."""
        number, changed = await self._begin()
        sql = f"SELECT row, {', '.join(rows.COLUMNS)} FROM memories WHERE scope = ? AND row > ? ORDER BY row LIMIT 500"
        after = 0
        while page := await self._rows(self._scope, sql, (after,)):
            made = [(row[0], memory) for row in page if (memory := self._readable(row[1:])) is not None]
            await self._many(
                "UPDATE memories SET terms = ?, flags = ?, changed = ? WHERE scope = ? AND row = ?",
                [(index.terms_of(m, self._language), index.flags_of(m), changed, number, row) for row, m in made],
            )
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
        vectors = [_vector(put.model, put.vector, number, put.memory.id) for put in puts if put.vector is not None]
        await self._many(_VECTOR, vectors)
        wanted = [put.memory.text for put in puts if put.memory.manually_saved or put.memory.pinned]
        unburied = [(number, digest(self._secret, normalise.wording(text))) for text in wanted]
        await self._many("DELETE FROM tombstones WHERE scope = ? AND digest = ?", unburied)

    def _row(self, memory: Memory, number: int, changed: int) -> tuple[Any, ...]:
        return (number, changed, *rows.values(memory), index.flags_of(memory), index.terms_of(memory, self._language))

    async def number(self, scope: Scope) -> int:
        return self._made if self._made is not None and scope == self._scope else await super().number(scope)

    async def _many(self, sql: str, values: Sequence[Values]) -> None:
        if values:
            await self._session.many(sql, values, scope=await self.number(self._scope))

    async def _log(self, puts: Sequence[Put]) -> None:
        told = [put for put in puts if put.event is not None]
        number = await self.number(self._scope)
        await self._history([(put.memory.id, put.event, put.old_ref, _ref(put.memory), put.actor, put.meta,
                              clock.iso(put.memory.updated_at)) for put in told])  # fmt: skip
        threads = {put.memory.labels.thread or put.memory.labels.session for put in told} - {None}
        revs = {thread: await self._next_rev(number, str(thread)) for thread in sorted(map(str, threads))}
        await self._many(
            "INSERT INTO change_log (id, scope, thread_id, rev, memory_id, event, meta, ts) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (new_id(), number, thread, revs[thread], put.memory.id, put.event, _dump(put.meta),
                 clock.iso(put.memory.updated_at))
                for put in told
                if (thread := put.memory.labels.thread or put.memory.labels.session)
            ],
        )  # fmt: skip

    async def _next_rev(self, number: int, thread: str) -> int:
        sql = (
            "INSERT INTO thread_revision (scope, thread_id, rev) VALUES (?, ?, 1) "
            "ON CONFLICT (scope, thread_id) DO UPDATE SET rev = thread_revision.rev + 1 RETURNING rev"
        )
        return int((await self._session.rows(sql, (number, thread)))[0][0])

    async def _history(self, entries: Sequence[tuple[Any, ...]]) -> None:
        number = await self.number(self._scope)
        await self._many(
            "INSERT INTO history (id, scope, memory_id, event, old_ref, new_ref, actor, meta, ts) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (new_id(), number, memory_id, HISTORY_OF[event], old, new, actor, _dump(meta), ts)
                for memory_id, event, old, new, actor, meta, ts in entries
            ],
        )

    async def _embedded(self, made: Sequence[Embedded]) -> None:
        if not made:
            return
        number, changed = await self._begin()
        await self._many(_VECTOR, [_vector(e.model, e.vector, number, e.memory_id) for e in made])
        for memory in await self.get(self._scope, [e.memory_id for e in made]):
            await self._many(_UPSERT, [self._row(replace(memory, needs_embedding=False), number, changed)])

    async def _said(self, messages: Sequence[Said]) -> None:
        if not messages:
            return
        number, _ = await self._begin()
        await self._many(
            "INSERT INTO messages (scope, id, session, role, name, at, text, digest, outcome) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, id) DO UPDATE SET "
            "text = excluded.text, outcome = excluded.outcome WHERE messages.digest = excluded.digest",
            [
                (number, s.id, s.message.session, s.message.role, s.message.name,
                 clock.iso(s.message.at) if s.message.at else None, s.message.content if s.keep_text else None,
                 digest(self._secret, s.digest), _told(s.outcome))
                for s in messages
            ],
        )  # fmt: skip

    async def _used(self, uses: Sequence[Used]) -> None:
        number = await self.number(self._scope)
        await self._many(
            "UPDATE memories SET last_scores = ?, last_accessed = CASE WHEN ? THEN ? ELSE last_accessed END, "
            "access_count = access_count + ? WHERE scope = ? AND id = ?",
            [(_dump(u.scores), u.accessed, clock.iso(u.at), int(u.accessed), number, u.memory_id) for u in uses],
        )

    async def _related(self, relations: Sequence[Relation]) -> None:
        number = await self.number(self._scope)
        await self._many(
            "INSERT INTO relations (id, scope, from_id, to_id, relation_type, strength, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, from_id, to_id, relation_type) DO UPDATE SET "
            "strength = excluded.strength",
            [(new_id(), number, r.from_id, r.to_id, r.type, r.strength, clock.iso(r.at)) for r in relations],
        )

    async def _unrelated(self, ended: Sequence[Unrelated]) -> None:
        number = await self.number(self._scope)
        await self._many(
            "DELETE FROM relations WHERE scope = ? AND from_id = ? AND to_id = ? AND relation_type = ?",
            [(number, each.from_id, each.to_id, each.type) for each in ended],
        )

    async def _forget(self, change: Forget) -> None:
        """Remove the words wherever they stand: row, vector, terms, message, history, earlier versions."""
        number, changed = await self._begin()
        id = change.memory_id
        gone = await self._session.rows(
            "SELECT row, id, source_ids, source_message_id, text FROM memories "
            "WHERE scope = ? AND (id = ? OR superseded_by = ?)",
            (number, id, id),
        )
        if not gone:  # somebody else was faster
            return
        await self._bury({row[4] for row in gone}, number, change)
        sources = {source for row in gone for source in (*_names(row[2]), row[3]) if source}
        for sql, keys in (
            ("INSERT INTO erased (scope, row, changed) VALUES (?, ?, ?)", [(row[0], changed) for row in gone]),
            ("DELETE FROM vectors WHERE scope = ? AND memory = ?", [row[:1] for row in gone]),
            ("DELETE FROM memories WHERE scope = ? AND row = ?", [row[:1] for row in gone]),
            ("DELETE FROM relations WHERE scope = ? AND from_id = ?", [row[1:2] for row in gone]),
            ("DELETE FROM relations WHERE scope = ? AND to_id = ?", [row[1:2] for row in gone]),
            ("UPDATE history SET meta = '{}' WHERE scope = ? AND memory_id = ?", [row[1:2] for row in gone]),
            ("UPDATE change_log SET meta = '{}' WHERE scope = ? AND memory_id = ?", [row[1:2] for row in gone]),
            (
                "UPDATE messages SET text = NULL, name = NULL WHERE scope = ? AND id = ?",
                [(source,) for source in sources],
            ),
        ):
            await self._many(sql, [(number, *key) for key in keys])
        meta = {"reason": change.reason} if change.reason else {}
        await self._history([(id, "deleted", None, None, change.actor, meta, clock.iso(change.at))])
        self.erased = True

    async def _bury(self, texts: set[str], number: int, change: Forget) -> None:
        """Leave a keyed digest of each text, so that it does not come back by itself."""
        until = clock.iso(change.until) if change.until else None
        await self._many(
            "INSERT INTO tombstones (scope, digest, until) VALUES (?, ?, ?) "
            "ON CONFLICT (scope, digest) DO UPDATE SET until = excluded.until",
            [(number, digest(self._secret, normalise.wording(text)), until) for text in texts],
        )

    async def _summary(self, change: Summary) -> None:
        number, _ = await self._begin()
        evidence = json.dumps(list(change.evidence_ids))
        await self._session.rows(
            "INSERT INTO summaries (id, scope, record_type, name, data, evidence_ids, at) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (scope, id) DO UPDATE SET name = excluded.name, data = excluded.data, at = excluded.at, "
            "evidence_ids = excluded.evidence_ids WHERE summaries.at <= excluded.at",
            (change.id, number, change.record_type, change.name, _dump(change.data), evidence, clock.iso(change.at)),
        )


def _told(outcome: Outcome) -> str:
    return json.dumps([outcome.status, list(outcome.ids), outcome.reason], ensure_ascii=False)


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


def _dump(value: Any) -> str:
    return json.dumps(dict(value), ensure_ascii=False, sort_keys=True)
