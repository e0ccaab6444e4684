"""kill -9 at a random moment of mixed writes: nothing acknowledged is lost, nothing is half written."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import memorist
from faults.witness import CHILDREN, Told, half_written, lost, whole_lines


def killed(path: Path | str, seed: int) -> Iterable[list[Any]]:
    """Let a process write for a while and kill it; gives what it told."""
    embedder = "none" if seed % 4 == 3 else "hashing"  # so that there is something to embed later
    command = [sys.executable, str(CHILDREN), "mixed", str(path), str(seed), embedder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == ["open"]
        chance = random.Random(seed)
        lines = [child.stdout.readline() for _ in range(chance.randint(1, 20))]
        time.sleep(chance.uniform(0.0, 0.02))  # until it is in the middle of something
        child.send_signal(signal.SIGKILL)
        return whole_lines("".join(lines) + child.stdout.read())


def kill_loop(path: Path | str, kills: int) -> tuple[Told, list[str], list[str], float]:
    told, missing, halves, slowest = Told(), [], [], 0.0
    for seed in range(kills):
        for line in killed(path, seed):
            told.hear(*line)
        start = time.monotonic()
        with memorist.open(path, embedder="hashing", spool=False) as memory:
            slowest = max(slowest, time.monotonic() - start)
            ana = memory.scope("ana")
            missing += lost(told, ana)
            halves += half_written(memory, ana)
    return told, missing, halves, slowest


def test_what_was_acknowledged_survives_being_killed(tmp_path: Path) -> None:
    told, missing, halves, _ = kill_loop(tmp_path / "memory.db", kills=8)
    assert told.acks > 15
    assert (missing, halves) == ([], [])


@pytest.mark.slow
def test_what_was_acknowledged_survives_being_killed_200_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told, missing, halves, slowest = kill_loop(tmp_path / "memory.db", kills=200)
    with capsys.disabled():
        print(f"\nkills 200, acknowledged {told.acks}, lost {len(missing)}, half written {len(halves)}, "
              f"slowest reopening {slowest * 1000:.0f} ms")  # fmt: skip
    assert (missing, halves) == ([], [])
