"""Decisions of the person and records derived about them: settings of a space, incognito sessions,
decisions on proposals, long-term records, and what a chat command last showed them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from ..errors import StoreDamaged
from ..text import clock, normalize
from ..types import Filter, Scope, frozen
from . import Checks, Event, HistoryEntry, rows
from .conditions import condition
from .database import EVERY, Batch
from .erase import CHATS
from .queries import Reader
from .transaction import Transaction

_SETTING = """INSERT INTO space_settings (scope, key, value) VALUES (?, ?, ?)
ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value"""
_INCOGNITO = """INSERT INTO incognito_sessions (scope, session, started_at) VALUES (?, ?, ?)
ON CONFLICT (scope, session) DO NOTHING"""
_PROPOSAL = """INSERT INTO consent_queue
(scope, id, field, proposal, decided, created_at, lapses_at) VALUES (?, ?, ?, ?, ?, ?, ?)"""
_SUMMARIES = """SELECT id, record_type, name, data, evidence_ids, at FROM summaries
WHERE scope = ? AND record_type = ? ORDER BY at DESC, id DESC"""
_SUMMARY = """INSERT INTO summaries (id, scope, record_type, name, data, evidence_ids, at)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, id) DO UPDATE SET name = excluded.name,
data = excluded.data, at = excluded.at, evidence_ids = excluded.evidence_ids
WHERE summaries.at <= excluded.at"""
_EXPIRED = "DELETE FROM space_settings WHERE scope = ? AND key >= ? AND key < ? AND value < ?"
_OBEYED = f"{CHATS[0]}obeyed:"
_CHAT = "SELECT value FROM space_settings WHERE scope = ? AND key = ?"

_DELETED = ("denied", "withdrawn", "lapsed")  # decisions after which a proposal is deleted
RecordType = Literal["user_profile", "project_memory"]
SHOWN_FOR = timedelta(minutes=30)  # after that, an answer or a number refers to nothing
OBEYED_FOR = timedelta(days=1)  # after that, the same words may be meant for somebody else


@frozen
class Proposal:
    """A value for a field of the user context and the decision about it. The value never
    changes."""

    id: str
    field: str
    value: str
    at: datetime
    lapses_at: datetime
    evidence: tuple[str, ...] = ()  # the memories it was inferred from
    decided: str | None = None  # approved · corroborated · told; None while it is pending
    decided_at: datetime | None = None

    def is_lapsed(self, now: datetime) -> bool:
        """Return whether the person did not decide in time."""
        return self.decided is None and self.lapses_at <= now


@frozen
class Summary:
    """A long-term record made from memories: a profile of the person, or of a project."""

    id: str
    record_type: RecordType
    name: str
    data: Mapping[str, Any]
    evidence_ids: tuple[str, ...]
    at: datetime


@frozen
class Shown:
    """The list that a chat command last showed in a session, and what it asked. It has no words."""

    ids: tuple[str, ...] = ()
    asks: str = ""  # the intent that waits for an answer; empty if the list was only shown
    new: str = ""  # the memory that is to replace the chosen one


async def save_setting(
    tx: Transaction, name: str, value: bool, *, at: datetime, actor: str | None = None
) -> None:
    """Store a setting of the space."""
    number = await tx.create_scope()
    entry = HistoryEntry(
        id=clock.new_id(),
        memory_id="settings",
        event="UPDATE",
        old_ref=None,
        new_ref=None,
        actor=actor,
        meta={name: value},
        at=at,
    )
    await tx.touch((_SETTING, [(number, name, "true" if value else "false")]), entries=[entry])
    if name == "memory_enabled":
        await tx.apply([Event(node="hotpath", op="enable" if value else "disable", at=at)])


async def set_incognito(tx: Transaction, session: str, is_on: bool, *, at: datetime) -> None:
    """Begin or end the incognito mode of a session.

    The name of the session is stored as a digest only. Nothing is written to the history; incognito
    sessions are counted by day.
    """
    number = await tx.create_scope()
    delete = "DELETE FROM incognito_sessions WHERE scope = ? AND session = ?"
    await tx.write(
        [
            (_INCOGNITO, [(number, tx.session_mark(session, is_on), clock.iso(at))]),
            (delete, [(number, tx.session_mark(session, not is_on))]),
        ]
    )
    if is_on:
        day = at.replace(hour=0, minute=0, second=0, microsecond=0)
        await tx.apply([Event(node="hotpath", op="incognito", at=day)])


async def load_proposals(reader: Reader, scope: Scope) -> list[Proposal]:
    """Return the proposals that are pending or in force, oldest first. Raises StoreDamaged if one
    was altered."""
    sql = """SELECT id, field, proposal, decided, created_at, lapses_at FROM consent_queue
    WHERE scope = ? ORDER BY created_at, id"""
    found = []
    for id, field, text, decided, at, lapses_at in await reader.rows(scope, sql):
        *words, seal = rows.load_json(text) or ("",)
        if seal != _seal(id, field, decided, words, scope):
            raise StoreDamaged(rows.ALTERED)
        value, evidence, decided_at = words
        proposal = Proposal(
            id=id,
            field=field,
            value=value,
            evidence=tuple(evidence),
            decided=decided,
            at=rows.parse_time(at),
            lapses_at=rows.parse_time(lapses_at),
            decided_at=decided_at and rows.parse_time(decided_at),
        )
        found.append(proposal)
    return found


async def decide_proposal(
    tx: Transaction, proposal: Proposal, decision: str, *, at: datetime, actor: str | None = None
) -> None:
    """Store a proposal after a decision. A denied, withdrawn or lapsed one is deleted with its
    text.

    Decisions are proposed, supported, approved, corroborated, told, denied, lapsed and withdrawn.
    """
    number = await tx.create_scope()
    if decision == "denied":  # the person is not asked again
        await tx.add_tombstones([f"{proposal.field}: {proposal.value}"], None)
    delete = "DELETE FROM consent_queue WHERE scope = ? AND id = ?"
    batches: list[Batch] = [(delete, [(number, proposal.id)])]
    event = "ADD" if decision == "proposed" else "UPDATE"
    if decision in _DELETED:
        tx.connection.wipe_after_commit()
        event = "DELETE"
    else:
        decided_at = proposal.decided_at and clock.iso(proposal.decided_at)
        words = [proposal.value, list(proposal.evidence), decided_at]
        key = (proposal.id, proposal.field)
        seal = _seal(*key, proposal.decided, words, tx.scope)
        text = json.dumps([*words, seal], ensure_ascii=False)
        times = (clock.iso(proposal.at), clock.iso(proposal.lapses_at))
        batches.append((_PROPOSAL, [(number, *key, text, proposal.decided, *times)]))
    entry = HistoryEntry(
        id=clock.new_id(),
        memory_id=proposal.id,
        event=event,
        old_ref=None,
        new_ref=None,
        actor=actor,
        meta={"field": proposal.field, "decision": decision},
        at=at,
    )
    await tx.touch(*batches, entries=[entry])


def _seal(id: str, field: str, decided: str | None, words: Sequence[Any], scope: Scope) -> str:
    """Return a digest that ensures that only the value that was shown can be approved."""
    return rows.row_hash((id, field, decided, *words), scope).hex()


async def erase_lapsed(tx: Transaction, now: datetime) -> list[Proposal]:
    """Erase lapsed proposals; return those that are pending or in force."""
    left: list[Proposal] = []
    for each in await load_proposals(tx, tx.scope):
        if each.is_lapsed(now):
            await decide_proposal(tx, each, "lapsed", at=now)
        else:
            left.append(each)
    return left


async def load_summaries(reader: Reader, scope: Scope, record_type: str) -> list[Summary]:
    """Return long-term records, newest first."""
    found = await reader.rows(scope, _SUMMARIES, (record_type,))
    return rows.parse_all(Summary, found)


async def save_summary(tx: Transaction, summary: Summary) -> None:
    """Store a record, unless a newer one with the same id is stored."""
    number, _ = await tx.next_revision()
    evidence = json.dumps(list(summary.evidence_ids))
    values = (
        summary.id,
        number,
        summary.record_type,
        summary.name,
        rows.dump_json(summary.data),
        evidence,
        clock.iso(summary.at),
    )
    await tx.touch((_SUMMARY, [values]))


async def load_shown(reader: Reader, scope: Scope, session: str, now: datetime) -> Shown:
    """Return what was last shown in a session; an empty list if that is too long ago."""
    found = await reader.rows(scope, _CHAT, (_chat_key(reader, session),))
    if not found:
        return Shown()
    until, _, text = found[0][0].partition(" ")
    if until < clock.iso(now):
        return Shown()
    ids, asks, new = rows.load_json(text)
    return Shown(ids=tuple(ids), asks=asks, new=new)


async def save_shown(tx: Transaction, session: str, shown: Shown, now: datetime) -> None:
    """Store what was shown in a session, in place of the previous list; delete what has expired."""
    number = await tx.create_scope()
    until = clock.iso(now + SHOWN_FOR)
    text = json.dumps([list(shown.ids), shown.asks, shown.new])
    await tx.write(
        [
            (_EXPIRED, [(number, *CHATS, clock.iso(now))]),
            (_SETTING, [(number, _chat_key(tx, session), f"{until} {text}")]),
        ]
    )


async def note_obeyed(tx: Transaction, session: str, text: str, now: datetime) -> None:
    """Note that a message was carried out as a command. It is kept as a digest, without words."""
    number = await tx.create_scope()
    key = _obeyed_key(tx, session, text)
    await tx.write([(_SETTING, [(number, key, clock.iso(now + OBEYED_FOR))])])


async def is_obeyed(reader: Reader, scope: Scope, session: str, text: str) -> bool:
    """Return whether a message was noted as carried out, however long ago."""
    return bool(await reader.rows(scope, _CHAT, (_obeyed_key(reader, session, text),)))


async def drop_obeyed(tx: Transaction, session: str, text: str) -> None:
    """Delete the note that a message was carried out."""
    number = await tx.create_scope()
    delete = "DELETE FROM space_settings WHERE scope = ? AND key = ?"
    await tx.write([(delete, [(number, _obeyed_key(tx, session, text))])])


def find_obeyed(
    reader: Reader, checks: Checks, messages: Sequence[tuple[str, str]], now: datetime
) -> list[bool]:
    """Return of each message, given by its session and text, whether it was carried out."""
    noted = {key for key, until in checks.stored.items() if until >= clock.iso(now)}
    if not any(key.startswith(_OBEYED) for key in noted):
        return [False] * len(messages)
    return [_obeyed_key(reader, *each) in noted for each in messages]


def _obeyed_key(reader: Reader, session: str, text: str) -> str:
    return _OBEYED + reader.digest(f"{session}\0{normalize.content_hash(text)}")


def _chat_key(reader: Reader, session: str) -> str:
    return f"{CHATS[0]}{reader.digest(session)}"


async def count_of_user(reader: Reader, scope: Scope, where: Filter) -> int:
    """Count the memories of a user, in all spaces, that pass a filter."""
    clause, values = condition(where, reader.connection.dialect)
    sql = f"""SELECT count(*) FROM memories WHERE {clause} AND scope IN
    (SELECT id FROM scopes WHERE tenant = ? AND user_id = ?)"""
    values += [scope.tenant, scope.user]
    ((count,),) = await reader.connection.rows(sql, values, scope=EVERY)
    return int(count)
