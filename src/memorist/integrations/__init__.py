"""Integrations with agent frameworks, and what they share: how they run calls on the event loop of a
memory, and how they keep a conversation.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ..errors import InvalidInput, MemoristError
from ..manage import privacy
from ..manage.checkpoints import thread_name
from ..scoped import ScopedClient
from ..storage.documents import Transcript
from ..sync import BlockingScope, few

P = ParamSpec("P")
T = TypeVar("T")
AnyScope = ScopedClient | BlockingScope
Turn = tuple[str, str]  # a role and what was said


class Closed(MemoristError, RuntimeError):
    """This was closed: open it again."""


class NotJson(InvalidInput, TypeError):
    """An item of a conversation must be JSON."""


class Bridge:
    """Runs coroutines on the event loop of a scope. For a scope of `memorist.aio` that is the
    running loop.
    """

    def __init__(self, scope: AnyScope) -> None:
        self._closed = ""
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

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a change from any event loop. If the caller is cancelled meanwhile, the change is
        made, or fails, before the cancellation is raised: so the caller can see which.
        """
        task = asyncio.ensure_future(self.wait(work))
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is None:
            return task.result()
        if not task.cancelled():
            task.exception()  # otherwise logged as never retrieved
        raise cancelled

    def close(self, reason: str) -> None:
        """Refuse further calls for a reason. The memory stays open."""
        self._closed = reason

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
        if self._closed:
            work.close()
            raise Closed(self._closed)
        try:
            if asyncio.get_running_loop() is self._loop:
                return None
        except RuntimeError:
            pass  # no loop runs in this thread
        if self._loop.is_closed():
            work.close()
            raise Closed("This memory is closed: open it again")
        return asyncio.run_coroutine_threadsafe(work, self._loop)


class Adapter:
    """An object of a framework over a scope. `on_loop`, `change_on_loop` and `verb` run its async
    methods on the event loop of the scope.
    """

    _loop: Bridge

    @property
    def _inner(self) -> Self:
        return self


def on_loop(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return an async method of an adapter that can be awaited in any event loop."""

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        done: T = await self._loop.wait(method(self, *args, **kwargs))
        return done

    return call


def change_on_loop(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Like `on_loop`, for a method that changes something: see `Bridge.finish`."""

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        done: T = await self._loop.finish(method(self, *args, **kwargs))
        return done

    return call


class ChatSession:
    """The transcript of one conversation, and what is remembered of it."""

    def __init__(
        self, scope: ScopedClient, framework: str, session: str, *, remember: bool = True
    ) -> None:
        self.scope = with_session(scope, thread_name(session))
        self.transcript = Transcript(scope.ctx.store, scope.scope, f".{framework}.{session}")
        self._remembers = remember

    async def add(self, items: Sequence[Any], turns: Iterable[Turn]) -> None:
        """Append items to the transcript, and remember the turns. If the turns cannot be
        remembered, the items are removed, so a retry does not append them twice.

        Raises InvalidInput if an item is not JSON, Refused in an incognito session, and
        StoreUnavailable.
        """
        await privacy.refuse_incognito(self.scope)
        try:
            values = [json.dumps(item) for item in items]
        except (TypeError, ValueError, RecursionError) as error:
            raise NotJson(f"An item of a conversation must be JSON: {error}") from error
        appended = await self.transcript.append(values, self.scope.ctx.clock())
        if not self._remembers:
            return
        try:
            await remember_turns(self.scope, turns)
        except Exception:
            with suppress(MemoristError):  # the database may be unavailable
                await self.transcript.remove(appended)
            raise

    async def last(self, limit: int | None = None) -> list[Any]:
        """Return the last items, or all, oldest first. Damaged ones are left out."""
        values = await self.transcript.last(limit)
        items = _read_items(values)
        if limit is not None and len(items) < len(values):
            items = _read_items(await self.transcript.last())[-limit:]
        return items

    async def pop(self) -> Any:
        """Remove the last item, and damaged ones after it, and return it; None if there is none."""
        while (value := await self.transcript.pop()) is not None:
            if items := _read_items([value]):
                return items[0]
        return None


def _read_items(values: Iterable[str]) -> list[Any]:
    """Return the items of a transcript, without those that are not JSON."""
    items = []
    for value in values:
        with suppress(ValueError, TypeError, RecursionError):
            items.append(json.loads(value))
    return items


def with_session(scope: ScopedClient, session: str | None) -> ScopedClient:
    """Return a scope with another session."""
    labels = replace(scope.labels, session=session)
    return ScopedClient(scope.ctx, scope.scope, labels, scope.offline)


async def remember_turns(scope: ScopedClient, turns: Iterable[Turn]) -> None:
    """Remember what was said, except texts that are too long.

    Turns have no ids, because frameworks give the same id to messages of some models.
    """
    longest = scope.ctx.settings.max_text_chars
    said = []
    for role, text in turns:
        if text.strip() and len(text) <= longest:
            said.append({"role": role, "content": text})
    if said:
        await scope.remember(said)
