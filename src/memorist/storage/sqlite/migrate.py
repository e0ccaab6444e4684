"""The schema of a SQLite file, brought to its newest state."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from .. import migrations
from ..migrations import Migration
from . import backup


def shipped() -> list[Migration]:
    """The migrations in the package, in order."""
    return migrations.shipped("memorist.storage.sqlite")


def migrate(
    connection: apsw.Connection, path: str, steps: Sequence[Migration] | None = None
) -> list[int]:
    """Bring the database to the newest schema, in one transaction, after a backup of what was there.

    Any number of processes may call it at once: one migrates, the others find it done. Raises MigrationNeeded for a
    database from a newer version, StoreDamaged for an altered one.
    """
    steps = shipped() if steps is None else steps
    if not migrations.missing(_done(connection), steps, path):
        return []
    connection.execute("BEGIN IMMEDIATE")
    try:
        missing = migrations.missing(_done(connection), steps, path)
        is_changed = any(step.statements for step in missing)
        if is_changed and missing[0].number > 1 and Path(path).exists():
            _backup(path, missing[0].number - 1)
        for step in missing:
            _run(connection, step)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return [step.number for step in missing]


def _done(connection: apsw.Connection) -> dict[int, str]:
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'").fetchall():
        return {}
    rows: list[Any] = connection.execute("SELECT number, checksum FROM migrations").fetchall()
    return dict(rows)


def _run(connection: apsw.Connection, step: Migration) -> None:
    if step.number == 1:
        connection.execute(
            "CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT, checksum TEXT NOT NULL)"
        )
    for statement in step.statements:
        connection.execute(statement)
    connection.execute(
        "INSERT INTO migrations VALUES (?, ?, ?)", (step.number, step.name, step.checksum)
    )
    if step.number == 1:
        connection.execute("INSERT INTO meta VALUES ('secret', ?)", (secrets.token_hex(32),))


def _backup(path: str, schema: int) -> None:
    """A copy beside the file, named after the schema it holds."""
    source = apsw.Connection(path)
    try:
        backup.copy(source, Path(f"{path}.before-{schema + 1}"))
    finally:
        source.close()
