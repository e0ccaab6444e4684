"""Questions of a person about themselves, in a memory that also has the words of other people."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memorist import aio
from memorist.scoped import ScopedClient

OWN = "Sold the Golf yesterday for 1,900 and bought a Toyota Yaris hybrid."
OTHERS = "my car is a write-off, someone drove into my Fiat Panda"
ASKED = "What car do I drive?"


@pytest.fixture
async def nora(tmp_path: Path) -> AsyncIterator[ScopedClient]:
    async with aio.open(tmp_path / "m.db", state_dir=tmp_path) as client:
        yield client.scope("nora")


def say(text: str, name: str | None = None) -> dict[str, Any]:
    return {"role": "user", "content": text, "session": text[:9], "name": name}


async def fill(nora: ScopedClient, name: str | None) -> None:
    await nora.remember(
        [
            say(OTHERS, "Tamsin Reid"),
            say(OWN, name),
            say("I play viola in an amateur orchestra.", name),
            say("The boiler was serviced in May.", name),
        ]
    )


@pytest.mark.parametrize("name", [None, "Nora"], ids=["by the role", "by the name"])
async def test_what_another_person_says_of_themselves_counts_less(
    nora: ScopedClient, name: str | None
) -> None:
    await fill(nora, name)
    found = await nora.recall(ASKED, min_confidence=0)
    assert found.hits[0].memory.text == OWN
    (other,) = [hit for hit in found if hit.memory.text == OTHERS]
    assert other.parts["other"] == pytest.approx(-0.3)
    assert sum(other.parts.values()) == pytest.approx(other.score)


async def test_a_question_that_names_the_other_person_is_about_that_person(
    nora: ScopedClient,
) -> None:
    await fill(nora, None)
    found = await nora.recall("What car did my friend Tamsin drive?", min_confidence=0)
    assert found.hits[0].memory.text == OTHERS
    assert not any("other" in hit.parts for hit in found)


async def test_where_nobody_speaks_as_the_user_everybody_counts_the_same(
    nora: ScopedClient,
) -> None:
    await fill(nora, "Daniel")
    found = await nora.recall(ASKED, min_confidence=0)
    assert not any("other" in hit.parts for hit in found)


async def test_what_states_something_before_it_asks_is_an_answer(nora: ScopedClient) -> None:
    stated = "I'm allergic to penicillin, does that matter for the antibiotics?"
    said = [
        stated,
        "what should I cook? my flatmate is allergic to peanuts",
        "Daniel's allergic to cats",
    ]
    await nora.remember([say(text) for text in said])
    found = await nora.recall("What am I allergic to?")
    assert stated in [hit.memory.text for hit in found]
