"""The stores that the contract is held against. Another engine joins as one more entry of `OPEN`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect.ports import Store
from recollect.storage.sqlite.store import SqliteStore

Tamper = Callable[..., Awaitable[list[Any]]]


async def _sqlite_file(folder: Path) -> SqliteStore:
    return await SqliteStore.open(folder / "memory.db")


async def _sqlite_memory(folder: Path) -> SqliteStore:
    return await SqliteStore.open(":memory:")


OPEN = {"sqlite": _sqlite_file, "sqlite-memory": _sqlite_memory}


@pytest.fixture(params=OPEN)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A new and empty store of each engine."""
    opened = await OPEN[request.param](tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
def tamper(store: Any) -> Tamper:
    """Run a statement on the database behind the store's back."""

    async def run(sql: str, values: Sequence[Any] = ()) -> list[Any]:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_URI if store.path.startswith("file:") else 0)
        connection = apsw.Connection(store.path, flags=flags)
        connection.set_busy_timeout(5000)
        try:
            return connection.execute(sql, tuple(values)).fetchall()
        finally:
            connection.close()

    return run
