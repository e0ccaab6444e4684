"""`memorist serve` and `memorist keys`, as people start them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

import memorist
from memorist.interfaces import NOT_FOUND, USAGE
from memorist.interfaces.cli import app


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ, "MEMORIST_STATE_DIR": str(tmp_path / "state"), "MEMORIST_EMBEDDER": "hashing",
        "MEMORIST_DB": str(tmp_path / "m.db"), "MEMORIST_USER": "ana",
    }  # fmt: skip


def run(environment: dict[str, str], *words: str) -> Result:
    return CliRunner().invoke(app, words, env=environment)


@contextmanager
def served(environment: dict[str, str], *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "memorist", "serve", "--port", str(port), *words]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            assert process.poll() is None, process.stderr and process.stderr.read()
            try:
                httpx.get(f"{url}/readyz").raise_for_status()
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield process, url
    finally:
        process.kill()
        process.communicate()


def test_on_this_machine_it_needs_no_key_and_ends_when_told(environment: dict[str, str]) -> None:
    with served(environment) as (process, url):
        made = httpx.post(f"{url}/v1/memory/entries", json={"text": "I moved to Lisbon in May."})
        assert made.status_code == 201
        assert "server" not in made.headers  # the software is not told
        assert (
            httpx.get(f"{url}/v1/memory/stats", headers={"Host": "evil.example"}).status_code == 421
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == f"Listening on {url}; press Ctrl-C to stop.\n"
    assert "Lisbon" in run(environment, "recall", "Lisbon").stdout


def test_it_says_that_it_listens_only_when_it_does_and_where(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "memorist", "serve", "--port", "0"]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("Listening on http://127.0.0.1:")
        url = said.removeprefix("Listening on ").partition(";")[0]
        assert httpx.get(f"{url}/healthz").json() == {"status": "ok"}
        port = url.rpartition(":")[2]
        second = subprocess.run(
            [*command[:-1], port], env=environment, capture_output=True, text=True, check=False
        )
        assert second.returncode != 0
        assert "address already in use" in second.stderr
        assert "Listening" not in second.stderr
    finally:
        process.kill()
        process.communicate()


def test_any_other_address_needs_a_key_and_says_how_to_make_one(
    environment: dict[str, str],
) -> None:
    refused = run(environment, "serve", "--host", "0.0.0.0", "--port", "0")
    assert refused.exit_code == USAGE
    assert "memorist keys create" in refused.stderr
    assert run(environment, "serve", "--keys", "--port", "0").exit_code == USAGE


def test_a_key_is_made_shown_once_listed_and_revoked(environment: dict[str, str]) -> None:
    made = run(
        environment,
        "keys",
        "create",
        "laptop",
        "--right",
        "read",
        "--expires",
        "90",
        "--space",
        "home",
        "--json",
    )
    key: dict[str, Any] = json.loads(made.stdout)
    assert (key["name"], key["user"], key["space"], key["rights"]) == (
        "laptop",
        "ana",
        "home",
        ["read"],
    )
    listed = run(environment, "keys", "list")
    assert key["id"] in listed.stdout
    assert key["token"].rpartition("_")[2] not in listed.stdout
    assert key["token"].encode() not in Path(environment["MEMORIST_DB"]).read_bytes()
    with served(environment, "--keys") as (_, url):
        head = {"Authorization": f"Bearer {key['token']}"}
        assert httpx.get(f"{url}/v1/memory/stats").status_code == 401
        assert httpx.get(f"{url}/v1/memory/stats", headers=head).status_code == 200
        assert (
            httpx.get(f"{url}/v1/memory/stats", headers={"X-API-Key": key["token"]}).status_code
            == 200
        )
        assert run(environment, "keys", "revoke", key["id"]).exit_code == 0
        assert httpx.get(f"{url}/v1/memory/stats", headers=head).status_code == 401
    assert "revoked" in run(environment, "keys", "list").stdout
    assert run(environment, "keys", "revoke", "nothing").exit_code == NOT_FOUND
    assert run(environment, "keys", "create", "x", "--right", "everything").exit_code == USAGE
    assert run(environment, "keys", "create").exit_code == USAGE


def test_a_key_that_is_over_is_listed_as_expired_and_none_is_made_that_is(
    environment: dict[str, str],
) -> None:
    assert run(environment, "keys", "create", "x", "--expires", "0").exit_code == USAGE
    with memorist.open(environment["MEMORIST_DB"], embedder="none") as memory:
        memory.create_key("old", user="ana", days=0)
    assert "expired" in run(environment, "keys", "list").stdout


@pytest.mark.parametrize("missing", ["uvicorn", "fastapi", "jinja2", "mcp"])
def test_what_is_not_installed_is_named_with_the_way_to_install_it(
    environment: dict[str, str], missing: str
) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from memorist.interfaces.cli import app; app(['serve'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == USAGE
    assert 'pip install "memorist[server]"' in done.stderr
