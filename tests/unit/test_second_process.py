"""Work that a second process shares."""

from __future__ import annotations

import asyncio
import operator
import os
import signal
import time
from functools import partial

import pytest

from memorist.context import compute_each
from memorist.text.second_process import LONG, share_work
from memorist.text.tokens import count_tokens

TEXTS = ["I like tea.", "", "我喜欢茶", "Where is the key?", "x" * 100]
TOKENS = [4, 0, 5, 5, 28]


async def test_two_processes_compute_the_same_as_one() -> None:
    assert await compute_each(LONG + 1, count_tokens, TEXTS) == TOKENS
    with share_work():
        assert await compute_each(LONG + 1, count_tokens, TEXTS) == TOKENS
        assert await compute_each(1, count_tokens, TEXTS) == TOKENS


async def test_a_second_process_does_the_work() -> None:
    with share_work():
        found = await compute_each(LONG + 1, operator.call, [os.getpid] * 4)
    assert len(set(found)) == 1
    assert os.getpid() not in found


async def test_while_the_second_process_is_busy_the_work_is_done_here() -> None:
    naps = [partial(time.sleep, 0.5)]
    with share_work():
        asleep = asyncio.create_task(compute_each(LONG + 1, operator.call, naps))
        await asyncio.sleep(0.1)
        found = await compute_each(LONG + 1, operator.call, [os.getpid])
        await asleep
    assert found == [os.getpid()]


async def test_an_error_is_raised_where_the_caller_sees_it() -> None:
    with share_work(), pytest.raises(ValueError, match="invalid literal"):
        await compute_each(LONG + 1, int, ["1", "two"])


async def test_if_the_second_process_ends_the_work_is_done_here() -> None:
    end_process = partial(signal.raise_signal, signal.SIGUSR1)
    # A handler, because a signal that is ignored here would be ignored by the second process, too.
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with share_work():
            found = await compute_each(LONG + 1, operator.call, [os.getpid, end_process])
            assert found == [os.getpid(), None]
            found = await compute_each(LONG + 1, operator.call, [os.getpid] * 4)
            assert found == [os.getpid()] * 4
    finally:
        signal.signal(signal.SIGUSR1, before)
