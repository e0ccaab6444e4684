"""The description of the server is true: every answer is one that it declares, whatever it is asked."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import serving

ROOT = Path(__file__).parents[3]
CONFIG = Path(__file__).with_name("schemathesis.toml")


def test_the_description_that_is_checked_in_is_the_one_of_the_server() -> None:
    spec = importlib.util.spec_from_file_location("openapi_tool", ROOT / "tools" / "openapi.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.TARGET.read_text("utf-8") == tool.described(), "run tools/openapi.py"


def asked_everything(place: str, folder: Path, *how: str) -> None:
    """Let schemathesis ask the server whatever its description allows and forbids, with all its checks."""
    keys = {"all": {"rights": ("read", "write", "owner", "admin")}}
    with serving(place, keys=keys, journal_dir=folder / "journal", rate_limit=0) as server:
        command = [
            str(Path(sys.executable).with_name("schemathesis")), "--config-file", str(CONFIG), "run",
            f"{server.url}/openapi.json", "-H", f"Authorization: Bearer {server.tokens['all']}", "--no-color", *how,
        ]  # fmt: skip
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_the_server_answers_as_it_is_described(tmp_path: Path) -> None:
    asked_everything(
        str(tmp_path / "m.db"),
        tmp_path,
        "--phases=fuzzing",
        "-n",
        "2",
        "--generation-deterministic",
    )


@pytest.mark.slow
def test_the_server_answers_as_it_is_described_whatever_it_is_asked(tmp_path: Path) -> None:
    asked_everything(
        str(tmp_path / "m.db"), tmp_path, "--phases=examples,coverage,fuzzing,stateful", "-n", "50"
    )


@pytest.mark.slow
def test_it_does_so_on_postgresql(ready_database: str, tmp_path: Path) -> None:
    asked_everything(ready_database, tmp_path, "--phases=fuzzing", "-n", "20")
