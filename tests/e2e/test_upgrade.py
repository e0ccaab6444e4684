"""What version 0.1 left behind, when it was called Recollect: databases, exports, archives, spools, indexes."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from memorist import aio
from memorist.errors import Misconfigured, NotFound
from memorist.offline.spool import Spool
from memorist.settings import load
from memorist.storage.postgres.migrate import migrate
from memorist.storage.scan import check
from memorist.types import Filter
from memorist.vector_indexes import collection_name
from stores import open_postgres
from version_0_1 import ALIVE, DATA, assert_replayed, lay_spool, unpack

ROLE = "DO $$ BEGIN CREATE ROLE recollect_app NOLOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
ALARM = "My old alarm code was 4711."


async def assert_whole(db: str | Path, state: Path, key: str, **settings: Any) -> None:
    """Everything that version 0.1 stored is there, and every verb goes on from it."""
    async with aio.open(db, embedder="hashing", state_dir=state, **settings) as memory:
        ana, bob = memory.scope("ana"), memory.scope("bob", tenant="shop", space="orders")
        assert await memory.check() == []
        assert {each.text for each in (await ana.list()).memories} == ALIVE
        assert "warehouse in Lyon" in (await bob.recall("where does the parcel go?")).text
        moved = (await ana.recall("which city did I move to?")).hits[0].memory
        assert moved.text == "I moved from Braga to Porto in May."
        assert (await ana.recall("where does the parcel go?", limit=50)).text.count("Lyon") == 0
        assert (await memory.authenticate(key)).user == "ana"
        assert (await ana.checkpoints.load("thread-1"))["step"] == 3
        dentist = next(each for each in (await ana.list()).memories if "dentist" in each.text)
        assert {"ADD", "UPDATE"} <= {entry.event for entry in await ana.history(dentist.id)}
        (hidden,) = (await ana.list(Filter(states=("soft_deleted",)))).memories
        assert (await ana.remember(ALARM)).outcomes[0].status == "refused"
        again = {"id": "m1", "session": "chat-1", "role": "user", "content": moved.text}
        assert (await ana.remember([again])).ids == (moved.id,)
        assert (await ana.restore(hidden.id)).text == "The gym opens at seven."
        await ana.forget(dentist.id)
        with pytest.raises(NotFound):
            await ana.get(dentist.id)
        assert (await ana.remember("Next year I learn to sail.")).count("created") == 1
        assert "sail" in (await ana.recall("what do I learn next year?")).text
        assert await memory.check() == []


# Databases


async def test_a_sqlite_database_of_version_0_1_opens_and_goes_on(tmp_path: Path) -> None:
    db = unpack("memory.db", tmp_path / "m.db")
    await assert_whole(db, tmp_path, (DATA / "key.txt").read_text())
    assert not [
        name for name in os.listdir(tmp_path) if "before" in name
    ]  # the step changes nothing


def fill(url: str, name: str, sql: str = ROLE) -> None:
    """Restore a dump of version 0.1."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.encode())
        connection.execute(gzip.decompress((DATA / f"{name}.sql.gz").read_bytes()))


def query(url: str, sql: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else []


DUMPS = ["postgres", "postgres-partitions"]


@pytest.mark.parametrize("dump", DUMPS)
async def test_a_postgresql_database_of_version_0_1_opens_and_goes_on(
    database: str, tmp_path: Path, dump: str
) -> None:
    fill(database, dump)
    await assert_whole(database, tmp_path, (DATA / f"key-{dump}.txt").read_text())
    assert query(
        database, "SELECT nspname FROM pg_namespace WHERE nspname IN ('recollect', 'memorist')"
    ) == [("memorist",)]
    steps = "SELECT count(*), max(number) FROM memorist.migrations"
    assert query(database, steps) == [(13, 13)]
    assert await migrate(database) == []


@pytest.mark.parametrize("dump", DUMPS)
async def test_row_level_security_holds_after_the_rename(database: str, dump: str) -> None:
    fill(database, dump)
    store = await open_postgres(database)
    policies = query(database, "SELECT qual FROM pg_policies WHERE schemaname = 'memorist'")
    assert len(policies) == 2 * len(
        query(database, "SELECT 1 FROM pg_tables WHERE schemaname = 'memorist' AND rowsecurity")
    )
    assert not [qual for (qual,) in policies if "memorist." not in qual or "recollect" in qual]
    assert await store.database.rows("SELECT count(*) FROM memories") == [(0,)]
    for scope in await store.scopes():
        number = await store.number(scope)
        found = await store.database.rows("SELECT DISTINCT scope FROM memories", scope=number)
        assert found == [(number,)]
    assert await check(store) == []
    await store.close()


async def test_the_old_role_loses_its_rights_here_and_stays_for_other_databases(
    database: str,
) -> None:
    fill(database, "postgres")
    assert query(
        database, "SELECT has_table_privilege('recollect_app', 'recollect.memories', 'SELECT')"
    ) == [(True,)]
    await migrate(database)
    for role, may in (("recollect_app", False), ("memorist_app", True)):
        rights = f"""SELECT has_schema_privilege('{role}', 'memorist', 'USAGE'),
        has_table_privilege('{role}', 'memorist.memories', 'SELECT'),
        has_sequence_privilege('{role}', 'memorist.memories_row', 'USAGE')"""
        assert query(database, rights) == [(may, may, may)]


async def test_a_change_in_a_renamed_database_is_heard_by_others(database: str) -> None:
    fill(database, "postgres")
    one, two = await open_postgres(database), await open_postgres(database)
    async with aio.open(database, embedder="hashing") as memory:
        hearing = asyncio.create_task(two.database.wait_for_change(20))
        await asyncio.sleep(0.5)
        await memory.scope("ana").remember("I sail on Sundays.")
        await asyncio.wait_for(hearing, 10)
    await one.close()
    await two.close()


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


def test_many_servers_may_open_a_database_of_version_0_1_at_once(database: str) -> None:
    fill(database, "postgres-partitions")
    running = [
        subprocess.Popen([sys.executable, "-c", OPEN, database], stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    errors = [process.communicate()[1].decode() for process in running]
    assert [process.returncode for process in running] == [0] * 4, errors
    assert query(database, "SELECT count(*) FROM memorist.migrations") == [(13,)]


async def test_the_owner_without_other_rights_can_upgrade(database: str) -> None:
    query(
        database,
        "DO $$ BEGIN CREATE ROLE plain LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
    )
    query(database, "CREATE EXTENSION vector")
    query(
        database,
        f"ALTER DATABASE {psycopg.conninfo.conninfo_to_dict(database)['dbname']} OWNER TO plain",
    )
    fill(database, "postgres")
    query(database, "ALTER SCHEMA recollect OWNER TO plain")
    for kind, name in query(
        database,
        "SELECT CASE relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, relname FROM pg_class "
        "WHERE relnamespace = 'recollect'::regnamespace AND relkind IN ('r', 'v', 'S') AND relname <> 'scopes_id_seq'",
    ):
        query(database, f"ALTER {kind} recollect.{name} OWNER TO plain")
    store = await open_postgres(database.replace("postgres:@", "plain@"))
    assert await store.database.rows("SELECT count(*) FROM memories") == [(0,)]
    assert await check(store) == []
    await store.close()


async def test_a_schema_of_another_program_called_recollect_is_left_alone(database: str) -> None:
    query(database, "CREATE SCHEMA recollect")
    query(database, "CREATE TABLE recollect.memories (text text)")
    query(database, "CREATE TABLE recollect.migrations (id text)")
    query(database, "INSERT INTO recollect.memories VALUES ('theirs')")
    async with aio.open(database, embedder="hashing") as memory:
        await memory.scope("ana").remember("My bike is red.")
    assert query(database, "SELECT text FROM recollect.memories") == [("theirs",)]
    assert query(database, "SELECT text FROM memorist.memories") == [("My bike is red.",)]


async def test_another_schema_with_the_new_name_is_not_touched_and_the_message_says_so(
    database: str,
) -> None:
    fill(database, "postgres")
    query(database, "CREATE SCHEMA memorist")
    query(database, "CREATE TABLE memorist.theirs (text text)")
    with pytest.raises(Misconfigured, match="rename or drop"):
        await migrate(database)
    assert query(database, "SELECT count(*) FROM recollect.migrations") == [(9,)]
    assert query(database, "SELECT count(*) FROM memorist.theirs") == [(0,)]


# Files


async def test_an_export_of_version_0_1_is_restored(tmp_path: Path) -> None:
    records = [json.loads(line) for line in (DATA / "export.jsonl").read_text("utf-8").splitlines()]
    assert records[0]["record_type"] == "recollect"
    async with aio.open(tmp_path / "m.db", embedder="hashing", state_dir=tmp_path) as memory:
        await memory.import_(records, restore=True)
        ana = memory.scope("ana")
        assert {each.text for each in (await ana.list()).memories} == ALIVE
        assert "Porto" in (await ana.recall("which city did I move to?")).text
        assert await memory.check() == []
        again = [record async for record in memory.export()]
    assert again[0] == {"record_type": "memorist", "data": {"format": 1}}


def test_the_command_line_imports_an_export_of_version_0_1(tmp_path: Path) -> None:
    base = [sys.executable, "-m", "memorist", "--db", str(tmp_path / "m.db"), "--user", "ana"]
    environment = {
        **os.environ,
        "MEMORIST_STATE_DIR": str(tmp_path),
        "MEMORIST_EMBEDDER": "hashing",
    }
    words = ["import", str(DATA / "export.jsonl"), "--restore"]
    done = subprocess.run([*base, *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([*base, "list"], capture_output=True, text=True, env=environment)
    assert "The dentist is on Tuesday." in done.stdout


async def test_an_archive_of_version_0_1_is_read(tmp_path: Path) -> None:
    archive = unpack("archive.jsonl", tmp_path / "archive.jsonl")
    assert archive.read_text("utf-8").startswith('{"recollect": "archive"')
    await aio.copy_store(str(archive), str(tmp_path / "m.db"))
    await assert_whole(tmp_path / "m.db", tmp_path, (DATA / "key.txt").read_text())
    await aio.copy_store(str(tmp_path / "m.db"), str(tmp_path / "again.jsonl"))
    assert (tmp_path / "again.jsonl").read_text("utf-8").startswith('{"memorist": "archive"')


async def test_lines_that_waited_in_a_spool_of_version_0_1_are_stored(tmp_path: Path) -> None:
    db = unpack("memory.db", tmp_path / "m.db")
    settings = {
        "embedder": "hashing",
        "state_dir": tmp_path / "state",
        "spool_dir": tmp_path / "spool",
    }
    files = Spool.of(load(db=str(db), **settings))
    assert files is not None
    lay_spool(files.folder)
    async with aio.open(db, **settings) as memory:
        await assert_replayed(memory)
    assert not list((tmp_path / "spool").rglob("*_term.jsonl"))


# Vector indexes


async def fill_old_collection(folder: Path, db: Path) -> str:
    """Fill the collection that version 0.1 would have had, and return the name of the new one."""
    chromadb = pytest.importorskip("chromadb")
    async with aio.open(db, embedder="hashing", state_dir=folder) as memory:
        new = collection_name(await memory.ctx.store.name(), "hashing-384", 384)
    old = new.replace("Memorist", "Recollect")
    client = chromadb.PersistentClient(
        str(folder / "chroma"), settings=chromadb.config.Settings(anonymized_telemetry=False)
    )
    client.create_collection(old).add(ids=["1", "2"], embeddings=[[1.0, 0.0], [0.0, 1.0]])
    client.close()
    return new


async def test_a_chroma_index_of_version_0_1_is_built_again_and_the_old_collection_deleted(
    tmp_path: Path,
) -> None:
    chromadb = pytest.importorskip("chromadb")
    db = unpack("memory.db", tmp_path / "m.db")
    new = await fill_old_collection(tmp_path, db)
    async with aio.open(
        db, embedder="hashing", state_dir=tmp_path, vector_index=f"chroma:{tmp_path / 'chroma'}"
    ) as memory:
        found = await memory.scope("ana").recall("which city did I move to?")
        assert found.hits[0].memory.text == "I moved from Braga to Porto in May."
        assert found.legs["dense"] == "ok"
    client = chromadb.PersistentClient(
        str(tmp_path / "chroma"), settings=chromadb.config.Settings(anonymized_telemetry=False)
    )
    assert [each.name for each in client.list_collections()] == [new]
    assert client.get_collection(new).count() == len(ALIVE) + 1  # the hidden one
    client.close()


async def test_a_weaviate_index_of_version_0_1_is_built_again_and_the_old_collection_deleted(
    tmp_path: Path,
) -> None:
    pytest.importorskip("weaviate")
    from weaviate_server import Collection, WeaviateServer

    db = unpack("memory.db", tmp_path / "m.db")
    with WeaviateServer() as server:
        async with aio.open(db, embedder="hashing", state_dir=tmp_path) as memory:
            new = collection_name(await memory.ctx.store.name(), "hashing-384", 384)
        server.collections[new.replace("Memorist", "Recollect")] = Collection({})
        async with aio.open(
            db, embedder="hashing", state_dir=tmp_path, vector_index=f"weaviate:{server.url}"
        ) as memory:
            found = await memory.scope("ana").recall("which city did I move to?")
            assert found.hits[0].memory.text == "I moved from Braga to Porto in May."
        assert set(server.collections) == {new}
