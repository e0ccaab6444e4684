"""What happens while the store is down: `outage.py` notices it, spools writes and replays them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, TypeAlias

from ..errors import StoreUnavailable
from ..ports import Vectors
from ..storage.database import Connection, Database, Dialect, Query, Rows, Values, VectorSearch
from ..types import Scope

Way: TypeAlias = Literal["reading", "writing"]
Down: TypeAlias = dict[Way, str]  # what does not work, and why; a file may still be readable


class Switch:
    """A database that may be down. Implements `Database` and `VectorSearch`.

    While it is known to be down, calls fail at once instead of waiting for it again and again.
    """

    def __init__(self, inner: Database | None, down: Down) -> None:
        self.inner = inner  # None: it was down when the client was opened
        self.down = down

    def _use(self, way: Way = "reading") -> Database:
        if self.inner is None or way in self.down:
            raise StoreUnavailable(self.down.get(way))
        return self.inner

    @property
    def dialect(self) -> Dialect:
        return self._use().dialect

    @property
    def secret(self) -> bytes:
        return self._use().secret

    async def rows(self, sql: str, values: Values = (), *, scope: int | None = None) -> Rows:
        return await self._use().rows(sql, values, scope=scope)

    async def read(self, queries: Sequence[Query], *, scope: int | None = None) -> list[Rows]:
        return await self._use().read(queries, scope=scope)

    def transaction(
        self, scope: Scope | None = None, *, number: int | None = None
    ) -> AbstractAsyncContextManager[Connection]:
        return self._use("writing").transaction(scope, number=number)

    def try_lock(self, name: str) -> AbstractAsyncContextManager[bool]:
        return self._use("writing").try_lock(name)

    async def nearest(
        self, scope: int, vector: Vectors, *, model: str, limit: int
    ) -> list[tuple[int, float]]:
        inner = self._use()
        assert isinstance(inner, VectorSearch)
        return await inner.nearest(scope, vector, model=model, limit=limit)

    async def wait_for_change(self, seconds: float) -> None:
        await self._use().wait_for_change(seconds)

    async def backup(self, path: Path) -> None:
        await self._use().backup(path)

    async def vacuum(self) -> None:
        await self._use("writing").vacuum()

    def make_room(self) -> bool:
        return self._use().make_room()

    async def close(self) -> None:
        if self.inner is not None:
            await self.inner.close()
