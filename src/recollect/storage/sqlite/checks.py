"""Looking at a database as a whole: counts, health, a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from ...errors import InvalidInput, RecollectError
from ...model import Scope
from ...text import index
from .. import rows


def stats(connection: apsw.Connection, scope: int | None, model: str, path: str) -> dict[str, Any]:
    """Counts of one scope, or of all."""
    where, values = ("", ()) if scope is None else ("WHERE m.scope = ?", (scope,))

    def counted(column: str) -> dict[str, int]:
        return dict(connection.execute(f"SELECT {column}, count(*) FROM memories m {where} GROUP BY 1 ORDER BY 1", values))

    total, embedded, waiting = connection.execute(
        "SELECT count(*), count(v.memory), coalesce(sum(m.needs_embedding), 0) FROM memories m "
        f"LEFT JOIN vectors v ON v.memory = m.row AND v.model = ? {where}",
        (model, *values),
    ).fetchall()[0]
    return {
        "memories": total,
        "with_embeddings": embedded,
        "without_embeddings": total - embedded,
        "waiting": waiting,
        "model": model,
        "states": counted("m.state"),
        "kinds": counted("m.kind"),
        "scopes": connection.execute("SELECT count(*) FROM scopes").fetchall()[0][0] if scope is None else 1,
        "bytes": Path(path).stat().st_size if Path(path).exists() else 0,
    }


def problems(connection: apsw.Connection, language: str) -> list[str]:
    """What is wrong: with the file, with a row, or between a row and what is derived from it."""
    found = [row[0] for row in connection.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
    scopes = _scopes(connection)
    sql = f"SELECT m.scope, m.terms, {', '.join(f'm.{c}' for c in rows.COLUMNS)} FROM memories m ORDER BY m.row"
    for number, terms, *row in connection.execute(sql):
        try:
            memory = rows.memory(row, scopes[number])
        except RecollectError as error:
            found.append(str(error))
            continue
        if terms != index.terms_of(memory, language):
            found.append(f"The terms of memory {memory.id!r} are not those of its text: run `recollect index --force`")
    found += _orphans(connection)
    return found


def _scopes(connection: apsw.Connection) -> dict[int, Scope]:
    found = connection.execute("SELECT id, tenant, user_id, space FROM scopes")
    return {number: Scope(tenant=tenant, user=user, space=space) for number, tenant, user, space in found}


def _orphans(connection: apsw.Connection) -> list[str]:
    questions = {
        "vectors without a memory": "SELECT count(*) FROM vectors WHERE memory NOT IN (SELECT row FROM memories)",
        "vectors of a wrong size": "SELECT count(*) FROM vectors WHERE length(embedding) <> 4 * dims",
        "memories without a history": "SELECT count(*) FROM memories m WHERE state <> 'superseded' AND NOT EXISTS "
        "(SELECT 1 FROM history h WHERE h.memory_id = m.id)",
        "memories newer than their scope": "SELECT count(*) FROM memories m JOIN scopes s ON s.id = m.scope "
        "WHERE m.changed > s.revision",
    }
    counts = {name: connection.execute(sql).fetchall()[0][0] for name, sql in questions.items()}
    return [f"{count} {name}" for name, count in counts.items() if count]


def backup(connection: apsw.Connection, path: Path) -> None:
    """Copy the database into a new file, page by page, while others go on writing."""
    if path.exists():
        raise InvalidInput(f"{str(path)!r} exists already: choose a new name for the backup")
    target = apsw.Connection(str(path))
    try:
        with target.backup("main", connection, "main") as copying:
            while not copying.done:
                copying.step(1000)
    finally:
        target.close()
