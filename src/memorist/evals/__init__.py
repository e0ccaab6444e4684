"""Evals: short tasks that need memory, run with and without it, to compare settings.

A task is a conversation, a question asked later, and what an answer must and must not say.
Everything runs in a temporary memory. Run `memorist eval`, or from Python:

```python
report = await evals.evaluate(evals.packaged())
report.run("memory").accuracy
```

A sweep runs the same tasks with many settings of the ranking and plots the results. Each parameter
of the tri-score (`α·relevance + β·recency + γ·importance`, τ, N) is varied alone, and all of them
together on a coarse grid, see `sweep.toml`. Only the ratios of α, β and γ matter, so the grid leaves
α at 1. The k of reciprocal rank fusion orders candidates and is not part of the tri-score: it is
varied for the ranking by fusion alone.

`questions` measures recall on conversations of your own: `memorist eval my-questions.jsonl`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import product
from typing import Any

from ..dialects import THEORIA
from ..retrieve.profiles import DAY, DEFAULT, Profile, Recency
from ..types import frozen
from .tasks import (
    FOLDER,
    Advance,
    Answerer,
    EvalSession,
    EvalTask,
    EvalTurn,
    Report,
    Result,
    Run,
    ask_all,
    evaluate,
    filled_memory,
    from_folder,
    packaged,
)

__all__ = [
    "Answerer",
    "EvalSession",
    "EvalTask",
    "EvalTurn",
    "Point",
    "Report",
    "Result",
    "Run",
    "SweepReport",
    "evaluate",
    "from_folder",
    "packaged",
    "sweep",
]

TRISCORE = "theoria.triscore"
FUSION = "RRF alone"
OURS = "default"
RANKINGS: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    (FOLDER / "sweep.toml").read_text("utf-8")
)
LEFT, TOP, WIDTH, HEIGHT = 60, 50, 640, 330  # of the plot in sweep.svg


@frozen
class Point:
    """One setting and its result."""

    ranking: str  # theoria.triscore · RRF alone · default
    values: Mapping[str, float]
    accuracy: float
    tokens: float

    @property
    def label(self) -> str:
        """Return the setting in one line.

        >>> Point(ranking="default", values={"N": 4}, accuracy=0.5, tokens=80).label
        'default N=4'
        """
        label = self.ranking
        for name, value in self.values.items():
            label += f" {name}={value:g}"
        return label

    @property
    def changed(self) -> list[str]:
        """Return the parameters that differ from their usual values."""
        usual = RANKINGS[self.ranking]["usual"]
        return [name for name, value in self.values.items() if value != usual[name]]


@frozen
class SweepReport:
    """The results of all settings."""

    points: tuple[Point, ...]

    @property
    def usual(self) -> Point:
        """Return the tri-score with its usual parameters."""
        return next(each for each in self.points if each.ranking == TRISCORE and not each.changed)

    @property
    def best(self) -> Point:
        """Return the most accurate tri-score; on a tie, the one with the fewest tokens."""
        return self._best_of(TRISCORE)

    @property
    def ours(self) -> Point:
        """Return the default profile, with the best number of memories."""
        return self._best_of(OURS)

    def _best_of(self, ranking: str) -> Point:
        points = [each for each in self.points if each.ranking == ranking]
        return min(points, key=lambda each: (-each.accuracy, each.tokens, each.label))

    def along(self, axis: str) -> list[Point]:
        """Return the settings that differ from the usual ones in this parameter alone."""
        by_axis = filter(lambda each: axis in each.values, self.points)
        found = [each for each in by_axis if set(each.changed) <= {axis}]
        return sorted(found, key=lambda each: (each.ranking, each.values[axis]))


async def sweep(
    tasks: Sequence[EvalTask],
    *,
    progress: Advance = lambda done, of: None,
    **settings: Any,
) -> SweepReport:
    """Ask all questions with every setting; the conversations are stored once."""
    points = []
    settings_to_try = plan()
    async with filled_memory(tasks, **{**settings, "llm": "none"}) as memory:
        for done, (ranking, values) in enumerate(settings_to_try, 1):
            results = await ask_all(
                memory,
                tasks,
                profile=profile(ranking, values),
                limit=int(values["N"]),
            )
            run = Run(name=ranking, results=results)
            point = Point(
                ranking=ranking,
                values=values,
                accuracy=run.accuracy,
                tokens=run.tokens,
            )
            points.append(point)
            progress(done, len(settings_to_try))
    return SweepReport(points=tuple(points))


def profile(ranking: str, values: Mapping[str, float]) -> Profile:
    """Return the profile of a ranking with these parameters, for `recall(profile=…)`."""
    if ranking == OURS:
        return DEFAULT
    base = replace(THEORIA, scores_first=False)
    if ranking == FUSION:
        return replace(base, weights={"fused": 1.0}, rrf_k=int(values["k"]), diversity=None)
    return replace(
        base,
        weights={"relevance": values["α"], "recency": values["β"], "importance": values["γ"]},
        recency=Recency(shape="exponential", scale=values["τ"] * DAY),
    )


def plan() -> list[tuple[str, Mapping[str, float]]]:
    """Return every setting once."""
    found: dict[str, tuple[str, Mapping[str, float]]] = {}
    for ranking, numbers in RANKINGS.items():
        varied = []
        for name, values in numbers["alone"].items():
            varied += [{name: value} for value in values]
        together = numbers["together"]
        for combination in product(*together.values()):
            varied.append(dict(zip(together, combination, strict=True)))
        for each in varied:
            setting = {**numbers["usual"], **each}
            # Without recency τ changes nothing.
            if setting.get("β") != 0 or setting["τ"] == numbers["usual"]["τ"]:
                found.setdefault(str((ranking, setting)), (ranking, setting))
    return list(found.values())


def front(points: Sequence[Point]) -> list[Point]:
    """Return the settings that no other beats in accuracy and tokens, fewest tokens first.

    >>> results = ((0.6, 30), (0.8, 20), (0.5, 9))
    >>> points = [Point(ranking="x", values={}, accuracy=p, tokens=t) for p, t in results]
    >>> [each.tokens for each in front(points)]
    [9, 20]
    """
    kept: list[Point] = []
    for each in sorted(points, key=lambda point: (point.tokens, -point.accuracy)):
        if not kept or each.accuracy > kept[-1].accuracy:
            kept.append(each)
    return kept


def svg(swept: SweepReport) -> str:
    """Draw accuracy against tokens as SVG: a dot for each setting, and a line along the front."""
    longest = max(each.tokens for each in swept.points)
    step = 10.0 ** math.floor(math.log10(max(longest, 10.0))) / 2
    most = max(10.0, step * math.ceil(longest / step))  # the next round number

    def place(point: Point) -> tuple[float, float]:
        x = LEFT + WIDTH * point.tokens / most
        y = TOP + HEIGHT * (1 - point.accuracy)
        return round(x, 1), round(y, 1)

    lines = []
    for point in swept.points:
        x, y = place(point)
        center = f'<circle cx="{x}" cy="{y}"'
        color = RANKINGS[point.ranking]["color"]
        label = f"{escape(point.label)}: {point.accuracy:.0%}, {point.tokens:.0f} tokens"
        title = f"<title>{label}</title>"
        lines.append(f'{center} r="4" fill="{color}" fill-opacity="0.7">{title}</circle>')
        if point in (swept.best, swept.usual):
            name = "best tri-score" if point == swept.best else "usual tri-score"
            lines.append(f'{center} r="7" fill="none" stroke="{color}" stroke-width="2"/>')
            lines.append(f'<text x="{x + 10}" y="{y - 6}">{name}</text>')
    path = []
    for point in front(swept.points):
        x, y = place(point)
        path.append(f"{x} {y}")
    template = (FOLDER / "sweep.svg").read_text("utf-8")
    return template.format(
        ticks=[0.0, most * 0.25, most * 0.5, most * 0.75, most],
        front="L".join(path),
        points="\n".join(lines),
    )
