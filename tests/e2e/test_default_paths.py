"""What version 0.1 kept at its default paths, when it was called Recollect, is moved to the new ones."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memorist import aio
from memorist.offline.spool import Spool
from memorist.settings import load, upgrade
from version_0_1 import ALIVE, assert_replayed, lay_spool, unpack


class Home:
    """The folders of a user, as version 0.1 left them."""

    def __init__(self, folder: Path, *, is_one_folder: bool) -> None:
        self.folder = folder
        data, state, config = (
            ("all", "all", "all") if is_one_folder else ("share", "state", "config")
        )
        self.data, self.state, self.config = folder / data, folder / state, folder / config
        self.old_db, self.db = (
            self.data / "recollect" / "memory.db",
            self.data / "memorist" / "memory.db",
        )

    def spool(self, db: Path, app: str) -> Path:
        name = Spool.of(load(db=str(db), state_dir=self.state / app)).folder.name  # type: ignore[union-attr]
        return self.state / app / "data" / "memory" / name

    def fill(self) -> None:
        unpack("memory.db", self.old_db)
        self.old_db.with_name("memory.db-reserve").write_bytes(b"reserve")
        self.old_db.with_name("memory.db.before-9").write_bytes(b"backup")
        lay_spool(self.spool(self.old_db, "recollect"))
        cache = self.state / "recollect" / "embeddings_cache"
        cache.mkdir(parents=True)
        (cache / "vectors.db").write_bytes(b"")
        (self.config / "recollect").mkdir(parents=True, exist_ok=True)
        (self.config / "recollect" / "recollect.toml").write_text('embedder = "hashing"\n')

    def files(self) -> set[str]:
        found = (
            path.relative_to(self.folder).as_posix()
            for path in self.folder.rglob("*")
            if path.is_file()
        )
        return {name for name in found if not name.endswith((".lock", "-wal", "-shm"))}


@pytest.fixture(params=["linux", "macos"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    made = Home(tmp_path / "home", is_one_folder=request.param == "macos")
    for kind, base in (("data", made.data), ("state", made.state), ("config", made.config)):
        for module in ("memorist.settings.upgrade", "memorist.settings"):
            monkeypatch.setattr(f"{module}.user_{kind}_path", base.joinpath)
    monkeypatch.delenv("MEMORIST_SPOOL_DIR")
    for name in ("MEMORIST_DB", "MEMORIST_STATE_DIR", "MEMORIST_CONFIG", "MEMORIST_EMBEDDER"):
        monkeypatch.delenv(name, raising=False)
    start_again()
    made.fill()
    return made


def start_again() -> None:
    """Forget what this process has already tried to move, as a new one would."""
    upgrade._warn.cache_clear()
    upgrade.move_data.cache_clear()


def notices(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "memorist"]


async def assert_moved(home: Home) -> None:
    """Open with nothing but the defaults: everything is there, and nothing is left at the old paths."""
    async with aio.open() as memory:
        assert memory.settings.embedder == "hashing"  # as the moved settings file has it
        assert Path(memory.settings.db) == home.db
        assert {each.text for each in (await memory.scope("ana").list()).memories} >= ALIVE
        await assert_replayed(memory)
        assert await memory.check() == []
    assert not [name for name in home.files() if "recollect" in name]
    assert not list(home.folder.rglob("recollect"))
    assert home.db.with_name("memory.db.before-9").read_bytes() == b"backup"
    assert (home.config / "memorist" / "memorist.toml").exists()


async def test_the_default_paths_are_moved_once_with_a_notice(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "memorist")
    await assert_moved(home)
    said = notices(caplog)
    assert [line for line in said if f"moved {home.old_db} to {home.db}" in line]
    assert [
        line
        for line in said
        if f"moved {home.state / 'recollect'} to {home.state / 'memorist'}" in line
    ]
    assert len(said) == 3
    caplog.clear()
    start_again()
    before = home.files()
    await assert_moved(home)
    assert notices(caplog) == []
    assert home.files() == before


def test_a_variable_with_the_old_name_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "memorist")
    start_again()
    monkeypatch.setenv("RECOLLECT_PROFILE", "milton.recent")
    monkeypatch.setenv("RECOLLECT_SPACE", "old")
    monkeypatch.setenv("MEMORIST_SPACE", "new")
    monkeypatch.setenv("RECOLLECT_INDEX_FROM", "7")
    monkeypatch.setenv("RECOLLECT_HOME", "/of/another/program")
    settings = load(db=str(tmp_path / "m.db"), state_dir=tmp_path)
    assert (settings.profile, settings.space) == ("default", "new")
    profile, index = notices(caplog)
    assert "RECOLLECT_PROFILE is no longer read: rename it to MEMORIST_PROFILE" in profile
    assert (
        "RECOLLECT_INDEX_FROM is no longer read: rename it to MEMORIST_VECTOR_INDEX_FROM" in index
    )


def test_a_moved_settings_file_has_the_new_names(home: Home) -> None:
    old = home.config / "recollect" / "recollect.toml"
    old.write_text("index_from = 7\n  failsafe=false # off\n[ttl_days]\nfact = 9\n")
    settings = load(state_dir=home.folder)
    assert (settings.vector_index_from, settings.spool, settings.ttl_days) == (
        7,
        False,
        {"fact": 9},
    )
    text = (home.config / "memorist" / "memorist.toml").read_text()
    assert text == "vector_index_from = 7\n  spool=false # off\n[ttl_days]\nfact = 9\n"


class Killed(BaseException):
    """The process ended here."""


def stop_after(renames: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let so many renames happen, and end with the next one."""
    left, rename = [renames], Path.rename

    def counted(path: Path, target: Path) -> Path:
        if not left[0]:
            raise Killed
        left[0] -= 1
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", counted)
    return lambda: monkeypatch.setattr(Path, "rename", rename)


RENAMES = 6  # settings, spool, cache, two files beside the database, the database


@pytest.mark.parametrize("renames", range(RENAMES + 1))
async def test_an_upgrade_that_was_killed_anywhere_is_continued(
    home: Home, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    go_on = stop_after(renames, monkeypatch)
    if renames < RENAMES:
        with pytest.raises(Killed):
            load()
        assert home.old_db.exists()
    else:
        load()
        assert not home.old_db.exists()
    go_on()
    await assert_moved(home)


async def test_the_spool_is_renamed_before_the_database(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_after(2, monkeypatch)
    with pytest.raises(Killed):
        load()
    assert (home.spool(home.db, "memorist") / "short_term.jsonl").exists()
    assert home.old_db.exists()
    assert not home.db.exists()


async def test_paths_that_the_user_chose_are_not_moved(home: Home, tmp_path: Path) -> None:
    config = home.config / "recollect" / "recollect.toml"
    config.write_text(f'embedder = "hashing"\ndb = "{home.old_db}"\n')
    async with aio.open() as memory:
        assert Path(memory.settings.db) == home.old_db
        await assert_replayed(memory)  # its spool has moved with the state, under the same name
    assert home.old_db.exists()
    assert not home.db.exists()
    chosen = load(db=str(tmp_path / "m.db"), state_dir=tmp_path / "state")
    assert (chosen.db, chosen.state_dir) == (str(tmp_path / "m.db"), tmp_path / "state")
    assert not (tmp_path / "state").exists()


async def test_a_spool_in_a_folder_of_the_users_own_follows_the_database(
    home: Home, tmp_path: Path
) -> None:
    own = tmp_path / "spool"
    own.mkdir()
    home.spool(home.old_db, "recollect").rename(own / home.spool(home.old_db, "recollect").name)
    async with aio.open(spool_dir=own) as memory:
        assert Path(memory.settings.db) == home.db
        await assert_replayed(memory)


async def test_what_is_at_the_new_paths_already_stays(home: Home) -> None:
    unpack("memory.db", home.db)
    before = home.old_db.read_bytes()
    async with aio.open(embedder="hashing") as memory:
        await memory.scope("ana").remember("I sail on Sundays.")
    assert home.old_db.read_bytes() == before


@pytest.mark.parametrize("failing", ["mkdir", "rename"])
async def test_where_nothing_can_be_moved_the_old_paths_are_used(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, failing: str
) -> None:
    caplog.set_level(logging.WARNING, "memorist")
    with monkeypatch.context() as patch:

        def refuse(*given: Any, **named: Any) -> None:
            raise OSError(errno.EROFS, "Read-only file system")

        patch.setattr(Path, failing, refuse)
        settings = load()
    assert (settings.db, settings.state_dir) == (str(home.old_db), home.state / "recollect")
    assert settings.embedder == "hashing"
    said = notices(caplog)
    assert said
    assert all("Read-only file system" in line and "old path is used" in line for line in said)
    assert load() == settings  # not moved while this process may have it open
    start_again()
    await assert_moved(home)


async def test_a_linked_database_stays_where_it_is(home: Home, tmp_path: Path) -> None:
    home.old_db.rename(tmp_path / "elsewhere.db")
    home.old_db.symlink_to(tmp_path / "elsewhere.db")
    async with aio.open(embedder="hashing") as memory:
        assert Path(memory.settings.db) == home.old_db
        assert {each.text for each in (await memory.scope("ana").list()).memories} >= ALIVE
    assert home.old_db.is_symlink()


async def test_files_of_another_program_called_recollect_are_left_alone(home: Home) -> None:
    shutil.rmtree(home.folder)
    home.old_db.parent.mkdir(parents=True)
    with sqlite3.connect(home.old_db) as connection:
        connection.execute("CREATE TABLE memories (theirs TEXT)")
    connection.close()
    config = home.config / "recollect" / "recollect.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text("theirs = true\n")
    (home.old_db.parent / "notes.txt").write_text("theirs")
    before = home.files()
    async with aio.open(embedder="hashing") as memory:
        await memory.scope("ana").remember("My bike is red.")
    assert home.files() >= before
    assert Path(memory.settings.db) == home.db


async def test_what_is_only_in_the_log_of_a_killed_process_is_moved_too(
    home: Home, tmp_path: Path
) -> None:
    async with aio.open(home.old_db, state_dir=tmp_path, embedder="hashing") as memory:
        await memory.scope("ana").remember("I sail on Sundays.")
        for end in ("", "-wal"):
            shutil.copy(f"{home.old_db}{end}", f"{tmp_path}/killed.db{end}")
    for end in ("", "-wal"):
        shutil.copy(f"{tmp_path}/killed.db{end}", f"{home.old_db}{end}")
    async with aio.open() as memory:
        assert Path(memory.settings.db) == home.db
        assert "I sail on Sundays." in {
            each.text for each in (await memory.scope("ana").list()).memories
        }


def test_processes_that_start_at_once_move_the_default_paths_together(tmp_path: Path) -> None:
    made = Home(tmp_path, is_one_folder=False)
    unpack("memory.db", made.old_db)
    (made.config / "recollect").mkdir(parents=True)
    (made.config / "recollect" / "recollect.toml").write_text('embedder = "hashing"\n')
    drop = ("MEMORIST_SPOOL_DIR", "MEMORIST_DB", "MEMORIST_STATE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in drop}
    for name, folder in (("DATA", made.data), ("STATE", made.state), ("CONFIG", made.config)):
        environment[f"XDG_{name}_HOME"] = str(folder)
    words = [sys.executable, "-m", "memorist", "--user", "ana", "list"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(words, env=environment, **pipes) for _ in range(3)]
    ended = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0] * 3, ended
    assert all("My bike is red." in out for out, _ in ended)
    assert sum(f"moved {made.old_db} to {made.db}" in err for _, err in ended) == 1
    assert not [err for _, err in ended if "Traceback" in err or "could not" in err]


def test_the_folder_of_a_spool_has_one_name(tmp_path: Path) -> None:
    files = Spool.of(load(db=str(tmp_path / "m.db"), state_dir=tmp_path))
    assert files is not None
    assert files.folder.name == upgrade.spool_name(str(tmp_path / "m.db"))
