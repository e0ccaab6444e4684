"""Many processes on one memory, through the commands people use: migrate, worker, doctor, on both engines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memorist
from memorist.interfaces import USAGE


@pytest.fixture(params=["sqlite", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "memory.db")
    address: str = request.getfixturevalue("ready_database")
    return address


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "MEMORIST_STATE_DIR": str(tmp_path / "state"),
        "MEMORIST_EMBEDDER": "hashing",
    }


def started(environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "memorist", *words]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(environment: dict[str, str], *words: str) -> tuple[int, Any, str]:
    process = started(environment, *words, "--json")
    out, err = process.communicate(timeout=60)
    return process.returncode, json.loads(out) if out else None, err


def told(db: str, texts: Iterator[str]) -> None:
    """Remember without a model, so that the vectors are left to workers."""
    with memorist.open(db, embedder="none", spool=False) as memory:
        for number, text in enumerate(texts):
            memory.scope(user=f"user {number % 3}").remember(text)


def waiting(db: str) -> int:
    with memorist.open(db, embedder="hashing", spool=False) as memory:
        return int(memory.stats()["without_embeddings"])


@pytest.mark.spec("THE-115")
def test_those_who_tend_share_the_work_and_end_when_nothing_is_left(
    db: str, environment: dict[str, str]
) -> None:
    told(db, (f"Fact number {n} is about tea." for n in range(30)))
    running = [
        started(environment, "jobs", "run", "--batch-size", "4", "--json", "--db", db)
        for _ in range(3)
    ]
    outs = [process.communicate(timeout=60) for process in running]
    assert [process.returncode for process in running] == [0] * 3, outs
    assert sum(json.loads(out).get("embed", {}).get("changed", 0) for out, _ in outs) == 30
    assert waiting(db) == 0


@pytest.mark.spec("THE-115")
def test_a_worker_embeds_what_others_tell_and_ends_at_sigterm(
    db: str, environment: dict[str, str]
) -> None:
    told(db, iter(["The first."]))
    worker = started(environment, "jobs", "worker", "--json", "--db", db)
    try:
        _until(lambda: waiting(db) == 0)
        assert os.getpriority(os.PRIO_PROCESS, worker.pid) == 10
        told(db, iter(["The second.", "The third."]))
        _until(lambda: waiting(db) == 0)
        worker.send_signal(signal.SIGTERM)
        out, err = worker.communicate(timeout=20)
        assert (worker.returncode, json.loads(out)["embed"]["changed"]) == (0, 3), err
    finally:
        worker.kill()


def _until(happened: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.1)


def test_migrate_makes_a_database_and_then_finds_it_done(
    database: str, environment: dict[str, str]
) -> None:
    code, made, err = run(environment, "db", "migrate", "--db", database, "--partitions", "2")
    assert (code, made["steps"][:1], made["indexes"]) == (0, [1], []), err
    assert run(environment, "db", "migrate", "--db", database, "--hnsw")[:2] == (
        0,
        {"steps": [], "indexes": []},
    )
    code, _, err = run(environment, "db", "migrate", "--db", database, "--partitions", "8")
    assert code == USAGE
    assert "memorist db copy" in err


def test_migrate_on_a_file_makes_it(tmp_path: Path, environment: dict[str, str]) -> None:
    assert run(environment, "db", "migrate", "--db", str(tmp_path / "m.db"))[0] == 0
    assert (tmp_path / "m.db").exists()
    assert run(environment, "db", "migrate", "--db", str(tmp_path / "m.db"), "--hnsw")[0] == USAGE


def test_a_doctor_looks_at_a_server_too(ready_database: str, environment: dict[str, str]) -> None:
    code, found, _ = run(environment, "doctor", "--db", ready_database)
    assert code == 0
    assert {"file", "health"} <= {each["about"] for each in found["findings"]}


def test_a_server_that_is_away_has_its_own_exit_code(environment: dict[str, str]) -> None:
    code, _, err = run(
        environment, "recall", "tea", "--db", "postgresql://ana:secret@127.0.0.1:1/x"
    )
    assert code == 5
    assert "secret" not in err
