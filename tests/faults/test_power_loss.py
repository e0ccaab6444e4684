"""The power goes at any moment: whatever the disk then holds of what was not synced, nothing acknowledged is lost."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.disk import Disk, Request, built, requests, watching
from faults.witness import CHILDREN, Told, seen

VOLATILE = ("-shm", "-reserve")  # made anew, or of no account


def recorded(folder: Path, seed: int, steps: int) -> list[Request]:
    """All that a process asked of the disk while it wrote, with what it told standing in between."""
    home, log = folder / "home", folder / "log"
    home.mkdir()
    environment = watching(built("disk", folder), home, log)
    command = [
        sys.executable,
        str(CHILDREN),
        "mixed",
        str(home / "memory.db"),
        str(seed),
        "hashing",
        str(steps),
    ]
    with (home / "told").open("wb") as told:
        subprocess.run(command, env=environment, stdout=told, check=True)
    return [request for request in requests(log) if not request.name.endswith(VOLATILE)]


def cuts(
    asked: list[Request], folder: Path, points: int, chance: random.Random
) -> Iterator[tuple[Path, Told]]:
    """The folder after cuts at many points, with what had been told by then."""
    at = sorted(chance.sample(range(len(asked)), min(points, len(asked))))
    disk, lines = Disk(str(folder / "home")), []
    for number, request in enumerate(asked):
        if request.name.endswith("/told"):
            lines.append(json.loads(request.data))
        else:
            disk.ask(request)
        if at and number == at[0]:
            at.pop(0)
            yield _written(disk.after_a_cut(chance), folder / "cut"), _heard(lines)


def _written(files: dict[str, bytes], folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / Path(name).name).write_bytes(content)
    return folder / "memory.db"


def _heard(lines: list[list[str]]) -> Told:
    told = Told()
    for line in lines:
        told.hear(*line)
    return told


def lose_power(folder: Path, *, seed: int, steps: int, points: int) -> dict[str, int]:
    asked = recorded(folder, seed, steps)
    sums = dict.fromkeys(("points", "syncs", "acknowledged", "lost", "half written"), 0)
    sums["syncs"] = sum(request.kind == "s" for request in asked)
    for path, told in cuts(asked, folder, points, random.Random(seed)):
        missing, halves = seen(path, told)
        sums["points"] += 1
        sums["acknowledged"] = max(sums["acknowledged"], told.acks)
        sums["lost"] += len(missing)
        sums["half written"] += len(halves)
    return sums


def test_what_was_acknowledged_survives_a_power_cut(tmp_path: Path) -> None:
    found = lose_power(tmp_path, seed=1, steps=60, points=40)
    assert found["points"] == 40
    assert found["acknowledged"] > 20
    assert (found["lost"], found["half written"]) == (0, 0)


@pytest.mark.slow
def test_what_was_acknowledged_survives_2000_power_cuts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(2, 6):
        (tmp_path / str(seed)).mkdir()
        found = lose_power(tmp_path / str(seed), seed=seed, steps=150, points=500)
        with capsys.disabled():
            print(f"\npower cuts: {found}")
        assert (found["lost"], found["half written"]) == (0, 0)
