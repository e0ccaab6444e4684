"""The async door: `async with memorist.aio.open("memory.db") as memory: …`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Unpack

from .bootstrap import open_client
from .client import Client
from .scoped import ScopedClient
from .settings import Options

__all__ = ["Client", "ScopedClient", "open"]


@asynccontextmanager
async def open(
    db: str | Path | None = None,
    *,
    count_tokens: Callable[[str], int] | None = None,
    **settings: Unpack[Options],
) -> AsyncIterator[Client]:
    """Open a memory for the length of a block. Every setting can be given by name."""
    engine = await open_client(db, count_tokens=count_tokens, **settings)
    try:
        yield engine
    finally:
        await engine.close()
