"""Sweeps: the same tasks under many settings of the ranking, to see what each number does to
accuracy and size.

Each number of the tri-score (`α·relevance + β·recency + γ·importance`, τ, N) is varied alone from
its usual value, and all of them together on a coarse grid; only the ratios of α, β and γ matter, so
the grid leaves α at 1. The k of reciprocal rank fusion orders candidates and is no part of the
tri-score: it is varied where fusion alone ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ..dialects.catalog import THEORIA
from ..retrieve.profiles import DAY, DEFAULT, Profile, Recency
from .run import Advance, Run, ask_all, filled_memory
from .tasks import EvalTask

TRISCORE, FUSION, OURS = "theoria.triscore", "RRF alone", "default"
USUAL: Mapping[str, Mapping[str, float]] = {
    TRISCORE: {"α": 1.0, "β": 1.0, "γ": 1.0, "τ": 7.0, "N": 12},  # τ in days
    FUSION: {"k": 60, "N": 4},
    OURS: {"N": 10},
}
AXES: Mapping[str, Sequence[float]] = {
    "α": (0.0, 0.25, 0.5, 1.0, 2.0, 4.0),
    "β": (0.0, 0.1, 0.3, 1.0, 2.0),
    "γ": (0.0, 0.1, 0.3, 1.0, 2.0),
    "τ": (1.0, 7.0, 30.0, 180.0),
    "N": (1, 2, 4, 8, 12, 16),
}
GRID: Mapping[str, Sequence[float]] = {
    "β": (0.0, 0.1, 0.3),
    "γ": (0.0, 0.1, 0.3),
    "τ": (7.0, 30.0),
    "N": (2, 4, 8),
}
KS, FEW, COUNTS = (1, 10, 60, 200), (2, 4), (1, 2, 4, 6, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One setting and its result."""

    ranking: str  # theoria.triscore · RRF alone · default
    values: Mapping[str, float]
    accuracy: float
    tokens: float

    @property
    def label(self) -> str:
        """The setting in one line.

        >>> Point(ranking="default", values={"N": 4}, accuracy=0.5, tokens=80).label
        'default N=4'
        """
        return " ".join(
            (self.ranking, *(f"{name}={value:g}" for name, value in self.values.items()))
        )

    @property
    def changed(self) -> list[str]:
        """The numbers that differ from the usual ones."""
        return [name for name, value in self.values.items() if value != USUAL[self.ranking][name]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """The results of all settings."""

    points: tuple[Point, ...]

    @property
    def usual(self) -> Point:
        """The tri-score with its own numbers."""
        return next(each for each in self.points if each.ranking == TRISCORE and not each.changed)

    @property
    def best(self) -> Point:
        """The most accurate tri-score; of equals the one that needs the fewest tokens."""
        return _best([each for each in self.points if each.ranking == TRISCORE])

    @property
    def ours(self) -> Point:
        """The default profile, with as many memories as do best."""
        return _best([each for each in self.points if each.ranking == OURS])

    def along(self, axis: str) -> list[Point]:
        """Return the settings that differ from the usual ones in this number alone."""
        by_axis = [each for each in self.points if axis in each.values]
        found = [each for each in by_axis if set(each.changed) <= {axis}]
        return sorted(found, key=lambda each: (each.ranking, each.values[axis]))


async def sweep(
    tasks: Sequence[EvalTask], *, progress: Advance = lambda done, of: None, **settings: Any
) -> SweepReport:
    """Ask all questions under every setting; the conversations are stored once."""
    points = []
    async with filled_memory(tasks, **{**settings, "llm": "none"}) as memory:
        for done, (ranking, values) in enumerate(PLAN, 1):
            by, limit = profile(ranking, values), int(values["N"])
            run = Run(name=ranking, results=await ask_all(memory, tasks, profile=by, limit=limit))
            point = Point(ranking=ranking, values=values, accuracy=run.accuracy, tokens=run.tokens)
            points.append(point)
            progress(done, len(PLAN))
    return SweepReport(points=tuple(points))


def profile(ranking: str, values: Mapping[str, float]) -> Profile:
    """Return the ranking with these numbers, as `recall(profile=…)` takes it."""
    if ranking == OURS:
        return DEFAULT
    if ranking == FUSION:
        return replace(
            THEORIA,
            weights={"fused": 1.0},
            rrf_k=int(values["k"]),
            diversity=None,
            scores_first=False,
        )
    return replace(
        THEORIA,
        weights={"relevance": values["α"], "recency": values["β"], "importance": values["γ"]},
        recency=Recency(shape="exponential", scale=values["τ"] * DAY),
        scores_first=False,
    )


def _plan() -> list[tuple[str, Mapping[str, float]]]:
    """Return every setting once."""
    usual, scored = USUAL[TRISCORE], dict[tuple[float, ...], dict[str, float]]()
    for axis, values in AXES.items():
        for value in values:
            alone = {**usual, axis: value}
            scored.setdefault(tuple(alone.values()), alone)
    for values in product(*GRID.values()):
        grid = {**usual, **dict(zip(GRID, values, strict=True))}
        if grid["β"] or grid["τ"] == usual["τ"]:  # without recency τ changes nothing
            scored.setdefault(tuple(grid.values()), grid)
    plan: list[tuple[str, Mapping[str, float]]] = [(TRISCORE, each) for each in scored.values()]
    plan += [(FUSION, {"k": k, "N": count}) for k, count in product(KS, FEW)]
    plan += [(OURS, {"N": count}) for count in COUNTS]
    return plan


def _best(points: Sequence[Point]) -> Point:
    return min(points, key=lambda each: (-each.accuracy, each.tokens, each.label))


PLAN = _plan()
