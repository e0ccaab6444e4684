"""Checking a store: rows that were altered, references that lead nowhere, a history with gaps."""

from __future__ import annotations

import asyncio
from typing import Any

from ..errors import InvalidInput, MemoristError, StoreDamaged
from ..text import derived
from ..types import Scope
from . import rows
from .database import EVERY, Rows
from .store import Store

PAGE = 500
_COLUMNS = ", ".join(f"m.{column}" for column in rows.COLUMNS)
_SAME = "m.scope = v.scope AND m.row = v.memory"


async def check(store: Store) -> list[str]:
    """Return what is wrong with the stored data; an empty list if nothing is."""
    try:
        found = await store.database.rows(store.database.dialect.integrity)
        problems = [str(row[0]) for row in found if row[0] != "ok"]
        problems += await _altered_rows(store)
        problems += await _orphans(store)
        for scope in await store.scopes():
            problems += await store.history.verify(scope)
    except (StoreDamaged, InvalidInput) as error:  # it cannot even be read to the end
        return [str(error)]
    return problems


async def _altered_rows(store: Store) -> list[str]:
    """Return rows that were altered, and terms that do not belong to their text."""
    scopes = {}
    for number, tenant, user, space in await store.database.rows(
        "SELECT id, tenant, user_id, space FROM scopes"
    ):
        scopes[number] = Scope(tenant=tenant, user=user, space=space)
    row = store.database.dialect.row
    sql = f"SELECT m.row, m.scope, m.terms, m.flags, {_COLUMNS} FROM memories m WHERE {row} > ? "
    sql += f"ORDER BY {row} LIMIT {PAGE}"
    problems: list[str] = []
    after = -(2**62)
    while page := await store.database.rows(sql, (after,), scope=EVERY):
        problems += await asyncio.to_thread(_find_altered, page, scopes, store.language)
        after = page[-1][0]
    return problems


def _find_altered(page: Rows, scopes: dict[Any, Scope], language: str) -> list[str]:
    problems = []
    for _, number, terms, flags, *row in page:
        try:
            memory = rows.memory(row, scopes.get(number, Scope(user="")))
        except MemoristError as error:
            problems.append(str(error))
            continue
        if (terms, flags) != (derived.terms_of(memory, language), derived.flags_of(memory)):
            problems.append(
                f"The terms of memory {memory.id!r} are not those of its text: run `memorist index --force`"
            )
    return problems


async def _orphans(store: Store) -> list[str]:
    questions = {
        "vectors without a memory in their scope": "SELECT count(*) FROM vectors v WHERE NOT EXISTS "
        f"(SELECT 1 FROM memories m WHERE {_SAME})",
        "vectors of a wrong size": "SELECT count(*) FROM vectors "
        f"WHERE {store.database.dialect.dimensions} <> dims",
        "memories that are called embedded and have no vector": "SELECT count(*) FROM memories m "
        f"WHERE needs_embedding = 0 AND NOT EXISTS (SELECT 1 FROM vectors v WHERE {_SAME})",
        "memories without a history": "SELECT count(*) FROM memories m WHERE superseded_by IS NULL "
        "AND NOT EXISTS (SELECT 1 FROM history h WHERE h.memory_id = m.id AND h.scope = m.scope)",
        "memories newer than their scope": "SELECT count(*) FROM memories m "
        "JOIN scopes s ON s.id = m.scope WHERE m.changed > s.revision",
    }
    problems = []
    for name, sql in questions.items():
        count = (await store.database.rows(sql, scope=EVERY))[0][0]
        if count:
            problems.append(f"{count} {name}")
    return problems
