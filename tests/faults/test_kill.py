"""kill -9 at a random moment of mixed writes: nothing acknowledged is lost, nothing is half written."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import memorist
from faults.witness import CHILDREN, Told, half_written, lost, whole_lines
from memorist.errors import Misconfigured
from version_0_1 import ALIVE, unpack


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


BOXES = [f"Box {n} holds {n * 7919} letters." for n in range(400)]


def run_command(folder: Path, *words: str, kill_after: float | None = None) -> float:
    """Run the command line, and kill it after so many seconds; return how long it ran."""
    places = {f"MEMORIST_{name}_DIR": str(folder) for name in ("STATE", "SPOOL", "DATA")}
    environment = {**os.environ, **places, "MEMORIST_EMBEDDER": "hashing"}
    command = [sys.executable, "-m", "memorist", *words, "--user", "ana"]
    start = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    ) as child:
        try:
            out, _ = child.communicate(timeout=kill_after)
            assert child.returncode == 0, out
        except subprocess.TimeoutExpired:
            child.kill()
    return time.monotonic() - start


def read_texts(path: Path) -> list[str]:
    with memorist.open(path, embedder="hashing", state_dir=path.parent, spool=False) as memory:
        ana = memory.scope("ana")
        assert half_written(memory, ana) == []
        return sorted(each.text for each in ana.list(limit=1000))


def lay_boxes(path: Path) -> None:
    with memorist.open(path, embedder="hashing", state_dir=path.parent, spool=False) as memory:
        messages = [{"content": text, "id": text} for text in BOXES]
        memory.scope("ana").remember(messages, policy="milton", tags=["box"])


def spool_boxes(path: Path) -> None:
    """Remember while the folder of the database is away."""
    folder = path.parent.parent
    away = folder / "away"
    with memorist.open(path, embedder="hashing", state_dir=folder, spool_dir=folder) as memory:
        path.parent.rename(away)
        messages = [{"content": text, "id": text} for text in BOXES]
        done = memory.scope("ana").remember(messages, policy="milton")
        assert {each.status for each in done.outcomes} == {"pending"}
    away.rename(path.parent)
    assert read_texts(path) == []


class Backup:
    """A backup is whole, or is not there."""

    prepare = staticmethod(lay_boxes)
    words = ("db", "backup", "{target}", "--db", "{source}")

    @staticmethod
    def check(source: Path, target: Path) -> None:
        assert not target.exists() or read_texts(target) == sorted(BOXES)
        assert read_texts(source) == sorted(BOXES)


class Copy:
    """A copy that was begun is refused until it is complete; before, the target is a new memory."""

    prepare = staticmethod(lay_boxes)
    words = ("db", "copy", "{source}", "{target}")

    @staticmethod
    def check(source: Path, target: Path) -> None:
        if target.exists():
            with suppress(Misconfigured):  # interrupted: run the same command again
                assert read_texts(target) in ([], sorted(BOXES))
        assert read_texts(source) == sorted(BOXES)


class Migrate:
    """A file of version 0.1 is that or migrated."""

    prepare = staticmethod(partial(unpack, "memory.db"))
    words = ("db", "migrate", "--db", "{source}")

    @staticmethod
    def check(source: Path, target: Path) -> None:
        assert set(read_texts(source)) >= ALIVE


class Forget:
    """What is left is whole."""

    prepare = staticmethod(lay_boxes)
    words = ("forget", "--tag", "box", "--yes", "--db", "{source}")

    @staticmethod
    def check(source: Path, target: Path) -> None:
        assert set(read_texts(source)) <= set(BOXES)


class Replay:
    """What waited for the store is there once, or waits on until the next replay."""

    prepare = staticmethod(spool_boxes)
    words = ("db", "replay", "--db", "{source}")

    @staticmethod
    def check(source: Path, target: Path) -> None:
        there = read_texts(source)
        assert len(there) == len(set(there))
        run_command(source.parent.parent, "db", "replay", "--db", str(source))
        assert read_texts(source) == sorted(BOXES)


@pytest.mark.slow
@pytest.mark.parametrize("command", [Backup, Copy, Migrate, Forget, Replay])
def test_commands_survive_being_killed_75_times(tmp_path: Path, command: Any) -> None:
    chance, seconds, ended = random.Random(1), 0.0, 0
    for number in range(76):
        folder = tmp_path / str(number)
        (folder / "disk").mkdir(parents=True)
        places = {"source": str(folder / "disk" / "a.db"), "target": str(folder / "b.db")}
        source, target = map(Path, places.values())
        command.prepare(source)
        words = [word.format(**places) for word in command.words]
        if not number:  # how long it takes
            seconds = run_command(folder, *words)
            shutil.rmtree(folder)
            continue
        ran = run_command(folder, *words, kill_after=chance.uniform(0.4, 1.0) * seconds)
        ended += ran < 0.4 * seconds
        if number % 10 == 0:  # it can be repeated
            if command is Backup:
                target.unlink(missing_ok=True)
            run_command(folder, *words)
            assert command is not Forget or read_texts(source) == []
        command.check(source, target)
        shutil.rmtree(folder)
    assert ended < 30
