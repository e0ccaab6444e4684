"""Checking a store: rows that were altered, references that lead nowhere, a history with gaps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ..errors import InvalidInput, MemoristError, StoreDamaged
from ..text import tokens
from ..types import Scope
from . import history, rows
from .database import EVERY, Rows
from .store import Store

PAGE = 500
_COLUMNS = ", ".join(f"m.{column}" for column in rows.COLUMNS)
_CHAINED = ", ".join(f"h.{name}" for name in history.CHAINED.split(", "))
_KEPT = "EXISTS (SELECT 1 FROM memories m WHERE m.scope = h.scope AND m.id = {})"
_ENTRIES = f"""SELECT h.row, h.digest, h.seal, h.meta, {_KEPT.format("h.memory_id")}
AND (h.old_ref IS NULL OR {_KEPT.format("h.old_ref")}), {_CHAINED}
FROM history h WHERE h.scope = ? AND h.row > ? ORDER BY h.row LIMIT {PAGE}"""
_SAME = "m.scope = v.scope AND m.row = v.memory"
_ORPHANS = {
    "vectors without a memory in their scope": f"""SELECT count(*) FROM vectors v
        WHERE NOT EXISTS (SELECT 1 FROM memories m WHERE {_SAME})""",
    "vectors of a wrong size": "SELECT count(*) FROM vectors WHERE {dimensions} <> dims",
    "memories that are called embedded and have no vector": f"""SELECT count(*) FROM memories m
        WHERE needs_embedding = 0 AND NOT EXISTS (SELECT 1 FROM vectors v WHERE {_SAME})""",
    "memories without a history": """SELECT count(*) FROM memories m WHERE superseded_by IS NULL
        AND NOT EXISTS (SELECT 1 FROM history h WHERE h.memory_id = m.id AND h.scope = m.scope)""",
    "memories newer than their scope": """SELECT count(*) FROM memories m
        JOIN scopes s ON s.id = m.scope WHERE m.changed > s.revision""",
}


async def check(store: Store) -> list[str]:
    """Return what is wrong with the stored data; an empty list if nothing is.

    What was added to the history since the last time is linked to its chain, so that the next check
    notices whether anything is missing.
    """
    try:
        found = await store.database.rows(store.database.dialect.integrity)
        problems = [str(row[0]) for row in found if row[0] != "ok"]
        problems += await altered_rows(store)
        for name, sql in _ORPHANS.items():
            counted = sql.format(dimensions=store.database.dialect.dimensions)
            if count := (await store.database.rows(counted, scope=EVERY))[0][0]:
                problems.append(f"{count} {name}")
        for scope in await store.scopes():
            broken = await verify_history(store, scope)
            problems += broken
            if not broken:
                async with store.transaction(scope) as tx:
                    await tx.link_history()
    except (StoreDamaged, InvalidInput) as error:  # it cannot even be read to the end
        return [str(error)]
    return problems


async def altered_rows(store: Store) -> list[str]:
    """Return rows that were altered, and terms that do not belong to their text."""
    names = "SELECT tenant, user_id, space, id FROM scopes"
    scopes = {row[3]: rows.scope_of(row) for row in await store.database.rows(names)}
    row = store.database.dialect.row
    sql = f"""SELECT m.row, m.scope, m.terms, m.flags, {_COLUMNS} FROM memories m
    WHERE {row} > ? ORDER BY {row} LIMIT {PAGE}"""
    problems: list[str] = []
    after = -(2**62)
    while page := await store.database.rows(sql, (after,), scope=EVERY):
        problems += await asyncio.to_thread(find_altered, page, scopes, store.language)
        after = page[-1][0]
    return problems


def find_altered(page: Rows, scopes: dict[Any, Scope], language: str) -> list[str]:
    problems = []
    for _, number, terms, flags, *row in page:
        try:
            memory = rows.memory(row, scopes.get(number, Scope(user="")))
        except MemoristError as error:
            problems.append(str(error))
            continue
        if (terms, flags) != (tokens.terms_of(memory, language), tokens.flags_of(memory)):
            wrong = f"The terms of memory {memory.id!r} are not those of its text"
            problems.append(f"{wrong}: run `memorist index --force`")
    return problems


async def verify_history(store: Store, scope: Scope) -> list[str]:
    """Return which entries of the history were altered, removed or moved."""
    head = (await store.rows(scope, "SELECT head FROM scopes WHERE id = ?"))[0][0]
    sql = """SELECT memory_id, max(row) FROM history
    WHERE scope = ? AND event = 'DELETE' GROUP BY memory_id"""
    erased: dict[str, int] = dict(await store.rows(scope, sql))
    problems: list[str] = []
    last: str | None = None
    after = 0
    while page := await store.rows(scope, _ENTRIES, (after,)):
        secret = store.database.secret
        problems += await asyncio.to_thread(find_broken, secret, page, last, head, erased)
        after = page[-1][0]
        last = next((row[1] for row in reversed(page) if row[1]), last)
    if last != head:
        problems.append(f"The end of the history of {scope.user!r} is missing: restore a backup")
    return problems


def find_broken(
    secret: bytes, page: Rows, before: str | None, head: str | None, erased: Mapping[str, int]
) -> list[str]:
    """Return what is wrong with entries that follow each other, given the digest before the first,
    and that of the last entry in the chain.

    A row is its number, digest, seal, payload, whether the memories it names all exist, and the
    values that the chain covers. `erased` maps a memory to the row in which it was last erased:
    until then its payloads may be empty.
    """
    problems = []
    for number, digest, seal, meta, is_kept, *entry in page:
        if digest is None and seal is None and before is None:  # older than the chain
            continue
        was_erased = any(erased.get(id or "", -1) >= number for id in (entry[1], entry[3]))
        may_be_empty = meta == history.EMPTY and (was_erased or not is_kept)
        try:
            is_sealed = rows.seal(secret, meta) == seal
        except (ValueError, TypeError):  # it is not even JSON
            is_sealed = False
        is_pending = digest is None and before == head
        if not is_pending and digest != history.link(secret, before, entry, seal):
            problems.append(
                f"Entry {entry[0]} of the history was altered, or one before it is missing or was "
                "moved: restore a backup"
            )
        elif not is_sealed and not may_be_empty:
            problems.append(
                f"The payload of entry {entry[0]} of the history was altered: restore a backup"
            )
        before = digest or before
    return problems
