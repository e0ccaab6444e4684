"""Doing something a moment after it became necessary, once for many occasions, and now and then anyway."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ..errors import MemoristError

DELAY_SECONDS = 1.0
EVERY_SECONDS = 300.0


class Refresh:
    """Runs a piece of work in the background. Closed by whoever made it; what was asked for by then is still done."""

    def __init__(
        self,
        work: Callable[[], Awaitable[object]],
        *,
        delay: float = DELAY_SECONDS,
        every: float = EVERY_SECONDS,
    ) -> None:
        self._work, self._delay, self._every = work, delay, every
        self._wanted, self._closing = asyncio.Event(), asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def soon(self) -> None:
        """Do it in a moment; asking again until then changes nothing."""
        self._wanted.set()

    async def close(self) -> None:
        """Do what was asked for, and stop."""
        self._closing.set()
        await self._task

    async def _run(self) -> None:
        while True:
            await _within(self._every, self._wanted, self._closing)
            if self._wanted.is_set():
                await _within(self._delay, self._closing)
            elif self._closing.is_set():
                return
            self._wanted.clear()
            with suppress(MemoristError, OSError):  # the next time comes by itself
                await self._work()


async def _within(seconds: float, *events: asyncio.Event) -> None:
    """Wait until one of the events comes, or for so long."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
