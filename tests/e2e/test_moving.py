"""A memory in another store, and under another model."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path
from typing import Any

import apsw
import pytest

import memorist
from memorist import aio
from memorist.errors import InvalidInput, Misconfigured, NotFound, RevisionConflict
from memorist.storage import copy as stored
from memorist.types import Filter

SAID = [
    {"content": f"I planted tree {i} of the avenue", "id": str(i), "session": str(i // 50)}
    for i in range(300)
]


HEAD = b'{"memorist": "archive", "format": 1, "key": "%s"}\n' % (b"0" * 64)


async def filled(db: Path | str, state: Path) -> None:
    """A memory with something in every corner of it."""
    async with aio.open(db, embedder="hashing", extract="off", state_dir=state) as memory:
        ana = memory.scope("ana")
        await ana.remember(SAID)
        first, second, third, *_ = (await ana.list(limit=5)).memories
        own = {"row": 3, "trees": {"kinds": [1.0, "Äsche", None]}}
        oak = "I planted an oak at the end of the avenue"
        await ana.edit(first.id, oak, metadata=own, expires_at="2199-01-01")
        await ana.forget(second.id, reason="a private matter")
        await ana.forget(third.id, keep_days=30)
        await ana.pin((await ana.list(limit=9)).memories[-1].id, actor="ana")
        await ana.checkpoints.save("thread-1", {"at": "step 3"})
        await memory.scope("ana", tenant="other").remember("I live in Porto, and I prefer tea.")


async def seen(db: Path | str, state: Path) -> dict[str, Any]:
    """Everything a person would notice of a memory."""
    async with aio.open(db, embedder="hashing", extract="off", state_dir=state) as memory:
        ana, other = memory.scope("ana"), memory.scope("ana", tenant="other")
        answer = await ana.recall("which tree is at the end of the avenue?", limit=20)
        return {
            "hits": [(hit.memory, hit.score) for hit in answer],
            "all": [memory async for memory in everything(ana)],
            "other": (await other.recall("where does she live?")).text,
            "history": await ana.history(limit=10_000),
            "thread": await ana.checkpoints.load("thread-1"),
            "said again": (await ana.remember(SAID[7])).outcomes,
            "forgotten": (await ana.remember("I planted tree 298 of the avenue"))
            .outcomes[0]
            .status,
            "problems": await memory.check(),
        }


async def everything(scope: Any) -> Any:
    cursor = None
    while True:
        page = await scope.list(Filter(states=()), limit=100, cursor=cursor)
        for memory in page.memories:
            yield memory
        cursor = page.cursor
        if cursor is None:
            return


async def test_a_copy_is_in_nothing_different_on_either_engine_and_back(
    tmp_path: Path, database: str
) -> None:
    await filled(tmp_path / "a.db", tmp_path)
    told: list[tuple[int, int]] = []
    done = await aio.copy_store(
        str(tmp_path / "a.db"), database, progress=lambda *step: told.append(step)
    )
    await aio.copy_store(database, str(tmp_path / "b.db"))
    assert done.tables["memories"] == 301
    assert told[-1][0] == told[-1][1] > 0
    assert [step[0] for step in told] == sorted(step[0] for step in told)
    first, on_postgres, back = [
        await seen(db, tmp_path) for db in (tmp_path / "a.db", database, tmp_path / "b.db")
    ]
    assert first["problems"] == []
    assert first["forgotten"] == "refused"
    assert on_postgres == first
    assert back == first


async def test_an_archive_from_before_metadata_is_read(tmp_path: Path) -> None:
    async with aio.open(tmp_path / "a.db", embedder="none", state_dir=tmp_path) as memory:
        await memory.scope("ana").remember("I live in Porto.")
        columns = await stored._columns(memory.ctx.store.database, "memories")
        old = [name for name in columns if name not in ("metadata", "expires_at")]
        sums = await stored._digest(memory.ctx.store.database, "memories", old)
    await aio.copy_store(str(tmp_path / "a.db"), str(tmp_path / "all.jsonl"))
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    for line in lines:
        if line.get("table") == "memories":
            del line["metadata"], line["expires_at"]
    lines[-1]["sums"]["memories"] = sums
    (tmp_path / "old.jsonl").write_text("\n".join(map(json.dumps, lines)))
    await aio.copy_store(str(tmp_path / "old.jsonl"), str(tmp_path / "b.db"))
    async with aio.open(tmp_path / "b.db", embedder="none", state_dir=tmp_path) as memory:
        (only,) = await memory.scope("ana").list()
        assert (only.text, only.metadata, await memory.check()) == ("I live in Porto.", {}, [])


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_text_file_holds_everything_and_gives_it_back(
    tmp_path: Path, database: str, engine: str
) -> None:
    await filled(tmp_path / "a.db", tmp_path)
    archive, target = (
        str(tmp_path / "all.jsonl"),
        database if engine == "postgres" else str(tmp_path / "b.db"),
    )
    written = await aio.copy_store(str(tmp_path / "a.db"), archive)
    read = await aio.copy_store(archive, target)
    assert read == written
    assert (tmp_path / "all.jsonl").stat().st_mode & 0o077 == 0
    assert await seen(target, tmp_path) == await seen(tmp_path / "a.db", tmp_path)
    with pytest.raises(RevisionConflict):
        await aio.copy_store(archive, target)
    with pytest.raises(RevisionConflict):
        await aio.copy_store(str(tmp_path / "a.db"), archive)


async def test_a_text_file_that_is_cut_or_altered_is_told(tmp_path: Path) -> None:
    await filled(tmp_path / "a.db", tmp_path)
    archive, target = tmp_path / "all.jsonl", tmp_path / "b.db"
    await aio.copy_store(str(tmp_path / "a.db"), str(archive))
    whole = archive.read_text()
    for damaged in (
        whole[: len(whole) // 2],
        whole.rsplit("\n", 2)[0] + "\n",
        whole.replace("tree 7 of", "tree 8 of"),
    ):
        archive.write_text(damaged)
        with pytest.raises(InvalidInput, match=r"cut|altered"):
            await aio.copy_store(str(archive), str(target))
        with pytest.raises(Misconfigured):
            await aio.open_client(target, embedder="none")
    archive.write_text(whole)
    assert (await aio.copy_store(str(archive), str(target))).tables["memories"] == 301


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe" * 1000,
        b"5\n",
        b"{}\n",
        b'{"memorist": "archive", "format": 1}\n',
        HEAD + b'{"table": "sqlite_schema", "sql": "x"}\n',
        HEAD + b'{"table": "scopes", "id, tenant) SELECT 1; --": 1}\n',
        HEAD
        + b'{"sums": {}}\n{"table": "erased", "scope": 1, "row": {"base64": "?"}, "changed": 1}\n',
    ],
)
async def test_a_file_that_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "all.jsonl").write_bytes(content)
    with pytest.raises(InvalidInput):
        await aio.copy_store(str(tmp_path / "all.jsonl"), str(tmp_path / "b.db"))
    with pytest.raises(InvalidInput, match="the same"):
        await aio.copy_store(str(tmp_path / "b.db"), str(tmp_path / "b.db"))


async def test_what_was_copied_goes_on_with_numbers_of_its_own(
    tmp_path: Path, database: str
) -> None:
    await filled(tmp_path / "a.db", tmp_path)
    await aio.copy_store(str(tmp_path / "a.db"), database)
    async with aio.open(database, embedder="hashing", state_dir=tmp_path) as memory:
        ana, new, other = (
            memory.scope("ana"),
            memory.scope("somebody new"),
            memory.scope("ana", tenant="other"),
        )
        assert (await other.remember("I watered the ash")).outcomes[0].status == "created"
        assert (await other.list(limit=1)).memories[0].text == "I watered the ash", (
            "numbered after all that was copied"
        )
        assert (await ana.remember("I watered the oak")).outcomes[0].status == "created"
        assert (await new.remember("I watered the elm")).outcomes[0].status == "created"
        assert (await ana.list(limit=1)).memories[0].text == "I watered the oak"
        assert [hit.memory.text for hit in await new.recall("who watered the elm?")] == [
            "I watered the elm"
        ]


async def test_a_finished_copy_is_only_compared(tmp_path: Path) -> None:
    await filled(tmp_path / "a.db", tmp_path)
    places = str(tmp_path / "a.db"), str(tmp_path / "b.db")
    assert (await aio.copy_store(*places)).rows > 0
    assert (await aio.copy_store(*places)).rows == 0
    async with aio.open(places[1], embedder="none") as memory:
        await memory.scope("ana").remember("Something that only the copy knows")
    with pytest.raises(RevisionConflict, match="use a new database"):
        await aio.copy_store(*places)


@pytest.mark.parametrize(
    ("table", "change", "with_later"),
    [("history", "actor = actor || 'x'", False), ("memories", "importance = importance / 2", True)],
)
async def test_a_table_that_was_written_to_during_a_copy_is_copied_again_with_those_that_refer_to_it(
    tmp_path: Path, table: str, change: str, with_later: bool
) -> None:
    await filled(tmp_path / "a.db", tmp_path)
    places = str(tmp_path / "a.db"), str(tmp_path / "b.db")
    source = apsw.Connection(places[0])

    def write(done: int, work: int) -> None:
        source.execute(f"UPDATE {table} SET {change}")

    with pytest.raises(RevisionConflict, match=f"'{table}' was written to during the copy"):
        await aio.copy_store(*places, progress=write)
    source.close()
    done = await aio.copy_store(*places)
    order = list(stored.KEYS)
    stale = order[order.index(table) :] if with_later else [table]
    assert 0 < done.rows < sum(done.tables.values())
    assert done.rows == sum(done.tables.get(name, 0) for name in stale)


async def test_a_store_in_use_is_no_target_and_stays_as_it_is(tmp_path: Path) -> None:
    await filled(tmp_path / "a.db", tmp_path)
    async with aio.open(tmp_path / "b.db", embedder="none") as memory:
        await memory.scope("bob").remember("I was here first")
    with pytest.raises(RevisionConflict, match="new database"):
        await aio.copy_store(str(tmp_path / "a.db"), str(tmp_path / "b.db"))
    async with aio.open(tmp_path / "b.db", embedder="none") as memory:
        assert [scope.user for scope in await memory.scopes()] == ["bob"]
        assert (await memory.scope("bob").remember("I was here first")).outcomes[
            0
        ].status == "merged"
    with pytest.raises(NotFound):
        await aio.copy_store(str(tmp_path / "nothing.db"), str(tmp_path / "c.db"))


async def test_a_copy_that_was_killed_goes_on_where_it_stopped(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    async with aio.open(source, embedder="none") as memory:
        await memory.scope("ana").remember(
            [{"content": f"I planted tree {i}", "id": str(i)} for i in range(6000)]
        )
    _killed_on_the_way(source, target)
    with pytest.raises(memorist.errors.MemoristError, match="memorist db copy"):
        await aio.open_client(target, embedder="none")
    before = _count(target)
    assert 0 < before < 6000
    done = await aio.copy_store(str(source), str(target))
    assert done.tables["memories"] == 6000
    assert done.rows < sum(done.tables.values())  # what was there was not copied again
    async with aio.open(target, embedder="none") as memory:
        assert (await memory.stats())["memories"] == 6000
        assert await memory.check() == []


def _killed_on_the_way(source: Path, target: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "memorist", "db", "copy", str(source), str(target)]
    )
    until = time.monotonic() + 60
    while not _count(target) and time.monotonic() < until and child.poll() is None:
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait()


def _count(path: Path) -> int:
    if not path.exists():
        return 0
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        count: Any = connection.execute("SELECT count(*) FROM memories").fetchall()[0][0]
        return int(count)
    except apsw.Error:  # it is being made
        return 0
    finally:
        connection.close()


def test_the_command_copies_and_says_what_it_found(tmp_path: Path) -> None:
    asyncio.run(filled(tmp_path / "a.db", tmp_path))
    command = [
        sys.executable,
        "-m",
        "memorist",
        "db",
        "copy",
        str(tmp_path / "a.db"),
        str(tmp_path / "b.db"),
        "--json",
    ]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert told["tables"]["memories"] == 301
    assert told["rows"] == sum(told["tables"].values())


def test_another_model_takes_over_while_the_old_one_answers(tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    with memorist.open(db, embedder="hashing", extract="off", state_dir=tmp_path) as old:
        old.scope("ana").remember(
            [{"content": "I moved to Lisbon in May"}, {"content": "I like green tea"}]
        )
        command = [
            sys.executable,
            "-m",
            "memorist",
            "index",
            "reembed",
            "--model",
            "minilm",
            "--db",
            str(db),
            "--json",
        ]
        told = json.loads(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
        )
        assert (told["embedded"], told["without_embeddings"]) == (2, 0)
        assert old.scope("ana").recall("green tea").legs["dense"] == "ok"
    with memorist.open(db, embedder="minilm", state_dir=tmp_path) as new:
        answer = new.scope("ana").recall("in which town does she live?")
        assert answer.legs["dense"] == "ok"
        assert answer.hits[0].memory.text == "I moved to Lisbon in May"
        assert new.drop_vectors() == 2
    with memorist.open(db, embedder="hashing", state_dir=tmp_path) as old:
        assert "no vector" in old.scope("ana").recall("green tea").legs["dense"]


def test_no_table_is_left_behind_by_mistake() -> None:
    schema = resources.files("memorist.storage.sqlite").joinpath("schema.sql").read_text("utf-8")
    tables = {line.split()[2] for line in schema.splitlines() if line.startswith("CREATE TABLE")}
    assert tables == {*stored.KEYS, *stored.NOT_COPIED}
