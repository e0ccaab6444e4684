"""The official client, and the ways to the server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from mcp.server import MCPServer

from memorist import aio
from memorist.client import Client
from memorist.interfaces.auth import Caller
from memorist.interfaces.mcp import build_server
from memorist.interfaces.mcp.request import Backend

REVISIONS = ("legacy", "2026-07-28")  # of the protocol: with a handshake, and without


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own for every test, and the quick embedder."""
    for name in [
        name
        for name in os.environ
        if name.startswith(("MEMORIST_", "MILTON_", "CLAUDE_", "CODEX_"))
    ]:
        if name != "MEMORIST_SPOOL_DIR":
            monkeypatch.delenv(name)
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.setenv("HOME", str(place))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(place / ".config"))
    monkeypatch.setenv("MEMORIST_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("MEMORIST_EMBEDDER", "hashing")
    monkeypatch.setenv("MEMORIST_USER", "ana")
    return place


@pytest.fixture(params=REVISIONS)
def revision(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def engine(place: str, tmp_path: Path) -> AsyncIterator[Client]:
    async with aio.open(place, embedder="hashing", state_dir=tmp_path / "state") as opened:
        yield opened


@pytest.fixture
def serving(engine: Client) -> Callable[..., MCPServer[None]]:
    """A server over the engine, for whoever is named."""

    def serve(user: str = "ana", **known: Any) -> MCPServer[None]:
        caller = Caller(name=user, user=user, tenant="default", **known)
        return build_server(Backend(lambda _engine, _request: caller, engine))

    return serve
