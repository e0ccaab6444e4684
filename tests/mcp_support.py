"""What the tests of the Model Context Protocol share: a person who answers, and short ways to call a tool."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult


class Person:
    """Answers questions that a client shows them."""

    def __init__(self, action: str = "accept", **content: Any) -> None:
        self.action, self.content, self.asked = action, content, list[str]()

    async def answer(self, _: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        return ElicitResult(
            action=self.action, content=self.content if self.action == "accept" else None
        )  # type: ignore[arg-type]


@asynccontextmanager
async def held(client: Client) -> AsyncIterator[Client]:
    """An open client for a fixture: pytest ends it in another task than it began in, which no client allows."""
    is_open, is_over = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with client:
            is_open.set()
            await is_over.wait()

    task = asyncio.create_task(hold())
    opening = asyncio.create_task(is_open.wait())
    await asyncio.wait((task, opening), return_when=asyncio.FIRST_COMPLETED)
    opening.cancel()
    try:
        if not task.done():
            yield client
    finally:
        is_over.set()
        await task


@asynccontextmanager
async def over_stdio(
    db: str, *words: str, mode: str = "legacy", cwd: Path | None = None, **more: Any
) -> AsyncIterator[Client]:
    """A client of a server in a process of its own."""
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "memorist", "mcp", *words],
        env={**os.environ, "MEMORIST_DB": db},
        cwd=cwd,
    )
    async with Client(command, mode=mode, **more) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """What a tool answers, which has to fit the schema it declares."""
    done = await client.call_tool(tool, arguments)
    assert not done.is_error, done.content
    return done.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Why a tool does not do it."""
    done = await client.call_tool(tool, arguments)
    assert done.is_error, done.structured_content
    return str(done.content[0].text)  # type: ignore[union-attr]
