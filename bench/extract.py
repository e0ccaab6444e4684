"""Precision and recall of fact extraction.

    python -m bench.extract [--data FOLDER] [--show N]

The labeled messages are in `tests/data/extraction.jsonl`. A fact is correct if it contains all words
of one of the labels. The second row is a model that returns every clause in the third person and
adds as many inventions; it shows what the checks let through. With LoCoMo, prints a sample for
review.
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
from memorist.extraction.third_person import to_third_person
from memorist.text import prompts

LABELED = Path(__file__).parents[1] / "tests" / "data" / "extraction.jsonl"
AT = datetime(2026, 5, 8, 9, tzinfo=UTC)  # a Friday
Finder = Callable[[str], Sequence[str]]


def by_rules(text: str) -> list[str]:
    return [fact.text for fact in rules.find_facts(text, who=rules.THE_USER, at=AT)]


def by_careless_model(text: str) -> list[str]:
    """Return what passes the checks of a model that invents half of its facts."""
    found = []
    for clause in list(rules.split_clauses(text))[:3]:
        fact_text = to_third_person(rules.strip_clause(clause), rules.THE_USER)
        found += [
            _item(fact_text, clause),
            _item(f"{fact_text.rstrip('.')} and owns a yacht in Monaco.", clause),
        ]
    return [
        fact.text
        for fact in llm.check({"facts": found}, text, who=rules.THE_USER, at=AT, most=5)[0]
    ]


def _item(fact: str, quote: str) -> dict[str, Any]:
    return {"fact": fact, "type": "other", "confidence": 0.9, "importance": 0.5, "evidence": quote}


def matches(found: str, wanted: Sequence[str]) -> bool:
    return all(word in found.lower() for word in wanted)


def evaluate(name: str, find: Finder, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Compute precision, recall, and the share of facts that pass the style check."""
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
    worded = sum(not prompts.find_fault(fact) for few in found for fact in few)
    return {
        "method": name,
        "messages": len(rows),
        "facts": wanted,
        "found": made,
        "precision": round(right / max(1, made), 3),
        "recall": round(hit / wanted, 3),
        "style ok": round(worded / max(1, made), 3),
    }


def find_errors(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """List what the rules miss and what they invent."""
    out = []
    for row in rows:
        found = by_rules(row["text"])
        extra = [fact for fact in found if not any(matches(fact, each) for each in row["facts"])]
        missed = [each for each in row["facts"] if not any(matches(fact, each) for fact in found)]
        if extra or missed:
            out.append({"message": row["text"], "missed": missed, "wrong": extra})
    return out


def sample(path: Path, count: int) -> list[tuple[str, str]]:
    """Return facts that the rules find in conversations, with their evidence."""
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
    data.add_option(parser)
    parser.add_argument(
        "--show", type=int, default=0, help="number of facts of LoCoMo to print for review"
    )
    options = parser.parse_args()
    rows = [json.loads(line) for line in LABELED.read_text("utf-8").splitlines()]
    table = [
        evaluate("rules", by_rules, rows),
        evaluate("a careless model, checked", by_careless_model, rows),
    ]
    report.table("Fact extraction", table)
    for each in find_errors(rows):
        print(each)
    if options.show and (options.data / "locomo-dev.jsonl").exists():
        for fact, quote in sample(options.data / "locomo-dev.jsonl", options.show):
            print(f"{fact}\n    {quote}")
    print(report.save("extract", {"facts": table}))


if __name__ == "__main__":
    main()
