"""Keep the event loop free: long computations run in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
LONG = 4_000  # characters; what takes longer than some 50 ms is worth the way into a thread
ROW = 16  # characters that take as long as a row of a table


async def compute(size: int, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Call a function that works on so many characters, in a thread if that takes long."""
    if size <= LONG:
        return work(*args, **named)
    return await asyncio.to_thread(work, *args, **named)


def length(texts: Iterable[str]) -> int:
    """Return the characters of all texts.

    >>> length(["tea", "milk"])
    7
    """
    return sum(map(len, texts))
