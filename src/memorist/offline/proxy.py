"""A store that may be away: who asks is told at once, instead of waiting for it again and again."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal

from ..errors import StoreFull, StoreUnavailable
from ..ports import Delta, Store, Transaction
from ..storage.changes import Change, Forget, Put
from ..types import Memory, Scope

MOST_TEXTS = 2000
Way = Literal["reading", "writing"]


class Texts:
    """Memories that were lately read or written, so that some can still be shown while the store is away."""

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
            if isinstance(change, Put):
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


class _Followed:
    """A transaction whose changes are noted."""

    def __init__(self, inner: Transaction, texts: Texts) -> None:
        self._inner, self._texts, self.changes = inner, texts, list[Change]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def changed_since(self, scope: Scope, revision: int, **named: Any) -> Delta:
        delta = await self._inner.changed_since(scope, revision, **named)
        self._texts.caught_up(scope)
        return delta

    async def apply(self, changes: Sequence[Change]) -> None:
        await self._inner.apply(changes)
        self.changes += changes


class Guarded:
    """A store behind a switch. Implements `ports.Store` by asking the inner store, whatever that offers.

    After a call that found it away, calls fail at once until `found` says that it is there again. A store that
    cannot be written may still be read.
    """

    def __init__(
        self,
        inner: Store | None,
        *,
        reopen: Callable[[], Awaitable[Store]],
        still: Callable[[], None] = lambda: None,
        why: StoreUnavailable | None = None,
    ) -> None:
        self.inner, self._reopen, self._still = inner, reopen, still
        self.away: dict[Way, str] = (
            {} if why is None else {"reading": str(why), "writing": str(why)}
        )
        self.texts = Texts()
        self.on_loss: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        offered = getattr(self._there("reading"), name)
        if not inspect.iscoroutinefunction(offered):
            return offered

        async def ask(*given: Any, **named: Any) -> Any:
            with self._noticing("reading"):
                return await offered(*given, **named)

        return ask

    async def backup(self, path: Path) -> None:
        await self._there("reading").backup(
            path
        )  # where it goes may be away, which says nothing about the store

    async def at_rows(self, scope: Scope, rows: Sequence[int]) -> dict[int, Memory]:
        with self._noticing("reading"):
            found = await self._there("reading").at_rows(scope, rows)
        self.texts.learn(found.values())
        return found

    async def changed_since(self, scope: Scope, revision: int, **named: Any) -> Delta:
        with self._noticing("reading"):
            delta = await self._there("reading").changed_since(scope, revision, **named)
        self.texts.caught_up(scope)
        return delta

    @asynccontextmanager
    async def transaction(self, scope: Scope) -> AsyncIterator[_Followed]:
        with self._noticing("writing"):
            self._still()
            async with self._there("writing").transaction(scope) as tx:
                followed = _Followed(tx, self.texts)
                yield followed
        self.texts.follow(scope, followed.changes)

    async def reached(self) -> Store:
        """The store itself, opened if it never was. Raises StoreUnavailable."""
        if self.inner is None:
            self.inner = await self._reopen()
        self._still()
        return self.inner

    def found(self, way: Way) -> None:
        """It is there again."""
        self.away.pop(way, None)

    async def close(self) -> None:
        if self.inner is not None:
            await self.inner.close()

    def _there(self, way: Way) -> Store:
        if self.inner is None:
            raise StoreUnavailable(self.away.get(way))
        return self.inner

    @contextmanager
    def _noticing(self, way: Way) -> Iterator[None]:
        if way in self.away:
            raise StoreUnavailable(self.away[way])
        try:
            yield
        except StoreFull:  # somebody has to make room: waiting does not help
            raise
        except StoreUnavailable as error:
            self.away["writing"] = str(error)
            if way == "reading":
                self.away["reading"] = str(error)
            self.on_loss()
            raise
