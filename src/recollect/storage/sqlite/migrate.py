"""Numbered migrations with checksums: a database knows what made it, and nothing is run twice or altered."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import apsw

from ...errors import MigrationNeeded, StoreDamaged
from . import checks


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def shipped() -> list[Migration]:
    """The migrations in the package, in order."""
    folder = resources.files(__package__).joinpath("migrations")
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".sql")), key=lambda f: f.name)
    return [Migration(int(f.name[:4]), f.name[5:-4], f.read_text("utf-8")) for f in files]


def migrate(connection: apsw.Connection, path: str, steps: Sequence[Migration] | None = None) -> list[int]:
    """Bring the database to the newest schema, in one transaction, after a backup of what was there.

    Any number of processes may call it at once: one migrates, the others find it done. Raises MigrationNeeded for a
    database from a newer version, StoreDamaged for an altered one.
    """
    steps = shipped() if steps is None else steps
    if not _missing(connection, steps, path):
        return []
    connection.execute("BEGIN IMMEDIATE")
    try:
        missing = _missing(connection, steps, path)
        if missing and missing[0].number > 1 and Path(path).exists():
            _backup(path, missing[0].number - 1)
        for step in missing:
            _run(connection, step)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return [step.number for step in missing]


def _missing(connection: apsw.Connection, steps: Sequence[Migration], path: str) -> list[Migration]:
    done = _done(connection)
    known = {step.number: step.checksum for step in steps}
    newest = max(done, default=0)
    if newest > max(known):
        raise MigrationNeeded(f"{path!r} was made by a newer Recollect (schema {newest}): upgrade with pip")
    altered = [number for number, checksum in done.items() if known.get(number) != checksum]
    if altered:
        raise StoreDamaged(f"Schema step {altered[0]} of {path!r} is not the one Recollect ships")
    return [step for step in steps if step.number > newest]


def _done(connection: apsw.Connection) -> dict[int, str]:
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'").fetchall():
        return {}
    rows: list[Any] = connection.execute("SELECT number, checksum FROM migrations").fetchall()
    return dict(rows)


def _run(connection: apsw.Connection, step: Migration) -> None:
    if step.number == 1:
        connection.execute("CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT, checksum TEXT NOT NULL)")
    for statement in _statements(step.sql):
        connection.execute(statement)
    connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", (step.number, step.name, step.checksum))
    if step.number == 1:
        connection.execute("INSERT INTO meta VALUES ('secret', ?)", (secrets.token_hex(32),))


def _statements(sql: str) -> list[str]:
    lines = (line.split("--")[0] for line in sql.splitlines())
    return [each for each in "\n".join(lines).split(";") if each.strip()]


def _backup(path: str, schema: int) -> None:
    """A copy beside the file, named after the schema it holds."""
    source = apsw.Connection(path)
    try:
        checks.copy(source, Path(f"{path}.before-{schema + 1}"))
    finally:
        source.close()
