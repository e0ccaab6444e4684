"""Where the merge thresholds lie, what the text comparison accepts, and what it costs.

    python -m bench.merge [--data FOLDER] [--show] [--size 10000]

Pairs are from `tests/data/pairs_*.jsonl` and from similar turns of real conversations. `--show`
prints pairs of the conversations that would be merged or superseded, and contradictions, for review.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np

from memorist import aio, dialects
from memorist.client import Client
from memorist.embedders import encode
from memorist.ingest import policies
from memorist.text import compare, contradictions
from memorist.text.statements import parse
from memorist.types import Draft

from . import data, report

PAIRS = Path(__file__).parents[1] / "tests" / "data"
EDGES = (1.01, 0.95, 0.90, 0.85, 0.80, 0.70, 0.60, 0.50, -1.0)
NONE = policies.Policy(name="none of the stages")
ALL = replace(policies.DEFAULT, name="all of the stages")
PAGE = 256

Pair = tuple[str, str, float]  # newer, older, cosine


def read_pairs(name: str) -> list[tuple[str, str]]:
    """Read the pairs of a file, newer first."""
    lines = (PAIRS / f"pairs_{name}.jsonl").read_text("utf-8").splitlines()
    return [(pair["new"], pair["old"]) for pair in map(json.loads, lines)]


async def add_cosine(engine: Client, pairs: list[tuple[str, str]]) -> list[Pair]:
    """Return the pairs with their cosine."""
    assert engine.ctx.embedder is not None
    new, old = [
        await encode(engine.ctx.embedder, [pair[side] for pair in pairs]) for side in (0, 1)
    ]
    return [
        (a, b, float(cosine))
        for (a, b), cosine in zip(pairs, np.einsum("ij,ij->i", new, old), strict=True)
    ]


async def similar_turns(engine: Client, folder: Path) -> list[Pair]:
    """Pair each turn of real conversations with the nearest earlier turn of the speaker."""
    assert engine.ctx.embedder is not None
    found: list[Pair] = []
    for talk in data.read(folder / "locomo-dev.jsonl"):
        for speaker in {said["name"] for said in talk.messages}:
            texts = list(
                dict.fromkeys(said["content"] for said in talk.messages if said["name"] == speaker)
            )
            made = await encode(engine.ctx.embedder, texts)
            near = np.tril(made @ made.T, -1)
            found += [
                (texts[i], texts[j], float(near[i, j]))
                for i, j in enumerate(near.argmax(axis=1))
                if i
            ]
    return found


def bands(name: str, pairs: list[Pair]) -> list[dict[str, Any]]:
    """Count the pairs in each band and the results of comparing them."""
    rows = []
    for high, low in pairwise(EDGES):
        here = [pair for pair in pairs if low <= pair[2] < high]
        verdicts = [compare.verdict(parse(new), parse(old)) for new, old, _ in here]
        other = [pair for pair, verdict in zip(here, verdicts, strict=True) if verdict == "other"]
        rows.append(
            {
                "pairs": name, "cosine from": low, "n": len(here), "same": verdicts.count("same"),
                "more": verdicts.count("more"), "less": verdicts.count("less"),
                "contradicts": sum(contradictions.contradicts(parse(new), parse(old)) for new, old, _ in other),
            }
        )  # fmt: skip
    return rows


def unrelated() -> dict[str, Any]:
    """Compare all statements with each other; only contradictions may be superseded."""
    texts = list(
        dict.fromkeys(old for name in ("repeat", "changed") for _, old in read_pairs(name))
    )
    short = [text for text in texts if parse(text).clause is not None]
    found = [
        pair for pair in permutations(short, 2) if contradictions.contradicts(*map(parse, pair))
    ]
    return {
        "statements": len(short),
        "pairs": len(short) * (len(short) - 1),
        "contradicts": len(found),
        "found": found,
    }


def invent(size: int) -> Iterator[str]:
    """Yield distinct statements of the same form."""
    things = "bicycle garden lamp kettle ledger violin harbour tunnel recipe carpet engine ladder window basket".split()
    places = "cellar attic office kitchen hall garage shed studio library workshop balcony cabin barn tower".split()
    for n in range(size):
        thing, place = things[n % len(things)], places[n // len(things) % len(places)]
        yield f"The {thing} number {n} stands in the {place} of house {n * 7 % 1009} and belongs to {n * 13 % 997}"


def natural(folder: Path, size: int) -> list[str]:
    """Return texts of real conversations, filled up with invented ones."""
    files = [folder / f"{name}-dev.jsonl" for name in ("locomo", "ikat")]
    talks = [talk for file in files if file.exists() for talk in data.read(file)]
    said = dict.fromkeys(message["content"] for talk in talks for message in talk.messages)
    return [*said, *invent(size)][:size]


async def costs(folder: Path, where: Path, size: int) -> list[dict[str, Any]]:
    """Measure remember with and without the comparison stages, in a scope of `size` memories."""
    for policy in (NONE, ALL):
        dialects.POLICIES[policy.name] = policy
    taken: dict[str, list[float]] = {NONE.name: [], ALL.name: []}
    pairs = [
        pair
        for both in zip(read_pairs("changed"), read_pairs("repeat"), strict=True)
        for pair in both
    ]
    known = [*natural(where, size - len(pairs)), *(old for _, old in pairs)]
    async with aio.open(folder / "costs.db") as engine:
        mine = engine.scope("cost")
        for start in range(0, size, PAGE):
            drafts = [Draft(text=text) for text in known[start : start + PAGE]]
            await mine.remember_drafts(drafts, policy=NONE.name)
        for n, (text, _) in enumerate(pairs):
            name = (NONE.name, ALL.name)[n // 2 % 2]
            started = time.perf_counter()
            await mine.remember(text, policy=name)
            taken[name].append(1000 * (time.perf_counter() - started))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    return [
        {"stages": name, "memories": size, "p50 ms": ms, "p95 ms": float(np.percentile(taken[name], 95)),
         "of none": ms / medians[NONE.name]}
        for name, ms in medians.items()
    ]  # fmt: skip


async def run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with aio.open(folder / "memory.db") as engine:
            sets = {
                each: await add_cosine(engine, read_pairs(each)) for each in ("repeat", "changed")
            }
            if (options.data / "locomo-dev.jsonl").exists():
                sets["conversations"] = await similar_turns(engine, options.data)
        rows = [row for each, pairs in sets.items() for row in bands(each, pairs)]
        report.table("Merge bands", [row for row in rows if row["n"]])
        apart = unrelated()
        found = apart.pop("found")
        report.table("All statements compared", [apart])
        cost = await costs(folder, options.data, options.size)
    report.table("Cost of one remember", cost)
    if options.show:
        show(sets.get("conversations", []), found)
    report.save("merge", {"bands": rows, "unrelated": apart, "cost": cost})


def show(pairs: list[Pair], found: list[tuple[str, str]]) -> None:
    for new, old, cosine in pairs:
        verdict = compare.verdict(parse(new), parse(old))
        verdict_or = (
            "contradicts"
            if verdict == "other" and contradictions.contradicts(parse(new), parse(old))
            else verdict
        )
        if verdict_or != "other":
            print(f"{verdict_or}  {cosine:.2f}\n   {old}\n   {new}")
    for new, old in found:
        print(f"contradicts\n   {old}\n   {new}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data.add_option(parser)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--show", action="store_true")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
