"""How much a language model that is down, hangs or returns garbage slows down `remember` and `recall`.

    python -m bench.llm_outage [--rounds 150] [--behavior hanging]

Two clients in one process take turns, one with the model and one without; both extract facts in the
background. The ratio compares the 95th percentiles.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench import report
from bench.speed import sentence
from memorist.aio import open_client
from memorist.client import Client

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
BEHAVIORS = ("down", "hanging", "not json", "500")


async def time_once(client: Client, text: str, number: int) -> tuple[float, float]:
    """Return the seconds of one remember and one recall."""
    scope = client.scope("ana", session=f"s{number // 20}")
    started = time.perf_counter()
    await scope.remember([{"role": "user", "content": f"I like this: {text}", "id": f"m{number}"}])
    remembered = time.perf_counter()
    await scope.recall(text)
    return remembered - started, time.perf_counter() - remembered


async def measure(behavior: str, rounds: int, folder: Path) -> dict[str, Any]:
    import llm_server  # type: ignore[import-not-found]

    with llm_server.running() as server:
        server.behaviour = "right" if behavior == "down" else behavior
        url = "http://127.0.0.1:9/v1" if behavior == "down" else f"{server.url}/v1"
        model = {"llm": "openai:test", "llm_url": url, "llm_key": "none", "extract": "model"}
        each: dict[str, dict[str, Any]] = {"with": model, "without": {"extract": "rules"}}
        clients = {
            name: await open_client(
                folder / f"{behavior}-{name}.db",
                state_dir=folder / name,
                run_jobs=True,
                **settings,
            )
            for name, settings in each.items()
        }
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in clients}
        rng = random.Random(7)
        for number in range(rounds):
            text = sentence(rng)
            for name in sorted(clients, reverse=bool(number % 2)):
                took[name].append(await time_once(clients[name], text, number))
        backlog = await clients["with"].backlog()
        for client in clients.values():
            await client.close()
    row: dict[str, Any] = {
        "model": behavior,
        "waiting": sum(log.waiting for log in backlog if log.name == "extract"),
    }
    for at, verb in enumerate(("remember", "recall")):
        slow = {
            name: sorted(pair[at] for pair in pairs[10:])[int(0.95 * (rounds - 10))]
            for name, pairs in took.items()
        }
        row |= {
            f"{verb} p95 ms": 1000 * slow["with"],
            f"{verb} ratio": slow["with"] / slow["without"],
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--behavior", choices=BEHAVIORS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        chosen = [options.behavior] if options.behavior else BEHAVIORS
        rows = [asyncio.run(measure(each, options.rounds, Path(folder))) for each in chosen]
    report.table("Unavailable language model", rows)
    print(report.save("llm_outage", {"rows": rows}))


if __name__ == "__main__":
    main()
