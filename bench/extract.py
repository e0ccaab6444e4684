"""Precision and recall of fact extraction.

    python -m bench.extract [--data FOLDER] [--show N] [--fit]

The labeled messages are in `tests/data/extraction.jsonl`. A fact is correct if it contains all words
of one of the labels. The second row is a model that returns every clause in the third person and
adds as many inventions; it shows what the checks let through. With LoCoMo, personas and BEAM, prints
how many messages have facts, and a sample for review.

`--fit` fits the weights of `extraction/durable.toml` and writes them there: on the labeled
statements in `bench/own/facts`, and with personas also on the statements of its messages, where
those in messages that answer a question count as lasting. Prints precision and recall for
statements that were left out: a tenth of our own, or all of one person.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench import data, report
from memorist.extraction import durable, llm, rules
from memorist.extraction.third_person import to_third_person
from memorist.text import prompts

LABELED = Path(__file__).parents[1] / "tests" / "data" / "extraction.jsonl"
AT = datetime(2026, 5, 8, 9, tzinfo=UTC)  # a Friday
OWN = Path(__file__).parent / "own" / "facts"
WEIGHTS = Path(durable.__file__).with_suffix(".toml")
SETS = ("locomo", "personas", "beam")
RIDGE = 1.0  # L2 penalty of a weight
TRUST = {True: 0.5, False: 0.25}  # weight of a statement of personas, by whether it is evidence
Finder = Callable[[str], Sequence[str]]
Array = NDArray[np.float64]


def by_rules(text: str) -> list[str]:
    return [fact.text for fact in rules.find_facts(text, who=rules.THE_USER, at=AT)]


def by_careless_model(text: str) -> list[str]:
    """Return what passes the checks of a model that invents half of its facts."""
    found = []
    for clause in list(rules.split_clauses(rules.read_own(text)))[:3]:
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


def find_all(path: Path) -> list[tuple[str, rules.Fact]]:
    """Return the facts that the rules find in conversations, and print how many there are."""
    found = []
    turns = evidence = covered = 0
    for conversation in data.read(path):
        wanted = {id for question in conversation.questions for id in question.evidence}
        for said in conversation.messages:
            turns += 1
            if said["role"] == "assistant":
                continue
            at = datetime.fromisoformat(said["at"]) if said["at"] else AT
            who = rules.name_speaker(said["name"])
            facts = rules.find_facts(said["content"], who=who, at=at)
            found += [(said["content"], fact) for fact in facts]
            if said["id"] in wanted:
                evidence += 1
                covered += bool(facts)
    share = covered / max(1, evidence)
    print(
        f"{path.stem}: {len(found)} facts of {turns} turns, {share:.3f} of the {evidence} evidence"
    )
    return found


class Labeled(NamedTuple):
    """A statement that is lasting or not."""

    text: str
    is_lasting: bool
    weight: float
    group: str  # left out together


def read_labeled(folder: Path) -> list[Labeled]:
    """Read the labeled statements of our own, and those of personas if the folder has them."""
    found = []
    for path in sorted(OWN.glob("*.jsonl")):
        for number, line in enumerate(path.read_text("utf-8").splitlines()):
            row = json.loads(line)
            found.append(Labeled(row["text"], row["lasting"], 1.0, f"own {number % 10}"))
    path = folder / "personas-dev.jsonl"
    if not path.exists():
        return found
    for conversation in data.read(path):
        wanted = {id for question in conversation.questions for id in question.evidence}
        for said in conversation.messages:
            if said["role"] == "assistant":
                continue
            text = said["content"]
            is_evidence = said["id"] in wanted
            for each in durable.propose(text, rules.THE_USER, AT, keeps_all=True):
                # The short parts of a message are seldom what answers the question.
                if not is_evidence or len(each.source) >= 0.3 * len(text):
                    weight = TRUST[is_evidence]
                    found.append(Labeled(each.source, is_evidence, weight, conversation.name))
    return found


def solve(features: Array, labels: Array, weights: Array) -> Array:
    """Return the coefficients of a logistic regression, the last of which is the bias."""
    given = np.hstack([features, np.ones((len(features), 1))])
    penalty = np.full(given.shape[1], RIDGE)
    penalty[-1] = 1e-6
    found = np.zeros(given.shape[1])
    for _ in range(30):
        expected = predict(features, found)
        gradient = given.T @ ((expected - labels) * weights) + penalty * found
        curvature = weights * expected * (1 - expected)
        hessian = (given * curvature[:, None]).T @ given + np.diag(penalty)
        found -= np.linalg.solve(hessian, gradient)
    return found


def predict(features: Array, coefficients: Array) -> Array:
    total = features @ coefficients[:-1] + coefficients[-1]
    expected: Array = 1 / (1 + np.exp(-total))
    return expected


def fit(folder: Path) -> None:
    """Fit the weights, print how good they are for statements that were left out, and write them."""
    rows = read_labeled(folder)
    measured = [durable.measure(row.text) for row in rows]
    names = sorted({name for each in measured for name in each})
    features = np.array([[each.get(name, 0.0) for name in names] for each in measured])
    labels = np.array([row.is_lasting for row in rows], float)
    weights = np.array([row.weight for row in rows])
    groups = np.array([row.group for row in rows])
    expected = np.zeros(len(rows))
    for group in set(groups):
        out = groups == group
        found = solve(features[~out], labels[~out], weights[~out])
        expected[out] = predict(features[out], found)
    is_own = np.char.startswith(groups, "own ")
    table = []
    for least in (0.4, 0.5, 0.6, 0.7):
        for name, chosen in (("own", is_own), ("personas", ~is_own)):
            kept = chosen & (expected >= least)
            if kept.any():
                row = {
                    "statements": name,
                    "least": least,
                    "kept": int(kept.sum()),
                    "precision": round(labels[kept].mean(), 3),
                    "recall": round(labels[kept].sum() / labels[chosen].sum(), 3),
                }
                table.append(row)
    report.table("Lasting statements, of those left out", table)
    found = solve(features, labels, weights)
    lines = [f"bias = {found[-1]:.2f}"]
    lines += [f"{name} = {value:.2f}" for name, value in zip(names, found, strict=False)]
    written = WEIGHTS.read_text("utf-8")
    head, _, tail = written.partition("[weights]\n")
    kept_least = re.findall(r"^least.* = .*$", tail, re.MULTILINE)
    WEIGHTS.write_text("\n".join([f"{head}[weights]", *kept_least, *lines, ""]), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data.add_option(parser)
    parser.add_argument(
        "--show", type=int, default=0, help="number of facts of each set to print for review"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the facts that are printed")
    parser.add_argument("--fit", action="store_true", help="fit and write the weights")
    options = parser.parse_args()
    if options.fit:
        fit(options.data)
        return
    rows = [json.loads(line) for line in LABELED.read_text("utf-8").splitlines()]
    table = [
        evaluate("rules", by_rules, rows),
        evaluate("a careless model, checked", by_careless_model, rows),
    ]
    report.table("Fact extraction", table)
    for each in find_errors(rows):
        print(each)
    for name in SETS:
        path = options.data / f"{name}-dev.jsonl"
        if not path.exists():
            continue
        found = find_all(path)
        chosen = random.Random(options.seed).sample(found, min(options.show, len(found)))
        for text, fact in chosen:
            print(f"{fact.text}\n    {fact.evidence}\n    {text[:300]!r}")
    print(report.save("extract", {"facts": table}))


if __name__ == "__main__":
    main()
