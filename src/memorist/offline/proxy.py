"""A store that may be unavailable: callers get an error at once, instead of waiting for it again
and again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Literal

from ..errors import StoreFull, StoreUnavailable
from ..ports import Delta, Vectors
from ..storage.changes import Change, Forget, Save
from ..storage.database import Connection, Database, Dialect, Query, Rows, Values, VectorSearch
from ..storage.store import Store
from ..storage.transaction import Transaction
from ..types import Memory, Scope

MOST_TEXTS = 2000
Way = Literal["reading", "writing"]


class Texts:
    """Memories that were lately read or written, so that some can still be shown while the store
    is away."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[Scope, str], Memory] = OrderedDict()
        self._fresh: dict[
            Scope, set[str]
        ] = {}  # written here since the snapshot of the scope was brought up to date
        self.version = 0  # grows with each change

    def of(self, scope: Scope) -> list[Memory]:
        return [memory for (whose, _), memory in self._held.items() if whose == scope]

    def fresh(self, scope: Scope) -> list[Memory]:
        """Those that no snapshot can know of."""
        written = self._fresh.get(scope, ())
        return [memory for memory in self.of(scope) if memory.id in written and memory.is_active]

    def caught_up(self, scope: Scope) -> None:
        """The snapshot of the scope has just been brought up to date."""
        self._fresh.pop(scope, None)

    def learn(self, memories: Iterable[Memory]) -> None:
        self.version += 1
        for memory in memories:
            self._held[memory.scope, memory.id] = memory
            self._held.move_to_end((memory.scope, memory.id))
        while len(self._held) > MOST_TEXTS:
            self._drop(*next(iter(self._held)))

    def follow(self, scope: Scope, changes: Iterable[Change]) -> None:
        """Know what was just written, and nothing of what was forgotten."""
        for change in changes:
            if isinstance(change, Save):
                self.learn([change.memory])
                self._fresh.setdefault(scope, set()).add(change.memory.id)
            elif isinstance(change, Forget):
                self.version += 1
                gone = [m.id for m in self.of(scope) if change.memory_id in (m.id, m.superseded_by)]
                for id in gone:
                    self._drop(scope, id)

    def _drop(self, scope: Scope, id: str) -> None:
        del self._held[scope, id]
        if scope in self._fresh:
            self._fresh[scope].discard(id)
            if not self._fresh[scope]:
                del self._fresh[scope]


class DatabaseProxy:
    """A database behind a switch. Implements `Database`.

    After a call that found it unavailable, calls fail at once until `found` says that it is back. A
    database that cannot be written may still be read.
    """

    def __init__(
        self,
        inner: Database | None,
        *,
        reopen: Callable[[], Awaitable[Database]],
        still: Callable[[], None] = lambda: None,
        why: StoreUnavailable | None = None,
    ) -> None:
        self.inner = inner
        self._reopen = reopen
        self._still = still
        self.away: dict[Way, str] = {}
        if why is not None:
            self.away = {"reading": str(why), "writing": str(why)}
        self.on_loss: Callable[[], None] = lambda: None

    @property
    def dialect(self) -> Dialect:
        return self._open().dialect

    @property
    def secret(self) -> bytes:
        return self._open().secret

    async def rows(self, sql: str, values: Values = (), *, scope: int | None = None) -> Rows:
        with self._noticing("reading"):
            return await self._open().rows(sql, values, scope=scope)

    async def read(self, queries: Sequence[Query], *, scope: int | None = None) -> list[Rows]:
        with self._noticing("reading"):
            return await self._open().read(queries, scope=scope)

    @asynccontextmanager
    async def transaction(
        self, scope: Scope | None = None, *, number: int | None = None
    ) -> AsyncIterator[Connection]:
        with self._noticing("writing"):
            self._still()
            async with self._open().transaction(scope, number=number) as connection:
                yield connection

    def try_lock(self, name: str) -> AbstractAsyncContextManager[bool]:
        return self._open().try_lock(name)

    async def nearest(
        self, scope: int, vector: Vectors, *, model: str, limit: int
    ) -> list[tuple[int, float]]:
        with self._noticing("reading"):
            inner = self._open()
            assert isinstance(inner, VectorSearch)
            return await inner.nearest(scope, vector, model=model, limit=limit)

    async def wait_for_change(self, seconds: float) -> None:
        with self._noticing("reading"):
            await self._open().wait_for_change(seconds)

    async def backup(self, path: Path) -> None:
        # The target may be unavailable, which says nothing about the store.
        await self._open().backup(path)

    async def vacuum(self) -> None:
        with self._noticing("reading"):
            await self._open().vacuum()

    def make_room(self) -> bool:
        return self._open().make_room()

    async def close(self) -> None:
        if self.inner is not None:
            await self.inner.close()

    async def reach(self) -> Database:
        """Return the database itself, opened if it never was. Raises StoreUnavailable."""
        if self.inner is None:
            self.inner = await self._reopen()
        self._still()
        return self.inner

    def _open(self) -> Database:
        if self.inner is None:
            raise StoreUnavailable(self.away.get("reading"))
        return self.inner

    @contextmanager
    def _noticing(self, way: Way) -> Iterator[None]:
        if way in self.away:
            raise StoreUnavailable(self.away[way])
        try:
            yield
        except StoreFull:  # waiting does not help: somebody has to make room
            raise
        except StoreUnavailable as error:
            self.away["writing"] = str(error)
            if way == "reading":
                self.away["reading"] = str(error)
            self.on_loss()
            raise


class StoreProxy(Store):
    """A store whose database may be unavailable; it knows some memories that were read or
    written lately."""

    def __init__(self, database: DatabaseProxy, *, language: str = "english") -> None:
        super().__init__(database, language=language)
        self.proxy = database
        self.texts = Texts()

    @property
    def away(self) -> dict[Way, str]:
        """Why the store cannot be read or written; empty while it can."""
        return self.proxy.away

    async def at_rows(self, scope: Scope, numbers: Sequence[int]) -> dict[int, Memory]:
        found = await super().at_rows(scope, numbers)
        self.texts.learn(found.values())
        return found

    async def changed_since(
        self, scope: Scope, revision: int, *, model: str, limit: int, after: int = 0
    ) -> Delta:
        delta = await super().changed_since(scope, revision, model=model, limit=limit, after=after)
        self.texts.caught_up(scope)
        return delta

    @asynccontextmanager
    async def transaction(self, scope: Scope) -> AsyncIterator[Transaction]:
        async with super().transaction(scope) as tx:
            try:
                yield tx
            finally:
                if tx.has_read_changes:
                    self.texts.caught_up(scope)
        self.texts.follow(scope, tx.applied)

    async def reached(self) -> Store:
        """Return the store itself, opened if it never was. Raises StoreUnavailable."""
        return Store(await self.proxy.reach(), language=self.language)

    def found(self, way: Way) -> None:
        """Note that the store is back."""
        self.away.pop(way, None)
