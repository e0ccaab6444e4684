"""Quality of recall on several sets of conversations: one command, one table.

    python -m bench.quality [SET …] [--data FOLDER] [--cache FOLDER] [--profile NAME] [--rerank]
                            [--db postgresql://…]

Each conversation is a separate user in one database per set, with the packaged embedding model and
no language model. Databases are kept in `--cache` and used again, so that a second run takes minutes.

The calls and the measures are those of `memorist eval FILE`, see `memorist.evals.questions`, and the
recall within several token budgets.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import memorist
from bench import data, report
from memorist.evals.questions import Figures, ask
from memorist.manage.recall import RecallOptions

SETS = ("locomo", "realtalk", "beam", "prefeval", "madial", "ikat", "personas", "languages")
PUBLIC = SETS[:6]
BUDGETS = (250, 500, 1000, 2000)
FOREIGN = 40  # questions of another conversation that each conversation of LoCoMo is asked
WRONG_PERSON = "5"  # a category of LoCoMo, which is reported apart


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
        await memory.run_jobs(only=["extract"])
        for conversation, part, question in questions(conversations, path.stem):
            scope = memory.scope(user=conversation.name)
            parts = [figures.setdefault(part, Figures())]
            how = RecallOptions(profile=options.profile, rerank=options.rerank or None)
            await ask(scope, question, conversation.texts, parts, how, budgets=BUDGETS)
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
    with data.open_cache(options.cache) as cache:
        for name, path in paths.items():
            for part, figures in asyncio.run(measure(path, options, cache)).items():
                rows.append({"set": f"{name} {part}".strip(), **figures.row()})
    ranked = [each["@10"] for each in rows if each["set"] in PUBLIC]
    report.table("Quality of recall", rows)
    if len(ranked) == len(PUBLIC):
        print(f"mean recall@10 of the public sets: {sum(ranked) / len(ranked):.4f}")
    name = "quality-postgres" if options.db else "quality"
    print(report.save(name, {"profile": options.profile, "rerank": options.rerank, "rows": rows}))


if __name__ == "__main__":
    main()
