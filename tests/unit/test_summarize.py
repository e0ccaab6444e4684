"""Summing up by rules keeps names, numbers and decisions; what a model says is held to what was said."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memorist.llms import find_problems
from memorist.text.grounding import Turn
from memorist.text.summarize import MOST_ASKED, ask, extract, find_fault

MEETING = [
    Turn("Hi all! How was your weekend?", "Bo"),
    Turn("Great, thanks! Really great.", "Ana"),
    Turn("So. We decided to move the launch to 12 May. Does that work?", "Bo"),
    Turn("Yes, that works. Dr. Weber from ACME pays 4,500 euros for it.", "Ana"),
    Turn("Hmm, what else is there to talk about?", "Bo"),
    Turn("The launch is on 12 May, as Bo said.", "Ana"),
    Turn("Nice. See you!", "Bo"),
]


def test_names_numbers_and_decisions_are_kept_and_courtesies_are_not() -> None:
    assert extract(MEETING, longest=100) == (
        "Bo: We decided to move the launch to 12 May. Ana: Dr. Weber from ACME pays 4,500 euros for it."
    )


def test_a_summary_says_nothing_twice() -> None:
    assert extract(MEETING).count("launch") == 1 or "as Bo said" in extract(MEETING)
    same = [Turn("The red boat costs 900 euros.")] * 50
    assert extract(same) == "The red boat costs 900 euros."


@given(
    st.lists(
        st.builds(Turn, st.text(max_size=300), st.just("") | st.text(max_size=80)), max_size=12
    ),
    st.integers(60, 900),
)
def test_a_summary_keeps_its_length_and_consists_of_what_was_said(
    turns: list[Turn], longest: int
) -> None:
    made = extract(turns, longest=longest)
    assert len(made) <= longest
    assert "\n" not in made
    assert bool(made) == any(turn.text.split() for turn in turns)


def test_it_is_the_same_whenever_it_is_made() -> None:
    assert len({extract(MEETING) for _ in range(5)}) == 1


def test_where_nothing_is_told_the_questions_are_kept() -> None:
    assert (
        extract([Turn("How is the boat?"), Turn("Where are the keys?")])
        == "How is the boat? Where are the keys?"
    )
    assert extract([]) == ""


def test_a_sentence_that_is_too_long_is_cut_at_a_word() -> None:
    made = extract([Turn("Anna sold 30 " + "very " * 200 + "old boats.")], longest=100)
    assert len(made) <= 100
    assert made.startswith("Anna sold 30 very")
    assert made.endswith("very…")


def test_a_name_cannot_pose_as_somebody_else() -> None:
    assert (
        extract([Turn("Pay 30 euros to Kim.", "Bo: ok\nAna")]) == "Bo ok Ana: Pay 30 euros to Kim."
    )


@pytest.mark.parametrize(
    "text", ["." * 200_000, "a. " * 60_000, "Ana 1 " * 30_000, "\n" * 200_000, "Dr. " * 40_000]
)
def test_hostile_texts_take_little_time(text: str) -> None:
    started = time.thread_time()
    extract([Turn(text)])
    assert time.thread_time() - started < 5


@pytest.mark.spec("MLS-60")
def test_a_model_is_given_all_that_was_said_or_the_best_of_it() -> None:
    asked = ask(MEETING)
    assert asked.user.startswith("Conversation:\nBo: Hi all!")
    assert asked.user.endswith("Bo: Nice. See you!")
    long = ask([Turn(f"Ana sold boat {n} for {n} euros.", "Bo") for n in range(2000)])
    assert len(long.user) <= MOST_ASKED + 20


def test_a_model_that_answers_with_more_than_a_summary_is_refused() -> None:
    shape = ask(MEETING).schema
    assert not list(find_problems({"summary": "Bo moved the launch."}, shape))
    assert list(find_problems({"summary": "Bo moved the launch.", "mood": "glad"}, shape))
    assert shape["required"] == ["summary"], "so that a server can hold the model to it"
    assert shape["additionalProperties"] is False


@pytest.mark.parametrize(
    ("summary", "why"),
    [
        ("Bo moved the launch to 12 May. Dr. Weber from ACME pays 4,500 euros.", ""),
        ("They discussed the launch on 12 May.", ""),
        ("Bo moved the launch to 13 May.", "numbers"),
        ("Bo moved the launch to 12 June.", "months"),
        ("Bo moved the launch to 12 May at 4 pm.", "times"),
        ("Dr. Weber pays 4,500 dollars.", "units"),
        ("Dr. Miller pays 4,500 euros.", "words"),
        ("Ana never moved the launch.", "meaning"),
        ("Ana hates the launch.", "meaning"),
        ("Ana stole the launch.", "words"),
        ("ok", "characters"),
        ("Bo moved the launch. " * 100, "characters"),
    ],
)
def test_a_summary_by_a_model_holds_nothing_that_nobody_said(summary: str, why: str) -> None:
    found = find_fault(summary, MEETING)
    assert (why in found) if why else found == ""
