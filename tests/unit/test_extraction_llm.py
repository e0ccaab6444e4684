"""A model's answer is taken with suspicion: what does not stand in the source is not kept, and all is accounted for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hostile_answers as hostile
from hostile_answers import fact
from memorist.extraction import llm
from memorist.text import prompts

AT = datetime(2026, 5, 8, 9, tzinfo=UTC)
CASES = list(hostile.cases())


def judged(answer: Any, source: str, most: int = 4) -> tuple[list[str], list[str]]:
    found, dropped = llm.check(answer, source, who="The user", at=AT, most=most)
    return [each.text for each in found], dropped


def test_there_are_more_than_six_hundred_hostile_answers() -> None:
    assert len({(case.source, repr(case.answer)) for case in CASES}) > 600


@pytest.mark.spec("CLK-43", "CLK-45", "CLK-46", "CLK-47", "CLK-48", "IMP-83")
@pytest.mark.parametrize("name", sorted({case.name for case in CASES}))
def test_nothing_is_kept_that_its_source_does_not_state(name: str) -> None:
    for case in (each for each in CASES if each.name == name):
        found, dropped = judged(case.answer, case.source)
        assert found == [], (case.source, case.answer)
        assert len(dropped) == 1, "and it is accounted for"
        assert not any(word in dropped[0] for word in ("Porto", "yacht", "sk-live")), (
            "without repeating it"
        )


@pytest.mark.parametrize(("said", "true"), hostile.TRUE)
def test_what_the_source_states_is_kept_with_the_words_of_the_source(said: str, true: str) -> None:
    (found,), dropped = llm.check({"facts": [fact(true, said)]}, said, who="The user", at=AT)
    assert (found.text, found.evidence, dropped) == (true, said, [])


def test_a_fact_about_a_thing_is_kept_only_if_the_speaker_is_not_added_to_it() -> None:
    said = "The library on Elm Street closes at six."
    assert judged({"facts": [fact(said, said)]}, said) == ([said], [])
    added = "The user's library on Elm Street closes at six."
    assert judged({"facts": [fact(added, said)]}, said) == (
        [],
        ["it is about someone else"],
    )


def test_the_good_is_kept_beside_the_bad_once_and_no_more_than_asked_for() -> None:
    said = " ".join(source for source, _ in hostile.TRUE[:6])
    items = [fact(true, source) for source, true in hostile.TRUE[:6]]
    found, dropped = judged(
        {"facts": [items[0], items[0], fact("The user is rich.", said[:20]), *items[1:]]}, said
    )
    assert found == [true for _, true in hostile.TRUE[:4]]
    assert sorted(dropped) == sorted(
        [
            "it is a duplicate",
            "its words do not match the source",
            *["there are more than 4"] * 2,
        ]
    )


def test_days_become_dates_and_types_are_known_ones() -> None:
    said = "I fly to Rome tomorrow."
    (found,), _ = llm.check({"facts": [fact("The user flies to Rome tomorrow.", said, type="secret")]}, said,
                                who="The user", at=AT)  # fmt: skip
    assert (found.text, found.type) == ("The user flies to Rome on 2026-05-09.", "other")


def test_a_name_stands_for_the_speaker() -> None:
    said = "I live in Porto, near my uncle's farm."
    assert llm.check({"facts": [fact("Ana lives in Porto.", said)]}, said, who="Ana", at=AT)[0]
    assert not llm.check({"facts": [fact("Bo lives in Porto.", said)]}, said, who="Ana", at=AT)[0]


@pytest.mark.spec("CLK-42", "IMP-81")
def test_the_prompt_asks_for_durable_grounded_facts_and_carries_the_guard() -> None:
    ask = llm.build_prompt("I live in Porto.", "Ana", 4)
    assert "Note only durable facts that the message itself states" in ask.system
    assert "Never add, guess or conclude anything." in ask.system
    assert "`evidence` is a passage of the message, letter for letter." in ask.system
    assert prompts.SEMANTIC in ask.system
    assert (ask.temperature, ask.max_tokens, ask.task) == (0.0, 320, "extract")
    assert "I live in Porto." not in ask.system


async def test_the_model_sees_whole_sentences_of_at_most_900_characters() -> None:
    asked: list[str] = []

    class Adviser:
        async def answer(self, scope: Any, ask: Any) -> dict[str, Any]:
            asked.append(ask.user.partition("The message:\n")[2])
            return {"facts": []}

    text = "I own a boat. " * 100
    await llm.find_facts(Adviser(), None, text, who="Ana", at=AT)  # type: ignore[arg-type]
    await llm.find_facts(Adviser(), None, "x" * 2000, who="Ana", at=AT)  # type: ignore[arg-type]
    assert [(len(each) <= 900, each.endswith(".")) for each in asked] == [(True, True)]


NAMES = st.sampled_from(["facts", "fact", "type", "evidence", "confidence"])
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=5),
)


@settings(max_examples=150, deadline=None)
@given(ANYTHING)
def test_an_answer_of_any_shape_is_accounted_for(answer: Any) -> None:
    found, dropped = judged(answer, "I own a boat.")
    items = answer.get("facts") if isinstance(answer, dict) else None
    assert len(found) + len(dropped) == (len(items) if isinstance(items, list) else 1)
    assert found == []


def test_hostile_sources_take_time_in_proportion_to_their_length() -> None:
    for text in (
        "I " * 3000,
        "my " * 3000,
        '"' * 6000,
        "I like " + "a, " * 3000,
        "." * 6000,
        "I have " + "x" * 6000,
    ):
        assert judged({"facts": [fact("The user likes beer.", text[:100])]}, text)[0] == []
