"""Recall of evidence: how many of the messages that answer a question are found within the first k.

    python -m bench.quality [--data FOLDER] [--profile NAME] [--rerank] [--db postgresql://…]

Each conversation is a separate user in one database, with the packaged embedding model and no
language model. A message counts as found if one of the first k memories has it as a source.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import memorist
from bench import data, report
from memorist.types import Recall

SETS = {"locomo-dev.jsonl": 10, "ikat-dev.jsonl": 5, "locomo10.json": 10}
BUDGETS = (500, 1000, 2000)


def found_share(answer: Recall, evidence: tuple[str, ...], k: int) -> float:
    """Return the share of the evidence among the sources of the first k hits."""
    sources = {source for hit in answer.hits[:k] for source in hit.memory.source_ids}
    return sum(id in sources for id in evidence) / len(evidence)


async def measure(
    path: Path,
    k: int,
    profile: str,
    rerank: bool,
    folder: Path,
    db: str | None = None,
    extract: str = "off",
) -> list[dict[str, Any]]:
    """Return one row per category and one for all. Extracted facts do not count as their turn."""
    conversations = data.read(path)
    shares: dict[str, list[float]] = defaultdict(list)
    budgets: dict[int, list[float]] = defaultdict(list)
    settings: dict[str, Any] = {"reranker": "maxsim" if rerank else "none", "extract": extract}
    async with memorist.aio.open(
        db or folder / f"{path.stem}.db", state_dir=folder, **settings
    ) as memory:
        started = time.perf_counter()
        for conversation in conversations:
            await memory.scope(user=conversation.name).remember(conversation.messages)
        took = time.perf_counter() - started
        if extract != "off":
            print(await memory.run_jobs(only=["extract", "embed"]))
        for conversation in conversations:
            scope = memory.scope(user=conversation.name)
            for question in conversation.questions:
                answer = await scope.recall(
                    question.text, limit=k, budget=10**6, profile=profile, rerank=rerank
                )
                shares[question.category].append(found_share(answer, question.evidence, k))
                if question.category != "5":
                    for budget in BUDGETS:
                        within = await scope.recall(
                            question.text, budget=budget, profile=profile, rerank=rerank
                        )
                        budgets[budget].append(found_share(within, question.evidence, 10**6))
    counted = [share for category, each in shares.items() if category != "5" for share in each]
    rows = [
        _row(path.stem, f"category {name}", each, k)
        for name, each in sorted(shares.items())
        if len(shares) < 8
    ]
    rows += [
        _row(path.stem, f"within {budget} tokens", each, 0) for budget, each in budgets.items()
    ]
    rows.append({**_row(path.stem, "all but category 5", counted, k)})
    print(
        f"{path.stem}: {sum(len(c.messages) for c in conversations)} messages stored in {took:.1f} s"
    )
    return rows


def _row(name: str, what: str, shares: list[float], k: int) -> dict[str, Any]:
    mean = sum(shares) / len(shares) if shares else 0.0
    return {
        "set": name,
        "what": what,
        "k": str(k or "budget"),
        "questions": len(shares),
        "recall": round(mean, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=data.DATA)
    parser.add_argument("--profile", default="default")
    parser.add_argument(
        "--rerank",
        action="store_true",
        help="with MaxSim over the token states of the packaged model",
    )
    parser.add_argument(
        "--extract",
        default="off",
        choices=("off", "rules"),
        help="extract facts from the turns first",
    )
    parser.add_argument("--db", help="an empty PostgreSQL database instead of a SQLite file")
    options = parser.parse_args()
    paths = [options.data / name for name in SETS if (options.data / name).exists()]
    if not paths:
        raise SystemExit(f"No data in {options.data}: expected one of {', '.join(SETS)}")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            how = (options.profile, options.rerank, Path(folder), options.db, options.extract)
            rows += asyncio.run(measure(path, SETS[path.name], *how))
    report.table("Recall of evidence", rows)
    print(
        report.save(
            "quality"
            + ("-postgres" if options.db else "")
            + ("-extracted" if options.extract != "off" else ""),
            {"profile": options.profile, "rerank": options.rerank, "rows": rows},
        )
    )


if __name__ == "__main__":
    main()
