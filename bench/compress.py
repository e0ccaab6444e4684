"""How much evidence recall still reaches when the older half of the sessions is compressed.

    python -m bench.compress [--data FOLDER]

Each conversation is a separate user, with the packaged embedding model and no language model. A
message counts as found if one of the first ten memories has it as a source, or summarizes a memory
that has.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import memorist
from bench import data, report
from memorist.client import Client
from memorist.scoped import ScopedClient
from memorist.types import Recall

K = 10


async def find_evidence(scope: ScopedClient, answer: Recall, evidence: tuple[str, ...]) -> float:
    """Return the share of the evidence among the sources of the first hits, summaries expanded."""
    behind = [
        id
        for memory in answer.memories[:K]
        if memory.compression_source
        for id in memory.evidence_ids
    ]
    seen = [*answer.memories[:K], *await scope.ctx.store.get(scope.scope, behind)]
    sources = {source for memory in seen for source in memory.source_ids}
    return sum(id in sources for id in evidence) / len(evidence)


async def ask(
    memory: Client, conversations: list[data.Conversation], older: set[str], **options: Any
) -> list[Any]:
    """Return the mean over all questions, over those about the older half only, and over the rest."""
    shares: dict[bool, list[float]] = {True: [], False: []}
    tokens = 0
    for conversation in conversations:
        scope = memory.scope(user=conversation.name)
        for question in conversation.questions:
            if question.category != "5":
                answer = await scope.recall(question.text, limit=K, budget=10**6, **options)
                is_old = all(f"{conversation.name}/{id}" in older for id in question.evidence)
                shares[is_old].append(await find_evidence(scope, answer, question.evidence))
                tokens += answer.tokens
    every = shares[True] + shares[False]
    return [
        *(round(sum(each) / len(each), 4) for each in (every, shares[True], shares[False])),
        tokens // len(every),
    ]


async def compress(memory: Client, conversations: list[data.Conversation]) -> set[str]:
    """Compress the older half of each conversation and return the messages that were summarized."""
    older: set[str] = set()
    started, made, characters = time.perf_counter(), 0, [0, 0]
    for conversation in conversations:
        scope = memory.scope(user=conversation.name)
        sessions = list(dict.fromkeys(message["session"] for message in conversation.messages))
        done = await scope.compress(threshold=1, sessions=len(sessions) // 2)
        behind = await memory.ctx.store.get(scope.scope, done.memories)
        summaries = await memory.ctx.store.get(scope.scope, done.summaries)
        older |= {f"{conversation.name}/{source}" for each in behind for source in each.source_ids}
        made += done.groups
        characters[0] += sum(len(each.text) for each in behind)
        characters[1] += sum(len(each.text) for each in summaries)
    took = time.perf_counter() - started
    print(
        f"{made} sessions with {len(older)} turns in {took:.1f} s: {characters[0]} characters became {characters[1]}"
    )
    return older


async def measure(path: Path, folder: Path) -> list[dict[str, Any]]:
    conversations = data.read(path)
    async with memorist.aio.open(folder / "m.db", state_dir=folder) as memory:
        for conversation in conversations:
            await memory.scope(user=conversation.name).remember(conversation.messages)
        await memory.backup(folder / "before.db")
        older = await compress(memory, conversations)
        rows = {
            "summaries": await ask(memory, conversations, older),
            "with include_compressed": await ask(
                memory, conversations, older, include_compressed=True
            ),
        }
    async with memorist.aio.open(folder / "before.db", state_dir=folder) as memory:
        rows = {"before": await ask(memory, conversations, older), **rows}
    names = ("all", "evidence in the older half", "other", "tokens")
    return [
        {"what": what, **dict(zip(names, figures, strict=True))} for what, figures in rows.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    data.add_option(parser)
    path = parser.parse_args().data / "locomo-dev.jsonl"
    if not path.exists():
        raise SystemExit(f"{path} does not exist")
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measure(path, Path(folder)))
    report.table(
        f"Recall@{K} of evidence, the older half of the sessions compressed by rules", rows
    )
    print(report.save("compress", {"rows": rows}))


if __name__ == "__main__":
    main()
