"""A process that stays, embeds whatever comes without a vector, and keeps time limits, beside any number of others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from ..errors import EmbedderUnavailable, StoreUnavailable
from ..ports import Embedder, Store
from .backfill import LEASE_SECONDS, backfill

LOOK_SECONDS = 30.0  # between two looks if nobody tells of anything new
TEND_SECONDS = 3600.0
_PATIENCE = (1.0, 30.0)  # seconds after a first and after many failures


async def work(
    store: Store,
    embedder: Embedder,
    *,
    stop: asyncio.Event,
    once: bool = False,
    batch_size: int = 32,
    lease_seconds: float = LEASE_SECONDS,
    progress: Callable[[int], None] = lambda done: None,
    tend: Callable[[], Awaitable[object]] | None = None,
) -> int:
    """Embed until told to stop, or until nothing is left, and `tend` once an hour; gives how many were embedded.

    A batch that is under way when it is told to stop is finished. While the store or the model is away it tries again,
    except `once`. Raises EmbedderUnavailable, StoreUnavailable then.
    """
    done, whole, pause = 0, True, _PATIENCE[0]
    tended = monotonic() - TEND_SECONDS
    await store.changes(0)  # from here on nothing new goes unnoticed
    while not stop.is_set():
        try:
            made = await backfill(
                store, embedder, batch_size=batch_size, waiting=not whole, lease_seconds=lease_seconds,
                stop=stop.is_set, progress=lambda more: progress(done + more),  # noqa: B023
            )  # fmt: skip
            done, whole, pause = done + made.embedded, False, _PATIENCE[0]
            if tend is not None and monotonic() - tended >= TEND_SECONDS:
                await tend()
                tended = monotonic()
            if once:
                break
            await _first(store.changes(LOOK_SECONDS), stop.wait())
        except (EmbedderUnavailable, StoreUnavailable):
            if once:
                raise
            await _first(asyncio.sleep(pause), stop.wait())
            pause = min(2 * pause, _PATIENCE[1])
    return done


async def _first(*works: object) -> None:
    """Wait for whichever is done first, and end the others."""
    tasks = [asyncio.ensure_future(work) for work in works]  # type: ignore[call-overload]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
