"""A wall clock that jumps 400 days ahead and back in a running process: nothing is lost, hidden or out of order."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import memorist
from faults.disk import built
from faults.witness import CHILDREN, whole_lines
from memorist.context import access_scores
from memorist.ingest import trim
from memorist.text.clock import iso, parse
from memorist.types import Memory, Scope

JUMPS = (0, 400, 0, -400, 400, -400, 0)
NOW = parse("2026-05-31T14:00:00Z")


@pytest.fixture(scope="module")
def jumped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Any]]]:
    """A file that was used while the clock jumped, and what the process was told."""
    folder = tmp_path_factory.mktemp("clock")
    command = [sys.executable, str(CHILDREN), "clocks", str(folder / "memory.db"), *map(str, JUMPS)]
    environment = {**os.environ, "LD_PRELOAD": str(built("clock", folder))}
    told = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout
    return folder / "memory.db", list(whole_lines(told))


def told(jumped: tuple[Path, list[list[Any]]], kind: str) -> list[list[Any]]:
    return [what for each, *what in jumped[1] if each == kind]


def test_the_clock_did_jump(jumped: tuple[Path, list[list[Any]]]) -> None:
    with memorist.open(jumped[0], embedder="hashing") as memory:
        days = [memory.scope("ana").get(id).created_at for id, _ in told(jumped, "kept")]
    assert [round((day - days[0]) / timedelta(days=1)) for day in days] == list(JUMPS)


def test_what_is_remembered_is_found_at_once_whatever_the_clock_says(
    jumped: tuple[Path, list[list[Any]]],
) -> None:
    assert [what for what in told(jumped, "found") if not what[-1]] == []


def test_nothing_is_younger_than_now(jumped: tuple[Path, list[list[Any]]]) -> None:
    """An age below 0 would count for more than any question."""
    for _, profile, scores, recencies in told(jumped, "parts"):
        assert all(0 <= each <= 1 for each in recencies), profile
        assert all(-1 < each < 4 for each in scores), profile


def test_a_forgotten_text_stays_away_unless_its_time_is_over(
    jumped: tuple[Path, list[list[Any]]],
) -> None:
    before = told(jumped, "refused")[:1]
    behind = [what for what in told(jumped, "refused") if what[0] == "-400"]
    assert [refused for _, refused in before] == [1]
    assert behind[0][1] == 1


def test_memories_stand_in_the_order_in_which_they_came(
    jumped: tuple[Path, list[list[Any]]],
) -> None:
    came = [id for id, _ in told(jumped, "kept")]
    assert len(set(came)) == len(JUMPS)
    with memorist.open(jumped[0], embedder="hashing") as memory:
        ana = memory.scope("ana")
        assert [each.id for each in ana.list() if each.text.startswith("Shelf")] == came[::-1]
        lines = [
            (line.memory_id, line.event)
            for line in ana.history(limit=1000)
            if line.memory_id in came
        ]
        assert lines[::-1] == [(id, event) for id in came for event in ("ADD", "UPDATE")]
        assert memory.check() == []


def test_a_score_of_the_future_is_computed_again() -> None:
    """Otherwise what was asked about while the clock was ahead would be kept at the cost of the rest until then."""
    memory = Memory(
        id="m1",
        scope=Scope(user="ana"),
        text="tea",
        kind="episodic",
        created_at=NOW,
        updated_at=NOW,
        importance=0.25,
    )

    def cached(at: datetime) -> dict[str, Any]:
        return {**access_scores(memory, 1.0, at), "computed_at": iso(at)}

    ahead = cached(NOW + timedelta(days=400))
    fresh = trim.fresh_scores(replace(memory, last_scores=ahead), NOW)
    assert (fresh["relevance"], fresh["recency"]) == (0.0, 1.0)
    recent = cached(NOW - timedelta(hours=1))
    assert trim.fresh_scores(replace(memory, last_scores=recent), NOW) is recent
