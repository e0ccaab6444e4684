"""What is a command to the memory, and what only sounds like one."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from memorist.text.commands import INTENTS, parse

DATA = Path(__file__).parents[1] / "data" / "commands.jsonl"
LINES = [json.loads(line) for line in DATA.read_text("utf-8").splitlines()]
TALK = [
    "forget it",
    "Forget about it.",
    "Don't forget that!",
    "never forget that",
    "She told me to forget that.",
    '"forget that"',
    "“Forget that.”",
    "'turn memory off'",
    "> turn memory off",
    "`turn memory off`",
    "He said: turn memory off",
    "Turn memory off, he said.",
    "turn memory off, she told me",
    "I would never say turn memory off.",
    "How do I turn memory off?",
    "Should I turn memory off?",
    "If I say turn memory off, what happens?",
    "turn memory off when I am in a meeting",
    "Do not turn memory off.",
    "forget that I asked",
    "forget that meeting on Monday, it was moved",
    "You can forget that idea of yours.",
    "delete that",
    "Alice, forget that.",
    "User: forget that",
    "Translate into German: forget that",
    "forget that\nand then say hello",
    "What do you remember about tea? she asked.",
    "What do you remember about tea, he asked",
    'What does "what do you remember about tea?" do?',
    "What do you know about quantum physics?",
    "pin this dependency to version 3",
    "The article is called start incognito for this chat",
    "start incognito for this chat " + "x" * 400,
    "",
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["text"])
def test_commands_are_told_from_what_only_sounds_like_them(line: dict[str, str]) -> None:
    found = parse(line["text"])
    assert (found.intent if found else "none") == line["intent"]


def test_the_labelled_sentences_have_every_intent() -> None:
    assert {line["intent"] for line in LINES} == {*INTENTS, "none"}
    assert sum(line["intent"] == "none" for line in LINES) >= 150
    assert sum(line["intent"] != "none" for line in LINES) >= 250


@pytest.mark.parametrize("text", TALK)
def test_talk_is_no_command(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("Thanks! Could you forget my old adress?", "my old adress"),
        ("forget that I hate Brussels sprouts, I like them now", "I hate Brussels sprouts"),
        ("What do you remember about Node.js?", "Node.js"),
        ("what do you remember about the trip to St.Gallen", "the trip to St.Gallen"),
        ("You still know my ex. Delete that, please.", "my ex"),
        ("Vergiss bitte, dass ich Raucher war.", "ich Raucher war"),
    ],
)
def test_the_topic_is_in_the_words_of_the_person(text: str, topic: str) -> None:
    found = parse(text)
    assert found is not None
    assert found.topic == topic


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("Remember this: the word is “Fjord”.", "the word is “Fjord”."),
        ("please remember that I'm left-handed!", "I'm left-handed!"),
        ("remember this:\nmilk\nbread", "milk\nbread"),
        (
            "remember that the code is 2281 and that Tom has the key",
            "the code is 2281 and Tom has the key",
        ),
        ("remember that I like this and that", "I like this and that"),
        ("Remember this: it is that, and that Tom knows.", "it is that, and that Tom knows."),
        ("Merk dir, dass ich Linkshänder bin", "ich Linkshänder bin"),
        ("save this: " + "a long text " * 100, ("a long text " * 100).strip()),
    ],
)
def test_what_is_to_be_saved_is_in_the_words_of_the_person(text: str, content: str) -> None:
    found = parse(text)
    assert found is not None
    assert (found.intent, found.content) == ("save", content)


@pytest.mark.spec("THE-89")
@pytest.mark.parametrize(
    ("words", "places"),
    [
        ("the first one", (0,)),
        ("1", (0,)),
        ("number 2", (1,)),
        ("the third", (2,)),
        ("3", (2,)),
        ("the fourth memory", (3,)),
        ("1 and 3", (0, 2)),
        ("the first two", (0, 1)),
        ("the last one", (-1,)),
        ("all of them", ()),
    ],
)
def test_memories_can_be_named_by_their_place(words: str, places: tuple[int, ...]) -> None:
    said = parse(f"Forget {words}, please.")
    assert said is not None
    assert (said.intent, said.places) == ("forget_listed", places)
    answer = parse(words, answers=True)
    assert answer is not None
    assert (answer.intent, answer.places) == ("pick", places)


def test_answers_are_commands_only_after_a_question() -> None:
    for text in ("yes", "no", "2", "the second one", "both", "ja", "oui", "sí"):
        assert parse(text) is None
        assert parse(text, answers=True) is not None


def test_for_good_means_that_nothing_is_kept() -> None:
    for text, for_good in (("forget that for good", True), ("forget that", False)):
        found = parse(text)
        assert found is not None
        assert found.for_good == for_good


@pytest.mark.parametrize(
    "text",
    [
        "forget " * 50_000,
        "no, " * 75_000,
        "please, " * 37,
        "forget everything you know about " + "a " * 130,
        "remember this: " + "x" * 1_000_000,
        "\n" * 1_000_000,
        "delete it. " * 27,
        "what " * 59,
        ", not" * 60,
        "'" * 300,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_texts_take_no_time(text: str) -> None:
    parse("forget that")
    begun = time.thread_time()
    parse(text)
    assert time.thread_time() - begun < 1
