"""Looking at a database as a whole: counts, health, a copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from ...errors import InvalidInput, RecollectError
from ...model import Scope
from ...text import index
from .. import rows
from .connection import translated


def stats(connection: apsw.Connection, scope: int | None, model: str, path: str) -> dict[str, Any]:
    """Counts of one scope, or of all."""
    where, values = ("", ()) if scope is None else ("WHERE m.scope = ?", (scope,))

    def counted(column: str) -> dict[str, int]:
        sql = f"SELECT {column}, count(*) FROM memories m {where} GROUP BY 1 ORDER BY 1"
        return dict(_asked(connection, sql, values))

    total, embedded, waiting = _asked(
        connection,
        "SELECT count(*), count(v.memory), coalesce(sum(m.needs_embedding), 0) FROM memories m "
        f"LEFT JOIN vectors v ON v.memory = m.row AND v.model = ? {where}",
        (model, *values),
    )[0]
    return {
        "memories": total,
        "with_embeddings": embedded,
        "without_embeddings": total - embedded,
        "waiting": waiting,
        "model": model,
        "states": counted("m.state"),
        "kinds": counted("m.kind"),
        "scopes": _asked(connection, "SELECT count(*) FROM scopes")[0][0] if scope is None else 1,
        "bytes": Path(path).stat().st_size if Path(path).exists() else 0,
    }


def _asked(connection: apsw.Connection, sql: str, values: tuple[Any, ...] = ()) -> list[Any]:
    return connection.execute(sql, values).fetchall()


def problems(connection: apsw.Connection, language: str) -> list[str]:
    """What is wrong: with the file, with a row, or between a row and what is derived from it."""
    found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(20)") if row[0] != "ok"]
    scopes = _scopes(connection)
    columns = ", ".join(f"m.{column}" for column in rows.COLUMNS)
    for number, terms, flags, *row in connection.execute(
        f"SELECT m.scope, m.terms, m.flags, {columns} FROM memories m ORDER BY m.row"
    ):
        try:
            memory = rows.memory(row, scopes.get(number, Scope(user="")))
        except RecollectError as error:
            found.append(str(error))
            continue
        if (terms, flags) != (index.terms_of(memory, language), index.flags_of(memory)):
            found.append(f"The terms of memory {memory.id!r} are not those of its text: run `recollect index --force`")
    found += _orphans(connection)
    return found


def _scopes(connection: apsw.Connection) -> dict[Any, Scope]:
    found = _asked(connection, "SELECT id, tenant, user_id, space FROM scopes")
    return {number: Scope(tenant=tenant, user=user, space=space) for number, tenant, user, space in found}


def _orphans(connection: apsw.Connection) -> list[str]:
    questions = {
        "vectors without a memory in their scope": "SELECT count(*) FROM vectors v WHERE NOT EXISTS "
        "(SELECT 1 FROM memories m WHERE m.row = v.memory AND m.scope = v.scope)",
        "vectors of a wrong size": "SELECT count(*) FROM vectors WHERE length(embedding) <> 4 * dims",
        "memories that are called embedded and have no vector": "SELECT count(*) FROM memories m "
        "WHERE needs_embedding = 0 AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.memory = m.row)",
        "memories without a history": "SELECT count(*) FROM memories m WHERE state <> 'superseded' AND NOT EXISTS "
        "(SELECT 1 FROM history h WHERE h.memory_id = m.id AND h.scope = m.scope)",
        "memories newer than their scope": "SELECT count(*) FROM memories m JOIN scopes s ON s.id = m.scope "
        "WHERE m.changed > s.revision",
    }
    counts = {name: _asked(connection, sql)[0][0] for name, sql in questions.items()}
    return [f"{count} {name}" for name, count in counts.items() if count]


def backup(connection: apsw.Connection, path: Path) -> None:
    """Copy the database into a new file while others go on writing. Raises InvalidInput, StoreUnavailable."""
    target = path.absolute()  # so that no name is special to SQLite, such as :memory:
    if target.exists():
        raise InvalidInput(f"{str(path)!r} exists already: choose a new name for the backup")
    try:
        with translated(str(target)):
            copy(connection, target)
    except BaseException:
        target.unlink(missing_ok=True)
        raise


def copy(source: apsw.Connection, path: Path) -> None:
    """Copy a database as it is at one moment: in steps, each write of others would make it begin anew."""
    target = apsw.Connection(str(path))
    try:
        with target.backup("main", source, "main") as copying:
            copying.step(-1)
    finally:
        target.close()
