"""What is SQLite's own: places and names of files, the database in memory, copies while others write."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from memorist.errors import MemoristError, StoreUnavailable
from memorist.storage import Save
from memorist.storage.scan import check
from memorist.storage.sqlite import SqliteConnection
from memorist.storage.store import Store
from memorist.text.clock import new_id, parse
from memorist.types import Filter, Memory, Scope
from stores import open_sqlite

ANA = Scope(user="ana")
NOW = parse("2026-05-31T14:00:00Z")


async def keep(store: Store, text: str) -> None:
    made = Memory(
        id=new_id(), scope=ANA, text=text, kind="episodic", created_at=NOW, updated_at=NOW
    )
    async with store.transaction(ANA) as tx:
        await tx.apply([Save(memory=made, event="created")])


async def texts(store: Store) -> list[str]:
    return [each.text for each in await store.page(ANA, Filter(), limit=1000)]


NAMES = [
    "with blanks.db",
    "what?.db",
    "memory.db?mode=memory",
    "half #1.db",
    "100%41.db",
    "čaj 茶 🍵.db",
    "file:memory.db",
    "file:memory.db?mode=memory&cache=shared",
    "-dash",
    "quo'te\".db",
    "no-suffix",
    ":memory:.db",
]


async def test_reading_does_not_make_a_file_that_is_missing(tmp_path: Path) -> None:
    reader = SqliteConnection(str(tmp_path / "m.db"), "reader")
    with pytest.raises(StoreUnavailable):
        await reader.read([("SELECT 1", ())])
    await reader.close()
    assert not (tmp_path / "m.db").exists()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("relative", [False, True])
async def test_any_name_is_a_plain_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, relative: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    path = name if relative else str(tmp_path / name)
    store = await open_sqlite(path)
    await keep(store, "tea")
    await store.close()
    assert os.listdir(tmp_path) == [name]
    again = await open_sqlite(path)
    assert await texts(again) == ["tea"]
    await again.close()


async def test_the_last_one_to_close_gives_the_reserved_space_back(tmp_path: Path) -> None:
    one, two = await open_sqlite(tmp_path / "m.db"), await open_sqlite(tmp_path / "m.db")
    await keep(one, "tea")
    await one.close()
    assert (tmp_path / "m.db-reserve").stat().st_size == 1 << 20
    await keep(two, "milk")
    await two.close()
    assert os.listdir(tmp_path) == ["m.db"]


async def test_a_temporary_database_reserves_no_space() -> None:
    with TemporaryDirectory() as folder:
        store = await open_sqlite(Path(folder) / "m.db")
        assert "m.db-reserve" not in os.listdir(folder)
        assert not store.database.make_room()
        await store.close()


async def test_a_database_opens_where_no_space_can_be_reserved(tmp_path: Path) -> None:
    reserve = tmp_path / "m.db-reserve"
    reserve.symlink_to(tmp_path / "nowhere" / "file")
    store = await open_sqlite(tmp_path / "m.db")
    await keep(store, "tea")
    assert not reserve.exists(), "and `memorist doctor` says so"
    await store.close()


async def test_a_relative_name_stays_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = await open_sqlite("memory.db")
    monkeypatch.chdir(tmp_path / "elsewhere")
    await keep(store, "tea")
    assert await texts(store) == ["tea"]
    await store.close()
    assert os.listdir(tmp_path / "elsewhere") == []


async def test_a_folder_that_does_not_exist_is_named_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"folder '.*a/b' does not exist"):
        await open_sqlite(tmp_path / "a" / "b" / "memory.db")
    assert not (tmp_path / "a").exists()


async def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"memory\.db"):
        await open_sqlite(tmp_path)


async def test_a_folder_inside_a_file_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreUnavailable, match="choose another place"):
        await open_sqlite(tmp_path / "file" / "memory.db")


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder in which nothing can be written, by anybody."""
    if not hasattr(os, "geteuid"):
        pytest.skip("needs a POSIX system")
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        yield tmp_path
        tmp_path.chmod(0o700)
        return
    (tmp_path / "memory.db").touch()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(tmp_path)], capture_output=True
    )
    if done.returncode:
        pytest.skip("a read-only place cannot be made here")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


async def test_a_read_only_place_is_told(read_only: Path) -> None:
    with pytest.raises(StoreUnavailable, match="permissions"):
        await open_sqlite(read_only / "memory.db")
    with pytest.raises(StoreUnavailable, match="choose another place"):
        await open_sqlite(read_only / "folder" / "memory.db")


async def test_two_databases_in_memory_share_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, two = await open_sqlite(":memory:"), await open_sqlite(":memory:")
    await keep(one, "tea")
    assert (await texts(one), await texts(two)) == (["tea"], [])
    assert os.listdir(tmp_path) == []
    await one.close()
    await two.close()


async def test_a_database_in_memory_is_read_and_written_at_once() -> None:
    store = await open_sqlite(":memory:")

    async def write(name: str) -> None:
        for number in range(25):
            await keep(store, f"{name} {number}")

    async def read() -> None:
        for _ in range(60):
            await texts(store)

    await asyncio.gather(write("a"), write("b"), read(), read(), read())
    assert len(await texts(store)) == 50
    assert await check(store) == []
    await store.close()


async def test_two_stores_in_one_process_see_each_other(tmp_path: Path) -> None:
    one, two = await open_sqlite(tmp_path / "m.db"), await open_sqlite(tmp_path / "m.db")
    await asyncio.gather(*(keep(store, f"memory {i}") for i in range(20) for store in (one, two)))
    assert len(await texts(one)) == len(await texts(two)) == 40
    await one.close()
    await two.close()


async def test_a_backup_holds_everything_that_was_acknowledged_before_it(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "m.db")
    other = await open_sqlite(tmp_path / "m.db")
    done: list[str] = []

    async def write() -> None:
        for number in range(10**6):
            await keep(other, f"memory {number} " + "x" * 2000)
            done.append(f"memory {number}")

    writing = asyncio.create_task(write())
    for number in range(5):
        await asyncio.sleep(0.05)
        before = len(done)
        await store.database.backup(tmp_path / f"copy{number}.db")
        copy = await open_sqlite(tmp_path / f"copy{number}.db")
        assert len(await texts(copy)) >= before
        assert await check(copy) == []
        await copy.close()
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await store.close()
    await other.close()


@pytest.mark.parametrize("name", [":memory:", "file:x?mode=memory"])
async def test_a_backup_is_a_file_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    store = await open_sqlite(":memory:")
    await store.database.backup(Path(name))
    await store.close()
    assert os.listdir(tmp_path) == [name]


async def test_a_backup_into_a_missing_folder_names_the_folder(tmp_path: Path) -> None:
    store = await open_sqlite(":memory:")
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await store.database.backup(tmp_path / "nowhere" / "copy.db")
    await store.close()


async def test_closing_twice_is_fine(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "m.db")
    await store.close()
    await store.close()
    with pytest.raises(MemoristError, match="closed"):
        await store.stats(None, "m")


async def test_terms_are_made_anew_for_another_language(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "m.db", language="english")
    await keep(store, "Leere Häuser")  # nothing tells its language
    before = (await store.changed_since(ANA, 0, model="m", limit=9)).rows[0].terms
    revision = (await store.checks(ANA)).revision
    await store.close()
    again = await open_sqlite(tmp_path / "m.db", language="german")
    changed = await again.changed_since(ANA, revision, model="m", limit=9)
    assert changed.rows[0].terms != before
    assert await check(again) == []
    await again.close()


async def test_nobody_else_can_read_what_is_kept(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir(mode=0o700)
    store = await open_sqlite(tmp_path / "new" / "m.db")
    await keep(store, "tea")
    await store.database.backup(tmp_path / "new" / "copy.db")
    assert {
        path.stat().st_mode & 0o077 for path in (tmp_path / "new", *(tmp_path / "new").iterdir())
    } == {0}
    await store.close()
