"""Any one request to the disk fails, or all after it: an error of ours or none, and nothing acknowledged is lost."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from faults.disk import built, watching
from faults.witness import CHILDREN, Told, seen, whole_lines

FAULTS = [(errno.EIO, False), (errno.EIO, True), (errno.ENOSPC, False), (errno.ENOSPC, True)]


def fail(
    folder: Path, error: int, on: bool, *, first: int, step: int
) -> tuple[dict[str, Told], Counter[str]]:
    """Let a process write again and again while its disk fails; gives what it told of each file, and its errors."""
    home = folder / "home"
    home.mkdir()
    command = [
        sys.executable,
        str(CHILDREN),
        "failing",
        str(home),
        *map(str, (error, int(on), first, step)),
    ]
    child = subprocess.run(
        command,
        env=watching(built("disk", folder), home),
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stderr[-3000:]
    told: dict[str, Told] = {}
    errors: Counter[str] = Counter()
    for kind, *what in whole_lines(child.stdout):
        if kind == "run":
            told[what[0]] = now = Told()
        now.hear(kind, *what)
        errors.update(what if kind == "failed" else [kind] if kind == "mended" else [])
    return told, errors


def fail_each(folder: Path, error: int, on: bool, *, first: int, step: int) -> dict[str, int]:
    told, errors = fail(folder, error, on, first=first, step=step)
    wrong = [
        problem
        for path, each in told.items()
        for problems in seen(path, each)
        for problem in problems
    ]
    assert wrong == []
    assert set(errors) <= {"StoreUnavailable", "StoreFull", "StoreDamaged", "mended"}
    return {"runs": len(told), "acknowledged": sum(each.acks for each in told.values()), **errors}


@pytest.mark.parametrize(("error", "on"), FAULTS)
def test_a_failing_write_is_told_and_nothing_is_lost(tmp_path: Path, error: int, on: bool) -> None:
    found = fail_each(tmp_path, error, on, first=1 + 2 * FAULTS.index((error, on)), step=17)
    assert found["runs"] > 8
    assert found["acknowledged"] > 20
    assert sum(found.get(name, 0) for name in ("StoreUnavailable", "StoreFull")) > 0
    assert found["mended"] > 1


@pytest.mark.slow
@pytest.mark.parametrize(("error", "on"), FAULTS)
def test_each_write_may_fail(
    tmp_path: Path, error: int, on: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    found = fail_each(tmp_path, error, on, first=1, step=1)
    with capsys.disabled():
        print(f"\n{errno.errorcode[error]}{', and all after it' if on else ''}: {found}")
