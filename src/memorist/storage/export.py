"""Everything that is stored in a scope, as plain values, in an order in which it can be imported
again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

from ..errors import StoreDamaged
from ..text import clock, normalize
from ..types import Scope
from . import proposals, rows, summaries
from .history import parse_entry
from .store import Store

PAGE = 500
_HISTORY = (
    "SELECT row, id, memory_id, event, old_ref, new_ref, actor, meta, ts FROM history "
    f"WHERE scope = ? AND row > ? ORDER BY row LIMIT {PAGE}"
)
_MEMORIES = (
    f"SELECT row, {', '.join(rows.COLUMNS)} FROM memories "
    f"WHERE scope = ? AND row > ? ORDER BY row LIMIT {PAGE}"
)
_VERSIONED = (
    "SELECT DISTINCT superseded_by FROM memories WHERE scope = ? AND superseded_by IS NOT NULL"
)


async def export(store: Store, scope: Scope | None) -> AsyncIterator[dict[str, Any]]:
    """Yield the records of one scope, or of all."""
    for each in [scope] if scope is not None else await store.scopes():
        for records in (_history, _memories, _messages, _summaries, _proposals):
            async for kind, data in records(store, each):
                yield {"record_type": kind, "data": data}


Records = AsyncIterator[tuple[str, Any]]


def _damaged(id: str, error: StoreDamaged) -> tuple[str, dict[str, str]]:
    """Return the record in place of one that cannot be read: the others are more than nothing."""
    return "damaged", {"id": id, "reason": str(error)}


async def _history(store: Store, scope: Scope) -> Records:
    after = 0
    while page := await store.rows(scope, _HISTORY, (after,)):
        after = page[-1][0]
        for row in page:
            try:
                entry = parse_entry(row[1:])
            except StoreDamaged as error:
                yield _damaged(row[1], error)
                continue
            plain = asdict(entry) | {"meta": dict(entry.meta), "at": clock.iso(entry.at)}
            yield "history", plain | {"scope": asdict(scope)}


async def _memories(store: Store, scope: Scope) -> Records:
    after = 0
    while page := await store.rows(scope, _MEMORIES, (after,)):
        after = page[-1][0]
        for row in page:
            try:
                yield "memory", rows.memory(row[1:], scope)
            except StoreDamaged as error:
                yield _damaged(row[1], error)


async def _messages(store: Store, scope: Scope) -> Records:
    head = store.database.dialect.head.format("s.outcome")
    found = await store.rows(
        scope,
        "SELECT s.id, s.session, s.role, s.name, s.at, s.text, s.outcome, m.id, m.text FROM "
        "messages s "
        f"LEFT JOIN memories m ON m.scope = s.scope AND m.id = {head} WHERE s.scope = ? ORDER BY "
        "s.row",
    )
    versioned = {row[0] for row in await store.rows(scope, _VERSIONED)}
    for id, session, role, name, at, text, outcome, memory_id, memory_text in found:
        if text is None and memory_id in versioned:  # an earlier version may hold the message
            memory_text = await original_text(store, scope, id, memory_id) or memory_text
        seen = rows.load_outcome(outcome, id)
        result: dict[str, Any] = {
            "status": seen.status,
            "ids": list(seen.ids),
            "reason": seen.reason,
            "message_id": id,
        }
        if seen.supersedes is not None:
            result["supersedes"] = seen.supersedes
        yield (
            "message",
            {
                "id": id,
                "session": session,
                "role": role,
                "name": name,
                "at": at,
                "text": memory_text if text is None else text,
                "kept": text is not None,
                "outcome": result,
                "scope": asdict(scope),
            },
        )


async def original_text(store: Store, scope: Scope, message: str, memory_id: str) -> str | None:
    """Return the version of a memory that is the message word for word."""
    for text in await store.versions(scope, memory_id):
        seen = await store.seen(scope, {message: normalize.digest(text)})
        if message in seen and seen[message].same:
            return text
    return None


async def _summaries(store: Store, scope: Scope) -> Records:
    for kind in ("user_profile", "project_memory"):
        for each in await summaries.load(store, scope, kind):
            plain = asdict(each) | {"at": clock.iso(each.at), "scope": asdict(scope)}
            yield kind, plain | {"evidence_ids": list(each.evidence_ids)}


async def _proposals(store: Store, scope: Scope) -> Records:
    try:
        for each in await proposals.load(store, scope):
            data = {
                "field": each.field,
                "value": each.value,
                "decided": each.decided,
                "at": clock.iso(each.at),
                "evidence": list(each.evidence),
                "scope": asdict(scope),
            }
            yield "proposal", data
    except StoreDamaged as error:
        yield _damaged("proposals", error)
