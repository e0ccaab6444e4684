"""What is PostgreSQL's own: types, the wall a second time, partitions, migrations, near vectors, lost connections."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

import memorist
from memorist.errors import (
    InvalidInput,
    MemoristError,
    MigrationNeeded,
    Misconfigured,
    ProviderFailed,
    StoreDamaged,
    StoreUnavailable,
)
from memorist.storage import Forget, Save, tasks
from memorist.storage.database import EVERY, Migration
from memorist.storage.postgres.connection import complete_url, hide_password
from memorist.storage.postgres.migrate import build_indexes, migrate, migrations
from memorist.storage.queries import Reader
from memorist.storage.scan import check
from memorist.storage.store import Store
from memorist.storage.tasks import Embedding
from memorist.text.clock import new_id, parse
from memorist.types import Filter, Memory, Scope
from stores import open_postgres

ANA, BOB = Scope(user="ana"), Scope(user="bob")
NOW = parse("2026-05-31T14:00:00Z")


@pytest.fixture
async def store(ready_database: str) -> AsyncIterator[Store]:
    opened = await open_postgres(ready_database)
    yield opened
    await opened.close()


async def keep(store: Store, text: str, scope: Scope = ANA, vector: Any = None) -> Memory:
    made = Memory(
        id=new_id(), scope=scope, text=text, kind="episodic", created_at=NOW, updated_at=NOW
    )
    async with store.transaction(scope) as tx:
        await tx.apply(
            [
                Save(
                    memory=made,
                    event="created",
                    vector=vector,
                    model=None if vector is None else "m",
                )
            ]
        )
    return made


async def texts(store: Store, scope: Scope = ANA) -> list[str]:
    return [each.text for each in await store.page(scope, Filter(), limit=1000)]


def asked(url: str, sql: str, *values: Any) -> list[Any]:
    """Ask as a superuser, who is above the wall."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET search_path = memorist, public")
        cursor = connection.execute(sql.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


# Types


def columns(url: str, table: str) -> dict[str, str]:
    sql = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = %s"
    return dict(asked(url, sql, table))


def key(url: str, table: str) -> str:
    sql = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'p'"
    return str(asked(url, sql, table)[0][0])


def indexes(url: str, table: str) -> str:
    found = asked(
        url,
        "SELECT indexdef FROM pg_indexes WHERE schemaname = 'memorist' AND tablename = %s",
        table,
    )
    return "\n".join(row[0] for row in found)


def defaults(url: str, table: str) -> dict[str, str]:
    sql = "SELECT column_name, column_default FROM information_schema.columns WHERE table_name = %s"
    return dict(asked(url, sql, table))


TEXT, TIME = "text", "timestamp with time zone"
TABLES = {
    "thread_revision": {"thread_id": TEXT, "rev": "bigint"},
    "change_log": {"id": "uuid", "thread_id": TEXT, "rev": "bigint", "memory_id": TEXT, "event": TEXT, "meta": "jsonb",
                   "ts": TIME},
    "relations": {"id": "uuid", "from_id": TEXT, "to_id": TEXT, "relation_type": TEXT, "strength": "real",
                  "created_at": TIME},
    "history": {"id": "uuid", "memory_id": TEXT, "event": TEXT, "old_ref": TEXT, "new_ref": TEXT, "actor": TEXT,
                "meta": "jsonb", "ts": TIME},
    "events": {"id": "uuid", "user_id": TEXT, "thread_id": TEXT, "node": TEXT, "op": TEXT, "status": TEXT,
               "memory_id": TEXT, "category": TEXT, "sim": "real", "ts": TIME},
    "supervisor_checkpoints": {"id": "uuid", "user_id": TEXT, "thread_id": TEXT, "checkpoint_data": "jsonb",
                               "created_at": TIME, "updated_at": TIME},
}  # fmt: skip


@pytest.mark.spec("IMP-6", "IMP-7", "IMP-15", "IMP-75", "IMP-105", "IMP-117")
@pytest.mark.parametrize("table", TABLES)
def test_a_table_has_the_types_that_were_asked_for(ready_database: str, table: str) -> None:
    assert columns(ready_database, table).items() >= TABLES[table].items()
    assert key(ready_database, table).startswith("PRIMARY KEY (scope, ")
    if "id" in TABLES[table]:
        assert key(ready_database, table) == "PRIMARY KEY (scope, id)"
    times = [name for name, kind in TABLES[table].items() if kind == TIME]
    assert all(defaults(ready_database, table)[name] == "now()" for name in times)


@pytest.mark.spec("IMP-8", "IMP-16", "IMP-77", "IMP-110", "IMP-118")
@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ("change_log", "(scope, thread_id, rev DESC)"),
        ("relations", "(scope, from_id)"),
        ("relations", "(scope, to_id)"),
        ("history", "(scope, memory_id, ts DESC)"),
        ("events", "(user_id, ts DESC)"),
        ("events", "(node, ts DESC)"),
        ("supervisor_checkpoints", "(updated_at DESC)"),
    ],
)
def test_what_is_looked_for_often_has_an_index(
    ready_database: str, table: str, wanted: str
) -> None:
    assert wanted in indexes(ready_database, table)


@pytest.mark.spec("IMP-118")
def test_a_thread_has_one_checkpoint(ready_database: str) -> None:
    assert "UNIQUE INDEX supervisor_checkpoints_thread" in indexes(
        ready_database, "supervisor_checkpoints"
    )
    assert "(scope, user_id, thread_id)" in indexes(ready_database, "supervisor_checkpoints")


@pytest.mark.spec("IMP-15")
def test_a_relation_is_one_of_likeness_unless_it_says_otherwise(ready_database: str) -> None:
    assert defaults(ready_database, "relations")["relation_type"] == "'related_to'::text"


@pytest.mark.spec("IMP-15", "IMP-75")
@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("relations", {"from_id", "to_id", "strength"}),
        ("history", {"id", "memory_id", "event", "meta", "ts"}),
    ],
)
def test_what_a_row_needs_cannot_be_left_out(
    ready_database: str, table: str, names: set[str]
) -> None:
    sql = "SELECT column_name FROM information_schema.columns WHERE table_name = %s AND is_nullable = 'NO'"
    assert names <= {row[0] for row in asked(ready_database, sql, table)}


@pytest.mark.parametrize("value", ["a\0b", "half \ud83d"])
async def test_what_postgresql_cannot_keep_is_refused_and_changes_nothing(
    store: Store, value: str
) -> None:
    with pytest.raises(InvalidInput):
        await keep(store, value)
    assert await texts(store) == []


async def test_a_vector_comes_back_bit_for_bit(store: Store) -> None:
    vector = np.random.default_rng(7).standard_normal(384).astype(np.float32)
    vector[0], vector[1] = -0.0, 1e-42
    await keep(store, "tea", vector=vector)
    (row,) = (await store.changed_since(ANA, 0, model="m", limit=9)).rows
    assert row.vector == vector.tobytes()


# The wall


class Careless:
    """A session whose statements have lost the condition on the scope."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.dialect, self.secret = inner, inner.dialect, b""

    async def rows(
        self, sql: str, values: Any = (), *, scope: int | None = None
    ) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = await self._inner.rows(
            re.sub(r"(\w+\.)?scope = \?", "coalesce(?, 0) IS NOT NULL", sql), values, scope=scope
        )
        return found

    async def read(self, queries: Any, *, scope: int | None = None) -> list[Any]:
        return [await self.rows(*each, scope=scope) for each in queries]


@pytest.mark.spec("THE-12", "THE-14")
async def test_a_row_begins_without_a_vector_and_said_once(store: Store) -> None:
    sql = "SELECT column_name, column_default FROM information_schema.columns WHERE table_schema = 'memorist' "
    sql += "AND table_name = 'memories' AND column_name IN ('needs_embedding', 'repeat_count')"
    assert dict(asked(store.database.url, sql)) == {"needs_embedding": "1", "repeat_count": "0"}


@pytest.mark.spec("THE-109")
async def test_with_the_scope_forgotten_in_every_statement_no_foreign_row_comes_back(
    store: Store,
) -> None:
    theirs = await keep(store, "theirs", BOB, [1.0, 0.0])
    await keep(store, "mine", ANA, [0.0, 1.0])
    careless = Reader(Careless(store.database), {})
    assert [each.text for each in await careless.page(ANA, Filter(), limit=9)] == ["mine"]
    assert await careless.get(ANA, [theirs.id]) == []
    assert len((await careless.changed_since(ANA, 0, model="m", limit=9)).rows) == 1
    assert len(await careless.rows_where(ANA, Filter(states=()))) == 1
    assert await careless.versions(ANA, theirs.id) == []


async def test_without_a_scope_no_row_is_seen_and_only_on_request_all_are(
    store: Store,
) -> None:
    await keep(store, "mine")
    await keep(store, "theirs", BOB)
    tables = asked(
        store.database.url,
        "SELECT tablename FROM pg_tables WHERE schemaname = 'memorist' AND rowsecurity",
    )
    assert len(tables) > 15
    for (table,) in tables:
        assert await store.database.rows(f"SELECT count(*) FROM {table}") == [(0,)]
    assert await store.database.rows("SELECT count(*) FROM memories", scope=EVERY) == [(2,)]


async def test_every_table_with_a_scope_is_behind_the_wall(store: Store) -> None:
    sql = """SELECT relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'scope'
    WHERE relnamespace = 'memorist'::regnamespace AND relkind IN ('r', 'p')
    AND NOT (relrowsecurity AND relforcerowsecurity)"""
    assert asked(store.database.url, sql) == []


async def test_a_row_cannot_be_written_into_another_scope(store: Store) -> None:
    await keep(store, "mine")
    await keep(store, "theirs", BOB)
    _, bob = await store.number(ANA), await store.number(BOB)
    with pytest.raises(MemoristError, match="row-level security"):
        async with store.transaction(ANA) as tx:
            await tx.connection.rows(
                "INSERT INTO erased (scope, row, changed) VALUES (?, 1, 1)", (bob,)
            )
    async with store.transaction(ANA) as tx:
        await tx.connection.rows("DELETE FROM memories")
        await tx.connection.rows("UPDATE history SET actor = 'me'")
    assert (await texts(store), await texts(store, BOB)) == ([], ["theirs"])
    assert (await store.history.entries(BOB))[0].actor != "me"


async def test_a_check_tells_when_the_wall_is_down(database: str) -> None:
    store = await open_postgres(database)
    assert await check(store) == []
    asked(database, "ALTER TABLE memories DISABLE ROW LEVEL SECURITY")
    assert "Row-level security does not guard memories" in "\n".join(await check(store))
    await store.close()


@pytest.fixture
def plain(database: str) -> str:
    """The address of a database for a user with no rights beyond it; pgvector is there."""
    asked(database, "CREATE EXTENSION vector")
    asked(
        database,
        "DO $$ BEGIN CREATE ROLE plain LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    )
    asked(database, f"ALTER DATABASE {_name(database)} OWNER TO plain")
    return database.replace("postgres:@", "plain@")


def _name(url: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(url)["dbname"])


async def test_the_wall_holds_for_the_owner_of_the_tables(plain: str) -> None:
    store = await open_postgres(plain)
    await keep(store, "mine")
    await keep(store, "theirs", BOB)
    assert await store.database.rows(
        "SELECT text FROM memories", scope=await store.number(ANA)
    ) == [("mine",)]
    assert await check(store) == []
    await store.database.vacuum()
    await store.close()


async def test_a_database_without_pgvector_names_the_way_out(database: str) -> None:
    asked(
        database,
        "DO $$ BEGIN CREATE ROLE plain LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    )
    asked(database, f"ALTER DATABASE {_name(database)} OWNER TO plain")
    with pytest.raises(Misconfigured, match="CREATE EXTENSION vector"):
        await open_postgres(database.replace("postgres:@", "plain@"))


async def test_letters_of_every_script_have_a_case_without_the_newest_collation(
    database: str,
) -> None:
    asked(
        database, "DELETE FROM pg_collation WHERE collname = 'pg_unicode_fast'"
    )  # PostgreSQL 17 does not have it
    async with memorist.aio.open(database, embedder="none") as memory:
        ana = memory.scope("ana")
        await ana.remember("The café opens at nine.", tags=["ÉTÉ"])
        assert len(await ana.list(Filter(tags=("été",)))) == 1


# Migrations

SECOND = Migration(99, "colours", "CREATE TABLE colours (scope bigint, name text) /* by scope */;")
BROKEN = Migration(
    99, "broken", "CREATE TABLE colours (name text);\nCREATE TABLE memories (again text);"
)


async def test_nothing_is_run_twice(database: str) -> None:
    assert await migrate(database) == [step.number for step in migrations()]
    secret = asked(database, "SELECT value FROM meta WHERE key = 'secret'")
    assert await migrate(database) == []
    assert asked(database, "SELECT value FROM meta WHERE key = 'secret'") == secret
    done = asked(database, "SELECT number, checksum FROM migrations ORDER BY number")
    assert done == [(step.number, step.checksum) for step in migrations()]


def test_both_engines_have_the_same_steps_and_columns(ready_database: str, tmp_path: Path) -> None:
    from memorist.storage.sqlite import connection as connections
    from memorist.storage.sqlite import connection as sqlite

    assert [(step.number, step.name) for step in migrations()] == [
        (step.number, step.name) for step in sqlite.migrations()
    ]
    connection = connections.connect(str(tmp_path / "m.db"))
    sqlite.migrate(connection, str(tmp_path / "m.db"))
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    for (table,) in connection.execute(tables).fetchall():
        names = {row[1] for row in connection.execute(f"PRAGMA table_info({table})").fetchall()}
        assert names == set(columns(ready_database, table)), table
    connection.close()


async def test_a_new_step_is_behind_the_wall_too(database: str) -> None:
    await migrate(database)
    assert await migrate(database, [*migrations(), SECOND]) == [99]
    assert asked(
        database, "SELECT relforcerowsecurity FROM pg_class WHERE relname = 'colours'"
    ) == [(True,)]


async def test_a_step_that_fails_leaves_the_schema_as_it_was(database: str) -> None:
    await migrate(database)
    with pytest.raises(ProviderFailed, match="already exists"):
        await migrate(database, [*migrations(), BROKEN])
    assert asked(database, "SELECT to_regclass('memorist.colours')") == [(None,)]
    assert await migrate(database, [*migrations(), SECOND]) == [99]


async def test_a_newer_and_an_altered_database_are_left_alone(database: str) -> None:
    await migrate(database, [*migrations(), SECOND])
    with pytest.raises(MigrationNeeded, match="newer"):
        await open_postgres(database)
    asked(database, "DELETE FROM migrations WHERE number = 99")
    asked(database, "UPDATE migrations SET checksum = 'x' WHERE number = 1")
    with pytest.raises(StoreDamaged, match="is not the one Memorist ships"):
        await open_postgres(database)


OPEN = """
import asyncio, sys
from memorist.storage.scan import check
from memorist.storage.postgres import PostgresDatabase
from memorist.storage.store import Store

async def main():
    store = await Store.open(await PostgresDatabase.open(sys.argv[1]))
    assert await check(store) == []
    await store.close()

asyncio.run(main())
"""


def test_many_servers_may_open_a_new_database_at_once(database: str) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", OPEN, database], stderr=subprocess.PIPE)
        for _ in range(5)
    ]
    errors = [process.communicate()[1].decode() for process in running]
    assert [process.returncode for process in running] == [0] * 5, errors
    assert asked(database, "SELECT count(*) FROM migrations") == [(len(migrations()),)]
    assert asked(database, "SELECT count(*) FROM meta WHERE key = 'secret'") == [(1,)]


async def test_a_schema_of_others_in_the_same_database_is_left_alone(database: str) -> None:
    asked(database, "CREATE TABLE public.memories (mine text)")
    store = await open_postgres(database)
    await keep(store, "tea")
    await store.close()
    assert asked(database, "SELECT count(*) FROM public.memories") == [(0,)]


# Partitions


async def test_a_database_in_partitions_does_all_the_same(database: str) -> None:
    await migrate(database, partitions=4)
    parts = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'memories'::regclass"
    assert asked(database, parts) == [(4,)]
    store = await open_postgres(database)
    for number in range(12):
        await keep(store, f"memory {number}", Scope(user=f"user {number}"), [1.0, 0.0])
    gone = await keep(store, "gone")
    async with store.transaction(ANA) as tx:
        await tx.apply([Forget(memory_id=gone.id, at=NOW, until=None)])
    assert len(asked(database, "SELECT DISTINCT tableoid FROM memories")) > 1
    assert [await texts(store, Scope(user=f"user {n}")) for n in range(12)] == [
        [f"memory {n}"] for n in range(12)
    ]
    assert len(await store.embeddings.claim("other", worker="w", limit=50, lease_seconds=9)) == 12
    assert await check(store) == []
    await store.close()


async def test_a_database_has_no_partitions_unless_they_are_asked_for(database: str) -> None:
    await migrate(database)
    assert asked(database, "SELECT count(*) FROM pg_partitioned_table") == [(0,)]


async def test_a_database_in_use_is_not_cut_into_partitions(store: Store) -> None:
    with pytest.raises(InvalidInput, match="memorist db copy"):
        await migrate(store.database.url, partitions=4)


async def test_a_partition_is_behind_the_wall_too(database: str) -> None:
    await migrate(database, partitions=2)
    found = asked(
        database,
        "SELECT bool_and(relforcerowsecurity) FROM pg_class WHERE relname IN ('memories_0', 'vectors_1')",
    )
    assert found == [(True,)]


# Near vectors


def exact(vectors: Any, wanted: Any, limit: int) -> list[int]:
    cosines = vectors @ wanted / np.linalg.norm(vectors, axis=1) / np.linalg.norm(wanted)
    return [int(i) for i in np.argsort(-cosines, kind="stable")[:limit]]


async def test_nearest_is_exact_in_a_small_scope(store: Store) -> None:
    vectors = np.random.default_rng(3).standard_normal((60, 8)).astype(np.float32)
    for number, vector in enumerate(vectors):
        await keep(store, f"memory {number}", vector=vector)
    await keep(store, "theirs", BOB, vectors[0])
    rows = [row.row for row in (await store.changed_since(ANA, 0, model="m", limit=99)).rows]
    found = await store.nearest(ANA, vectors[5], model="m", limit=10)
    assert [row for row, _ in found] == [rows[i] for i in exact(vectors, vectors[5], 10)]
    assert found[0][1] == pytest.approx(1.0)
    assert await store.nearest(ANA, vectors[5], model="other", limit=10) == []
    assert await store.nearest(Scope(user="nobody"), vectors[5], model="m", limit=10) == []


FILL = """INSERT INTO vectors SELECT CASE WHEN n %% 20 = 0 THEN %s ELSE %s END, n, 'it''s 5%% ?', 16,
(SELECT array_agg(sin(n * 12.9898 + d * 78.233 + sin(n * d))) FROM generate_series(1, 16) d)::real[]::vector
FROM generate_series(1, 4000) n"""


@pytest.mark.parametrize("partitions", [None, 2])
async def test_nearest_uses_the_index_in_a_large_scope(
    database: str, partitions: int | None
) -> None:
    await migrate(database, partitions=partitions)
    store = await open_postgres(database)
    store.database.hnsw_from = 100
    await keep(store, "mine")
    await keep(store, "theirs", BOB)
    numbers = (await store.number(ANA), await store.number(BOB))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SET search_path = memorist, public")
        connection.execute("SET session_replication_role = replica")
        connection.execute(FILL, numbers)
    made = await build_indexes(database, least=1000)
    assert len(made) == (partitions or 1)
    assert await build_indexes(database, least=1000) == []
    kept = asked(
        database,
        "SELECT memory, embedding::real[] FROM vectors WHERE scope = %s ORDER BY memory",
        numbers[0],
    )
    vectors = np.array([row[1] for row in kept], np.float32)
    share = []
    for number in range(0, 200, 10):
        found = await store.nearest(ANA, vectors[number], model="it's 5% ?", limit=10)
        assert len(found) == 10  # though the scope is one row in twenty
        wanted = {kept[i][0] for i in exact(vectors, vectors[number], 10)}
        share.append(len(wanted & {row for row, _ in found}) / 10)
    assert np.mean(share) > 0.9
    every = await store.nearest(ANA, vectors[0], model="it's 5% ?", limit=300)
    assert len(every) == 200  # though the index looks at 1000 candidates at most
    await store.close()


# Notes and connections


async def test_a_change_is_heard_in_another_process_at_once(store: Store) -> None:
    other = await open_postgres(store.database.url)
    await other.database.wait_for_change(0)
    await keep(store, "tea")
    begun = time.monotonic()
    await other.database.wait_for_change(20)
    assert time.monotonic() - begun < 10
    await other.close()


async def test_two_servers_never_lose_an_update(store: Store) -> None:
    other = await open_postgres(store.database.url)
    kept = await keep(store, "tea")

    async def once_more(server: Store) -> None:
        async with server.transaction(ANA) as tx:
            (now,) = await tx.get(ANA, [kept.id])
            await asyncio.sleep(0)
            await tx.apply(
                [Save(memory=replace(now, repeat_count=now.repeat_count + 1), event="merged")]
            )

    await asyncio.gather(*(once_more(server) for _ in range(15) for server in (store, other)))
    assert (await store.get(ANA, [kept.id]))[0].repeat_count == 30
    await other.close()


async def test_writers_that_wait_for_a_scope_keep_nobody_from_reading(store: Store) -> None:
    async with store.transaction(ANA):
        waiting = [asyncio.create_task(keep(store, f"memory {n}")) for n in range(30)]
        await asyncio.sleep(0.05)
        assert await asyncio.wait_for(texts(store, BOB), timeout=5) == []
    await asyncio.gather(*waiting)
    assert len(await texts(store)) == 30


async def test_scopes_are_written_side_by_side(store: Store) -> None:
    async with store.transaction(ANA) as tx:
        await tx.apply([])
        await asyncio.wait_for(keep(store, "theirs", BOB), timeout=5)


async def test_more_calls_than_connections_wait_their_turn(store: Store) -> None:
    await keep(store, "tea")
    assert await asyncio.gather(*(texts(store) for _ in range(60))) == [["tea"]] * 60
    busy = asked(
        store.database.url,
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'memorist'",
    )
    assert busy[0][0] <= 10


async def test_connections_that_the_server_ended_are_replaced(store: Store) -> None:
    await keep(store, "tea")
    await asyncio.gather(*(texts(store) for _ in range(10)))
    asked(
        store.database.url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'memorist'",
    )
    await asyncio.sleep(0.2)
    assert await texts(store) == ["tea"]
    await keep(store, "milk")
    assert await texts(store) == ["milk", "tea"]


async def test_a_connection_lost_in_a_transaction_is_told_and_nothing_is_kept(
    store: Store,
) -> None:
    await keep(store, "tea")

    async def cut() -> None:
        made = Memory(
            id=new_id(), scope=ANA, text="milk", kind="episodic", created_at=NOW, updated_at=NOW
        )
        async with store.transaction(ANA) as tx:
            await tx.apply([Save(memory=made, event="created")])
            asked(
                store.database.url,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state LIKE 'idle in%'",
            )
            await asyncio.sleep(0.1)

    with pytest.raises(StoreUnavailable):
        await cut()
    assert await texts(store) == ["tea"]


async def test_an_error_of_the_caller_stays_what_it_is(store: Store) -> None:
    for error in (TimeoutError, OSError, ValueError):
        with pytest.raises(error):
            async with store.transaction(ANA):
                raise error("mine")
    await keep(store, "tea")


async def test_a_server_that_is_not_there_is_told_at_once() -> None:
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match="check that the server runs"):
        await open_postgres("postgresql://ana:secret@127.0.0.1:1/memories")
    assert time.monotonic() - begun < 5


async def test_a_database_that_is_not_there_is_named(postgres: str) -> None:
    with pytest.raises(ProviderFailed, match="nowhere"):
        await open_postgres(postgres.replace("/postgres?", "/nowhere?"))


@pytest.mark.parametrize("url", ["postgresql://h/x?nonsense=1", "postgresql://[half/x"])
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured):
        await open_postgres(url)


@pytest.mark.parametrize(("given", "seconds"), [("", "5"), ("?connect_timeout=9", "9")])
def test_a_connection_is_given_up_after_5_seconds_unless_the_address_says_otherwise(
    given: str, seconds: str
) -> None:
    parts = complete_url(f"postgresql://db.example/memories{given}").split()
    assert f"connect_timeout={seconds}" in parts


def test_a_password_is_never_shown() -> None:
    assert "secret" not in hide_password("postgresql://ana:secret@h:5433/x") + hide_password(
        "host=h password=secret dbname=x"
    )


# The same as on SQLite

TALK = [
    ("Ana", "I moved to Porto in March 2024 and I work as a nurse."),
    ("Ben", "My dog Rex is three years old."),
    ("Ana", "My favourite tea is Earl Grey, and I never drink coffee."),
    ("Ben", "The meeting with Dr. Silva is on Tuesday at ten."),
    ("Ana", "I am allergic to peanuts."),
    ("Ben", "We booked the flight to Lisbon for 420 euros."),
    ("Ana", "The meeting with Dr. Silva was moved to Friday at four."),
    ("Ben", "I like hiking in the Alps every summer."),
]
QUESTIONS = [
    "Where does Ana live?",
    "when is the meeting?",
    "what does Ana drink",
    "flight price",
    "Rex",
    "allergies?",
]


def hits(db: str, tmp_path: Path) -> list[Any]:
    messages = [
        {
            "id": f"m{i}",
            "name": name,
            "content": text,
            "session": "s",
            "at": f"2026-05-{10 + i}T09:00:00Z",
        }
        for i, (name, text) in enumerate(TALK)
    ]
    with memorist.open(db, state_dir=tmp_path, embedder="hashing", spool=False) as memory:
        ana = memory.scope(user="ana")
        ana.import_(messages)
        found = [ana.recall(question, limit=5).hits for question in QUESTIONS]
        return [[(hit.memory.text, round(hit.score, 9)) for hit in each] for each in found]


def test_the_same_talk_gives_the_same_hits_order_and_scores(
    ready_database: str, tmp_path: Path
) -> None:
    on_file, on_server = hits(str(tmp_path / "m.db"), tmp_path), hits(ready_database, tmp_path)
    assert any(on_file)
    assert on_server == on_file


async def test_a_backup_opens_as_a_file_with_all_there_is(store: Store, tmp_path: Path) -> None:
    from stores import open_sqlite

    made = await keep(store, "tea", vector=[0.5, 0.25])
    async with store.transaction(ANA) as tx:
        await tasks.save_embeddings(
            tx, [Embedding(memory_id=made.id, model="other", vector=[1, 0, 0])]
        )
    await store.database.backup(tmp_path / "copy.db")
    copy = await open_sqlite(tmp_path / "copy.db")
    assert (await copy.changed_since(ANA, 0, model="m", limit=9)).rows == (
        await store.changed_since(ANA, 0, model="m", limit=9)
    ).rows
    assert await copy.history.entries(ANA) == await store.history.entries(ANA)
    assert await copy.tombstones(ANA, ["tea"], NOW) == set()
    await copy.close()
