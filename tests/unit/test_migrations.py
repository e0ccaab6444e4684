"""The schema: what the migrations make of a file, new, old, newer, altered, or opened by many at once."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import apsw
import pytest

from memorist.errors import MigrationNeeded, StoreDamaged
from memorist.storage.sqlite import connection as connections
from memorist.storage.sqlite.connection import Migration, migrate, migrations
from stores import open_sqlite

NEXT = len(migrations()) + 1
ADDED = Migration(
    NEXT, "colours", "CREATE TABLE colours (name TEXT);\nINSERT INTO colours VALUES ('blue');"
)
BROKEN = Migration(
    NEXT, "broken", "CREATE TABLE colours (name TEXT);\nCREATE TABLE memories (again TEXT);"
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "memory.db")


def asked(path: str, sql: str) -> list[Any]:
    connection = apsw.Connection(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def opened_and_migrated(path: str, steps: list[Migration] | None = None) -> list[int]:
    connection = connections.connect(path)
    try:
        return migrate(connection, path, steps)
    finally:
        connection.close()


def schema(path: str) -> set[str]:
    sql = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
    return {" ".join(row[0].split()) for row in asked(path, sql)}


def test_the_schema_equals_its_migrations(path: str) -> None:
    opened_and_migrated(path)
    text = resources.files("memorist.storage.sqlite").joinpath("schema.sql").read_text("utf-8")
    bare = re.sub(r"--.*", "", text)
    assert {" ".join(each.split()) for each in bare.split(";") if each.strip()} == schema(path)


def columns(path: str, table: str) -> dict[str, tuple[str, bool]]:
    """Each column of a table with its type, and whether it is part of the key."""
    return {row[1]: (row[2], bool(row[5])) for row in asked(path, f"PRAGMA table_info({table})")}


@pytest.mark.spec("CLK-12", "CLK-13")
def test_a_vector_is_kept_by_memory_and_model_with_its_dimensions(path: str) -> None:
    opened_and_migrated(path)
    found = columns(path, "vectors")
    assert {name for name, (_, is_key) in found.items() if is_key} == {"scope", "memory", "model"}
    assert (found["dims"][0], found["embedding"][0]) == ("INTEGER", "BLOB")


@pytest.mark.spec("IMP-6", "IMP-7", "IMP-8")
def test_a_thread_has_a_revision_and_a_log_of_changes(path: str) -> None:
    opened_and_migrated(path)
    revision = columns(path, "thread_revision")
    assert (revision["thread_id"], revision["rev"]) == (("TEXT", True), ("INTEGER", False))
    log = columns(path, "change_log")
    assert {"id", "thread_id", "rev", "memory_id", "event", "meta", "ts"} <= set(log)
    assert (log["id"], log["rev"]) == (("TEXT", True), ("INTEGER", False))
    index = asked(
        path, "SELECT name, \"desc\" FROM pragma_index_xinfo('change_log_thread') WHERE key"
    )
    assert index == [("scope", 0), ("thread_id", 0), ("rev", 1)]


TABLES = {
    "relations": {"id", "from_id", "to_id", "relation_type", "strength", "created_at"},
    "history": {"id", "memory_id", "event", "old_ref", "new_ref", "actor", "meta", "ts"},
    "events": {
        "id",
        "user_id",
        "thread_id",
        "node",
        "op",
        "status",
        "memory_id",
        "category",
        "sim",
        "ts",
    },
    "supervisor_checkpoints": {
        "id",
        "user_id",
        "thread_id",
        "checkpoint_data",
        "created_at",
        "updated_at",
    },
}


@pytest.mark.spec("IMP-15", "IMP-75", "IMP-105", "IMP-117")
@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_the_columns_that_were_asked_for(path: str, table: str) -> None:
    opened_and_migrated(path)
    assert set(columns(path, table)) >= TABLES[table]
    assert ["id"] in unique(path, table)


def unique(path: str, table: str) -> list[list[str]]:
    """The lists of columns of which a table holds each value once."""
    names = asked(path, f"SELECT name FROM pragma_index_list('{table}') WHERE \"unique\"")
    return [
        [row[0] for row in asked(path, f"SELECT name FROM pragma_index_info('{name}')")]
        for (name,) in names
    ]


@pytest.mark.spec("IMP-15")
def test_a_relation_has_two_ends_and_a_strength_and_is_one_of_likeness(path: str) -> None:
    opened_and_migrated(path)
    declared = {
        row[1]: (row[2], bool(row[3]), row[4])
        for row in asked(path, "PRAGMA table_info(relations)")
    }
    assert declared["from_id"] == declared["to_id"] == ("TEXT", True, None)
    assert declared["strength"] == ("REAL", True, None)
    assert declared["relation_type"] == ("TEXT", True, "'related_to'")


INDEXES = {
    "relations_from": [("scope", 0), ("from_id", 0)],
    "relations_to": [("scope", 0), ("to_id", 0)],
    "history_memory": [("scope", 0), ("memory_id", 0), ("ts", 1)],
    "events_user": [("user_id", 0), ("ts", 1)],
    "events_node": [("node", 0), ("ts", 1)],
    "supervisor_checkpoints_thread": [("scope", 0), ("user_id", 0), ("thread_id", 0)],
    "supervisor_checkpoints_updated": [("updated_at", 1)],
}


@pytest.mark.spec("IMP-16", "IMP-77", "IMP-110", "IMP-118")
@pytest.mark.parametrize("name", INDEXES)
def test_what_is_looked_for_often_has_an_index(path: str, name: str) -> None:
    opened_and_migrated(path)
    assert (
        asked(path, f"SELECT name, \"desc\" FROM pragma_index_xinfo('{name}') WHERE key")
        == INDEXES[name]
    )


@pytest.mark.spec("THE-12", "THE-14")
def test_a_row_begins_without_a_vector_and_said_once(path: str) -> None:
    opened_and_migrated(path)
    defaults = {row[1]: row[4] for row in asked(path, "PRAGMA table_info(memories)")}
    assert (defaults["needs_embedding"], defaults["repeat_count"]) == ("1", "0")


def test_migrations_are_numbered_without_a_gap() -> None:
    assert [step.number for step in migrations()] == list(range(1, len(migrations()) + 1))


def test_a_database_knows_which_steps_made_it(path: str) -> None:
    assert opened_and_migrated(path) == [step.number for step in migrations()]
    assert asked(path, "SELECT number, checksum FROM migrations") == [
        (s.number, s.checksum) for s in migrations()
    ]


def test_nothing_is_run_twice(path: str) -> None:
    opened_and_migrated(path)
    secret = asked(path, "SELECT value FROM meta WHERE key = 'secret'")
    assert opened_and_migrated(path) == []
    assert asked(path, "SELECT value FROM meta WHERE key = 'secret'") == secret


def test_a_checksum_is_of_the_whole_step() -> None:
    assert Migration(1, "a", "x").checksum != Migration(1, "a", "x ").checksum


def test_a_new_step_is_run_after_a_backup_of_what_was_there(path: str) -> None:
    opened_and_migrated(path)
    assert opened_and_migrated(path, [*migrations(), ADDED]) == [NEXT]
    assert asked(path, "SELECT name FROM colours") == [("blue",)]
    before = schema(f"{path}.before-{NEXT}")
    assert before == schema(path) - {"CREATE TABLE colours (name TEXT)"}


def test_a_new_file_needs_no_backup(path: str) -> None:
    opened_and_migrated(path, [*migrations(), ADDED])
    assert not Path(f"{path}.before-{NEXT}").exists()


def test_a_step_that_fails_leaves_the_schema_as_it_was(path: str) -> None:
    opened_and_migrated(path)
    before = schema(path)
    with pytest.raises(apsw.SQLError):
        opened_and_migrated(path, [*migrations(), BROKEN])
    assert schema(path) == before
    assert opened_and_migrated(path, [*migrations(), ADDED]) == [NEXT]


async def test_a_database_of_a_newer_version_is_left_alone(path: str) -> None:
    opened_and_migrated(path, [*migrations(), ADDED])
    with pytest.raises(MigrationNeeded, match="newer"):
        await open_sqlite(path)
    assert asked(path, "SELECT max(number) FROM migrations") == [(NEXT,)]


@pytest.mark.parametrize(
    "change",
    ["UPDATE migrations SET checksum = 'x'", "INSERT INTO migrations VALUES (0, 'zero', 'x')"],
)
async def test_an_altered_step_is_told(path: str, change: str) -> None:
    opened_and_migrated(path)
    asked(path, change)
    with pytest.raises(StoreDamaged, match="is not the one Memorist ships"):
        await open_sqlite(path)


OPEN = """
import asyncio, sys
from memorist.storage.scan import check
from memorist.storage.sqlite import SqliteDatabase
from memorist.storage.store import Store

async def main():
    store = await Store.open(await SqliteDatabase.open(sys.argv[1]))
    assert await check(store) == []
    await store.close()

asyncio.run(main())
"""


def test_many_processes_may_open_a_new_file_at_once(path: str) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", OPEN, path], stderr=subprocess.PIPE)
        for _ in range(6)
    ]
    errors = [process.communicate()[1].decode() for process in running]
    assert [process.returncode for process in running] == [0] * 6, errors
    assert asked(path, "SELECT count(*) FROM migrations") == [(len(migrations()),)]
    assert asked(path, "SELECT count(*) FROM meta WHERE key = 'secret'") == [(1,)]
