"""Integrations with agent frameworks, and how they run calls on the event loop of a memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from ..errors import InvalidInput, MemoristError
from ..scoped import ScopedClient
from ..sync import BlockingScope, few

T = TypeVar("T")


class Bridge:
    """Runs coroutines on the event loop of a scope. For a scope of `memorist.aio` that is the
    running loop.
    """

    def __init__(self, scope: ScopedClient | BlockingScope) -> None:
        if isinstance(scope, BlockingScope):
            self.scope = scope._inner
            self._loop = scope._loop.inner
        elif not isinstance(scope, ScopedClient):
            raise InvalidInput(
                f"An adapter takes a scope, memory.scope(user=…), not {type(scope).__name__}"
            )
        else:
            self.scope = scope
            self._loop = asyncio.get_running_loop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. Raises MemoristError if called on the loop."""
        future = self._submit(work)
        if future is None:
            work.close()
            raise MemoristError(
                "This call would block its own event loop: await the async method instead"
            )
        return future.result()

    async def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a coroutine from any event loop."""
        future = self._submit(work)
        return await (work if future is None else asyncio.wrap_future(future))

    def run_or_await(self, work: Coroutine[Any, Any, T]) -> T | Coroutine[Any, Any, T]:
        """Run a coroutine and return its result, or return it to be awaited on its own loop."""
        future = self._submit(work)
        return work if future is None else future.result()

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an async iterator."""
        while page := self.run(few(items, 1)):
            yield from page

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T] | None:
        """Start a coroutine on the event loop of the scope; None if that is the running one."""
        try:
            if asyncio.get_running_loop() is self._loop:
                return None
        except RuntimeError:
            pass  # no loop runs in this thread
        if self._loop.is_closed():
            work.close()
            raise MemoristError("This memory is closed: open it again")
        return asyncio.run_coroutine_threadsafe(work, self._loop)
