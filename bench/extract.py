"""How many of the facts in what people say are found, and how many of those found are right.

    python -m bench.extract [--data FOLDER] [--show N]

The labelled messages are ours (`tests/data/extraction.jsonl`): a fact counts as right if it holds all the words of one
that the label names. Beside the rules stands a model that answers with every clause put into the third person and with
as many inventions, to show what the checks let through. Over LoCoMo, if it is there, it prints a sample to be judged by
eye.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import data, report
from memorist.extraction import llm, rules
from memorist.text import style_check

LABELLED = Path(__file__).parents[1] / "tests" / "data" / "extraction.jsonl"
AT = datetime(2026, 5, 8, 9, tzinfo=UTC)  # a Friday
Finder = Callable[[str], Sequence[str]]


def by_rules(text: str) -> list[str]:
    return [fact.text for fact in rules.find_facts(text, who=rules.THE_USER, at=AT)]


def by_careless_model(text: str) -> list[str]:
    """What is left of the answer of a model that notes every clause and adds as much of its own."""
    found = []
    for clause in list(rules.split_clauses(text))[:3]:
        told = rules.to_third_person(rules.strip_clause(clause), rules.THE_USER)
        found += [
            _item(told, clause),
            _item(f"{told.rstrip('.')} and owns a yacht in Monaco.", clause),
        ]
    return [
        fact.text
        for fact in llm.check({"facts": found}, text, who=rules.THE_USER, at=AT, most=5)[0]
    ]


def _item(fact: str, quote: str) -> dict[str, Any]:
    return {"fact": fact, "type": "other", "confidence": 0.9, "importance": 0.5, "evidence": quote}


def matches(found: str, wanted: Sequence[str]) -> bool:
    return all(word in found.lower() for word in wanted)


def figures(name: str, find: Finder, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Precision and recall over the labelled messages, and how many of the facts are worded as they should be."""
    found = [find(row["text"]) for row in rows]
    right = sum(
        any(matches(fact, each) for each in row["facts"])
        for row, few in zip(rows, found, strict=True)
        for fact in few
    )
    hit = sum(
        any(matches(fact, each) for fact in few)
        for row, few in zip(rows, found, strict=True)
        for each in row["facts"]
    )
    made, wanted = sum(map(len, found)), sum(len(row["facts"]) for row in rows)
    worded = sum(not style_check.find_fault(fact) for few in found for fact in few)
    return {
        "found by": name,
        "messages": len(rows),
        "facts in them": wanted,
        "found": made,
        "precision": round(right / max(1, made), 3),
        "recall": round(hit / wanted, 3),
        "well worded": round(worded / max(1, made), 3),
    }


def wrong(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the rules miss and what they make up."""
    out = []
    for row in rows:
        found = by_rules(row["text"])
        extra = [fact for fact in found if not any(matches(fact, each) for each in row["facts"])]
        missed = [each for each in row["facts"] if not any(matches(fact, each) for fact in found)]
        if extra or missed:
            out.append({"message": row["text"], "missed": missed, "not wanted": extra})
    return out


def sample(path: Path, count: int) -> list[tuple[str, str]]:
    """Facts that the rules find in conversations, with the words they rest on."""
    found = [
        (fact.text, fact.evidence)
        for conversation in data.read(path)
        for said in conversation.messages
        for fact in rules.find_facts(
            said["content"],
            who=rules.name_speaker(said["name"]),
            at=datetime.fromisoformat(said["at"]) if said["at"] else AT,
        )
    ]
    print(f"{path.stem}: {len(found)} facts")
    return random.Random(0).sample(found, min(count, len(found)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=data.DATA)
    parser.add_argument(
        "--show", type=int, default=0, help="so many facts of LoCoMo, to be judged by eye"
    )
    options = parser.parse_args()
    rows = [json.loads(line) for line in LABELLED.read_text("utf-8").splitlines()]
    table = [
        figures("rules", by_rules, rows),
        figures("a careless model, checked", by_careless_model, rows),
    ]
    report.table("Facts in what people say", table)
    for each in wrong(rows):
        print(each)
    if options.show and (options.data / "locomo-dev.jsonl").exists():
        for fact, quote in sample(options.data / "locomo-dev.jsonl", options.show):
            print(f"{fact}\n    {quote}")
    print(report.save("extract", {"facts": table}))


if __name__ == "__main__":
    main()
