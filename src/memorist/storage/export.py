"""Everything that is stored in a scope, as plain values, in an order in which it can be imported
again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from typing import Any

from ..errors import StoreDamaged
from ..text import clock, normalize
from ..types import Scope
from . import person, proposals, rows
from .changes import HistoryEntry
from .store import Store

PAGE = 500
_HISTORY = f"""SELECT row, id, memory_id, event, old_ref, new_ref, actor, meta, ts FROM history
WHERE scope = ? AND row > ? ORDER BY row LIMIT {PAGE}"""
_MEMORIES = f"""SELECT row, {", ".join(rows.COLUMNS)} FROM memories
WHERE scope = ? AND row > ? ORDER BY row LIMIT {PAGE}"""
_MESSAGES = """SELECT s.id, s.session, s.role, s.name, s.at, s.text, s.outcome, m.id, m.text
FROM messages s LEFT JOIN memories m ON m.scope = s.scope AND m.id = {head}
WHERE s.scope = ? ORDER BY s.row"""
_VERSIONED = """SELECT DISTINCT superseded_by FROM memories
WHERE scope = ? AND superseded_by IS NOT NULL"""
Records = AsyncIterator[tuple[str, Any]]


async def export(store: Store, scope: Scope | None) -> AsyncIterator[dict[str, Any]]:
    """Yield the records of one scope, or of all."""
    for each in [scope] if scope is not None else await store.scopes():
        for records in (history, memories, messages, summaries, records_of_proposals):
            async for kind, data in records(store, each):
                if isinstance(data, dict) and kind != "damaged":
                    data["scope"] = asdict(each)
                yield {"record_type": kind, "data": data}


async def _pages(
    store: Store, scope: Scope, sql: str, kind: str, parse: Callable[[Sequence[Any]], Any]
) -> Records:
    """Yield rows as values. One that cannot be read is reported: the others are more than
    nothing."""
    after = 0
    while page := await store.rows(scope, sql, (after,)):
        after = page[-1][0]
        for row in page:
            try:
                yield kind, parse(row[1:])
            except StoreDamaged as error:
                yield "damaged", {"id": row[1], "reason": str(error)}


def history(store: Store, scope: Scope) -> Records:
    def parse(row: Sequence[Any]) -> dict[str, Any]:
        entry = rows.parse(HistoryEntry, row)
        return asdict(entry) | {"meta": dict(entry.meta), "at": clock.iso(entry.at)}

    return _pages(store, scope, _HISTORY, "history", parse)


def memories(store: Store, scope: Scope) -> Records:
    return _pages(store, scope, _MEMORIES, "memory", lambda row: rows.memory(row, scope))


async def messages(store: Store, scope: Scope) -> Records:
    head = store.database.dialect.head.format("s.outcome")
    versioned = {row[0] for row in await store.rows(scope, _VERSIONED)}
    for row in await store.rows(scope, _MESSAGES.format(head=head)):
        id, session, role, name, at, text, outcome, memory_id, memory_text = row
        if text is None and memory_id in versioned:  # an earlier version may hold the message
            memory_text = await original_text(store, scope, id, memory_id) or memory_text
        result = asdict(rows.load_outcome(outcome, id))
        result["ids"] = list(result["ids"])
        if result["supersedes"] is None:
            del result["supersedes"]
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
            },
        )


async def original_text(store: Store, scope: Scope, message: str, memory_id: str) -> str | None:
    """Return the version of a memory that is the message word for word."""
    for text in await store.versions(scope, memory_id):
        seen = (await store.checks(scope, messages={message: normalize.digest(text)})).seen
        if message in seen and seen[message].same:
            return text
    return None


async def summaries(store: Store, scope: Scope) -> Records:
    for kind in ("user_profile", "project_memory"):
        for each in await person.load_summaries(store, scope, kind):
            evidence = list(each.evidence_ids)
            yield kind, asdict(each) | {"at": clock.iso(each.at), "evidence_ids": evidence}


async def records_of_proposals(store: Store, scope: Scope) -> Records:
    try:
        for each in await proposals.load(store, scope):
            data = {name: getattr(each, name) for name in ("field", "value", "decided")}
            evidence = list(each.evidence)
            yield "proposal", data | {"at": clock.iso(each.at), "evidence": evidence}
    except StoreDamaged as error:
        yield "damaged", {"id": "proposals", "reason": str(error)}
