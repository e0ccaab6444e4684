"""Everything that is stored in a scope, as plain values, in an order in which it can be imported
again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from ..errors import StoreDamaged
from ..text import clock, normalize
from ..types import Scope
from . import codec, person, proposals, rows
from .changes import HistoryEntry
from .store import Store

FORMAT = 1
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
Records = AsyncIterator[tuple[str, dict[str, Any]]]


async def export(store: Store, scope: Scope | None) -> AsyncIterator[dict[str, Any]]:
    """Yield the format, and then the records of one scope, or of all, as plain values."""
    yield {"record_type": "memorist", "data": {"format": FORMAT}}
    for each in [scope] if scope is not None else await store.scopes():
        for records in (_history_and_memories, _messages, _summaries, _proposals):
            async for kind, data in records(store, each):
                if kind != "damaged":
                    data["scope"] = asdict(each)
                yield {"record_type": kind, "data": data}


async def _history_and_memories(store: Store, scope: Scope) -> Records:
    """Yield rows as values. One that cannot be read is reported: the others are more than
    nothing."""
    readers: dict[str, tuple[str, Callable[[Sequence[Any]], dict[str, Any]]]] = {
        "history": (_HISTORY, lambda row: _plain(rows.parse(HistoryEntry, row))),
        "memory": (_MEMORIES, lambda row: codec.dump(rows.memory(row, scope))),
    }
    for kind, (sql, parse) in readers.items():
        after = 0
        while page := await store.rows(scope, sql, (after,)):
            after = page[-1][0]
            for row in page:
                try:
                    yield kind, parse(row[1:])
                except StoreDamaged as error:
                    yield "damaged", {"id": row[1], "reason": str(error)}


async def _messages(store: Store, scope: Scope) -> Records:
    head = store.database.dialect.head.format("s.outcome")
    versioned = {row[0] for row in await store.rows(scope, _VERSIONED)}
    names = ("id", "session", "role", "name", "at", "text")
    for *values, outcome, memory_id, text in await store.rows(scope, _MESSAGES.format(head=head)):
        message = dict(zip(names, values, strict=True))
        message["kept"] = message["text"] is not None
        if not message["kept"]:
            if memory_id in versioned:  # an earlier version may hold the message
                text = await original_text(store, scope, message["id"], memory_id) or text
            message["text"] = text
        message["outcome"] = _plain(rows.load_outcome(outcome, message["id"]))
        if message["outcome"]["supersedes"] is None:
            del message["outcome"]["supersedes"]
        yield "message", message


async def original_text(store: Store, scope: Scope, message: str, memory_id: str) -> str | None:
    """Return the version of a memory that is the message word for word."""
    for text in await store.versions(scope, memory_id):
        seen = (await store.checks(scope, messages={message: normalize.digest(text)})).seen
        if message in seen and seen[message].same:
            return text
    return None


async def _summaries(store: Store, scope: Scope) -> Records:
    for kind in ("user_profile", "project_memory"):
        for each in await person.load_summaries(store, scope, kind):
            yield kind, _plain(each)


async def _proposals(store: Store, scope: Scope) -> Records:
    try:
        for each in await proposals.load(store, scope):
            whole = _plain(each)
            names = ("field", "value", "decided", "at", "evidence")
            yield "proposal", {name: whole[name] for name in names}
    except StoreDamaged as error:
        yield "damaged", {"id": "proposals", "reason": str(error)}


def _plain(value: Any) -> dict[str, Any]:
    """Return the fields of a value: times as text, tuples as lists."""
    plain = asdict(value)
    for name, part in plain.items():
        if isinstance(part, datetime):
            plain[name] = clock.iso(part)
        elif isinstance(part, tuple):
            plain[name] = list(part)
    return plain
