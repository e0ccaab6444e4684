"""Reading a question against the people of its scope."""

from datetime import UTC, datetime

import pytest

from memorist.retrieve.question import MOST_TERMS, named_speakers, understand
from memorist.text import cues, tokens

PAIR = ("Caroline", "Melanie")


def test_a_named_speaker_becomes_the_first_person_for_the_dense_leg() -> None:
    assert (
        understand("What does Caroline like about Caroline’s job?", PAIR).dense_text
        == "What does I like about my job?"
    )


def test_the_sparse_leg_keeps_the_name() -> None:
    assert tokens.term_id("carolin") in understand("What does Caroline like?", PAIR).terms


def test_only_the_first_named_speaks() -> None:
    question = understand("What did Melanie give to Caroline?", PAIR)
    assert question.dense_text == "What did I give to Caroline?"
    assert question.speakers == (1, 0)


def test_a_question_of_the_person_to_the_assistant_stays_as_it_is() -> None:
    question = understand("What degree did I graduate with?", ("user", "assistant"))
    assert question.dense_text == question.text
    assert question.speakers == ()


def test_a_name_inside_a_word_is_no_name() -> None:
    assert named_speakers("Who sang the carol? Samantha?", ("Carol Ann", "Sam")) == (0,)


def test_a_name_that_is_a_common_word_counts_only_where_it_is_written_as_a_name() -> None:
    assert named_speakers("Will you come? Art is nice, will it last?", ("Will", "Art")) == ()
    assert named_speakers("Where did Art go with Will?", ("Will", "Art")) == (1, 0)


def test_a_single_letter_is_not_taken_for_a_name() -> None:
    assert named_speakers("Where did T go with Bo?", ("T", "Bo")) == (1,)


def test_lower_case_names_are_understood() -> None:
    assert named_speakers("when did caroline leave", PAIR) == (0,)


def test_people_with_the_same_first_name_are_told_apart_in_full() -> None:
    speakers = ("John Smith", "John Doe")
    assert named_speakers("Where does John Doe live?", speakers) == (1,)
    assert named_speakers("Where does John live?", speakers) == (0, 1)


def test_times_are_read_relative_to_now() -> None:
    question = understand("When did they meet last year?", now=datetime(2023, 5, 8, tzinfo=UTC))
    assert question.kinds == cues.HAS_TIME
    assert [interval.start.year for interval in question.intervals] == [2022]


@pytest.mark.parametrize(
    "text",
    ["Which hotel did you recommend?", "You told me about a book.", "What was your last tip?"],
)
def test_the_assistant_may_be_asked_about(text: str) -> None:
    assert understand(text).asks_assistant


@pytest.mark.parametrize(
    "text", ["Can you recommend a hotel?", "What did I say you told me?", "What do I like?"]
)
def test_a_request_is_not_about_what_the_assistant_said(text: str) -> None:
    assert not understand(text).asks_assistant


def test_each_term_counts_once_and_there_is_a_bound() -> None:
    assert len(understand("tea tea teas").terms) == 1
    assert len(understand(" ".join(f"w{number}" for number in range(5000))).terms) == MOST_TERMS


def test_an_empty_question_is_understood() -> None:
    assert understand("").terms == ()
