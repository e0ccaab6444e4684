"""Quality of recall on several sets of conversations: one command, one table.

    python -m bench.quality [SET …] [--data FOLDER] [--cache FOLDER] [--profile NAME] [--rerank]
                            [--db postgresql://…]

Each conversation is a separate user in one database per set, with the packaged embedding model and
no language model. Databases are kept in `--cache` and used again, so that a second run takes minutes.

Two kinds of calls are measured:

- *Ranking* (recall@k, first hit): ten hits, gate and cut switched off.
- *Default call* `recall(question)`: what a user gets. An empty answer has recall 0.

A turn counts by its message id. A derived memory (fact, summary) counts for a message only if the
message is in its evidence and its text has at least 60 % of the content words of the message, and
for at most two messages.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import memorist
from bench import data, report
from memorist.text.tokens import analyze
from memorist.types import Memory, Recall

SETS = ("locomo", "realtalk", "beam", "prefeval", "madial", "ikat", "personas", "languages")
PUBLIC = SETS[:6]
KS = (1, 5, 10)
BUDGETS = (250, 500, 1000, 2000)
FOREIGN = 40  # questions of another conversation that each conversation of LoCoMo is asked
WRONG_PERSON = "5"  # a category of LoCoMo, which is reported apart
SHARE = 0.6  # content words of a message that a derived memory has to contain
MOST_PER_HIT = 2  # messages that a derived memory counts for


@dataclass(slots=True, kw_only=True)
class Figures:
    """Sums over the questions of one set."""

    ranked: dict[int, list[float]] = field(default_factory=lambda: {k: [] for k in KS})
    within: dict[int, list[float]] = field(default_factory=lambda: {each: [] for each in BUDGETS})
    first: list[bool] = field(default_factory=list)  # the first hit is evidence
    default: list[float] = field(default_factory=list)  # recall of the default call
    returned: int = 0  # memories, by the default call, for answerable questions
    useful: int = 0  # of them, those that are evidence
    tokens: list[int] = field(default_factory=list)
    answered: list[bool] = field(default_factory=list)  # some evidence is returned
    sure: list[float] = field(default_factory=list)  # confidence of all answers
    empty: list[bool] = field(default_factory=list)  # answerable, but nothing was returned
    silent: list[bool] = field(default_factory=list)  # unanswerable, and nothing was returned


def credited(memory: Memory, texts: dict[str, str]) -> list[str]:
    """Return the ids of the messages that a memory counts for."""
    sources = [source for source in memory.source_ids if source in texts]
    if not memory.evidence_ids and not memory.compression_source:
        return sources
    words = set(analyze(memory.text))
    found = []
    for source in sources:
        wanted = set(analyze(texts[source]))
        if wanted and len(wanted & words) >= SHARE * len(wanted):
            found.append(source)
    return found[:MOST_PER_HIT]


def found_share(answer: Recall, evidence: tuple[str, ...], texts: dict[str, str], k: int) -> float:
    """Return the share of the evidence that the first k hits contain."""
    found: set[str] = set()
    for hit in answer.hits[:k]:
        found.update(credited(hit.memory, texts))
    return sum(id in found for id in evidence) / len(evidence)


async def measure(path: Path, options: argparse.Namespace, cache: Path) -> dict[str, Figures]:
    """Return the figures of one set, by part: all, the wrong person, foreign questions."""
    conversations = data.read(path)
    figures = {"": Figures()}
    settings: dict[str, Any] = {"reranker": "maxsim" if options.rerank else "none"}
    place = options.db or cache / f"{path.stem}.db"
    async with memorist.aio.open(place, state_dir=cache, **settings) as memory:
        for conversation in conversations:
            scope = memory.scope(user=conversation.name)
            if not (await scope.list(limit=1)).memories:
                await scope.remember(conversation.messages)
        for conversation, part, question in questions(conversations, path.stem):
            scope = memory.scope(user=conversation.name)
            texts = {each["id"]: each["content"] for each in conversation.messages}
            into = figures.setdefault(part, Figures())
            await ask(scope, question, texts, options, into)
    return figures


def questions(
    conversations: list[data.Conversation], name: str
) -> Iterator[tuple[data.Conversation, str, data.Question]]:
    """Yield each question with the conversation that is asked and the part that it counts for.

    Conversations of LoCoMo are also asked questions of the next one, which they cannot answer.
    """
    choose = random.Random(7)
    for number, conversation in enumerate(conversations):
        for question in conversation.questions:
            part = "wrong person" if question.category == WRONG_PERSON else ""
            yield conversation, part, question
        following = conversations[(number + 1) % len(conversations)]
        others = [each for each in following.questions if each.category != WRONG_PERSON]
        if following is not conversation and name.startswith("locomo"):
            for question in choose.sample(others, FOREIGN):
                yield conversation, "foreign", replace(question, evidence=())


async def ask(
    scope: Any,
    question: data.Question,
    texts: dict[str, str],
    options: argparse.Namespace,
    into: Figures,
) -> None:
    """Ask one question in all ways and add what came back."""
    how: dict[str, Any] = {"profile": options.profile, "rerank": options.rerank or None}
    answer = await scope.recall(question.text, **how)
    got = question.evidence and found_share(answer, question.evidence, texts, 10**6) > 0
    if answer.confidence is not None:
        into.sure.append(answer.confidence)
        into.answered.append(bool(got))
    if not question.evidence:
        into.silent.append(not answer.hits)
        return
    ranking = await scope.recall(question.text, limit=10, budget=10**6, min_confidence=0, **how)
    for k in KS:
        into.ranked[k].append(found_share(ranking, question.evidence, texts, k))
    into.first.append(found_share(ranking, question.evidence, texts, 1) > 0)
    for budget in BUDGETS:
        within = await scope.recall(question.text, budget=budget, **how)
        into.within[budget].append(found_share(within, question.evidence, texts, 10**6))
    wanted = set(question.evidence)
    into.default.append(found_share(answer, question.evidence, texts, 10**6))
    into.returned += len(answer.hits)
    into.useful += sum(bool(wanted & {*credited(hit.memory, texts)}) for hit in answer.hits)
    into.tokens.append(answer.tokens)
    into.empty.append(not answer.hits)


def mean(values: list[Any]) -> float | None:
    """Return the mean, or None if there is nothing to average."""
    return sum(values) / len(values) if values else None


def calibration_error(guesses: Sequence[float], came_true: Sequence[bool]) -> float:
    """Return the expected calibration error in ten bins.

    >>> calibration_error([0.25, 0.25, 0.75], [True, False, True])
    0.25
    """
    bins: dict[int, list[tuple[float, bool]]] = {}
    for guess, true in zip(guesses, came_true, strict=True):
        bins.setdefault(min(int(10 * guess), 9), []).append((guess, true))
    total = 0.0
    for pairs in bins.values():
        total += abs(sum(guess - true for guess, true in pairs))
    return total / len(guesses)


def row(name: str, part: str, figures: Figures) -> dict[str, Any]:
    """Return the line of the table for one part of a set."""
    line: dict[str, Any] = {"set": f"{name} {part}".strip()}
    line["questions"] = len(figures.default) + len(figures.silent)
    for k, shares in figures.ranked.items():
        line[f"@{k}"] = mean(shares)
    line["first"] = mean(figures.first)
    line["default"] = mean(figures.default)
    line["precision"] = figures.useful / figures.returned if figures.returned else None
    line["tokens"] = mean(figures.tokens)
    for budget, shares in figures.within.items():
        line[f"{budget} t"] = mean(shares)
    line["error"] = None
    if figures.sure:
        line["error"] = calibration_error(figures.sure, figures.answered)
    line["empty"] = mean(figures.empty)
    line["silent"] = mean(figures.silent)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}")
    data.add_option(parser)
    parser.add_argument("--cache", type=Path, help="where databases are kept between runs")
    parser.add_argument("--profile", default="default")
    parser.add_argument(
        "--rerank", action="store_true", help="with MaxSim over the token states of the model"
    )
    parser.add_argument("--db", help="an empty PostgreSQL database instead of SQLite files")
    options = parser.parse_args()
    paths = {name: options.data / f"{name}-dev.jsonl" for name in options.sets or SETS}
    paths = {name: path for name, path in paths.items() if path.exists()}
    if not paths:
        raise SystemExit(f"No data in {options.data}: pass its folder with --data")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        cache = options.cache or Path(folder)
        cache.mkdir(parents=True, exist_ok=True)
        for name, path in paths.items():
            for part, figures in asyncio.run(measure(path, options, cache)).items():
                rows.append(row(name, part, figures))
    ranked = [each["@10"] for each in rows if each["set"] in PUBLIC]
    report.table("Quality of recall", rows)
    if len(ranked) == len(PUBLIC):
        print(f"mean recall@10 of the public sets: {sum(ranked) / len(ranked):.4f}")
    name = "quality-postgres" if options.db else "quality"
    print(report.save(name, {"profile": options.profile, "rerank": options.rerank, "rows": rows}))


if __name__ == "__main__":
    main()
