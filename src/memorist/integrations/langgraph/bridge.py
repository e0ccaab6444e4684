"""From whatever thread or event loop LangGraph calls to the event loop that a memory lives on."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Concatenate, ParamSpec, TypeVar

from ...errors import MemoristError
from ...scoped import ScopedClient
from ...sync import BlockingScope, few

P = ParamSpec("P")
T = TypeVar("T")


class Bridge:
    """Runs work on the loop of a scope. A scope of `memorist.aio` is taken to live on the loop that is running."""

    def __init__(self, scope: ScopedClient | BlockingScope) -> None:
        if isinstance(scope, BlockingScope):
            self.scope, self._loop = scope._inner, scope._loop.inner
        else:
            self.scope, self._loop = scope, asyncio.get_running_loop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something to be done. Raises MemoristError where that would wait for itself."""
        if _running() is self._loop:
            work.close()
            raise MemoristError(
                "This would block the event loop that has to do it: await the async method instead"
            )
        return self._sent(work).result()

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """The same, awaited, from any event loop."""
        return await (work if _running() is self._loop else asyncio.wrap_future(self._sent(work)))

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Go through what an async iterator gives."""
        while page := self.run(few(items, 1)):
            yield from page

    def _sent(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._loop.is_closed():
            work.close()
            raise MemoristError("This memory is closed: open it again")
        return asyncio.run_coroutine_threadsafe(work, self._loop)


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """The async method, waited for."""

    @functools.wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        done: T = self._bridge.run(method(self, *args, **kwargs))
        return done

    return call


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
