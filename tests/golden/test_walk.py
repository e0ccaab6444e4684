"""Frozen ways of the main verbs through the code, and their SQL statements on SQLite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from golden.files import Golden

TESTS = Path(__file__).parents[1]
PRAGMAS = (
    "SELECT name FROM sqlite_schema",
    *(f"PRAGMA {n}" for n in ("journal", "sync", "foreign", "secure", "temp")),
)
VERBS = ("remember", "recall", "edit", "list", "forget")


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each verb passed through, traced in a process of its own."""
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "golden.walk", str(tmp_path_factory.mktemp("walk"))]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_each_main_verb_is_traced(traced: dict[str, Any]) -> None:
    assert set(traced) == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_the_way_of_a_verb_is_frozen(golden: Golden, traced: dict[str, Any], verb: str) -> None:
    found = traced[verb]
    modules, functions = found["modules"], found["functions"]
    lines = [
        f"{len(modules)} modules, {len(functions)} functions, {found['jumps']} jumps between files",
        "",
    ]
    lines += [
        "modules in the order they are first entered:",
        *(f"  {module}" for module in modules),
        "",
        "functions:",
    ]
    for module, names in groupby(functions, key=lambda name: name.split()[0]):
        lines += [f"  {module}", *(f"    {name.split()[1]}" for name in names)]
    golden.check(f"walk/{verb}.txt", "\n".join(lines))


@pytest.mark.parametrize("verb", VERBS)
def test_the_statements_of_a_verb_are_frozen(
    golden: Golden, traced: dict[str, Any], verb: str
) -> None:
    golden.check(
        f"sql/{verb}.txt",
        "\n".join(sql for sql in traced[verb]["sql"] if not sql.startswith(PRAGMAS)),
    )
