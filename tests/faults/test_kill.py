"""kill -9 at a random moment of mixed writes: nothing acknowledged is lost, nothing is half written."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import recollect
from recollect.model import Filter

CHILD = Path(__file__).with_name("children.py")
GONE = object()
UNKNOWN = object()  # a write was under way when the process died: before or after, both are right


@dataclass
class Told:
    """What was acknowledged so far: the text of each memory, or that it is gone."""

    texts: dict[str, Any] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    acks: int = 0

    def hear(self, kind: str, *what: str) -> None:
        self.acks += kind in ("kept", "said", "gone")
        if kind in ("kept", "said"):
            self.texts[what[0]] = what[1]
        if kind == "said":
            self.messages[what[2]] = what[0]
        if kind in ("begin", "gone"):
            self.texts[what[0]] = GONE if kind == "gone" else UNKNOWN


def killed(path: Path, seed: int) -> Iterator[list[str]]:
    """Let a process write for a while and kill it; gives what it told."""
    embedder = "none" if seed % 4 == 3 else "hashing"  # so that there is something to embed later
    command = [sys.executable, str(CHILD), "mixed", str(path), str(seed), embedder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == ["open"]
        time.sleep(random.Random(seed).uniform(0.01, 0.25))
        child.send_signal(signal.SIGKILL)
        for line in child.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):
                yield json.loads(line)


def lost(told: Told, ana: Any) -> list[str]:
    """The acknowledged writes that are not there; what was unknown is known afterwards."""
    now: dict[str, Any] = {each.id: each.text for each in _all(ana)}
    wrong = [id for id, text in told.texts.items() if text is not UNKNOWN and now.get(id, GONE) != text]
    told.texts.update({id: now.get(id, GONE) for id in told.texts})
    again = ana.remember([{"id": id, "content": "?"} for id in told.messages]).outcomes
    firsts = [() if told.texts[first] is GONE else (first,) for first in told.messages.values()]
    return wrong + [a.message_id for a, first in zip(again, firsts, strict=True) if a.ids != first]


def half_written(memory: Any, ana: Any) -> list[str]:
    """Whatever holds only together and stands alone: index and row, row and history, version and memory."""
    versions = {each.id: each for each in _all(ana, "superseded")}
    lines = ana.history(limit=100_000)
    edits = {line.old_ref for line in lines if line.old_ref is not None}
    gone = {line.memory_id for line in lines if line.event == "DELETE"}
    alone = [id for id in versions if id not in edits]
    erased = {line.old_ref for line in lines if line.memory_id in gone}
    missing = [id for id in edits - erased if id not in versions]
    back = gone & {each.id for each in _all(ana)}
    return [*memory.check(), *alone, *missing, *back]


def _all(ana: Any, *states: str) -> list[Any]:
    found, cursor = [], None
    while True:
        page = ana.list(Filter(states=states or ("active",)), limit=1000, cursor=cursor)
        found += page.memories
        if (cursor := page.cursor) is None:
            return found


def kill_loop(path: Path, kills: int) -> tuple[Told, list[str], list[str], float]:
    told, missing, halves, slowest = Told(), [], [], 0.0
    for seed in range(kills):
        for line in killed(path, seed):
            told.hear(*line)
        start = time.monotonic()
        with recollect.open(path, embedder="hashing") as memory:
            slowest = max(slowest, time.monotonic() - start)
            ana = memory.scope("ana")
            missing += lost(told, ana)
            halves += half_written(memory, ana)
    return told, missing, halves, slowest


def test_what_was_acknowledged_survives_being_killed(tmp_path: Path) -> None:
    told, missing, halves, _ = kill_loop(tmp_path / "memory.db", kills=15)
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
