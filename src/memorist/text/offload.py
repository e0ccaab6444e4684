"""Keep the event loop free: computations about long texts run in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
LONG = 4_000  # characters; what takes longer than some 50 ms is worth the way into a thread


async def compute(
    texts: Iterable[str], work: Callable[P, T], *args: P.args, **named: P.kwargs
) -> T:
    """Call a function that works on these texts, in a thread if they are long."""
    if sum(map(len, texts)) <= LONG:
        return work(*args, **named)
    return await asyncio.to_thread(work, *args, **named)
