"""How fast a worker embeds a backlog of memories, compared to the embedder alone on similar texts.

    python -m bench.backlog [--size 10000] [--batch 32] [--part 500] [--url postgresql://…]

The embedder and the worker take turns with `part` texts each, so a machine that slows down affects
both. The ratio is the rate of the worker over that of the embedder. With `--url` the backlog is in
PostgreSQL; the database must be empty.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import report
from bench.speed import sentence
from memorist.aio import open_client
from memorist.client import Client
from memorist.embedders import encode
from memorist.embedders.local import MiniLM
from memorist.errors import RevisionConflict
from memorist.jobs.vectors import backfill

USERS = 20


async def fill(place: str, folder: Path, size: int) -> list[str]:
    """Create a backlog, and return other texts of the same kind for the embedder."""
    rng = random.Random(size)
    client = await open_client(place, state_dir=folder, embedder="none")
    try:
        if (await client.stats())["memories"]:
            raise RevisionConflict("The database must be empty")
        for user in range(USERS):
            messages = [
                {"content": sentence(rng), "id": f"{user}-{n}"} for n in range(size // USERS)
            ]
            await client.scope(f"user {user}").remember(messages)
    finally:
        await client.close()
    return [sentence(rng) for _ in range(size)]


async def drain_in_turns(client: Client, texts: list[str], batch: int, part: int) -> dict[str, Any]:
    """Measure the embedder and a worker in turns."""
    bare, ours, embedded = 0.0, 0.0, 0
    model = MiniLM()
    await encode(model, ["warm up"])
    client.ctx.embedder = model
    for start in range(0, len(texts), part):
        few, started = texts[start : start + part], time.perf_counter()
        for at in range(0, len(few), batch):
            await encode(model, few[at : at + batch])
        bare += time.perf_counter() - started
        started = time.perf_counter()
        embedded += await run_worker(client, batch, part)
        ours += time.perf_counter() - started
    left = (await client.stats())["waiting"]
    rates = {"bare per s": len(texts) / bare, "worker per s": embedded / ours}
    return {
        "memories": embedded,
        "left": left,
        **rates,
        "ratio": rates["worker per s"] / rates["bare per s"],
    }


async def run_worker(client: Client, batch: int, part: int) -> int:
    """Let a worker embed about `part` memories, and return how many it did."""
    done = 0

    def count(total: int) -> None:
        nonlocal done
        done = total

    await backfill(
        client.ctx,
        batch_size=batch,
        waiting=True,
        progress=count,
        stop=lambda: done >= part,
    )
    return done


async def measure(
    place: str, folder: Path, size: int, batch: int, part: int
) -> list[dict[str, Any]]:
    texts = await fill(place, folder, size)
    client = await open_client(place, state_dir=folder, cache_mb=0)
    try:
        return [await drain_in_turns(client, texts, batch, part)]
    finally:
        await client.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--part", type=int, default=500)
    parser.add_argument("--url", help="an empty PostgreSQL database instead of a file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = options.url or str(Path(folder) / "backlog.db")
        rows = asyncio.run(measure(place, Path(folder), options.size, options.batch, options.part))
    report.table("Draining a backlog", rows)
    print(report.save("backlog", {"Draining a backlog": rows}))


if __name__ == "__main__":
    main()
