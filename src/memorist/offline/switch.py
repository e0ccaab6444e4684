"""A database that may be down."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from ..errors import Busy, StoreFull, StoreUnavailable
from ..ports import Vectors
from ..storage.database import Connection, Database, Dialect, Query, Rows, read_one
from ..types import Scope

Way: TypeAlias = Literal["reading", "writing"]
Down: TypeAlias = dict[Way, str]  # what does not work, and why; a file may still be readable


@dataclass(eq=False, repr=False)
class Switch:
    """A database that may be down. Implements `Database`.

    The call that finds it down is the last one that waits: from then on calls fail at once.
    """

    inner: Database | None  # None: it was down when the client was opened
    down: Down
    on_loss: Callable[[], object] = lambda: None

    rows = read_one

    @contextmanager
    def _use(self, way: Way = "reading") -> Iterator[Database]:
        if self.inner is None or way in self.down:
            raise StoreUnavailable(self.down.get(way))
        try:
            yield self.inner
        except (StoreFull, Busy):  # not an outage
            raise
        except StoreUnavailable as error:
            self.down["writing"] = self.down[way] = str(error)
            self.on_loss()
            raise

    @property
    def dialect(self) -> Dialect:
        with self._use() as inner:
            return inner.dialect

    @property
    def secret(self) -> bytes:
        with self._use() as inner:
            return inner.secret

    async def read(self, queries: Sequence[Query], *, scope: int | None = None) -> list[Rows]:
        with self._use() as inner:
            return await inner.read(queries, scope=scope)

    @asynccontextmanager
    async def transaction(
        self,
        scope: Scope | None = None,
        *,
        number: int | None = None,
    ) -> AsyncIterator[Connection]:
        with self._use("writing") as inner:
            async with inner.transaction(scope, number=number) as connection:
                yield connection

    @asynccontextmanager
    async def try_lock(self, name: str) -> AsyncIterator[bool]:
        with self._use("writing") as inner:
            async with inner.try_lock(name) as is_mine:
                yield is_mine

    async def nearest(
        self,
        scope: int,
        vector: Vectors,
        *,
        model: str,
        limit: int,
    ) -> list[tuple[int, float]]:
        with self._use() as inner:
            return await inner.nearest(scope, vector, model=model, limit=limit)

    async def ping(self) -> None:
        with self._use("writing") as inner:
            await inner.ping()

    async def wait_for_change(self, seconds: float) -> None:
        with self._use() as inner:
            await inner.wait_for_change(seconds)

    async def backup(self, path: Path) -> None:
        if self.inner is None:
            raise StoreUnavailable(self.down.get("reading"))
        await self.inner.backup(path)  # a target that cannot be written is not an outage

    async def vacuum(self) -> None:
        with self._use("writing") as inner:
            await inner.vacuum()

    def make_room(self) -> bool:
        with self._use() as inner:
            return inner.make_room()

    async def close(self) -> None:
        if self.inner is not None:
            await self.inner.close()
