"""Observing verbs and jobs from outside: what runs, how it ends and how many memories it concerns,
never their text.

Observers are a list of the client; while it is empty, a verb costs nothing more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

ReportCount = Callable[[int], None]  # of the memories concerned
Observer = Callable[[str], AbstractContextManager[ReportCount]]  # takes the name of what runs
Verb = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]
JOB = "job "  # before the name of a job


@contextmanager
def observe(observers: Sequence[Observer], what: str) -> Iterator[ReportCount]:
    """Run a block under all observers."""
    with ExitStack() as stack:
        reports = [stack.enter_context(observer(what)) for observer in observers]

        def report_count(count: int) -> None:
            for report in reports:
                report(count)

        yield report_count


def observed(what: str, count: Callable[[Any], int]) -> Callable[[Verb[P, T]], Verb[P, T]]:
    """Decorate a verb of a scope so that it is observed; `count` returns how many memories a result
    concerns.
    """

    def wrap(method: Verb[P, T]) -> Verb[P, T]:
        @functools.wraps(method)
        async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            observers = self.ctx.observers
            if not observers:
                return await method(self, *args, **kwargs)
            with observe(observers, what) as report_count:
                result = await method(self, *args, **kwargs)
                report_count(count(result))
                return result

        return call

    return wrap
