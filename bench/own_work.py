"""Measure the engine's own work: one recall and one remember while the vectors are given, so that no model runs.

    python -m bench.own_work [--against PATH/TO/OTHER/src] [--size 10000] [--rounds 5] [--calls 60] [--models]

Each round starts one process for this tree and one for the other, in turns, on a copy of the same kind of database.
Prints the median milliseconds of each verb, by the clock and of processor time (which a busy machine disturbs less),
how long one `remember` holds the write lock, how many SQL statements it runs, the seconds that storing all memories
took, and the ratio between the two trees. With --models, the stored vectors are still made up, but the packaged models
run in every call that is measured, and 300 messages are stored at once.
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
MANY = 300  # messages that are stored at once
WEIGHTS = [1 / (rank + 10) for rank in range(len(WORDS))]  # few words are common, many are rare


class GivenVectors:
    """An embedder that makes up unit vectors, or runs a model for texts that it did not learn."""

    def __init__(self, embedder: Any) -> None:
        """Take the place of an embedder, which runs only if `is_real` is set."""
        self.model = embedder.model
        self.dimensions = embedder.dimensions
        self.is_real = False
        self._embedder = embedder
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
        if self.is_real:
            found: NDArray[np.float32] = await self._embedder.encode_batch(texts)
            return found
        return np.stack([self.learn(text) for text in texts])

    async def close(self) -> None:
        await self._embedder.close()


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


def load(module: str) -> Any:
    """Import a module of whichever version of the package this process was started for."""
    package = next(each.name for each in Path(os.environ["PYTHONPATH"]).iterdir() if each.is_dir())
    return importlib.import_module(f"{package}.{module}")


def give_vectors() -> list[GivenVectors]:
    """Replace the packaged models."""
    given = []
    for name, embedder in (
        ("local", "MiniLM"),
        ("local", "Multilingual"),
        ("minilm", "MiniLM"),  # of earlier versions; 0.1 has one model
        ("use", "Multilingual"),
    ):
        with suppress(ImportError):
            module = load(f"embedders.{name}")
            made = GivenVectors(getattr(module, embedder)())
            setattr(module, embedder, lambda made=made: made)
            given.append(made)
    return given


def open_memory(path: Path, *, models: bool = False) -> Any:
    """Open the database without a cache of vectors, and without the verifier unless models run."""
    settings: dict[str, Any] = {"cache_mb": 0}
    if not models and "verifier" in load("settings").Settings.model_fields:
        settings["verifier"] = False
    return load("aio").open(path, state_dir=path.parent, **settings)


async def fill(path: Path, size: int) -> float:
    """Store `size` memories in sessions of twenty; return the seconds that took."""
    rng = random.Random(size)
    messages = []
    for i in range(size):
        session = str(i // 20)
        messages.append({"content": sentence(rng), "id": str(i), "session": session, "name": "Ana"})
    for given in give_vectors():
        for message in messages:
            given.learn(message["content"])
    async with open_memory(path) as memory:
        started = time.perf_counter()
        await memory.scope("ana").remember(messages)
        return time.perf_counter() - started


async def measure(path: Path, size: int, calls: int, models: bool) -> dict[str, Any]:
    """Return the milliseconds of each call of both verbs, by the clock and of processor time.

    In a second series of calls, the time under the write lock and the statements of `remember`.
    """
    rng, choose = random.Random(size), random.Random(calls)
    stored = [sentence(rng).split() for _ in range(size)]
    chosen = choose.sample(stored, calls + 5)
    asked = [f"When did we talk about {' '.join(words[2:7])}, and why?" for words in chosen]
    told = [sentence(choose) for _ in range(2 * calls + 5)]
    many = [{"content": sentence(choose), "id": f"new-{i}", "session": "new"} for i in range(MANY)]
    for given in give_vectors():
        given.is_real = models
        for text in () if models else (*asked, *told, *(each["content"] for each in many)):
            given.learn(text)
    async with open_memory(path, models=models) as memory:
        scope = memory.scope("ana")
        recall = await time_calls(scope.recall, asked)
        remember = await time_calls(scope.remember, told[: calls + 5])
        stored_many = await time_calls(memory.scope("many").remember, [many])
    lock = WriteLock()
    async with open_memory(path, models=models) as memory:
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
    return {"recall": recall[5:], "remember": remember[5:], "many": stored_many, **watched}


async def time_calls(
    verb: Callable[[Any], Awaitable[object]], texts: Sequence[Any]
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
    if options.models:
        arguments.append("--models")
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
            (Path(folder) / name).mkdir()
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
    labels = {"recall": "recall", "remember": "remember", "many": f"storing {MANY} at once"}
    for verb, label in labels.items():
        for place, kind in enumerate(("clock", "processor")):
            values = {name: [pair[place] for pair in took[verb, name]] for name in trees}
            print_ratio(f"{label} by the {kind}, ms", values)
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
    parser.add_argument("--models", action="store_true", help="run the models in measured calls")
    parser.add_argument("--child", nargs=2, metavar=("ACTION", "DATABASE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is None:
        compare(options)
    elif options.child[0] == "fill":
        print(json.dumps(asyncio.run(fill(Path(options.child[1]), options.size))))
    else:
        path = Path(options.child[1])
        found = asyncio.run(measure(path, options.size, options.calls, options.models))
        print(json.dumps(found))


if __name__ == "__main__":
    main()
