"""Background work that runs a moment after it was requested, once for many requests."""

from __future__ import annotations

import asyncio

import pytest

from clocks import LoopTime
from memorist.errors import StoreUnavailable
from memorist.jobs import Debounced


class Counted:
    def __init__(self, *failures: Exception) -> None:
        self.runs, self._failures = 0, list(failures)

    async def __call__(self) -> None:
        self.runs += 1
        if self._failures:
            raise self._failures.pop()


async def until(work: Counted, runs: int) -> None:
    async with asyncio.timeout(5):
        while work.runs < runs:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.mark.spec("CLK-31")
async def test_many_occasions_in_a_moment_are_one_run() -> None:
    work = Counted()
    refresh = Debounced(work, delay=0.05, every=60)
    for _ in range(100):
        refresh.request()
        await asyncio.sleep(0)
    await until(work, 1)
    await asyncio.sleep(0.15)
    assert work.runs == 1
    refresh.request()
    await until(work, 2)
    await refresh.close()
    assert work.runs == 2


@pytest.mark.spec("CLK-31")
async def test_it_waits_one_second_for_further_occasions() -> None:
    work = Counted()
    with LoopTime() as loop:
        refresh = Debounced(work)
        refresh.request()
        await loop.forward(0.5)
        refresh.request()
        await loop.forward(0.4)
        assert work.runs == 0
        await loop.forward(0.2)
        assert work.runs == 1
        await loop.forward(10)
        assert work.runs == 1, "both occasions are served by one run"
        await refresh.close()


async def test_what_was_asked_for_is_done_before_it_closes() -> None:
    work = Counted()
    refresh = Debounced(work, delay=60, every=60)
    refresh.request()
    await refresh.close()
    assert work.runs == 1


@pytest.mark.spec("CLK-16")
async def test_it_runs_now_and_then_without_being_asked() -> None:
    work = Counted()
    refresh = Debounced(work, delay=0, every=0.01)
    await until(work, 3)
    await refresh.close()


@pytest.mark.spec("CLK-16")
async def test_without_being_asked_it_runs_every_five_minutes() -> None:
    work = Counted()
    with LoopTime() as loop:
        refresh = Debounced(work)
        await loop.forward(299)
        assert work.runs == 0
        await loop.forward(2)
        assert work.runs == 1
        await loop.forward(301)
        assert work.runs == 2
        await refresh.close()


async def test_a_failure_does_not_end_it() -> None:
    work = Counted(StoreUnavailable(), OSError())
    refresh = Debounced(work, delay=0, every=0.01)
    await until(work, 3)
    await refresh.close()
