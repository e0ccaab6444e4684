"""Which hits count as evidence, given their confidence and scores."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from memorist.errors import InvalidInput
from memorist.retrieve import confidence
from memorist.retrieve.profiles import DEFAULT
from memorist.retrieve.question import understand
from memorist.retrieve.score import Candidate
from memorist.text.cues import IS_FOREIGN
from memorist.types import Memory, Scope

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def hit(score: float, sure: float | None) -> Candidate:
    memory = Memory(
        id=f"{score}",
        scope=Scope(user="ana"),
        text="tea",
        kind="semantic",
        created_at=NOW,
        updated_at=NOW,
    )
    return Candidate(memory=memory, score=score, confidence=sure)


def select(
    *hits: Candidate,
    sure: float | None = 0.9,
    count: int = 100,
    asked: str = "Where is the tea?",
    **more: Any,
) -> list[str]:
    question = understand(asked)
    search: Any = SimpleNamespace(profile=DEFAULT, size=count, question=question, foreign=None)
    kept, cut = confidence.select(search, hits, sure, **more)
    assert len(kept) + len(cut) == len(hits)
    return [each.memory.id for each in kept]


def test_each_hit_is_judged_by_its_own_confidence() -> None:
    hits = hit(1.0, 0.5), hit(0.9, 0.01), hit(0.8, 0.04)
    assert select(*hits) == ["1.0", "0.8"]


def test_the_best_hit_of_a_likely_answer_is_returned_anyway() -> None:
    assert select(hit(1.0, 0.001), hit(0.9, 0.001)) == ["1.0"]


def test_in_a_small_scope_hits_need_less_confidence_but_no_lower_score() -> None:
    unlikely, unrelated = hit(0.9, 0.025), hit(0.1, 0.025)
    assert select(hit(1.0, 0.5), unlikely, unrelated) == ["1.0"]
    assert select(hit(1.0, 0.5), unlikely, unrelated, count=10) == ["1.0", "0.9"]


def test_an_unlikely_answer_is_empty() -> None:
    assert select(hit(1.0, 0.5), sure=0.1) == []
    assert select(hit(1.0, 0.5), sure=0.1, least=0.1) == ["1.0"]
    assert select(hit(1.0, 0.5), sure=0.1, least=0.0) == ["1.0"]


def test_beside_a_verified_answer_hits_need_a_share_of_its_confidence() -> None:
    hits = hit(1.0, 0.8), hit(0.9, 0.08), hit(0.8, 0.1)
    assert select(*hits) == ["1.0", "0.9", "0.8"]
    assert select(*hits, verified=True) == ["1.0", "0.8"]
    assert select(*hits, verified=True, count=1000) == ["1.0", "0.9", "0.8"]


def test_a_request_or_a_question_in_two_parts_may_need_more_than_the_best_answer() -> None:
    hits = hit(1.0, 0.8), hit(0.9, 0.08)
    assert select(*hits, verified=True, asked="Can you suggest a tea?") == ["1.0", "0.9"]
    assert select(*hits, verified=True, asked="Where is the tea, and who made it?") == [
        "1.0",
        "0.9",
    ]


def test_each_part_of_a_question_has_hits_that_match_it_less() -> None:
    hits = hit(1.0, 0.5), hit(0.9, 0.026)
    assert select(*hits) == ["1.0"]
    assert select(*hits, asked="Where is the tea and who made it?") == ["1.0", "0.9"]


@pytest.mark.parametrize("more", [{"sure": None}, {"least": 0.0}, {"whole": True}])
def test_a_list_is_not_shortened(more: dict[str, Any]) -> None:
    assert select(hit(1.0, 0.5), hit(0.1, None), **more) == ["1.0", "0.1"]


ADDED = {"always": 0.0, "before": 1.0, "verdict": 1.0, "request": 2.0}


def verify(
    odds: dict[str, float],
    *,
    foreign: int = -1,
    asked: str = "Where is the tea?",
) -> tuple[float, list[Candidate]]:
    """Return three candidates after verification; their scores are 1.0, 0.9 and 0.5."""
    assert DEFAULT.confidence is not None
    model = replace(DEFAULT.confidence, answer_verified=ADDED, hit_verified=ADDED)
    is_foreign = np.arange(3) == foreign
    search: Any = SimpleNamespace(
        profile=replace(DEFAULT, weights={"verdict": 0.8}, confidence=model),
        snapshot=SimpleNamespace(marked={IS_FOREIGN: is_foreign}),
        question=understand(asked),
    )
    ranked = [
        replace(hit(score, 0.5), position=place) for place, score in enumerate((1.0, 0.9, 0.5))
    ]
    return confidence.judge_verified(search, ranked, 0.5, odds)


def test_a_verdict_changes_score_order_and_confidence() -> None:
    sure, ranked = verify({"1.0": -4.0, "0.9": 2.0, "0.5": 0.0})
    assert [each.memory.id for each in ranked] == ["0.9", "1.0", "0.5"]
    assert [each.score for each in ranked] == pytest.approx([0.9 + 0.6, 1.0, 0.5 + 0.4])
    assert [each.parts["verdict"] for each in ranked] == pytest.approx([0.6, 0.0, 0.4])
    assert sure == pytest.approx(0.8808, abs=1e-4)
    assert ranked[1].confidence == pytest.approx(0.018, abs=1e-3)


def test_a_hit_for_a_request_is_trusted_more_for_the_same_verdict() -> None:
    _, (best, *_) = verify({"1.0": -1.0}, asked="Can you suggest a tea?")
    assert best.confidence == pytest.approx(0.7311, abs=1e-4)


@pytest.mark.parametrize("odds", [-4.0, 0.0, 4.0])
def test_the_confidence_in_the_answer_to_a_request_does_not_depend_on_verdicts(odds: float) -> None:
    sure, _ = verify({"1.0": odds, "0.9": -1.0}, asked="Can you suggest a tea?")
    assert sure == 0.5


def test_the_answer_to_a_request_needs_the_same_confidence_as_before_verification() -> None:
    likely = hit(1.0, 0.8)
    request = "Can you suggest a tea?"
    assert select(likely, verified=True, sure=0.215) == []
    assert select(likely, verified=True, sure=0.215, asked=request) == ["1.0"]
    assert select(likely, verified=True, sure=0.20, asked=request) == []


def test_what_is_not_verified_overtakes_nothing_and_keeps_its_confidence() -> None:
    _, ranked = verify({"1.0": 4.0, "0.9": -2.0})
    assert ranked[-1].memory.id == "0.5"
    assert ranked[-1].parts["verdict"] == ranked[1].parts["verdict"] == pytest.approx(0.2)
    assert ranked[-1].confidence == 0.5


def test_what_is_not_in_english_is_neither_raised_nor_lowered() -> None:
    _, ranked = verify({"1.0": -4.0, "0.5": -4.0}, foreign=1)
    first = ranked[0]
    assert (first.memory.id, first.confidence) == ("0.9", 0.5)
    assert first.parts["verdict"] == pytest.approx(0.4)


def test_a_range_without_weights_is_refused() -> None:
    assert DEFAULT.confidence is not None
    with pytest.raises(InvalidInput, match="`certain` needs"):
        replace(DEFAULT.confidence, hit_verified={})
