"""The statements that change one scope. They run inside a transaction that holds the scope's write lock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ..errors import Conflict, InvalidInput
from ..ids import new_id
from ..model import Change, Embedded, Forget, Memory, Outcome, Put, Said, Scope, Summary, Used
from ..text import clock, index, normalise
from . import rows
from .reading import Readings, digest
from .session import Session

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
    f"ON CONFLICT (id) DO UPDATE SET {', '.join(f'{c} = excluded.{c}' for c in _WRITTEN if c not in ('id', 'scope'))} "
    "WHERE memories.scope = excluded.scope"
)
_VECTOR = (
    "INSERT INTO vectors (scope, memory, model, dims, embedding) "
    "SELECT scope, row, ?, ?, ? FROM memories WHERE scope = ? AND id = ? "
    "ON CONFLICT (memory, model) DO UPDATE SET dims = excluded.dims, embedding = excluded.embedding"
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

    async def apply(self, changes: Sequence[Change]) -> None:
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
        for change in changes:
            if isinstance(change, Forget):
                await self._forget(change)
            elif isinstance(change, Summary):
                await self._summary(change)

    async def _begin(self) -> tuple[int, int]:
        """The scope's number and its next revision, both made when they are first needed."""
        number = await self.number(self._scope)
        if number < 0:
            key = (self._scope.tenant, self._scope.user, self._scope.space)
            sql = "INSERT INTO scopes (tenant, user_id, space) VALUES (?, ?, ?) RETURNING id"
            number = self._made = int((await self._session.rows(sql, key))[0][0])
        if self._changed is None:
            sql = "UPDATE scopes SET revision = revision + 1 WHERE id = ? RETURNING revision"
            self._changed = (await self._session.rows(sql, (number,)))[0][0]
        return number, self._changed

    async def _put(self, puts: Sequence[Put]) -> None:
        if not puts:
            return
        if any(put.memory.scope != self._scope for put in puts):
            raise InvalidInput("A memory can only be written to its own scope")
        number, changed = await self._begin()
        same = [(number, number, put.memory.id, put.memory.text) for put in puts]
        await self._session.many(_STALE_VECTORS, same)  # of whatever model: a vector belongs to one text
        await self._session.many(_UPSERT, [self._row(put.memory, number, changed) for put in puts])
        await self._only_ours([put.memory for put in puts], number)
        vectors = [_vector(put.model, put.vector, number, put.memory.id) for put in puts if put.vector is not None]
        await self._session.many(_VECTOR, vectors)
        wanted = [put.memory.text for put in puts if put.memory.manually_saved or put.memory.pinned]
        unburied = [(number, digest(self._secret, normalise.wording(text))) for text in wanted]
        await self._session.many("DELETE FROM tombstones WHERE scope = ? AND digest = ?", unburied)

    def _row(self, memory: Memory, number: int, changed: int) -> tuple[Any, ...]:
        return (number, changed, *rows.values(memory), index.flags_of(memory), index.terms_of(memory, self._language))

    async def _only_ours(self, memories: Sequence[Memory], number: int) -> None:
        """An id that another scope uses was left alone by the upsert: say so instead of losing the memory."""
        ids = [memory.id for memory in memories]
        found = await self._in("SELECT id FROM memories WHERE scope = ?", self._scope, "id", ids)
        taken = set(ids) - {row[0] for row in found}
        if taken:
            raise Conflict(f"Id {min(taken)!r} is already in use: import it under a new id")

    async def number(self, scope: Scope) -> int:
        return self._made if self._made is not None and scope == self._scope else await super().number(scope)

    async def _log(self, puts: Sequence[Put]) -> None:
        told = [put for put in puts if put.event is not None]
        number = await self.number(self._scope)
        await self._history([(put.memory.id, put.event, put.old_ref, _ref(put.memory), put.actor, put.meta,
                              clock.iso(put.memory.updated_at)) for put in told])  # fmt: skip
        threads = {put.memory.labels.thread or put.memory.labels.session for put in told} - {None}
        revs = {thread: await self._next_rev(number, str(thread)) for thread in sorted(map(str, threads))}
        await self._session.many(
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
        await self._session.many(
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
        await self._session.many(_VECTOR, [_vector(e.model, e.vector, number, e.memory_id) for e in made])
        for memory in await self.get(self._scope, [e.memory_id for e in made]):
            await self._session.many(_UPSERT, [self._row(replace(memory, needs_embedding=False), number, changed)])

    async def _said(self, messages: Sequence[Said]) -> None:
        if not messages:
            return
        number, _ = await self._begin()
        await self._session.many(
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
        await self._session.many(
            "UPDATE memories SET last_scores = ?, last_accessed = CASE WHEN ? THEN ? ELSE last_accessed END, "
            "access_count = access_count + ? WHERE scope = ? AND id = ?",
            [(_dump(u.scores), u.accessed, clock.iso(u.at), int(u.accessed), number, u.memory_id) for u in uses],
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
            ("UPDATE history SET meta = '{}' WHERE scope = ? AND memory_id = ?", [row[1:2] for row in gone]),
            ("UPDATE change_log SET meta = '{}' WHERE scope = ? AND memory_id = ?", [row[1:2] for row in gone]),
            (
                "UPDATE messages SET text = NULL, name = NULL WHERE scope = ? AND id = ?",
                [(source,) for source in sources],
            ),
        ):
            await self._session.many(sql, [(number, *key) for key in keys])
        meta = {"reason": change.reason} if change.reason else {}
        await self._history([(id, "deleted", None, None, change.actor, meta, clock.iso(change.at))])
        self.erased = True

    async def _bury(self, texts: set[str], number: int, change: Forget) -> None:
        """Leave a keyed digest of each text, so that it does not come back by itself."""
        until = clock.iso(change.until) if change.until else None
        await self._session.many(
            "INSERT INTO tombstones (scope, digest, until) VALUES (?, ?, ?) "
            "ON CONFLICT (scope, digest) DO UPDATE SET until = excluded.until",
            [(number, digest(self._secret, normalise.wording(text)), until) for text in texts],
        )

    async def _summary(self, change: Summary) -> None:
        number, _ = await self._begin()
        evidence = json.dumps(list(change.evidence_ids))
        kept = await self._session.rows(
            "INSERT INTO summaries (id, scope, record_type, name, data, evidence_ids, at) VALUES (?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET name = excluded.name, data = excluded.data, at = excluded.at, "
            "evidence_ids = excluded.evidence_ids "
            "WHERE summaries.scope = excluded.scope AND summaries.at <= excluded.at RETURNING id",
            (change.id, number, change.record_type, change.name, _dump(change.data), evidence, clock.iso(change.at)),
        )
        mine = "SELECT id FROM summaries WHERE scope = ? AND id = ?"
        if not kept and not await self._session.rows(mine, (number, change.id)):
            raise Conflict(f"Id {change.id!r} is already in use: import it under a new id")


def _told(outcome: Outcome) -> str:
    return json.dumps([outcome.status, list(outcome.ids), outcome.reason], ensure_ascii=False)


def _names(text: str) -> list[str]:
    """A list of references, or none where the row was altered."""
    with suppress(ValueError):
        found = json.loads(text)
        return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
    return []


def _vector(model: str | None, vector: Any, number: int, memory_id: str) -> tuple[Any, ...]:
    blob = np.asarray(vector, "<f4")
    return (model, len(blob), blob.tobytes(), number, memory_id)


def _ref(memory: Memory) -> str:
    return f"{memory.id}#{memory.revision}"


def _dump(value: Any) -> str:
    return json.dumps(dict(value), ensure_ascii=False, sort_keys=True)
