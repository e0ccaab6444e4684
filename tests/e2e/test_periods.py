"""Questions that name a period and no topic: "What happened in April 2026?"."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memorist import aio
from memorist.scoped import ScopedClient

DENTIST = "My dentist appointment is on 14 June 2026."
BICYCLE = "I bought a blue bicycle for 300 euros in Ghent."
SISTER = "My sister Petra moved to Lisbon."
DATABASE = "I decided to use PostgreSQL for the shop."
KETTLE = "The kettle in our kitchen is broken."
ADVICE = "A bicycle keeps you healthy, and its chain needs oil every other week. " * 6
HISTORY = {
    "2026-01-10": [("user", DENTIST)],
    "2026-03-05": [("user", BICYCLE), ("assistant", ADVICE), ("user", "ok thanks")],
    "2026-04-07": [("user", SISTER), ("assistant", "How nice for her!"), ("user", DATABASE)],
}
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)


@pytest.fixture
async def ana(tmp_path: Path) -> AsyncIterator[ScopedClient]:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path) as client:
        client.ctx.clock = lambda: NOW
        for day, said in HISTORY.items():
            turns = [{"role": role, "content": text, "at": day} for role, text in said]
            await client.scope("ana", session=day).remember(turns)
        last_week = (NOW - timedelta(days=7)).isoformat()
        await client.scope("ana").remember(KETTLE, at=last_week)
        yield client.scope("ana")


async def texts(ana: ScopedClient, question: str) -> list[str]:
    found = await ana.recall(question)
    assert found.confidence is not None
    assert found.confidence > 0.8 if found.hits else found.confidence < 0.2
    return [hit.memory.text for hit in found]


async def test_what_was_said_in_a_month_is_found(ana: ScopedClient) -> None:
    found = await texts(ana, "What happened in April 2026?")
    assert found[:2] == [DATABASE, SISTER]
    assert BICYCLE not in found


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("What did we decide in April 2026?", [DATABASE]),
        ("Which decisions did I make in April 2026?", [DATABASE]),
        ("What did we agree on in March 2026?", []),
    ],
)
async def test_what_was_decided_in_a_month_is_found(
    ana: ScopedClient, question: str, found: list[str]
) -> None:
    assert await texts(ana, question) == found


async def test_a_decision_about_a_topic_is_searched_for_by_its_words(ana: ScopedClient) -> None:
    found = await ana.recall("Which bicycle did I choose in March 2026?")
    assert found.memories[0].text == BICYCLE


async def test_a_relative_period_is_understood(ana: ScopedClient) -> None:
    assert await texts(ana, "What did I talk about last week?") == [KETTLE]


async def test_what_names_a_date_in_the_period_is_found_whenever_it_was_said(
    ana: ScopedClient,
) -> None:
    assert await texts(ana, "What happened in June 2026?") == [DENTIST]


async def test_what_i_said_is_neither_the_answer_of_the_assistant_nor_a_thank_you(
    ana: ScopedClient,
) -> None:
    assert await texts(ana, "What did I say in March 2026?") == [BICYCLE]
    assert await texts(ana, "What did you tell me in April 2026?") == ["How nice for her!"]


@pytest.mark.parametrize("question", ["What happened in May 2026?", "What was going on yesterday?"])
async def test_nothing_is_found_where_the_period_has_nothing(
    ana: ScopedClient, question: str
) -> None:
    assert await texts(ana, question) == []


async def test_the_parts_add_up_and_say_why(ana: ScopedClient) -> None:
    found = await ana.recall("What happened in April 2026?")
    best = found.hits[0]
    assert sum(best.parts.values()) == pytest.approx(best.score)
    assert best.parts["time"] == 0.5
    (bicycle,) = (await ana.recall("What did I say in March 2026?")).memories
    reason = await ana.why_not("What happened in April 2026?", bicycle.id)
    assert reason.reason == (
        "it was not said in the time that the question names, and names no date in it"
    )


async def test_a_question_with_a_topic_is_answered_by_its_words(ana: ScopedClient) -> None:
    found = await ana.recall("What did I buy in March 2026?")
    assert found.hits[0].memory.text == BICYCLE
    assert found.hits[0].parts["semantic"] > 0


async def test_a_period_alone_selects_nothing_to_forget(ana: ScopedClient) -> None:
    assert (await ana.forget_where("what happened in April 2026")).ids == ()
