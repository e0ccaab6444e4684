"""What HTTP costs a recall, and what happens when fifty clients come at once.

    python -m bench.rest [--size 10000] [--questions 150] [--clients 50] [--seconds 120]

`memorist serve` runs in a process of its own on the same file. Recalls in this process and over HTTP take turns, each
after a pause, so that neither finds its process warmer than the other, with the plain client of the standard library;
the ratio is that of their medians. Then clients read and write, bounded in number and time, on loopback only; each
write that was acknowledged is looked for afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx

from bench import report
from bench.speed import filled, sentence
from memorist.bootstrap import open_client

USER = "ana"
MOST_REQUESTS = 20_000
PAUSE = 0.05  # seconds


@contextmanager
def served(path: Path) -> Iterator[str]:
    """The address of a server on this file."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["serve", "--db", str(path), "--user", USER, "--port", str(port), "--no-jobs"]
    own = {
        **os.environ,
        "MEMORIST_RATE_LIMIT": "0",
        "MEMORIST_STATE_DIR": str(path.parent / "server"),
    }
    command = [sys.executable, "-m", "memorist", *words]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=own) as process:
        url = f"http://127.0.0.1:{port}"
        for _ in range(300):
            try:
                httpx.get(f"{url}/healthz")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield url
        process.terminate()


async def ratio(path: Path, size: int, asked: int) -> dict[str, Any]:
    """Medians of the same recall, in this process and over HTTP, in turns."""
    await (await filled(path, [USER], size)).close()
    engine = await open_client(path, state_dir=path.parent)  # with the settings that the server has
    scope, rng = engine.scope(USER), random.Random(1)
    texts = [sentence(rng) for _ in range(asked + 5)]
    took: dict[str, list[float]] = {"python": [], "rest": []}
    with served(path) as url, closing(HTTPConnection(url.removeprefix("http://"))) as client:
        for number, text in enumerate(texts):
            for way in ("python", "rest") if number % 2 else ("rest", "python"):
                await asyncio.sleep(PAUSE)
                begun = time.perf_counter()
                if way == "python":
                    await scope.recall(text)
                else:
                    body = json.dumps({"query": text})
                    client.request(
                        "POST", "/v1/memory/recall", body, {"Content-Type": "application/json"}
                    )
                    json.loads(client.getresponse().read())["hits"]
                took[way].append(time.perf_counter() - begun)
    await engine.close()
    python, rest = (statistics.median(took[way][5:]) for way in ("python", "rest"))
    return {
        "memories": size,
        "python p50 ms": 1000 * python,
        "rest p50 ms": 1000 * rest,
        "ratio": rest / python,
    }


async def crowd(path: Path, clients: int, seconds: float) -> dict[str, Any]:
    """Mixed reads and writes by many clients at once."""
    errors: list[str] = []
    kept: list[str] = []
    took: list[float] = []
    end = 0.0

    async def one(number: int, client: httpx.AsyncClient) -> None:
        rng = random.Random(number)
        for turn in range(MOST_REQUESTS // clients):
            if time.monotonic() > end:
                return
            begun = time.perf_counter()
            writes = rng.random() < 0.3
            body = (
                {"text": f"Client {number} says {turn}: {sentence(rng)}"}
                if writes
                else {"query": sentence(rng)}
            )
            try:
                said = await client.post(
                    f"/v1/memory/{'entries' if writes else 'recall'}", json=body
                )
                took.append(time.perf_counter() - begun)
                if said.status_code not in (200, 201):
                    errors.append(f"{said.status_code}")
                elif writes:
                    kept.extend(id for outcome in said.json()["outcomes"] for id in outcome["ids"])
            except httpx.HTTPError as error:
                errors.append(type(error).__name__)

    with served(path) as url:
        end, limits = time.monotonic() + seconds, httpx.Limits(max_connections=clients)
        async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
            await asyncio.gather(*(one(number, client) for number in range(clients)))
            lost = 0
            for id in dict.fromkeys(kept):
                lost += (await client.get(f"/v1/memory/entries/{id}")).status_code != 200
    took.sort()
    return {
        "clients": clients, "requests": len(took), "errors": len(errors), "writes": len(kept), "lost": lost,
        "p50 ms": 1000 * took[len(took) // 2], "p99 ms": 1000 * took[int(0.99 * len(took))],
        "first errors": ", ".join(errors[:3]),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--questions", type=int, default=150)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        one = asyncio.run(ratio(Path(folder) / "one.db", options.size, options.questions))
        report.table("Recall over HTTP", [one])
        many = asyncio.run(crowd(Path(folder) / "many.db", options.clients, options.seconds))
        report.table("Many clients", [many])
    print(report.save("rest", {"ratio": one, "crowd": many}))


if __name__ == "__main__":
    main()
