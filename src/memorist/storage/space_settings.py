"""What the person decided about remembering in a space: settings, and sessions that are
incognito."""

from __future__ import annotations

from datetime import datetime

from ..text import clock
from ..text.clock import new_id
from .changes import Event
from .database import Batch
from .history import HistoryEntry, insert_events
from .transaction import Transaction

_SETTING = (
    "INSERT INTO space_settings (scope, key, value) VALUES (?, ?, ?) "
    "ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value"
)
_INCOGNITO = (
    "INSERT INTO incognito_sessions (scope, session, started_at) VALUES (?, ?, ?) "
    "ON CONFLICT (scope, session) DO NOTHING"
)


async def save(
    tx: Transaction, name: str, value: bool, *, at: datetime, actor: str | None = None
) -> None:
    """Set a setting of the space."""
    number = await tx.create_scope()
    entry = HistoryEntry(
        id=new_id(),
        memory_id="settings",
        event="UPDATE",
        old_ref=None,
        new_ref=None,
        actor=actor,
        meta={name: value},
        at=at,
    )
    batches: list[Batch] = [(_SETTING, [(number, name, "true" if value else "false")])]
    if name == "memory_enabled":
        switched = Event(node="hotpath", op="enable" if value else "disable", at=at)
        batches.append(insert_events(number, tx.scope.user, [switched]))
    await tx.touch(*batches, entries=[entry])


async def set_incognito(tx: Transaction, session: str, is_on: bool, *, at: datetime) -> None:
    """Begin or end the incognito mode of a session.

    The session's name is stored as a digest, and nothing in the history; incognito sessions are
    counted by day.
    """
    number = await tx.create_scope()
    now = tx.session_mark(session, is_on)
    before = tx.session_mark(session, not is_on)
    delete = "DELETE FROM incognito_sessions WHERE scope = ? AND session = ?"
    batches: list[Batch] = [
        (_INCOGNITO, [(number, now, clock.iso(at))]),
        (delete, [(number, before)]),
    ]
    if is_on:
        day = at.replace(hour=0, minute=0, second=0, microsecond=0)
        begun = Event(node="hotpath", op="incognito", at=day)
        batches.append(insert_events(number, tx.scope.user, [begun]))
    await tx.write(batches)
