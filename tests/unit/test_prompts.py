"""What is derived can be understood by itself: the rules of a prompt, and the check that holds a text to them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memorist.text import prompts


@pytest.mark.spec("IMP-81")
def test_the_semantic_guard_asks_for_one_complete_neutral_statement() -> None:
    for asked in (
        "complete",
        "by itself",
        "third person",
        "without any pronoun",
        "neutral",
        "one or two sentences",
        "280",
    ):
        assert asked in prompts.SEMANTIC


@pytest.mark.spec("IMP-82")
def test_the_episodic_guard_asks_for_what_happened_and_no_lasting_facts() -> None:
    for asked in (
        "past tense",
        "one or two sentences",
        "discussed, decided or done",
        "Leave out lasting facts",
        "280",
    ):
        assert asked in prompts.EPISODIC


@pytest.mark.spec("IMP-83")
@pytest.mark.parametrize(("text", "why"), [
    ("", "it has no content"), (" \n\t ", "it has no content"),
    ("...", "it has no content"), ("🎉🎉🎉🎉", "it has no content"),
    ("I live in Porto.", "it is in the first person"), ("Ana gave me a cat.", "it is in the first person"),
    ("We chose Rust.", "it is in the first person"), ("Ana likes your cat.", "it addresses the reader"),
    ("She lives in Porto.", "it contains a pronoun"), ("It is blue.", "it contains a pronoun"),
    ("Ana hates this.", "it contains a pronoun"),
    ("Does Ana live in Porto?", "it is a question"),
    ("Ana likes " + "very " * 60 + "old maps.", "it is longer than 280 characters"),
])  # fmt: skip
def test_a_text_that_needs_the_conversation_is_refused(text: str, why: str) -> None:
    assert prompts.find_fault(text) == why


@pytest.mark.parametrize("text", [
    "Ana's team ships on Thursdays.", "The user moved to the US in 2019.", "The user studies IT in Lyon.",
    "The user decided that Rust is the language of the project.", "Dr. Weber is the user's dentist.",
    "ユーザーはポルトに住んでいます。",
])  # fmt: skip
def test_a_text_that_stands_by_itself_passes(text: str) -> None:
    assert (prompts.find_fault(text), prompts.to_statement(text)) == ("", text)


def test_an_episode_is_told_in_the_past_tense() -> None:
    assert prompts.find_fault("Ana and Bo decided on Rust.", "episodic") == ""
    assert prompts.find_fault("Ana and Bo like Rust.", "episodic") == "it is not in the past tense"


@pytest.mark.spec("IMP-83")
def test_a_long_text_is_cut_where_a_sentence_or_a_word_ends() -> None:
    sentence = (
        "Ana keeps bees on the roof of the town hall in Porto, "
        "together with the fire brigade and two neighbours."
    )
    assert prompts.trim(" ".join([sentence] * 5)) == f"{sentence} {sentence}"
    cut = prompts.trim("word " * 100)
    assert len(cut) <= 280
    assert cut.endswith("word…")
    assert prompts.trim(f"Ana left. {'word ' * 60}end. Bo stayed.") == "Ana left.", (
        "the second one does not fit"
    )
    assert (
        prompts.trim("Dr. Weber met Ana. They talked. Then rain fell.")
        == "Dr. Weber met Ana. They talked."
    )


@given(st.text(max_size=1000))
def test_whatever_is_cut_fits_and_cutting_again_changes_nothing(text: str) -> None:
    made = prompts.trim(text)
    assert len(made) <= prompts.LONGEST + 1
    assert prompts.trim(made) == made
    assert prompts.to_statement(text) in ("", made)
