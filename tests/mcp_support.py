"""What the tests of the Model Context Protocol share: a person who answers, and short ways to call a tool."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

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


class Line(NamedTuple):
    """A memory as a tool writes it."""

    id: str
    label: str  # category, day, and whether it is pinned
    text: str  # with its speaker


def lines(text: str) -> list[Line]:
    """The memories that a tool wrote."""
    return [Line(*found) for found in re.findall(r"(?m)^(?:\w+ )*- (\S+) \[(.*?)\] (.*)$", text)]


async def call(client: Client, tool: str, **arguments: Any) -> str:
    """What a model reads of the answer of a tool."""
    done = await client.call_tool(tool, arguments)
    assert not done.is_error, done.content
    assert done.structured_content is None  # hosts would show it to the model instead of the text
    (block,) = done.content
    return str(block.text)  # type: ignore[union-attr]


async def recalled(client: Client, query: str, **arguments: Any) -> list[Line]:
    """The memories that answer a question."""
    return lines(await call(client, "memory_query", query=query, **arguments))


async def remembered(client: Client, text: str, **arguments: Any) -> str:
    """The id of a new memory of the user."""
    said = await call(client, "memory_remember", text=text, said_by="user", **arguments)
    status, id = said.partition(":")[0].split()
    assert status == "created"
    return id


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Why a tool does not do it."""
    done = await client.call_tool(tool, arguments)
    assert done.is_error, done.content
    return str(done.content[0].text)  # type: ignore[union-attr]
