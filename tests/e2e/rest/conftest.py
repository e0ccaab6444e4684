"""A server on a port of this machine, with real keys, in a thread of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest_asyncio
from fastapi import FastAPI

import memorist
from memorist.client import Client
from memorist.interfaces.auth import Caller
from memorist.interfaces.rest.app import create_app
from rest_server import ANA, Server, serving

__all__ = ["ANA", "Server", "serving"]


@pytest_asyncio.fixture
async def engine(tmp_path: Path) -> AsyncIterator[Client]:
    async with memorist.aio.open(
        tmp_path / "m.db", embedder="hashing", journal_dir=tmp_path / "journal"
    ) as memory:
        yield memory


def asking(
    memory: Client | FastAPI, token: str | None = None, *, local: Caller | None = None
) -> httpx.AsyncClient:
    """A client of a server in this process."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    app = memory if isinstance(memory, FastAPI) else create_app(memory, local=local)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)


@pytest_asyncio.fixture
async def ana(engine: Client) -> AsyncIterator[httpx.AsyncClient]:
    """The local person, with all rights."""
    async with asking(engine, local=ANA) as client:
        yield client
