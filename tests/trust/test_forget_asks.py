"""The command line erases nothing by a guess: what a question finds is forgotten only after a yes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import memorist


@pytest.fixture
def db(tmp_path: Path) -> Path:
    with memorist.open(tmp_path / "m.db", embedder="hashing", state_dir=tmp_path) as memory:
        memory.scope("ana").remember(
            "My old address was 12 Quillback Lane.", tags=["home"], category="place"
        )
    return tmp_path / "m.db"


def command(db: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    settings = {"MEMORIST_STATE_DIR": str(db.parent), "MEMORIST_EMBEDDER": "hashing"}
    return [sys.executable, "-m", "memorist", "--db", str(db), "--user", "ana", *words], {
        **os.environ,
        **settings,
    }


def count(db: Path) -> int:
    with memorist.open(db, embedder="hashing", state_dir=db.parent) as memory:
        return len(memory.scope("ana").list())


def run(db: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line, environment = command(db, *words)
    return subprocess.run(
        line,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["plain", "json"])
def test_without_a_terminal_it_needs_a_yes(db: Path, more: list[str]) -> None:
    done = run(db, *more, "forget", "--query", "old address")
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert count(db) == 1


def test_a_no_through_a_pipe_erases_nothing(db: Path) -> None:
    with memorist.open(db, embedder="hashing", state_dir=db.parent) as memory:
        (id,) = [each.id for each in memory.scope("ana").list()]
    line, environment = command(db, "forget", id)
    done = subprocess.run(
        line, env=environment, input="n\n", capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert count(db) == 1
    assert run(db, "forget").returncode == 2
    assert run(db, "forget", id, "--yes").returncode == 0
    assert count(db) == 0


def test_with_a_yes_it_goes(db: Path) -> None:
    assert run(db, "forget", "--query", "old address", "--yes").returncode == 0
    assert count(db) == 0


@pytest.mark.parametrize(("answer", "left"), [("n\n", 1), ("y\n", 0)], ids=["no", "yes"])
def test_at_a_terminal_it_shows_what_would_go_and_asks(db: Path, answer: str, left: int) -> None:
    shown = at_a_terminal(db, answer, "forget", "--tag", "home")
    assert "Quillback" in shown
    assert count(db) == left


@pytest.mark.parametrize(("answer", "left"), [("n\n", 1), ("y\n", 0)], ids=["no", "yes"])
def test_at_a_terminal_the_last_operation_is_shown_and_undone(
    db: Path, answer: str, left: int
) -> None:
    shown = at_a_terminal(db, answer, "undo")
    assert "Quillback" in shown
    assert count(db) == left


def test_without_a_terminal_the_last_operation_is_named(db: Path) -> None:
    done = run(db, "undo")
    assert done.returncode == 2
    assert "Say what to undo" in done.stderr
    last = done.stderr.split()[-1]
    assert run(db, "undo", "--dry-run").returncode == 0
    assert run(db, "undo", last).returncode == 0
    assert count(db) == 0
    assert "The last operation is" not in run(db, "undo").stderr


def at_a_terminal(db: Path, answer: str, *words: str) -> str:
    line, environment = command(db, *words)
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        line, env=environment, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE, text=True
    ) as process:
        os.write(ours, answer.encode())
        shown, _ = process.communicate(timeout=60)
    os.close(ours), os.close(theirs)
    return shown
