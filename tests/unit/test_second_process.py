"""Work that a second process shares."""

from __future__ import annotations

import operator
import os
import signal

import pytest

from memorist.context import compute_each
from memorist.text.second_process import LONG, share_work
from memorist.text.tokens import count_tokens

TEXTS = ["I like tea.", "", "我喜欢茶", "Where is the key?", "x" * 100]
TOKENS = [4, 0, 5, 5, 28]


def end_process(item: int, pid: int) -> int:
    """Kill every process but the given one."""
    if os.getpid() != pid:
        os.kill(os.getpid(), signal.SIGTERM)
    return item


def note_process(text: str) -> tuple[str, int]:
    """Return a text and the process that read it."""
    return text, os.getpid()


async def test_two_processes_compute_the_same_as_one() -> None:
    assert await compute_each(LONG + 1, count_tokens, TEXTS) == TOKENS
    with share_work():
        assert await compute_each(LONG + 1, count_tokens, TEXTS) == TOKENS
        assert await compute_each(1, count_tokens, TEXTS) == TOKENS


async def test_a_second_process_does_half_of_the_work() -> None:
    with share_work():
        found = await compute_each(LONG + 1, operator.call, [os.getpid] * 4)
    assert found[:2] == [os.getpid()] * 2
    assert len(set(found)) == 2


async def test_both_processes_get_as_many_questions_as_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(os.path.dirname(__file__))
    with share_work():
        texts = ["Where is the key?", "x" * 1000] * 4
        found = await compute_each(LONG + 1, note_process, texts)
    for text in set(texts):
        assert len({process for said, process in found if said == text}) == 2


async def test_an_error_is_raised_where_the_caller_sees_it() -> None:
    with share_work(), pytest.raises(ValueError, match="invalid literal"):
        await compute_each(LONG + 1, int, ["1", "two"])


async def test_if_the_second_process_ends_the_work_is_done_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(os.path.dirname(__file__))
    with share_work():
        for _ in range(2):
            done = await compute_each(LONG + 1, end_process, [1, 2, 3], os.getpid())
            assert done == [1, 2, 3]
