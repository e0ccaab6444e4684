"""Conversations of one person in several sessions, on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from clocks import Clock
from memorist import aio
from memorist.client import Client
from memorist.types import Receipt

Say = Callable[..., Awaitable[Receipt]]


@pytest.fixture
def clock() -> Clock:
    return Clock(datetime(2026, 3, 1, 12, tzinfo=UTC))


@pytest.fixture
async def engine(place: str, tmp_path: Path, clock: Clock) -> AsyncIterator[Client]:
    """Yield a memory in which turns stay turns: no facts are extracted."""
    async with aio.open(place, embedder="hashing", extract="off", state_dir=tmp_path) as opened:
        opened.ctx.clock = clock
        yield opened


@pytest.fixture
def say(engine: Client) -> Say:
    """Return a function that stores turns of the user ana in a session."""

    async def store(
        session: str, *texts: str, user: str = "ana", space: str = "default", **given: Any
    ) -> Receipt:
        turns = [{"role": "user", "content": text} for text in texts]
        return await engine.scope(user, space, session=session).remember(turns, **given)

    return store


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """Yield the SQL statements that SQLite runs, on connections opened from now on."""
    seen: list[str] = []

    def trace(connection: apsw.Connection) -> None:
        def note(event: dict[str, str]) -> None:
            seen.append(event["sql"])

        connection.trace_v2(apsw.SQLITE_TRACE_STMT, note)

    apsw.connection_hooks.append(trace)
    yield seen
    apsw.connection_hooks.remove(trace)
