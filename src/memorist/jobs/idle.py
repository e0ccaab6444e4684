"""Extract facts in the process that stored the turns, where no worker does it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ..context import Context
from ..errors import MemoristError
from ..ingest.pipeline import EXTRACT
from . import cancel
from .worker import Worker

IDLE_SECONDS = 3.0  # after the last write
CLOSING_SECONDS = 2.0  # how long closing waits; what is left then is done by the next process


class IdleExtraction:
    """Runs due extraction tasks when nothing was stored for a moment, and before closing."""

    def __init__(self, ctx: Context) -> None:
        self._worker = Worker(ctx, only=[EXTRACT])
        self._has_news = False  # something was stored since the last run began
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def pause(self) -> None:
        """Stop after the current task, because something is being stored."""
        self._has_news = True
        if self._timer is not None:
            self._timer.cancel()

    def start(self) -> None:
        """Begin when nothing is stored for a moment."""
        self.pause()
        self._timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._begin)

    async def close(self) -> None:
        """Do what is due, as far as there is time."""
        if self._timer is not None:
            self._timer.cancel()
        is_running = self._task is not None and not self._task.done()
        if is_running and self._task is not None:
            await cancel(self._task)  # its task is given back
        if is_running or self._has_news:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING_SECONDS):
                    await self._run()

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        """Run tasks until there are none, or something is stored again."""
        self._has_news = False
        with suppress(MemoristError, OSError):  # the next run tries again
            while not self._has_news and await self._worker.run_next():
                pass
