"""A model that fails is left alone, and tried again."""

from __future__ import annotations

import asyncio

import pytest

from memorist.errors import BadModelAnswer, ModelUnavailable
from memorist.llms import Breaker
from memorist.text.prompts import ModelAnswer, Prompt

ASK = Prompt(task="t", system="s", user="u", schema={}, max_tokens=9)


class Fickle:
    """A model that does what it is told next: an error, or a wait for somebody, or an answer."""

    name = "fickle"

    def __init__(self) -> None:
        self.calls = 0
        self.next: Exception | asyncio.Event | None = None

    async def answer(self, ask: Prompt) -> ModelAnswer:
        self.calls += 1
        if isinstance(self.next, asyncio.Event):
            await self.next.wait()
        elif self.next is not None:
            raise self.next
        return ModelAnswer(value={}, model=self.name, tokens_in=1, tokens_out=1)

    async def close(self) -> None: ...


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def model() -> Fickle:
    return Fickle()


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def fail(breaker: Breaker, times: int) -> None:
    for _ in range(times):
        with pytest.raises(ModelUnavailable):
            await breaker.answer(ASK)


async def test_after_three_failures_nobody_waits_for_it(model: Fickle, clock: Clock) -> None:
    breaker = Breaker(model, clock=clock)
    model.next = ModelUnavailable()
    await fail(breaker, 50)
    assert model.calls == 3
    with pytest.raises(ModelUnavailable, match="again in 30 s") as caught:
        breaker.check()
    assert caught.value.cost == (0, 0)


async def test_it_is_tried_once_after_a_pause_that_doubles_up_to_ten_minutes(
    model: Fickle, clock: Clock
) -> None:
    breaker = Breaker(model, clock=clock)
    model.next = ModelUnavailable()
    await fail(breaker, 3)
    for pause in (30, 60, 120, 240, 480, 600, 600):
        clock.now += pause - 0.1
        await fail(breaker, 5)
        before = model.calls
        clock.now += 0.2
        await fail(breaker, 5)
        assert model.calls == before + 1


async def test_one_good_answer_closes_it(model: Fickle, clock: Clock) -> None:
    breaker = Breaker(model, clock=clock)
    model.next = ModelUnavailable()
    await fail(breaker, 3)
    clock.now += 31
    model.next = None
    await breaker.answer(ASK)
    model.next = ModelUnavailable()
    await fail(breaker, 2)
    model.next = None
    await breaker.answer(ASK)
    assert model.calls == 7


async def test_only_one_tries_while_the_others_are_told_at_once(
    model: Fickle, clock: Clock
) -> None:
    breaker = Breaker(model, clock=clock)
    model.next = ModelUnavailable()
    await fail(breaker, 3)
    clock.now += 31
    model.next = done = asyncio.Event()
    trial = asyncio.create_task(breaker.answer(ASK))
    await asyncio.sleep(0)
    await fail(breaker, 5)
    done.set()
    await trial
    assert model.calls == 4


async def test_a_trial_that_is_cancelled_leaves_room_for_another(
    model: Fickle, clock: Clock
) -> None:
    breaker = Breaker(model, clock=clock)
    model.next = ModelUnavailable()
    await fail(breaker, 3)
    clock.now += 31
    model.next = asyncio.Event()
    trial = asyncio.create_task(breaker.answer(ASK))
    await asyncio.sleep(0)
    trial.cancel()
    await asyncio.gather(trial, return_exceptions=True)
    model.next = None
    assert (await breaker.answer(ASK)).value == {}


async def test_an_answer_that_cannot_be_used_is_no_reason_to_leave_it_alone(
    model: Fickle, clock: Clock
) -> None:
    breaker = Breaker(model, clock=clock)
    model.next = BadModelAnswer()
    for _ in range(10):
        with pytest.raises(BadModelAnswer):
            await breaker.answer(ASK)
    assert model.calls == 10
