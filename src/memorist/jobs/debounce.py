"""Background work that runs shortly after it was requested, once for many requests, and at regular
intervals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ..errors import MemoristError

DELAY_SECONDS = 1.0
EVERY_SECONDS = 300.0


class Debounced:
    """Runs a function in the background. Requests made before `close` are still served."""

    def __init__(
        self,
        work: Callable[[], Awaitable[object]],
        *,
        delay: float = DELAY_SECONDS,
        every: float = EVERY_SECONDS,
    ) -> None:
        self._work, self._delay, self._every = work, delay, every
        self._requested, self._closing = asyncio.Event(), asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def request(self) -> None:
        """Run the function soon; further requests until then change nothing."""
        self._requested.set()

    async def close(self) -> None:
        """Serve the pending request, and stop."""
        self._closing.set()
        await self._task

    async def _run(self) -> None:
        while True:
            await wait_for_any(self._requested, self._closing, seconds=self._every)
            if self._requested.is_set():
                await wait_for_any(self._closing, seconds=self._delay)
            elif self._closing.is_set():
                return
            self._requested.clear()
            with suppress(MemoristError, OSError):  # the next run tries again
                await self._work()


async def wait_for_any(*events: asyncio.Event, seconds: float) -> None:
    """Wait until one of the events is set, or for so many seconds."""
    waiting = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
