"""A disk without room: a typed error, reading goes on, forgetting works, and nothing is lost. Needs a small tmpfs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memorist
from memorist.errors import StoreFull


def mount(*command: str) -> None:
    try:
        subprocess.run(["mount", *command], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small disk cannot be made here: {error}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 9 MB."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    mount("-t", "tmpfs", "-o", "size=9m", "tmpfs", str(tmp_path))
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def fill(ana: Any, disk: Path) -> dict[str, str]:
    """Remember until there is no room left; gives what was acknowledged."""
    (disk / "filler").write_bytes(b"x" * (5 << 20))
    kept: dict[str, str] = {}

    def remember_for_ever() -> None:
        for number in range(10_000):
            text = f"Shelf {number} holds {number * 7919} letters. " + "x" * 500
            kept[ana.remember(text).ids[0]] = text

    with pytest.raises(StoreFull, match="full"):
        remember_for_ever()
    return kept


def test_a_full_disk_is_told_and_nothing_is_lost(disk: Path) -> None:
    path = disk / "memory.db"
    with memorist.open(path, embedder="hashing") as memory:
        ana = memory.scope("ana")
        kept = fill(ana, disk)
        assert len(kept) > 20
        for _ in range(3):
            with pytest.raises(StoreFull):
                ana.remember("One more thing, and it is long. " + "y " * 30_000)
        first, second, *_ = kept
        assert ana.get(first).text == kept[first]
        assert second in [
            hit.memory.id for hit in ana.recall("shelf 1 letters", limit=50, budget=100_000).hits
        ]
        ana.forget(first)
        del kept[first]
    mount("-o", "remount,size=32m", str(disk))
    with memorist.open(path, embedder="hashing") as memory:
        ana = memory.scope("ana")
        assert {each.id: each.text for each in ana.list(limit=1000)} == kept
        assert memory.check() == []
        assert ana.remember("There is room again.").count("created") == 1


def test_forgetting_uses_the_room_that_was_kept_aside(disk: Path) -> None:
    path = disk / "memory.db"
    with memorist.open(path, embedder="hashing") as memory:
        ana = memory.scope("ana")
        kept = fill(ana, disk)
        with (disk / "more").open("wb", buffering=0) as file:
            _fill_up(file)
        assert Path(f"{path}-reserve").exists()
        for id in list(kept)[:5]:
            ana.forget(id)
        assert not Path(f"{path}-reserve").exists()
        assert len(ana.list(limit=1000)) == len(kept) - 5
        assert memory.check() == []


def _fill_up(file: Any) -> None:
    try:
        while file.write(b"x" * 512):
            pass
    except OSError:
        return


def test_a_megabyte_is_kept_aside_where_four_are_free(disk: Path) -> None:
    (disk / "filler").write_bytes(b"x" * (17 << 18))  # 4.25 of 9 MB
    with memorist.open(disk / "memory.db", embedder="hashing") as memory:
        memory.scope("ana").remember("I live in Lisbon.")
        assert (disk / "memory.db-reserve").stat().st_size == 1_048_576
    assert not (disk / "memory.db-reserve").exists()  # removed when the last user closes


def test_no_room_is_kept_aside_on_a_disk_that_has_little(disk: Path) -> None:
    (disk / "filler").write_bytes(b"x" * (5 << 20))
    with memorist.open(disk / "memory.db", embedder="hashing") as memory:
        memory.scope("ana").remember("I live in Lisbon.")
    assert not (disk / "memory.db-reserve").exists()


def test_a_disk_that_is_full_from_the_start_is_told(disk: Path) -> None:
    with (disk / "more").open("wb", buffering=0) as file:
        _fill_up(file)
    with pytest.raises(StoreFull):
        memorist.open(disk / "memory.db", embedder="hashing")


def test_a_backup_onto_a_full_disk_leaves_nothing_behind(
    disk: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with memorist.open(
        tmp_path_factory.mktemp("roomy") / "memory.db", embedder="hashing"
    ) as memory:
        ana = memory.scope("ana")
        for number in range(50):
            ana.remember(f"Box {number} holds {number * 7919} things.")
        with (disk / "more").open("wb", buffering=0) as file:
            _fill_up(file)
        with pytest.raises(StoreFull, match=str(disk)):
            memory.backup(disk / "copy.db")
        assert not (disk / "copy.db").exists()
