"""Scan the whole store: check it for altered rows, dangling references and gaps in the history, or
export it as plain values, in an order in which it can be imported."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from ..errors import InvalidInput, MemoristError, StoreDamaged
from ..text import clock, cues, normalize, tokens
from ..types import CONTRADICTS, REPLACES, Evidence, Memory, Message, Scope
from . import HistoryEntry, dump, history, person, rows
from .database import EVERY, Rows
from .store import Store

MOST_RELATIONS = 1_000_000  # of one type that are exported of a scope
FORMAT = 1  # of an export
PAGE = 500
_CHAINED = ", ".join(f"h.{name}" for name in history.CHAINED.split(", "))
_KEPT = "EXISTS (SELECT 1 FROM memories m WHERE m.scope = h.scope AND m.id = {})"
_ENTRIES = f"""SELECT h.row, h.digest, h.seal, h.meta, {_KEPT.format("h.memory_id")}
AND (h.old_ref IS NULL OR {_KEPT.format("h.old_ref")}), {_CHAINED}
FROM history h WHERE h.scope = ? AND h.row > ? ORDER BY h.row LIMIT {PAGE}"""
# Up to which entry of a memory payloads may be empty: it, an earlier version, or a source that it
# quoted was erased.
_CLEARED = """SELECT memory_id, max(row) FROM (
SELECT memory_id, row FROM history WHERE scope = ?
AND (event = 'DELETE' OR CAST(meta AS TEXT) LIKE '%"final"%') UNION ALL
SELECT h.memory_id, h.row FROM history h JOIN history d ON d.scope = h.scope
AND d.memory_id = h.old_ref AND d.event = 'DELETE' WHERE h.scope = ?) e GROUP BY memory_id"""
_SAME = "m.scope = v.scope AND m.row = v.memory"
_ORPHANS = {
    "vectors without a memory in their scope": f"""SELECT count(*) FROM vectors v
        WHERE NOT EXISTS (SELECT 1 FROM memories m WHERE {_SAME})""",
    "vectors of a wrong size": "SELECT count(*) FROM vectors WHERE {dimensions} <> dims",
    "memories that are marked as embedded but have no vector": f"""SELECT count(*) FROM memories m
        WHERE needs_embedding = 0 AND NOT EXISTS (SELECT 1 FROM vectors v WHERE {_SAME})""",
    "memories without a history": """SELECT count(*) FROM memories m WHERE superseded_by IS NULL
        AND NOT EXISTS (SELECT 1 FROM history h WHERE h.memory_id = m.id AND h.scope = m.scope)""",
    "memories of an unknown scope": """SELECT count(*) FROM memories m
        WHERE NOT EXISTS (SELECT 1 FROM scopes s WHERE s.id = m.scope)""",
    "memories newer than their scope": """SELECT count(*) FROM memories m
        JOIN scopes s ON s.id = m.scope WHERE m.changed > s.revision""",
}
_HISTORY = f"""SELECT row, id, memory_id, event, old_ref, new_ref, actor, meta, ts FROM history
WHERE scope = ? AND row > ? ORDER BY row LIMIT {PAGE}"""
_MEMORIES = f"""SELECT row, {", ".join(rows.COLUMNS)}, terms, flags FROM memories
WHERE scope = ? AND row > ? ORDER BY row LIMIT {PAGE}"""
_MESSAGES = """SELECT s.id, s.session, s.role, s.name, s.at, s.text, s.outcome, m.id, m.text
FROM messages s LEFT JOIN memories m ON m.scope = s.scope AND m.id = {head}
WHERE s.scope = ? ORDER BY s.row"""
_VERSIONED = """SELECT DISTINCT superseded_by FROM memories
WHERE scope = ? AND superseded_by IS NOT NULL"""
_ROWS = """supervisor_checkpoints graph_checkpoints graph_values graph_writes items
space_settings""".split()
Record = dict[str, Any]
Records = AsyncIterator[tuple[str, Record]]


async def check(store: Store) -> list[str]:
    """Return the problems found in the stored data.

    History entries added since the last check are linked to the chain, so that the next check
    detects missing ones.
    """
    try:
        database = store.database
        found = await database.rows(database.dialect.integrity)
        problems = [str(row[0]) for row in found if row[0] != "ok"]
        for scope in await store.scopes():
            async for page in read_pages(store, scope, _MEMORIES):
                problems += await asyncio.to_thread(find_altered, page, scope, store.language)
        for name, sql in _ORPHANS.items():
            counting = sql.format(dimensions=database.dialect.dimensions)
            counted = await database.rows(counting, scope=EVERY)
            if count := counted[0][0]:
                problems.append(f"{count} {name}")
        for scope in await store.scopes():
            broken = await verify_history(store, scope)
            problems += broken
            if not broken:
                async with store.transaction(scope) as tx:
                    await tx.link_history()
    except (StoreDamaged, InvalidInput) as error:  # the data cannot be read to the end
        return [str(error)]
    return problems


async def read_pages(store: Store, scope: Scope, sql: str) -> AsyncIterator[Rows]:
    """Yield the rows of a query in pages, by row number."""
    after = 0
    while page := await store.rows(scope, sql, (after,)):
        yield page
        after = page[-1][0]


def find_altered(page: Rows, scope: Scope, language: str) -> list[str]:
    """Report altered rows, and index terms that do not match their text."""
    problems = []
    for _, *row, terms, flags in page:
        try:
            memory = rows.memory(row, scope)
        except MemoristError as error:
            problems.append(str(error))
            continue
        has_terms = terms == tokens.terms_of(memory, language)
        if not has_terms or flags != cues.flags_of(memory):
            problems.append(
                f"The terms of memory {memory.id!r} do not match its text:"
                " run `memorist index --force`"
            )
    return problems


async def verify_history(store: Store, scope: Scope) -> list[str]:
    """Report history entries that were altered, removed or moved."""
    heads = await store.rows(scope, "SELECT head FROM scopes WHERE id = ?")
    head = heads[0][0]
    number = await store.number(scope)
    erased: dict[str, int] = dict(await store.rows(scope, _CLEARED, (number,)))
    problems: list[str] = []
    last: str | None = None
    secret = store.database.secret
    async for page in read_pages(store, scope, _ENTRIES):
        problems += await asyncio.to_thread(
            find_broken,
            secret,
            page,
            last,
            head,
            erased,
        )
        for row in page:
            last = row[1] or last
    if last != head:
        problems.append(f"The end of the history of {scope.user!r} is missing: restore a backup")
    return problems


def find_broken(
    secret: bytes,
    page: Rows,
    before: str | None,
    head: str | None,
    erased: Mapping[str, int],
) -> list[str]:
    """Report broken entries among consecutive ones; `before` is the digest before the first, `head`
    that of the last entry in the chain.

    A row is its number, digest, seal, payload, whether all memories it names exist, and the values
    that the chain covers. `erased` maps a memory to the row up to which payloads may be empty.
    """
    problems = []
    for number, digest, seal, meta, is_kept, *entry in page:
        if digest is None and seal is None and before is None:  # older than the chain
            continue
        memory_erased = erased.get(entry[1], -1)
        old_erased = erased.get(entry[3], -1)
        was_erased = number <= max(memory_erased, old_erased)
        may_be_empty = meta == history.EMPTY and (was_erased or not is_kept)
        try:
            is_sealed = rows.seal(secret, meta) == seal
        except (ValueError, TypeError):  # not JSON
            is_sealed = False
        is_pending = digest is None and before == head
        if not is_pending and digest != history.link(secret, before, entry, seal):
            problems.append(
                f"Entry {entry[0]} of the history was altered, or an earlier one is missing or was "
                "moved: restore a backup"
            )
        elif not is_sealed and not may_be_empty:
            problems.append(
                f"The payload of entry {entry[0]} of the history was altered: restore a backup"
            )
        before = digest or before
    return problems


async def export(store: Store, scopes: Sequence[Scope] | None = None) -> AsyncIterator[Record]:
    """Yield the format, then the records of some scopes or of all, as plain values."""
    yield {"record_type": "memorist", "data": {"format": FORMAT}}
    for each in await store.scopes() if scopes is None else scopes:
        for records in (_history_and_memories, _relations, _messages, _summaries_and_proposals):
            async for kind, data in records(store, each):
                if kind != "damaged":
                    data["scope"] = asdict(each)
                yield {"record_type": kind, "data": data}


async def export_rows(store: Store, scope: Scope) -> AsyncIterator[Record]:
    """Yield what an import does not read: checkpoints, documents and settings, with bytes as Base64."""
    for table in _ROWS:
        columns = [
            row[0] for row in await store.database.rows(store.database.dialect.columns, (table,))
        ]
        for row in await store.rows(
            scope, f"SELECT {', '.join(columns)} FROM {table} WHERE scope = ?"
        ):
            data = dict(zip(columns, row, strict=True), table=table, scope=asdict(scope))
            for name, value in data.items():
                if isinstance(value, bytes | memoryview):
                    data[name] = b64encode(value).decode()
            yield {"record_type": "row", "data": data}


async def _history_and_memories(store: Store, scope: Scope) -> Records:
    """Yield the rows as plain values. A row that cannot be read is reported as damaged."""
    readers: dict[str, tuple[str, Callable[[Sequence[Any]], Record]]] = {
        "history": (_HISTORY, lambda row: _plain(rows.parse(HistoryEntry, row[1:]))),
        "memory": (_MEMORIES, lambda row: dump(rows.memory(row[1:-2], scope))),
    }
    for kind, (sql, parse) in readers.items():
        async for page in read_pages(store, scope, sql):
            for row in page:
                try:
                    yield kind, parse(row)
                except StoreDamaged as error:
                    yield "damaged", {"id": row[1], "reason": str(error)}


async def _relations(store: Store, scope: Scope) -> Records:
    """Yield which memories replace others or contradict them; other relations are made again."""
    for type in (REPLACES, CONTRADICTS):
        for each in reversed(await store.relations(scope, type, limit=MOST_RELATIONS)):
            yield "relation", _plain(each)


async def _messages(store: Store, scope: Scope) -> Records:
    head = store.database.dialect.head.format("s.outcome")
    versioned = {row[0] for row in await store.rows(scope, _VERSIONED)}
    names = ("id", "session", "role", "name", "at", "text")
    found = await store.rows(scope, _MESSAGES.format(head=head))
    for *values, outcome, memory_id, text in found:
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


async def original_text(
    store: Store,
    scope: Scope,
    message: str,
    memory_id: str,
) -> str | None:
    """Return the version of a memory whose text is exactly that of the message."""
    for text in await store.versions(scope, memory_id):
        digest = normalize.digest(text)
        checks = await store.checks(scope, messages={message: digest})
        seen = checks.seen.get(message)
        if seen and seen.same:
            return text
    return None


async def _summaries_and_proposals(store: Store, scope: Scope) -> Records:
    for kind in ("user_profile", "project_memory"):
        for each in await person.load_summaries(store, scope, kind):
            yield kind, _plain(each)
    try:
        for proposal in await person.load_proposals(store, scope):
            whole = _plain(proposal)
            names = ("field", "value", "decided", "at", "evidence")
            yield "proposal", {name: whole[name] for name in names}
    except StoreDamaged as error:
        yield "damaged", {"id": "proposals", "reason": str(error)}


def _plain(value: Any) -> dict[str, Any]:
    """Return the fields of a value, with times as text and tuples as lists."""
    plain = asdict(value)
    for name, part in plain.items():
        if isinstance(part, datetime):
            plain[name] = clock.iso(part)
        elif isinstance(part, tuple):
            plain[name] = list(part)
    return plain


async def read_messages(store: Store, scope: Scope, ids: Sequence[str]) -> dict[str, Message]:
    """Return those messages by id whose text is stored separately from their memories."""
    sql = """SELECT text, id, role, name, at, session FROM messages
    WHERE scope = ? AND text IS NOT NULL"""
    found = await store.rows_in(scope, sql, "id", ids)
    return {row[1]: rows.parse(Message, row) for row in found}


async def find_evidence(store: Store, memory: Memory) -> Evidence:
    """Return what a memory is based on, as far as it still exists."""
    messages = await read_messages(store, memory.scope, memory.source_ids)
    own = memory.source_message_id
    if own and own not in messages:
        text = await original_text(store, memory.scope, own, memory.id)
        if text is not None:
            role = memory.labels.role
            messages[own] = Message(
                id=own,
                content=text,
                role=role or "user",
                name=memory.speaker if memory.speaker != role else None,
                at=memory.occurred_at,
                session=memory.labels.session,
            )
    memories = await store.get(memory.scope, memory.evidence_ids)
    found = {*messages, *(other.id for other in memories)}
    named = (*memory.source_ids, *memory.evidence_ids, *memory.evidence)
    sources = [messages[id] for id in memory.source_ids if id in messages]
    missing = [reference for reference in named if reference not in found]
    return Evidence(
        memory=memory,
        messages=tuple(sources),
        memories=tuple(memories),
        missing=tuple(missing),
    )
