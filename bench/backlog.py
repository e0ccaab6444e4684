"""How fast a backlog of memories without a vector drains, beside the bare embedder on the same texts.

    python -m bench.backlog [--size 10000] [--batch 32] [--part 500] [--url postgresql://…]

The bare embedder and a worker take turns, `part` texts each, so that a machine that slows down slows both; the ratio is
the worker's rate over the bare one. With an address the backlog stands in PostgreSQL (the database is to be empty).
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
from memorist.bootstrap import open_client
from memorist.client import Client
from memorist.embedders import checked
from memorist.embedders.minilm import MiniLM
from memorist.errors import RevisionConflict
from memorist.jobs.embed import backfill
from memorist.ports import Embedder

USERS = 20


async def filled(place: str, folder: Path, size: int) -> list[str]:
    """A backlog, and other texts of the same kind for the bare embedder."""
    rng = random.Random(size)
    engine = await open_client(place, state_dir=folder, embedder="none")
    try:
        if (await engine.stats())["memories"]:
            raise RevisionConflict("There are memories already: name an empty database")
        for user in range(USERS):
            said = [{"content": sentence(rng), "id": f"{user}-{n}"} for n in range(size // USERS)]
            await engine.scope(f"user {user}").remember(said)
    finally:
        await engine.close()
    return [sentence(rng) for _ in range(size)]


async def drained(engine: Client, texts: list[str], batch: int, part: int) -> dict[str, Any]:
    """Seconds of both, in turns."""
    bare, ours, embedded = 0.0, 0.0, 0
    model = MiniLM()
    await checked.encode(model, ["warm up"])
    engine.ctx.embedder = model
    for start in range(0, len(texts), part):
        few, begun = texts[start : start + part], time.perf_counter()
        for at in range(0, len(few), batch):
            await checked.encode(model, few[at : at + batch])
        bare += time.perf_counter() - begun
        begun = time.perf_counter()
        embedded += await drained_by(engine, model, batch, part)
        ours += time.perf_counter() - begun
    left = (await engine.stats())["waiting"]
    rates = {"bare per s": len(texts) / bare, "worker per s": embedded / ours}
    return {
        "memories": embedded,
        "left": left,
        **rates,
        "ratio": rates["worker per s"] / rates["bare per s"],
    }


async def drained_by(engine: Client, model: Embedder, batch: int, part: int) -> int:
    """Let a worker embed about so many; how many it did."""
    done = 0

    def seen(total: int) -> None:
        nonlocal done
        done = total

    await backfill(
        engine.ctx.store,
        model,
        batch_size=batch,
        waiting=True,
        progress=seen,
        stop=lambda: done >= part,
    )
    return done


async def measured(
    place: str, folder: Path, size: int, batch: int, part: int
) -> list[dict[str, Any]]:
    texts = await filled(place, folder, size)
    engine = await open_client(place, state_dir=folder, cache_mb=0)
    try:
        return [await drained(engine, texts, batch, part)]
    finally:
        await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--part", type=int, default=500)
    parser.add_argument("--url", help="an empty PostgreSQL database, in place of a file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = options.url or str(Path(folder) / "backlog.db")
        rows = asyncio.run(measured(place, Path(folder), options.size, options.batch, options.part))
    report.table("Draining a backlog", rows)
    print(report.save("backlog", {"Draining a backlog": rows}))


if __name__ == "__main__":
    main()
