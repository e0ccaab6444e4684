"""Run long computations in a second process while much is imported, because Python's threads share
one processor."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")
LONG = 4_000  # characters; what takes longer than some 50 ms is worth the way into a thread
_BEGIN = "import sys; sys.path[:] = {!r}; from memorist.text.second_process import serve; serve()"


async def compute_shared(
    work: Callable[Concatenate[Item, P], T],
    items: Sequence[Item],
    *args: P.args,
    **named: P.kwargs,
) -> list[T]:
    """Call a pure function for each item, in the second process while `share_work` is open, else
    in a thread. What fails there is done here.
    """

    def compute_all() -> list[T]:
        done = None
        if second is not None:
            done = second.compute(work, items, args, named)
        if done is None:
            done = [work(item, *args, **named) for item in items]
        return done

    second = _second
    return await asyncio.to_thread(compute_all)


class _SecondProcess:
    """A Python process that calls functions of this package until its input is closed.

    `multiprocessing` is not used, because it would import the main module of the caller again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BEGIN.format(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def compute(self, work: Any, items: Any, args: Any, named: Any) -> list[Any] | None:
        """Return the results; None if it is busy, has ended, or the function raised an error."""
        sent: Any = self._process.stdin
        received: Any = self._process.stdout
        if not self._lock.acquire(blocking=False):
            return None
        try:
            sent.write(pickle.dumps((work, items, args, named), pickle.HIGHEST_PROTOCOL))
            sent.flush()
            done: list[Any] | None = pickle.load(received)
        except Exception:  # whatever failed, the caller can do it
            self.end()
            return None
        finally:
            self._lock.release()
        return done

    def end(self) -> None:
        """Stop the process: it holds nothing that has to be finished."""
        self._process.kill()
        with suppress(OSError), self._process:  # closes both pipes, and waits
            pass


_second: _SecondProcess | None = None


@contextmanager
def share_work() -> Iterator[None]:
    """Let a second process do what `compute_shared` is given while the body runs, if there is one."""
    global _second
    is_bundled = getattr(sys, "frozen", False)  # its executable is not Python
    if _second is not None or is_bundled or not sys.executable or (os.cpu_count() or 1) < 2:
        yield
        return
    try:
        started = _second = _SecondProcess()
    except OSError:
        yield
        return
    try:
        yield
    finally:
        _second = None
        started.end()


def serve() -> None:
    """Call the functions that are sent, and return their results: the second process runs this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process decides when it ends
    while True:
        try:
            work, items, args, named = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            done = [work(item, *args, **named) for item in items]
        except Exception:  # it is raised again where the caller can see it
            done = None
        pickle.dump(done, sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
        sys.stdout.buffer.flush()
