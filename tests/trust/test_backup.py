"""A backup has its name only when it is complete: one that was killed cannot be mistaken for an empty memory."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import memorist
from memorist.errors import InvalidInput, StoreUnavailable

MEMORIES = 120
CHILD = """
import sys, memorist
place, target, folder = sys.argv[1:]
with memorist.open(place, embedder="hashing", state_dir=folder, spool_dir=folder) as memory:
    print("ready", flush=True)
    sys.stdin.readline()
    memory.backup(target)
"""


def record(number: int) -> dict[str, Any]:
    scope = {"tenant": "default", "user": "ana", "space": "default"}
    at = "2026-01-01T00:00:00Z"
    text = f"Fact {number} " + "x" * 3000
    data = {
        "id": f"i{number}",
        "scope": scope,
        "text": text,
        "kind": "semantic",
        "created_at": at,
        "updated_at": at,
    }
    return {"record_type": "memory", "data": data}


def fill(place: str, folder: Path, count: int) -> None:
    with memorist.open(place, embedder="hashing", state_dir=folder, spool_dir=folder) as memory:
        memory.import_([record(number) for number in range(count)])


def count_memories(path: Path, folder: Path) -> int:
    with memorist.open(path, embedder="hashing", state_dir=folder, spool_dir=folder) as memory:
        assert memory.check() == []
        return int(memory.stats()["memories"])


def kill_a_backup(place: str, target: Path, folder: Path, after: float) -> None:
    """Kill a process so many seconds after its backup put the first file into the target's folder."""
    command = [sys.executable, "-c", CHILD, place, str(target), str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        child.stdin.write("go\n")
        child.stdin.flush()
        while not os.listdir(target.parent) and child.poll() is None:
            time.sleep(0.0002)
        time.sleep(after)
        child.kill()


def test_a_killed_backup_is_complete_or_not_there_and_can_be_repeated(
    place: str, tmp_path: Path
) -> None:
    fill(place, tmp_path, MEMORIES)
    target = tmp_path / "backups" / "copy.db"
    target.parent.mkdir()
    killed = 0
    for after in (0, 0.002, 0.006):
        kill_a_backup(place, target, tmp_path, after)
        killed += not target.exists()
        assert not target.exists() or count_memories(target, tmp_path) == MEMORIES
        for left in target.parent.iterdir():
            left.unlink()
    assert killed, "every backup ended before it was killed: nothing was shown"
    with memorist.open(place, embedder="hashing", state_dir=tmp_path, spool_dir=tmp_path) as memory:
        memory.backup(target)
    assert count_memories(target, tmp_path) == MEMORIES


def test_only_the_owner_can_read_a_backup(place: str, tmp_path: Path) -> None:
    fill(place, tmp_path, 3)
    before = os.umask(0o022)
    try:
        with memorist.open(
            place, embedder="hashing", state_dir=tmp_path, spool_dir=tmp_path
        ) as memory:
            memory.backup(tmp_path / "copy.db")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.glob("*copy.db*")] == ["copy.db"]


def test_a_backup_that_cannot_be_made_leaves_nothing_and_says_why(
    place: str, tmp_path: Path
) -> None:
    fill(place, tmp_path, 3)
    (tmp_path / "there.db").write_text("something else")
    with memorist.open(place, embedder="hashing", state_dir=tmp_path, spool_dir=tmp_path) as memory:
        with pytest.raises(InvalidInput, match="already exists"):
            memory.backup(tmp_path / "there.db")
        with pytest.raises(StoreUnavailable, match="nowhere' does not exist"):
            memory.backup(tmp_path / "nowhere" / "copy.db")
    assert (tmp_path / "there.db").read_text() == "something else"


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
def test_a_backup_does_not_inherit_the_log_of_an_earlier_file(
    place: str, tmp_path: Path, end: str
) -> None:
    fill(place, tmp_path, 3)
    (tmp_path / f"copy.db{end}").write_bytes(b"left behind")
    with memorist.open(place, embedder="hashing", state_dir=tmp_path, spool_dir=tmp_path) as memory:
        with pytest.raises(InvalidInput, match=f"copy.db{end}' already exists"):
            memory.backup(tmp_path / "copy.db")
        assert not (tmp_path / "copy.db").exists()


def test_a_folder_that_is_not_there_does_not_make_the_memory_unavailable(
    place: str, tmp_path: Path
) -> None:
    with memorist.open(place, embedder="hashing", state_dir=tmp_path, spool_dir=tmp_path) as memory:
        with pytest.raises(StoreUnavailable, match="nowhere"):
            memory.backup(tmp_path / "nowhere" / "copy.db")
        assert memory.scope("ana").remember("I like tea.").count("created") == 1


def test_a_backup_may_have_a_long_name_in_any_script(tmp_path: Path) -> None:
    fill(str(tmp_path / "m.db"), tmp_path, 3)
    target = tmp_path / ("猫" * 80 + ".db")
    with memorist.open(
        tmp_path / "m.db", embedder="hashing", state_dir=tmp_path, spool_dir=tmp_path
    ) as memory:
        memory.backup(target)
    assert count_memories(target, tmp_path) == 3
