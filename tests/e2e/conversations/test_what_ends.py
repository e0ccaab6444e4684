"""Which facts of a turn end when a newer one replaces it: those that are about what changed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memorist import aio
from memorist.client import Client
from memorist.scoped import ScopedClient

MOVED = "I moved to Porto last week."
IN_LISBON = "The user is a nurse in Lisbon."
NUTS = "The user is allergic to nuts."


@pytest.fixture
async def engine(place: str, tmp_path: Path) -> AsyncIterator[Client]:
    """Yield a memory with all default settings."""
    async with aio.open(place, state_dir=tmp_path) as opened:
        yield opened


@pytest.fixture
def ana(engine: Client) -> ScopedClient:
    return engine.scope("ana", session="chat")


async def tell(engine: Client, *texts: str) -> None:
    """Store each text in a session of its own, and extract its facts."""
    for text in texts:
        session = engine.scope("ana", session=text)
        await session.remember([{"role": "user", "content": text}])
        await engine.run_jobs(only=["extract"])


async def valid(ana: ScopedClient) -> set[str]:
    """Return the facts that still hold."""
    return {each.text for each in await ana.list() if each.evidence_ids and each.valid_to is None}


async def greet(ana: ScopedClient) -> list[str]:
    """Return what an agent reads before it answers a greeting."""
    lines = (await ana.context("hello", min_confidence=0.99)).lines
    return [line.text.partition(": ")[2] for line in lines]


@pytest.mark.parametrize(
    ("said", "new", "gone", "stays"),
    [
        (f"I'm a nurse in Lisbon and {more}.", MOVED, IN_LISBON, fact)
        for more, fact in (
            ("I'm allergic to nuts", NUTS),
            ("I have two kids", "The user has two kids."),
            ("I play the cello", "The user plays the cello."),
            ("my boss is Rita", "The user's boss is Rita."),
        )
    ]
    + [
        (
            "I'm a nurse in Lisbon and I have two kids.",
            "I moved to Porto with my two kids last week.",
            IN_LISBON,
            "The user has two kids.",
        ),
        (
            "I work at Acme as a nurse, my boss is Rita and I'm allergic to nuts.",
            "I work at Globex now.",
            "The user works at Acme as a nurse.",
            NUTS,
        ),
        (
            "I live in Leeds and my sister Eva is a vet.",
            "We live in York now.",
            "The user lives in Leeds.",
            "The user's sister Eva is a vet.",
        ),
        (
            "Ich wohne in Kiel und ich bin allergisch gegen Nüsse.",
            "Ich wohne jetzt in Bremen.",
            "Der Nutzer wohnt in Kiel.",
            "Der Nutzer ist allergisch gegen Nüsse.",
        ),
        (
            "Vivo en Quito y soy alérgica a las nueces.",
            "Me mudé a Cali.",
            "La usuaria vive en Quito.",
            "La usuaria es alérgica a las nueces.",
        ),
    ],
)
async def test_a_confirmed_change_ends_only_what_changed(
    engine: Client, ana: ScopedClient, said: str, new: str, gone: str, stays: str
) -> None:
    await tell(engine, said, new)
    assert [(pair.old.text, pair.new.text) for pair in await ana.conflicts()] == [(said, new)]
    assert await ana.command("yes, the new one")
    held = await valid(ana)
    assert (gone in held, stays in held) == (False, True)
    shown = await ana.command("what do you know about me?")
    assert shown is not None
    assert stays in shown.say
    assert gone not in shown.say


async def test_what_else_was_said_stays_in_the_context(engine: Client, ana: ScopedClient) -> None:
    await tell(engine, "I'm a nurse in Lisbon and I'm allergic to nuts.", MOVED)
    assert await greet(ana) == [MOVED, IN_LISBON, NUTS], "the current value comes first"
    await ana.command("yes, the new one")
    assert await greet(ana) == [MOVED, NUTS]


async def test_a_rejected_change_leaves_everything_as_it_was(
    engine: Client, ana: ScopedClient
) -> None:
    await tell(engine, "I'm a nurse in Lisbon and I'm allergic to nuts.", MOVED)
    await ana.command("no, keep the old one")
    assert await valid(ana) == {IN_LISBON, NUTS}
    assert await greet(ana) == [IN_LISBON, NUTS]


async def test_a_newer_turn_that_says_more_is_shown_beside_its_own_facts(
    engine: Client, ana: ScopedClient
) -> None:
    both = "I moved to Porto last week and I'm vegan now."
    await tell(engine, "I'm a nurse in Lisbon and I have two kids.", both)
    assert await greet(ana) == ["The user is vegan.", both, IN_LISBON]
    await ana.command("yes, the new one")
    assert await greet(ana) == ["The user is vegan.", both]


async def test_a_fact_that_also_says_something_else_stays(
    engine: Client, ana: ScopedClient
) -> None:
    compound = "The user is a nurse in Lisbon, allergic to nuts, and mother of two."
    await tell(engine, "I'm a nurse in Lisbon, allergic to nuts, and mother of two.", MOVED)
    await ana.command("yes, the new one")
    assert await greet(ana) == [MOVED, compound]


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ("My boss is Rita and I'm allergic to nuts.", {"The user's boss is Rita.", NUTS}),
        (
            "I live in Bonn with my wife Ute and I am vegan.",
            {"The user lives in Bonn with the user's wife Ute.", "The user is vegan."},
        ),
        ("My wife and I have two kids.", {"The user's wife and the user have two kids."}),
    ],
)
async def test_clauses_with_a_person_before_them_are_facts_of_their_own(
    engine: Client, ana: ScopedClient, said: str, facts: set[str]
) -> None:
    await tell(engine, said)
    assert await valid(ana) == facts
