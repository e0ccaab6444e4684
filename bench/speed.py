"""Speed as ratios within one run, which vary less between machines than seconds.

    python -m bench.speed [--sizes 1000 10000 100000] [--questions 60] [--only recall scopes ingest memory import]

The floor of recall is unavoidable work: embedding the question with the packaged model and an exact
numpy search over the same vectors. Memories get random vectors, so that 100,000 of them do not take
an hour to embed. Questions are embedded for real. Floor and recall take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import memorist
from bench import data, report
from memorist.aio import open_client
from memorist.client import Client
from memorist.embedders.local import MiniLM
from memorist.scoped import ScopedClient

SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi yo zu bra cle dri flo gru pla sto tre".split()
WORDS = [
    a + b + c
    for a in SYLLABLES
    for b in SYLLABLES
    for c in ("n", "l", "r", "s", "t", "m", "k", "d", "p", "x")
]
FREQUENCIES = [1 / (rank + 10) for rank in range(len(WORDS))]  # Zipf: few words are common


class RandomVectors:
    """The packaged model for questions, random unit vectors for memories."""

    def __init__(self) -> None:
        self._real = MiniLM()
        self._random = np.random.default_rng(7)
        self.bulk = False

    model = "all-MiniLM-L6-v2"
    dimensions = 384

    async def encode_batch(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if not self.bulk:
            return await self._real.encode_batch(texts)
        made = self._random.standard_normal((len(texts), 384), dtype=np.float32)
        unit: NDArray[np.float32] = made / np.linalg.norm(made, axis=1, keepdims=True)
        return unit

    async def close(self) -> None:
        await self._real.close()


def sentence(rng: random.Random) -> str:
    return (
        "We "
        + " ".join(rng.choices(WORDS, FREQUENCIES, k=rng.randint(7, 21)))
        + f" {rng.randint(1, 999)}."
    )


def questions(n: int, size: int) -> list[str]:
    """Create questions that contain some words of stored memories."""
    rng, asked = random.Random(size), random.Random(n)
    said = [sentence(rng).split() for _ in range(size)]
    return [
        f"When did we talk about {' '.join(words[2:7])}, and why?"
        for words in asked.sample(said, n)
    ]


async def fill(path: Path, users: Sequence[str], size: int) -> Client:
    """Create a database with `size` memories per user, in sessions of twenty."""
    engine = await open_client(path, state_dir=path.parent, cache_mb=0)
    made = RandomVectors()
    engine.ctx.embedder, made.bulk = made, True
    for user in users:
        rng = random.Random(size)
        said = [
            {"content": sentence(rng), "id": str(i), "session": str(i // 20), "name": "Ana"}
            for i in range(size)
        ]
        await engine.scope(user).remember(said)
    made.bulk = False
    return engine


async def measure(work: Callable[[], Awaitable[object]]) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


async def recall(sizes: Sequence[int], asked: int, folder: Path) -> list[dict[str, Any]]:
    """Compare recall in one scope with its floor."""
    rows = []
    for size in sizes:
        engine = await fill(folder / f"one-{size}.db", ["ana"], size)
        scope = engine.scope("ana")
        await scope.recall("warm up")
        snapshot = await engine.ctx.index.current(scope.scope, engine.ctx.store)
        matrix = snapshot.vectors(np.arange(snapshot.n))
        took = await _in_turns(engine, scope, matrix, questions(asked, size))
        rows.append({"memories": size, **took})
        await engine.close()
    return rows


async def _in_turns(
    engine: Client, scope: ScopedClient, matrix: NDArray[np.float32], texts: Sequence[str]
) -> dict[str, Any]:
    floor, ours = [], []
    for text in texts:

        async def search(text: str = text) -> None:
            assert engine.ctx.embedder is not None
            scores = matrix @ (await engine.ctx.embedder.encode_batch([text + " really"]))[0]
            np.argpartition(-scores, 10)[:10]

        floor.append(await measure(search))
        ours.append(await measure(lambda text=text: scope.recall(text)))  # type: ignore[misc]
    low, high = statistics.median(floor) * 1e3, statistics.median(ours) * 1e3
    late = sorted(ours)[int(0.95 * len(ours))] * 1e3
    return {"floor p50 ms": low, "recall p50 ms": high, "ratio": high / low, "p95 ms": late}


async def scopes(asked: int, folder: Path) -> list[dict[str, Any]]:
    """Compare one scope of 1,000 among a hundred with a database that has only that scope."""
    many = await fill(folder / "many.db", [f"user-{i}" for i in range(100)], 1000)
    alone = await fill(folder / "alone.db", ["user-0"], 1000)
    times: dict[str, list[float]] = {"alone": [], "among 100": []}
    for i, text in enumerate(questions(asked, 1000)):
        for name, scope in (
            ("alone", alone.scope("user-0")),
            ("among 100", many.scope(f"user-{i % 10}")),
        ):
            if i < 10:
                await scope.recall("warm up")
            times[name].append(await measure(lambda s=scope, t=text: s.recall(t)))  # type: ignore[misc]
    await many.close()
    await alone.close()
    one, hundred = (statistics.median(each) * 1e3 for each in times.values())
    return [{"alone p50 ms": one, "among 100 p50 ms": hundred, "ratio": hundred / one}]


async def ingest(folder: Path, conversations: Sequence[data.Conversation]) -> list[dict[str, Any]]:
    """Compare storing conversations with only embedding their texts."""
    bare = MiniLM()
    await bare.encode_batch(["warm up"])
    spent = {"bare": 0.0, "remember": 0.0}
    async with memorist.aio.open(folder / "ingest.db", state_dir=folder / "state") as memory:
        await memory.scope("warm up").remember("warm up")
        for number, conversation in enumerate(conversations):
            scope, texts = (
                memory.scope(conversation.name),
                [said["content"] for said in conversation.messages],
            )
            for name in (
                ("bare", "remember") if number % 2 else ("remember", "bare")
            ):  # alternate the order
                started = time.perf_counter()
                await (
                    bare.encode_batch(texts)
                    if name == "bare"
                    else scope.remember(conversation.messages)
                )
                spent[name] += time.perf_counter() - started
    await bare.close()
    n = sum(len(conversation.messages) for conversation in conversations)
    bare_rate, rate = (n / seconds for seconds in spent.values())
    return [{"messages": n, "bare/s": bare_rate, "remember/s": rate, "ratio": rate / bare_rate}]


def conversations(path: Path) -> list[data.Conversation]:
    """Read real conversations, or invent one if there are none."""
    if path.exists():
        return data.read(path)
    rng = random.Random(3)
    said = [{"content": sentence(rng), "id": str(i), "session": "1"} for i in range(500)]
    return [data.Conversation(name="invented", messages=said, questions=[])]


_MEASURE_MEMORY = """
import asyncio, resource, sys
from memorist.aio import open_client
def held():
    with open("/proc/self/statm") as f: return int(f.read().split()[1]) * resource.getpagesize()
async def main():
    engine = await open_client(sys.argv[1], embedder="none")
    engine.ctx.index.model, engine.ctx.index.dimensions = "all-MiniLM-L6-v2", 384
    await engine.ctx.index.current(engine.scope("nobody").scope, engine.ctx.store)
    before = held()
    snapshot = await engine.ctx.index.current(engine.scope("ana").scope, engine.ctx.store)
    print(snapshot.n, snapshot.size, held() - before)
    await engine.close()
asyncio.run(main())
"""


def memory(folder: Path, size: int) -> list[dict[str, Any]]:
    """Compare the memory of a process that loads a scope with the size of its vectors."""
    n, arrays, resident = map(int, _run(_MEASURE_MEMORY, str(folder / f"one-{size}.db")).split())
    raw = n * 384 * 4
    return [
        {
            "memories": n,
            "raw MB": raw / 1e6,
            "arrays ratio": arrays / raw,
            "resident ratio": resident / raw,
        }
    ]


def measure_import() -> list[dict[str, Any]]:
    """Measure CPU seconds of `import memorist`, and whether it loads a model runtime."""
    code = (
        "import time, sys; t = time.process_time(); import memorist; "
        "print(time.process_time() - t, 'onnxruntime' in sys.modules)"
    )
    runs = [_run(code).split() for _ in range(5)]
    return [
        {
            "import cpu s": statistics.median(float(run[0]) for run in runs),
            "model runtime": runs[0][1],
        }
    ]


def _run(code: str, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    ).stdout


async def measure_all(options: argparse.Namespace, folder: Path) -> dict[str, list[dict[str, Any]]]:
    figures: dict[str, list[dict[str, Any]]] = {}
    if "recall" in options.only:
        figures["recall"] = await recall(options.sizes, options.questions, folder)
        gc.collect()
    if "memory" in options.only and "recall" in options.only:
        figures["memory"] = memory(folder, max(options.sizes))
    if "scopes" in options.only:
        figures["scopes"] = await scopes(options.questions, folder)
    if "ingest" in options.only:
        figures["ingest"] = await ingest(folder, conversations(options.data / "locomo-dev.jsonl"))
    if "import" in options.only:
        figures["import"] = measure_import()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--questions", type=int, default=60)
    data.add_option(parser)
    parser.add_argument(
        "--only", nargs="+", default=["recall", "memory", "scopes", "ingest", "import"]
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = asyncio.run(measure_all(options, Path(folder)))
    for name, rows in figures.items():
        report.table(name, rows)
    print(report.save("speed", figures))


if __name__ == "__main__":
    main()
