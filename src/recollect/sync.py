"""The same verbs, blocking: each call runs on one event loop in a thread of its own.

A verb here is made from the async one, so that names, signatures and docstrings cannot drift apart.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from .compose import open_engine
from .engine import Engine
from .errors import RecollectError
from .scoped import Scoped

P = ParamSpec("P")
T = TypeVar("T")


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="recollect", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something to be done on the loop."""
        if not self.is_running:
            work.close()
            raise RecollectError("This memory is closed: open it again")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Go through what an async iterator gives."""
        while page := self.run(_few(items)):
            yield from page

    def close(self) -> None:
        if self.is_running:
            asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _cancel_others() -> None:
    """End what an interrupted call left under way."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _few(items: AsyncIterator[T], most: int = 100) -> list[T]:
    page: list[T] = []
    async for item in items:
        page.append(item)
        if len(page) == most:
            break
    return page


def verb(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The async verb, waited for."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        done: T = self._loop.run(method(self._inner, *args, **kwargs))
        return done

    return call


def stream(method: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """The async iterator, gone through step by step."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        given: Iterator[T] = self._loop.iterate(method(self._inner, *args, **kwargs))
        return given

    return call


class BlockingScope:
    """The verbs for one scope, blocking."""

    def __init__(self, inner: Scoped, loop: Loop) -> None:
        self._inner, self._loop = inner, loop
        self.scope, self.labels = inner.scope, inner.labels

    remember = verb(Scoped.remember)
    remember_drafts = verb(Scoped.remember_drafts)
    recall = verb(Scoped.recall)
    why_not = verb(Scoped.why_not)
    get = verb(Scoped.get)
    list = verb(Scoped.list)
    edit = verb(Scoped.edit)
    why = verb(Scoped.why)
    history = verb(Scoped.history)
    pin = verb(Scoped.pin)
    unpin = verb(Scoped.unpin)
    forget = verb(Scoped.forget)
    restore = verb(Scoped.restore)
    stats = verb(Scoped.stats)
    export = stream(Scoped.export)
    import_ = verb(Scoped.import_)


class Blocking:
    """A memory that is open, blocking. Use it in a `with` block, or close it."""

    def __init__(self, inner: Engine, loop: Loop) -> None:
        self._inner, self._loop = inner, loop
        self.settings = inner.settings

    @classmethod
    def open(
        cls, db: str | Path | None = None, *, count_tokens: Callable[[str], int] | None = None, **settings: Any
    ) -> Blocking:
        """Open a memory; see `recollect.open`."""
        loop = Loop()
        try:
            return cls(loop.run(open_engine(db, count_tokens=count_tokens, **settings)), loop)
        except BaseException:
            loop.close()
            raise

    def scope(
        self, user: str, space: str | None = None, tenant: str | None = None, **labels: str | None
    ) -> BlockingScope:
        """The memory of one user in one space; see `Engine.scope`."""
        return BlockingScope(self._inner.scope(user, space, tenant, **labels), self._loop)

    scopes = verb(Engine.scopes)
    stats = verb(Engine.stats)
    index = verb(Engine.index)
    export = stream(Engine.export)
    import_ = verb(Engine.import_)
    backup = verb(Engine.backup)
    vacuum = verb(Engine.vacuum)
    check = verb(Engine.check)

    def close(self) -> None:
        """Finish what is under way and let go of everything. Closing twice is fine."""
        if self._loop.is_running:
            self._loop.run(self._inner.close())
            self._loop.close()

    def __enter__(self) -> Blocking:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
