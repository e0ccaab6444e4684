"""Which hits count as evidence, given their confidence and scores."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from memorist.retrieve import confidence
from memorist.retrieve.profiles import DEFAULT
from memorist.retrieve.score import Candidate
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


def select(*hits: Candidate, sure: float | None = 0.9, count: int = 100, **more: Any) -> list[str]:
    search: Any = SimpleNamespace(profile=DEFAULT, size=count)
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


@pytest.mark.parametrize("more", [{"sure": None}, {"least": 0.0}, {"whole": True}])
def test_a_list_is_not_shortened(more: dict[str, Any]) -> None:
    assert select(hit(1.0, 0.5), hit(0.1, None), **more) == ["1.0", "0.1"]
