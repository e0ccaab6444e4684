"""Decisions of the person and records derived about them: settings of a space, incognito sessions,
decisions on proposals, long-term records, and what a chat command last showed them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from ..text import clock
from ..types import Filter, Scope, frozen
from . import Event, HistoryEntry, proposals, rows
from .conditions import condition
from .database import EVERY
from .erase import CHATS
from .proposals import Proposal
from .queries import Reader
from .transaction import Transaction

_SETTING = """INSERT INTO space_settings (scope, key, value) VALUES (?, ?, ?)
ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value"""
_INCOGNITO = """INSERT INTO incognito_sessions (scope, session, started_at) VALUES (?, ?, ?)
ON CONFLICT (scope, session) DO NOTHING"""
_SUMMARIES = """SELECT id, record_type, name, data, evidence_ids, at FROM summaries
WHERE scope = ? AND record_type = ? ORDER BY at DESC, id DESC"""
_SUMMARY = """INSERT INTO summaries (id, scope, record_type, name, data, evidence_ids, at)
VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, id) DO UPDATE SET name = excluded.name,
data = excluded.data, at = excluded.at, evidence_ids = excluded.evidence_ids
WHERE summaries.at <= excluded.at"""
_EXPIRED = "DELETE FROM space_settings WHERE scope = ? AND key >= ? AND key < ? AND value < ?"
_CHAT = "SELECT value FROM space_settings WHERE scope = ? AND key = ?"

RecordType = Literal["user_profile", "project_memory"]
SHOWN_FOR = timedelta(minutes=30)  # after that, an answer or a number refers to nothing


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


async def decide_proposal(
    tx: Transaction, proposal: Proposal, decision: str, *, at: datetime, actor: str | None = None
) -> None:
    """Store a proposal after a decision. A denied, withdrawn or lapsed one is deleted with its
    text."""
    number = await tx.create_scope()
    if decision == "denied":  # the person is not asked again
        await tx.add_tombstones([f"{proposal.field}: {proposal.value}"], None)
    if decision in proposals.GONE:
        tx.connection.wipe_after_commit()
    batches, entry = proposals.decide(tx.scope, number, proposal, decision, at, actor)
    await tx.touch(*batches, entries=[entry])


async def erase_lapsed(tx: Transaction, now: datetime) -> list[Proposal]:
    """Erase lapsed proposals; return those that are pending or in force."""
    left: list[Proposal] = []
    for each in await proposals.load(tx, tx.scope):
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
