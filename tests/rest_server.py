"""A REST server on a local port, with real API keys, running in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn

import memorist
from memorist.interfaces.auth import Caller
from memorist.interfaces.rest.app import create_app, routes

ANA = Caller(name="local", user="ana", tenant="default")


@dataclass
class Server:
    """Where it listens, and the tokens of its keys."""

    url: str
    tokens: dict[str, str] = field(default_factory=dict)

    def client(self, key: str | None = None, **more: Any) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.tokens[key]}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, **more)


@contextmanager
def serving(
    place: str,
    *,
    local: Caller | None = None,
    keys: dict[str, dict[str, Any]] | None = None,
    **settings: Any,
) -> Iterator[Server]:
    """Serve a memory until the block ends."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    )  # otherwise each answer waits 40 ms for an ACK
    server = Server(url=f"http://127.0.0.1:{listening.getsockname()[1]}")
    ready, ending = threading.Event(), []
    failed: list[BaseException] = []

    async def run() -> None:
        async with memorist.aio.open(place, **{"embedder": "hashing", **settings}) as memory:
            for name, given in (keys or {}).items():
                _, server.tokens[name] = await memory.create_key(name, **{"user": "ana", **given})
            app = create_app(memory, local=local)
            inner = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
            ending.append(inner)
            ready.set()
            await inner.serve(sockets=[listening])

    def work() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:
            failed.append(error)
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert ready.wait(60)
        yield server
    finally:
        if ending:
            ending[0].should_exit = True
        thread.join(60)
        listening.close()
        if failed:
            raise failed[0]


def route_table() -> list[tuple[str, str, str]]:
    """List all routes with path, method and required right, which is empty for public routes."""
    found = []
    for route in routes():
        right = "".join(route.rights[:1])
        found += [(route.path, method.lower(), right) for method in sorted(route.methods or ())]
    return found
