"""The command line erases nothing by a guess: what a question finds is forgotten only after a yes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

import memorist
from memorist.errors import InvalidInput


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
    return len(texts(db))


def texts(db: Path) -> list[str]:
    with memorist.open(db, embedder="hashing", state_dir=db.parent) as memory:
        return [each.text for each in memory.scope("ana").list()]


def keep(db: Path, text: str) -> None:
    with memorist.open(db, embedder="hashing", state_dir=db.parent) as memory:
        assert memory.scope("ana").remember(text).ids


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


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["plain", "json"])
def test_a_question_erases_only_what_it_names_and_says_what_that_was(
    db: Path, more: list[str]
) -> None:
    keep(db, "My address book is in the drawer of the hall.")
    done = run(db, *more, "forget", "--query", "my old address", "--yes")
    assert done.returncode == 0
    assert "My old address was 12 Quillback Lane." in done.stdout
    assert f"{date.today():%Y-}" in done.stdout
    assert "drawer" not in done.stdout
    assert texts(db) == ["My address book is in the drawer of the hall."]


def test_what_was_replaced_is_what_was_so_before(tmp_path: Path) -> None:
    db = tmp_path / "m.db"
    keep(db, "My address is 12 Quillback Lane.")
    keep(db, "My address is now 5 Elm Street.")
    done = run(db, "forget", "--query", "my old address", "--yes")
    assert done.returncode == 0
    assert "Elm" not in done.stdout
    assert texts(db) == ["My address is now 5 Elm Street."]


@pytest.mark.parametrize("more", [[], ["--json"]], ids=["plain", "json"])
@pytest.mark.parametrize(
    ("stored", "question"),
    [
        (["Tom's address is 3 Hill Road."], "my address"),
        (["My brother Tom's address is 3 Hill Road."], "my address"),
        (["My address is 5 Elm Street."], "my old address"),
        (["Tom plays chess.", "Tom sold his boat."], "Tom"),
    ],
    ids=["another's", "my brother's", "the current one", "several"],
)
def test_a_yes_is_not_enough_for_a_guess(
    tmp_path: Path, stored: list[str], question: str, more: list[str]
) -> None:
    db = tmp_path / "m.db"
    for text in stored:
        keep(db, text)
    done = run(db, *more, "forget", "--query", question, "--yes")
    assert done.returncode == 2
    assert "Nothing was forgotten" in done.stderr
    assert len(texts(db)) == len(stored)
    *_, advice = done.stderr.split("memorist forget ")
    ids = advice.split(" --yes")[0].split()
    assert len(ids) == len(stored)
    assert run(db, "forget", *ids, "--yes").returncode == 0
    assert texts(db) == []


@pytest.mark.parametrize("more", [["--yes"], ["--dry-run"], []], ids=["yes", "dry run", "plain"])
def test_if_nothing_is_about_it_it_says_so(db: Path, more: list[str]) -> None:
    done = run(db, "forget", "--query", "the swimming lessons", *more)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "No memories match. Nothing was forgotten.\n"


@pytest.mark.parametrize("keep_days", [0, 7])
def test_python_erases_nothing_on_a_guess(db: Path, keep_days: int) -> None:
    keep(db, "The old address book is in the hall.")
    with memorist.open(db, embedder="hashing", state_dir=db.parent) as memory:
        ana = memory.scope("ana")
        with pytest.raises(InvalidInput, match="may mean 2 memories"):
            ana.forget_where("old address", dry_run=False, keep_days=keep_days)
        assert len(ana.forget_where("old address").ids) == 2
        assert len(ana.forget_where("my old address", dry_run=False).ids) == 1
        assert [each.text for each in ana.list()] == ["The old address book is in the hall."]


def test_the_words_of_somebody_else_are_not_what_a_person_calls_mine(tmp_path: Path) -> None:
    with memorist.open(":memory:", embedder="hashing", state_dir=tmp_path) as memory:
        ana = memory.scope("ana")
        ana.remember([{"role": "user", "name": "Tom", "content": "My address is 3 Hill Road."}])
        with pytest.raises(InvalidInput, match="may mean 1 memory"):
            ana.forget_where("my address", dry_run=False)
        assert len(ana.list()) == 1


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


def test_all_memories_are_those_of_the_user_in_the_space(db: Path) -> None:
    with memorist.open(db, embedder="hashing", state_dir=db.parent) as memory:
        memory.scope("ana", "work").remember("The budget is due on Friday.")
        memory.scope("bo").remember("I row on Mondays.")
    assert "Quillback" in run(db, "forget", "--all", "--dry-run").stdout
    assert run(db, "forget", "--all").returncode == 2
    assert run(db, "forget", "--all", "--yes").returncode == 0
    assert texts(db) == []
    with memorist.open(db, embedder="hashing", state_dir=db.parent) as memory:
        assert len(memory.scope("ana", "work").list()) == 1
        assert len(memory.scope("bo").list()) == 1
