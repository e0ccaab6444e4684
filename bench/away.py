"""What a language model costs `remember` and `recall` that is down, hangs or talks rubbish.

    python -m bench.away [--rounds 150] [--behaviour hanging]

Two memories in one process take turns, one with the model and one without; both draw facts out of turns in the
background (`tend`). The ratio is that of the 95th percentiles.
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
from memorist.bootstrap import open_client
from memorist.client import Client

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
BEHAVIOURS = ("down", "hanging", "not json", "500")


async def timed(engine: Client, text: str, number: int) -> tuple[float, float]:
    """Seconds of one remember and one recall."""
    scope = engine.scope("ana", session=f"s{number // 20}")
    begun = time.perf_counter()
    await scope.remember([{"role": "user", "content": f"I like this: {text}", "id": f"m{number}"}])
    told = time.perf_counter()
    await scope.recall(text)
    return told - begun, time.perf_counter() - told


async def measured(behaviour: str, rounds: int, folder: Path) -> dict[str, Any]:
    import llm_server  # type: ignore[import-not-found]

    with llm_server.running() as server:
        server.behaviour = "right" if behaviour == "down" else behaviour
        url = "http://127.0.0.1:9/v1" if behaviour == "down" else f"{server.url}/v1"
        model = {"llm": "openai:test", "llm_url": url, "llm_key": "none", "extract": "model"}
        each: dict[str, dict[str, Any]] = {"with": model, "without": {"extract": "rules"}}
        engines = {
            name: await open_client(
                folder / f"{behaviour}-{name}.db",
                state_dir=folder / name,
                run_jobs=True,
                **settings,
            )
            for name, settings in each.items()
        }
        took: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
        rng = random.Random(7)
        for number in range(rounds):
            text = sentence(rng)
            for name in sorted(engines, reverse=bool(number % 2)):
                took[name].append(await timed(engines[name], text, number))
        spent = await engines["with"].backlog()
        for engine in engines.values():
            await engine.close()
    row: dict[str, Any] = {
        "model": behaviour,
        "waiting": sum(log.waiting for log in spent if log.name == "extract"),
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
    parser.add_argument("--behaviour", choices=BEHAVIOURS)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        chosen = [options.behaviour] if options.behaviour else BEHAVIOURS
        rows = [asyncio.run(measured(each, options.rounds, Path(folder))) for each in chosen]
    report.table("A language model that is away", rows)
    print(report.save("away", {"rows": rows}))


if __name__ == "__main__":
    main()
