"""The conformance suite and the Inspector of the protocol's own makers, where Node.js and they are installed.

npm install node@22 @modelcontextprotocol/conformance@0.2.0-alpha.12 @modelcontextprotocol/inspector@2.12.0
export NODE_PATH=$PWD/node_modules
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("mcp")
pytest.importorskip("fastapi")

MODULES = Path(os.environ.get("NODE_PATH", "node_modules"))
HOW = "needs Node.js 22 and the suite: npm install node@22 @modelcontextprotocol/…, NODE_PATH=…/node_modules"


def node(package: str, *words: str, timeout: int = 300) -> subprocess.CompletedProcess[str]:
    """Run a program of a package, or skip."""
    program = MODULES / "@modelcontextprotocol" / package
    inside = MODULES / "node" / "bin" / "node"
    runner = str(inside) if inside.exists() else shutil.which("node")
    if runner is None or not program.exists():
        pytest.skip(HOW)
    version = subprocess.run([runner, "--version"], capture_output=True, text=True).stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < 22:
        pytest.skip(f"{HOW}; this is {version}")
    command = [runner, str(program / words[0]), *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


@pytest.fixture
def url() -> Iterator[str]:
    """A server with everything that the suite asks for."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = Path(__file__).parents[2] / "mcp_fixtures.py"
    with subprocess.Popen(
        [sys.executable, str(program), str(port)], stderr=subprocess.DEVNULL
    ) as process:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
        process.terminate()


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_it_conforms_to_both_revisions(revision: str, request: pytest.FixtureRequest) -> None:
    node("conformance", "dist/index.js", "--version")
    url = request.getfixturevalue("url")
    words = ["dist/index.js", "server", "--url", url, "--requirements", revision]
    done = node("conformance", *words)
    if done.returncode:  # a scenario has a time limit, which a busy machine can exceed
        done = node("conformance", *words)
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"Not scored for {revision}" in done.stdout


def test_the_inspector_finds_nothing_wrong_with_the_schemas(tmp_path: Path) -> None:
    place = f"MEMORIST_DB={tmp_path / 'm.db'}"
    words = [
        "--cli",
        "-e",
        place,
        "--method",
        "tools/list",
        "--strict",
        sys.executable,
        "-m",
        "memorist",
        "mcp",
    ]
    done = node("inspector", "clients/launcher/build/index.js", *words, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "memory_query" in done.stdout
    assert done.stderr.strip() == ""
