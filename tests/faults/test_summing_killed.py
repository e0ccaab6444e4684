"""A process that is killed while it sums up leaves each session either as it was or behind its one summary."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import memorist
from memorist.types import Filter

SESSIONS = 20
CHILD = """
import sys, memorist
with memorist.open(sys.argv[1], embedder="hashing") as memory:
    print("open", flush=True)
    memory.scope("ana").compress(threshold=1, sessions=1000)
print("done", flush=True)
"""


@pytest.mark.parametrize("kills", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_nothing_is_summed_up_by_half_or_twice(tmp_path: Path, kills: int) -> None:
    chance = random.Random(kills)
    at_work = 0
    _talked(tmp_path / "talked.db")
    for number in range(kills):
        file = tmp_path / f"{number}.db"
        shutil.copy(tmp_path / "talked.db", file)
        at_work += _killed(file, 0.01 + chance.random() * 0.2)
        _look(file)
    assert at_work > kills // 4, "some were killed in the middle"


def _talked(file: Path) -> None:
    with memorist.open(file, embedder="hashing") as memory:
        for session in range(SESSIONS):
            said = [
                {"id": f"{session}-{n}", "content": f"Box {session} holds {n + 3} red keys."}
                for n in range(4)
            ]
            memory.scope("ana", session=f"s{session}").remember(said)
        # It is never summed up, but counts: otherwise the last session would be below the threshold.
        memory.scope("ana", session="kept").remember([{"content": "Keep it."}], manually_saved=True)


def _killed(file: Path, seconds: float) -> bool:
    """Kill a process that compresses; whether it was in the middle of it."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(file)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    time.sleep(seconds)
    os.kill(child.pid, signal.SIGKILL)
    rest = child.communicate()[0]
    return rest == ""


def _look(file: Path) -> None:
    with memorist.open(file, embedder="hashing") as memory:
        ana = memory.scope("ana")
        for _ in range(2):  # as it was left, and after the next run
            summaries = list(ana.list(Filter(compression_source=True), limit=1000))
            behind = [memory.id for memory in ana.list(Filter(states=("compressed",)), limit=1000)]
            assert sorted(id for summary in summaries for id in summary.evidence_ids) == sorted(
                behind
            )
            assert (
                len({summary.source_session_id for summary in summaries})
                == len(summaries)
                == len(behind) / 4
            )
            ana.compress(threshold=1, sessions=1000)
        assert len(summaries) == SESSIONS
        assert memory.check() == []
