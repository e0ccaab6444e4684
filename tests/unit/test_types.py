"""What an answer says about itself."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from memorist.types import NO_ANSWER, Cut, Hit, Memory, Query, Recall, Scope

SCOPE = Scope(user="ana")
NOW = datetime(2026, 5, 4, tzinfo=UTC)
TEA = Memory(
    id="m1", scope=SCOPE, text="I drink tea.", kind="semantic", created_at=NOW, updated_at=NOW
)
UNSURE = "the answer is too uncertain: 0.10 where 0.50 is needed"


def recall(text: str = "", question: str = "tea?", **more: Any) -> Recall:
    query = Query(text=question, scope=SCOPE, limit=10)
    return Recall(query=query, profile="default", hits=(), text=text, tokens=0, **more)


def cuts(count: int, **more: Any) -> tuple[Cut, ...]:
    return tuple(
        Cut(id=f"m{number}", reason=UNSURE, score=1 - number / 10, **more)
        for number in range(count)
    )


def test_an_empty_answer_says_so_in_the_prompt_and_has_no_text() -> None:
    answer = recall(cut=cuts(2), confidence=0.1)
    assert answer.is_unanswered
    assert (answer.text, answer.prompt()) == ("", NO_ANSWER)
    assert recall().prompt() == NO_ANSWER


def test_an_answer_with_hits_is_its_text() -> None:
    hit = Hit(memory=TEA, score=1.0, parts={})
    query = Query(text="tea?", scope=SCOPE, limit=10)
    answer = Recall(query=query, profile="default", hits=(hit,), text="<memory>", tokens=3)
    assert not answer.is_unanswered
    assert answer.prompt() == "<memory>"


@pytest.mark.parametrize(
    "more",
    [{"legs": {"memory": "memory is off"}}, {"question": " \n"}, {"cut": cuts(1, fits=False)}],
    ids=["memory is off", "no question", "no room"],
)
def test_nothing_is_said_where_no_memory_was_looked_for_or_one_was_found(more: Any) -> None:
    assert recall(**more).prompt() == ""


def test_changes_of_the_thread_come_before_the_sentence() -> None:
    text = "Memory updates since rev 1:\n- new"
    assert recall(text).prompt() == f"{text}\n{NO_ANSWER}"


def test_an_explanation_of_an_empty_answer_lists_the_best_three() -> None:
    first, *others = recall(cut=cuts(5), confidence=0.1).explain().splitlines()
    assert first == "'tea?' by default: 0 hits, 0 tokens, confidence 0.10"
    assert others == [
        f"-  1.0000  m0: {UNSURE}",
        f"-  0.9000  m1: {UNSURE}",
        f"-  0.8000  m2: {UNSURE}",
    ]


def test_an_explanation_of_an_answer_without_room_lists_everything() -> None:
    answer = recall(cut=cuts(5, fits=False), confidence=0.9)
    assert len(answer.explain().splitlines()) == 6
