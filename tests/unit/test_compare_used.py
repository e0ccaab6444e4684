"""An echo of a memory in a reply: counted where it is one, and not where a reply only repeats the question."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memorist.text.compare import find_used
from memorist.types import Memory, Scope

AT = datetime(2026, 5, 1, tzinfo=UTC)

SAID = [
    (
        "Let's avoid peanuts: here is a sesame recipe.",
        "I'm allergic to peanuts.",
        "What can I cook tonight?",
    ),
    (
        "Your flight leaves at 9:40 from Lisbon.",
        "The flight to Lisbon was moved to 9:40 on 4 May.",
        "When do I fly?",
    ),
    (
        "You decided on PostgreSQL for billing.",
        "We decided on PostgreSQL for the billing service.",
        "What did we choose?",
    ),
    (
        "Mara's birthday is on 12 June.",
        "Mara was born on 12 June 1990.",
        "When is my sister's birthday?",
    ),
    (
        "You run on Tuesday and Thursday.",
        "I go running on Tuesday and Thursday mornings.",
        "Which day for yoga?",
    ),
    ("Your sister Mara lives in Porto.", "My sister lives in Porto.", "Where does my sister live?"),
    (
        "Deploy with `make ship`.",
        "Deployments are done with make ship from the release branch.",
        "How do I deploy?",
    ),
    ("It is 4711.", "Invoice 4711 is open.", "What was the number of the invoice?"),
    ("她喜欢绿茶。", "安娜喜欢绿茶", "她喝什么？"),
]
NOT_SAID = [
    (
        "I don't know what your dog is called.",
        "Ana's dog Biscuit sleeps on the sofa.",
        "What is my dog called?",
    ),
    ("How about pasta with tomatoes?", "I'm allergic to peanuts.", "What can I cook tonight?"),
    ("Hello Ana, how can I help?", "Ana's dog Biscuit sleeps on the sofa.", "Hi"),
    (
        "I have no information about that.",
        "The flight to Lisbon was moved to 9:40 on 4 May.",
        "When do I fly?",
    ),
    (
        "The capital of Portugal is Lisbon.",
        "We met the plumber in Lisbon in March.",
        "What is the capital of Portugal?",
    ),
    (
        "Sure, I can help you to write a letter.",
        "I write with a fountain pen at dawn.",
        "Can you help me to write?",
    ),
    ("I like that idea, let us do it.", "I like tea more than coffee.", "Shall we?"),
    ("", "I like tea more than coffee.", "Shall we?"),
    ("The same question again.", "the same question", "The same question?"),
]


def found(reply: str, text: str, asked: str = "") -> dict[str, str]:
    made = Memory(
        id="m1", scope=Scope(user="ana"), text=text, kind="semantic", created_at=AT, updated_at=AT
    )
    return find_used(reply, [made], asked=asked)


@pytest.mark.spec("THE-98")
@pytest.mark.parametrize(("reply", "text", "asked"), SAID)
def test_a_reply_that_says_what_only_the_memory_knew_is_an_echo(
    reply: str, text: str, asked: str
) -> None:
    assert found(reply, text, asked) == {"m1": "echoed"}


@pytest.mark.spec("THE-98")
@pytest.mark.parametrize(
    ("trees", "is_echo"),
    [("alder birch cedar hazel maple", True), ("oak alder birch cedar hazel maple", False)],
)
def test_two_words_of_five_are_an_echo_and_two_of_six_are_none(trees: str, is_echo: bool) -> None:
    assert bool(found("I see an alder and a birch.", trees)) is is_echo


@pytest.mark.spec("THE-98")
@pytest.mark.parametrize(("reply", "text", "asked"), NOT_SAID)
def test_a_reply_that_knows_nothing_of_the_memory_is_none(
    reply: str, text: str, asked: str
) -> None:
    assert found(reply, text, asked) == {}


def test_what_is_said_in_other_words_is_not_seen() -> None:
    assert (
        found(
            "Try the lasagne without meat.",
            "I have been a vegetarian since 2015.",
            "What shall I eat?",
        )
        == {}
    )
