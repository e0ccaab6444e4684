"""Measure the engine's own work: one recall and one remember while the vectors are given, so that no model runs.

    python -m bench.own_work [--against PATH/TO/OTHER/src] [--size 10000] [--rounds 5] [--calls 60]

Each round starts one process for this tree and one for the other, in turns, on a copy of the same kind of database.
Prints the median milliseconds of each verb, by the clock and of processor time (which a busy machine disturbs less),
how long one `remember` holds the write lock, how many SQL statements it runs, the seconds that storing all memories
took, and the ratio between the two trees.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import importlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).parents[1] / "src"
PARTS = (
    "ba ce di fo gu ha je ki lo mu na pe ri so tu va we xi yo zu bra cle dri flo gru pla".split()
)
WORDS = [a + b + c for a in PARTS for b in PARTS for c in "nlrstmkdpx"]
WEIGHTS = [1 / (rank + 10) for rank in range(len(WORDS))]  # few words are common, many are rare


class GivenVectors:
    """An embedder that looks up made-up unit vectors instead of running a model."""

    def __init__(self, model: str = "all-MiniLM-L6-v2", dimensions: int = 384) -> None:
        self.model = model
        self.dimensions = dimensions
        self._known: dict[str, NDArray[np.float32]] = {}

    def learn(self, text: str) -> NDArray[np.float32]:
        """Return the vector of a text, made from a digest of it."""
        if text not in self._known:
            digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
            rng = np.random.default_rng(int.from_bytes(digest))
            made = rng.standard_normal(self.dimensions, dtype=np.float32)
            self._known[text] = made / np.linalg.norm(made)
        return self._known[text]

    async def encode_batch(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self.learn(text) for text in texts])

    async def close(self) -> None: ...


class WriteLock:
    """Watches every SQLite connection: how long write transactions last, and what they run."""

    def __init__(self) -> None:
        self.milliseconds: list[float] = []
        self.statements: list[str] = []
        self._began: dict[int, float] = {}
        apsw.connection_hooks.append(self._watch)

    def _watch(self, connection: apsw.Connection) -> None:
        mask = apsw.SQLITE_TRACE_STMT | apsw.SQLITE_TRACE_PROFILE
        connection.trace_v2(mask, self._notice)

    def _notice(self, event: dict[str, Any]) -> None:
        sql, place = (event.get("sql") or "").strip(), id(event["connection"])
        if event["code"] == apsw.SQLITE_TRACE_STMT:
            if event.get("trigger") or sql.startswith("--"):
                return
            self.statements.append(sql)
        elif sql.upper().startswith("BEGIN IMMEDIATE"):
            self._began[place] = time.perf_counter()
        elif sql.upper().startswith(("COMMIT", "END")) and place in self._began:
            self.milliseconds.append(1000 * (time.perf_counter() - self._began.pop(place)))


def sentence(rng: random.Random) -> str:
    """Return a made-up sentence whose words are as unevenly common as those of real texts."""
    words = rng.choices(WORDS, WEIGHTS, k=rng.randint(7, 21))
    return f"We {' '.join(words)} {rng.randint(1, 999)}."


def open_memory(path: Path, given: GivenVectors) -> Any:
    """Open the database with whichever version of the package this process was started for."""
    package = next(each.name for each in Path(os.environ["PYTHONPATH"]).iterdir() if each.is_dir())
    minilm = importlib.import_module(f"{package}.embedders.minilm")
    minilm.MiniLM = lambda: given  # type: ignore[attr-defined]
    with suppress(ImportError):  # version 0.1 has one model
        use = importlib.import_module(f"{package}.embedders.use")
        second = GivenVectors(use.MODEL, use.DIMENSIONS)
        use.Multilingual = lambda: second  # type: ignore[attr-defined]
    aio = importlib.import_module(f"{package}.aio")
    return aio.open(path, state_dir=path.parent, cache_mb=0)


async def fill(path: Path, size: int) -> float:
    """Store `size` memories in sessions of twenty; return the seconds that took."""
    rng = random.Random(size)
    messages = []
    for i in range(size):
        session = str(i // 20)
        messages.append({"content": sentence(rng), "id": str(i), "session": session, "name": "Ana"})
    given = GivenVectors()
    for message in messages:
        given.learn(message["content"])
    async with open_memory(path, given) as memory:
        started = time.perf_counter()
        await memory.scope("ana").remember(messages)
        return time.perf_counter() - started


async def measure(path: Path, size: int, calls: int) -> dict[str, Any]:
    """Return the milliseconds of each call of both verbs, by the clock and of processor time.

    In a second series of calls, the time under the write lock and the statements of `remember`.
    """
    rng, choose, given = random.Random(size), random.Random(calls), GivenVectors()
    stored = [sentence(rng).split() for _ in range(size)]
    chosen = choose.sample(stored, calls + 5)
    asked = [f"When did we talk about {' '.join(words[2:7])}, and why?" for words in chosen]
    told = [sentence(choose) for _ in range(2 * calls + 5)]
    for text in (*asked, *told):
        given.learn(text)
    async with open_memory(path, given) as memory:
        scope = memory.scope("ana")
        recall = await time_calls(scope.recall, asked)
        remember = await time_calls(scope.remember, told[: calls + 5])
    lock = WriteLock()
    async with open_memory(path, given) as memory:
        scope, held, run = memory.scope("ana"), [], []
        await scope.remember("The first call opens what is opened late.")
        for text in told[calls + 5 :]:
            lock.milliseconds.clear()
            lock.statements.clear()
            await scope.remember(text)
            held.append(sum(lock.milliseconds))
            run.append(len(lock.statements))
            await asyncio.sleep(0.005)
    watched = {"lock": held, "statements": run}
    return {"recall": recall[5:], "remember": remember[5:], **watched}


async def time_calls(
    verb: Callable[[str], Awaitable[object]], texts: list[str]
) -> list[tuple[float, float]]:
    """Call a verb with each text in turn; the first calls warm the caches."""
    took = []
    for text in texts:
        started, worked = time.perf_counter(), time.process_time()
        await verb(text)
        waited = time.perf_counter() - started
        took.append((1000 * waited, 1000 * (time.process_time() - worked)))
        await asyncio.sleep(0.005)  # what is written back later does not overlap the next call
    return took


def run_child(source: Path, path: Path, action: str, options: argparse.Namespace) -> Any:
    """Run this file in a process that imports the package from `source`."""
    arguments = [f"--{name}={getattr(options, name)}" for name in ("size", "calls")]
    command = [sys.executable, __file__, *arguments, "--child", action, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def compare(options: argparse.Namespace) -> None:
    """Measure the trees in turns and print medians and ratios."""
    trees = {"this": HERE}
    if options.against is not None:
        trees["other"] = options.against.resolve()
    took: dict[tuple[str, str], list[Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, source in trees.items():
            seconds = run_child(source, Path(folder) / name / "memory.db", "fill", options)
            took["fill", name] = [seconds]
        for turn in range(options.rounds):
            for name, source in trees.items():
                copy = Path(folder) / f"{name}-{turn}"
                shutil.copytree(Path(folder) / name, copy)
                found = run_child(source, copy / "memory.db", "measure", options)
                for verb, times in found.items():
                    took.setdefault((verb, name), []).extend(times)
                shutil.rmtree(copy)
    for verb in ("recall", "remember"):
        for place, kind in enumerate(("clock", "processor")):
            values = {name: [pair[place] for pair in took[verb, name]] for name in trees}
            print_ratio(f"{verb} by the {kind}, ms", values)
    for what, label in (
        ("lock", "remember under the write lock, ms"),
        ("statements", "SQL statements of one remember"),
        ("fill", f"storing {options.size} memories, s"),
    ):
        print_ratio(label, {name: took[what, name] for name in trees})


def print_ratio(label: str, values: dict[str, list[float]]) -> None:
    """Print the median of each tree, and the ratio of this one to the other."""
    medians = {name: statistics.median(each) for name, each in values.items()}
    line = ", ".join(f"{name} {median:.2f}" for name, median in medians.items())
    if "other" in medians:
        line += f", ratio {medians['this'] / medians['other']:.2f}"
    print(f"{label}: {line}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=Path, help="source folder of another version")
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--child", nargs=2, metavar=("ACTION", "DATABASE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is None:
        compare(options)
    elif options.child[0] == "fill":
        print(json.dumps(asyncio.run(fill(Path(options.child[1]), options.size))))
    else:
        print(json.dumps(asyncio.run(measure(Path(options.child[1]), options.size, options.calls))))


if __name__ == "__main__":
    main()
