"""The HTTP server over a copy of the fixed history, in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

import memorist
from memorist.client import Client
from memorist.interfaces.auth import Caller
from memorist.interfaces.rest.app import create_app

ANA = Caller(name="local", user="ana", tenant="default")
_routed: dict[
    bool, FastAPI
] = {}  # apps that have built their routes, which takes a tenth of a second


def app_of(engine: Client, local: Caller | None = ANA) -> FastAPI:
    """The server of an engine, with routes that were built for an earlier one."""
    made = create_app(engine, local=local)
    kept = _routed.setdefault(local is None, made)
    kept.state = made.state
    return kept


@asynccontextmanager
async def serving(
    place: Path, *, local: Caller | None = ANA, **settings: Any
) -> AsyncIterator[tuple[Client, httpx.AsyncClient]]:
    """Serve a memory in this process; `local` may ask without a key."""
    async with memorist.aio.open(place, journal_dir=place.parent / "journal", **settings) as engine:
        transport = httpx.ASGITransport(app_of(engine, local), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield engine, client
