"""How models run: onnxruntime, loaded late because it is slow to import and mute because it would report home; a thread
of their own; and batches of like length."""

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
    """The module. Its telemetry has to be switched off before the import; the name of the switch changed once."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("ORT_TELEMETRY_DISABLED", "1")
    import onnxruntime

    return onnxruntime


class OneThread:
    """Steps done one after the other in a thread of their own, asked for from any event loop."""

    def __init__(self, name: str, closed: ProviderFailed) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._closed = closed  # raised when something is asked after the end

    async def run(self, step: Callable[..., Result], *arguments: object) -> Result:
        try:
            future = self._pool.submit(step, *arguments)
        except RuntimeError as error:
            raise self._closed from error
        return await asyncio.wrap_future(future)

    def later(self, step: Callable[..., object], *arguments: object) -> bool:
        """Do something when there is time; False if it is closed."""
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
    """Group items of like length, so that little is padding and no group has more than `tokens` with it.

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
