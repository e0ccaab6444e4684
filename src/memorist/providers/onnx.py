"""Local models: onnxruntime, loaded late and without telemetry, a worker thread, and batches of
like length.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ..errors import ProviderFailed

Result = TypeVar("Result")
Item = TypeVar("Item")


def load() -> Any:
    """Import onnxruntime with its telemetry switched off; the name of the switch changed once."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("ORT_TELEMETRY_DISABLED", "1")
    import onnxruntime

    return onnxruntime


class WorkerThread:
    """A thread that runs steps one after the other, for any event loop."""

    def __init__(self, name: str, closed: ProviderFailed) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._closed = closed  # raised by `run` after the end

    async def run(self, step: Callable[..., Result], *arguments: object) -> Result:
        """Wait for a step."""
        try:
            future = self._pool.submit(step, *arguments)
        except RuntimeError as error:
            raise self._closed from error
        return await asyncio.wrap_future(future)

    def submit(self, step: Callable[..., object], *arguments: object) -> bool:
        """Run a step later; False if the thread is closed."""
        try:
            self._pool.submit(step, *arguments)
        except RuntimeError:
            return False
        return True

    async def close(self) -> None:
        """Wait for the work under way. Closing twice is fine."""
        await asyncio.to_thread(self._pool.shutdown)


def batches(
    items: Iterable[Item], ids: Callable[[Item], Sized], *, tokens: int
) -> Iterator[list[Item]]:
    """Group items of like length, so that there is little padding and at most `tokens` in a group.

    >>> list(batches(["a" * 9, "bb", "ccc"], lambda text: text, tokens=9))
    [['bb', 'ccc'], ['aaaaaaaaa']]
    """
    batch: list[Item] = []
    for item in sorted(items, key=lambda item: len(ids(item))):
        if batch and (len(batch) + 1) * len(ids(item)) > tokens:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch
