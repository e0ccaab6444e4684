"""Who can read the files: only the owner, also where the folders were there before with wider permissions."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import memorist
from memorist.errors import MemoristError


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder with everything that an open memory writes, in folders that others may look into."""
    for name in ("data", "journal", "state", "state/embeddings_cache", "kept"):
        (tmp_path / name).mkdir(mode=0o755)
    places = {
        "state_dir": tmp_path / "state",
        "spool_dir": tmp_path / "kept",
        "journal_dir": tmp_path / "journal",
    }
    with memorist.open(tmp_path / "data" / "memory.db", embedder="minilm", **places) as memory:
        memory.scope("ana").remember("My PIN is 4711 for the blue card.")
        memory.snapshot()
        memory.backup(tmp_path / "data" / "copy.db")
        yield tmp_path


def readable_by_others(folder: Path) -> list[str]:
    """Return the files that the group or others can read or write. There have to be some files."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    if not files:
        raise RuntimeError(f"nothing was written to {folder.name}")
    return sorted(path.name for path in files if stat.S_IMODE(path.stat().st_mode) & 0o077)


def test_the_database_its_log_and_its_backup_are_for_their_owner_alone_in_a_folder_that_was_there(
    folder: Path,
) -> None:
    assert readable_by_others(folder / "data") == []
    assert {"memory.db", "memory.db-wal", "copy.db"} <= {
        path.name for path in (folder / "data").iterdir()
    }


def test_the_journal_is_for_its_owner_alone_in_a_folder_that_was_there(folder: Path) -> None:
    assert readable_by_others(folder / "journal") == []


def test_the_cache_of_vectors_is_for_its_owner_alone_in_a_folder_that_was_there(
    folder: Path,
) -> None:
    assert readable_by_others(folder / "state") == []


def test_a_path_whose_folder_does_not_exist_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(MemoristError, match="nowhere"):
        memorist.open(tmp_path / "nowhere" / "memory.db", embedder="hashing").close()
