"""Clocks that are moved by hand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType


@dataclass
class Clock:
    now: datetime

    def __call__(self) -> datetime:
        return self.now


class LoopTime:
    """The time of the running event loop, stopped: a timer fires when the test moves the time forward."""

    def __enter__(self) -> LoopTime:
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time()
        self._loop.time = lambda: self._now  # type: ignore[method-assign]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del self._loop.time

    async def forward(self, seconds: float) -> None:
        """Let what is ready begin to wait, move the time, and let what is due then run."""
        await _turns()
        self._now += seconds
        await _turns()


async def _turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
