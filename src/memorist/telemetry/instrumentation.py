"""Watching the verbs from outside: what is done, how it ends and of how many memories, and never a word of them.

Who watches is a list of the engine; while it is empty, a verb costs nothing more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Tell = Callable[[int], None]  # of how many memories it was
Observer = Callable[[str], AbstractContextManager[Tell]]  # told what is done, entered while it is
Verb = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
DUTY = "tend "  # before the name of a duty


@contextmanager
def watching(observers: Sequence[Observer], what: str) -> Iterator[Tell]:
    """Let everybody watch a block."""
    with ExitStack() as stack:
        told = [stack.enter_context(watch(what)) for watch in observers]

        def tell(count: int) -> None:
            for each in told:
                each(count)

        yield tell


def watched(what: str, count: Callable[[Any], int]) -> Callable[[Verb[P, T]], Verb[P, T]]:
    """A verb of a scope that can be watched; `count` says of how many memories an answer is."""

    def wrap(method: Verb[P, T]) -> Verb[P, T]:
        @functools.wraps(method)
        async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            observers = self.ctx.observers
            if not observers:
                return await method(self, *args, **kwargs)
            with watching(observers, what) as tell:
                done = await method(self, *args, **kwargs)
                tell(count(done))
                return done

        return call

    return wrap
