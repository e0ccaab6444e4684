"""The same verbs, blocking: each call runs on one event loop in a thread of its own.

The methods are made from the async ones, so that names, signatures and docstrings cannot drift apart.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from .compose import open_engine
from .engine import Engine, Scoped
from .errors import RecollectError

T = TypeVar("T")


class Loop:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="recollect", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something to be done on the loop."""
        if not self._thread.is_alive():
            work.close()
            raise RecollectError("This memory is closed: open it again")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Go through what an async iterator gives."""
        end = object()
        while (item := self.run(_next(items, end))) is not end:
            yield item  # type: ignore[misc]

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


async def _next(items: AsyncIterator[Any], end: object) -> Any:
    return await anext(items, end)


def _blocking(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that waits for the async method of the same name."""
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return self._loop.run(method(self._inner, *args, **kwargs))
    else:

        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return self._loop.iterate(method(self._inner, *args, **kwargs))

    return call


def _verbs(source: type, *, own: tuple[str, ...] = ()) -> Callable[[type[T]], type[T]]:
    """Give a class the public verbs of an async one, all but those it has of its own."""

    def add(target: type[T]) -> type[T]:
        for name, method in vars(source).items():
            if inspect.isfunction(method) and not name.startswith("_") and name not in own:
                setattr(target, name, _blocking(method))
        return target

    return add


@_verbs(Scoped)
class BlockingScope:
    """The verbs for one scope, blocking."""

    def __init__(self, inner: Scoped, loop: Loop) -> None:
        self._inner, self._loop = inner, loop
        self.scope, self.labels = inner.scope, inner.labels

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"A scope has no verb {name!r}")


@_verbs(Engine, own=("scope", "close"))
class Blocking:
    """A memory that is open, blocking. Use it in a `with` block, or close it."""

    def __init__(self, inner: Engine, loop: Loop) -> None:
        self._inner, self._loop = inner, loop
        self.settings = inner.settings

    @classmethod
    def open(cls, db: str | Path | None = None, **settings: Any) -> Blocking:
        """Open a memory; see `recollect.open`."""
        loop = Loop()
        try:
            return cls(loop.run(open_engine(db, **settings)), loop)
        except BaseException:
            loop.close()
            raise

    def scope(self, user: str, space: str | None = None, tenant: str | None = None, **labels: str | None) -> BlockingScope:
        """The memory of one user in one space; see `Engine.scope`."""
        return BlockingScope(self._inner.scope(user, space, tenant, **labels), self._loop)

    def close(self) -> None:
        """Finish what is under way and let go of everything. Closing twice is fine."""
        if self._loop._thread.is_alive():
            self._loop.run(self._inner.close())
            self._loop.close()

    def __enter__(self) -> Blocking:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"A memory has no verb {name!r}: verbs such as remember and recall need a scope(user=…)")
