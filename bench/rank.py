"""Fit the weights of the default ranking, leaving out one set at a time.

    python -m bench.rank [--data FOLDER] [--cache FOLDER] [--measure SET …] [--hold 0.03]

Shows for each set what the weights that ship give, and what weights give that were fitted on the others: if the second
column is hardly better, there is nothing to gain by tuning. Only data that may be shipped is fitted (see `bench.fit`);
sets given with `--measure` are only measured. Fitted weights are held near those that ship, more so with a larger
`--hold`. The hundred best candidates of each question are ranked again.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import memorist
from bench import data, report
from bench.fit import find_sets
from bench.quality import WRONG_PERSON
from memorist.evals.questions import credited
from memorist.manage.recall import build_query
from memorist.retrieve import pipeline, score
from memorist.retrieve.profiles import DEFAULT

POOL = 100
SHARPNESS = 6.0  # of the probabilities that a score gives, before any fit
STEPS = 300
NOT_FITTED = ("summary", "insight", "verdict", "recency")
NAMES = [name for name in DEFAULT.weights if name not in NOT_FITTED]
SHIPPED_WEIGHTS = np.array([DEFAULT.weights[name] for name in NAMES])
Array = NDArray[np.float64]


@dataclass(slots=True)
class Ranked:
    """The candidates of one question: their features, and which message of the evidence each is."""

    features: Array
    evidence: list[set[str]]
    wanted: int


async def collect(path: Path, cache: Path) -> list[Ranked]:
    """Return the best candidates of all answerable questions of a set."""
    found = []
    async with memorist.aio.open(cache / f"{path.stem}.db", state_dir=cache) as memory:
        for conversation in data.read(path):
            scope = memory.scope(user=conversation.name)
            if not (await scope.list(limit=1)).memories:
                await scope.remember(conversation.messages)
            texts = {each["id"]: each["content"] for each in conversation.messages}
            for question in conversation.questions:
                if question.category != WRONG_PERSON:
                    found += await ask(scope, question, texts)
    return found


async def ask(scope: Any, question: data.Question, texts: dict[str, str]) -> list[Ranked]:
    """Return the candidates of one question, if it can be answered."""
    if not question.evidence:
        return []
    ctx = scope.ctx
    query, profile = build_query(scope, question.text, {"limit": POOL})
    search, legs = await pipeline.prepare(ctx, query, profile, ctx.clock())
    chosen = score.select(search, query.limit)
    found = await pipeline.read(chosen, search, query, ctx.store, legs)
    ranked = score.rank(profile, found)
    wanted = set(question.evidence)
    return [
        Ranked(
            features=np.array([[each.features[name] for name in NAMES] for each in ranked]),
            evidence=[wanted & {*credited(each.memory, texts)} for each in ranked],
            wanted=len(wanted),
        )
    ]


def recall_at_ten(asked: list[Ranked], weights: Array) -> float:
    """Return the mean share of the evidence among the first ten."""
    shares = []
    for each in asked:
        found: set[str] = set()
        if len(each.evidence):
            for place in np.argsort(-(each.features @ weights), kind="stable")[:10]:
                found |= each.evidence[place]
        shares.append(len(found) / each.wanted)
    return sum(shares) / len(shares)


def fit(sets: list[list[Ranked]], hold: float) -> Array:
    """Return weights under which evidence is likely to come first, near those that ship."""
    start = SHARPNESS * SHIPPED_WEIGHTS
    weights = start.copy()
    speed = np.zeros_like(weights)
    for _ in range(STEPS):
        slope = hold * (weights - start)
        for asked in sets:
            for each in asked:
                useful = np.array([bool(ids) for ids in each.evidence])
                if useful.any() and not useful.all():
                    odds = each.features @ weights
                    chosen = np.exp(odds - odds.max())
                    chosen /= chosen.sum()
                    right = chosen * useful / (chosen * useful).sum()
                    slope = slope + each.features.T @ (chosen - right) / len(asked) / len(sets)
        speed = 0.9 * speed - 0.1 * slope
        weights = weights + speed
    return np.asarray(weights / SHARPNESS)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data.add_fit_options(parser)
    parser.add_argument("--hold", type=float, default=0.03)
    options = parser.parse_args()
    paths, shipped = find_sets(options.data, options.measure)
    with data.open_cache(options.cache) as cache:
        found = {name: asyncio.run(collect(path, cache)) for name, path in paths.items()}
    rows = []
    for name, asked in found.items():
        weights = fit([found[each] for each in shipped if each != name], options.hold)
        line = {
            "set": name,
            "questions": len(asked),
            "ships": recall_at_ten(asked, SHIPPED_WEIGHTS),
        }
        rows.append({**line, "fitted on the others": recall_at_ten(asked, weights)})
    report.table("Recall@10 by weights", rows)
    weights = fit([found[each] for each in shipped], options.hold)
    print({name: round(float(weight), 2) for name, weight in zip(NAMES, weights, strict=True)})


if __name__ == "__main__":
    main()
