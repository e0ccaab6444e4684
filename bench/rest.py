"""What HTTP adds to a recall, and how the server handles fifty clients at once.

    python -m bench.rest [--size 10000] [--questions 150] [--clients 50] [--seconds 120]

`memorist serve` runs in its own process on the same file. Recalls in this process and over HTTP take
turns, each after a pause, so that neither benefits from a warm cache; the ratio compares their
medians. Then clients read and write concurrently, bounded in number and time, on loopback only.
Every acknowledged write is read back afterwards.
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
from bench.speed import fill, sentence
from memorist.aio import open_client

USER = "ana"
MAX_REQUESTS = 20_000
PAUSE = 0.05  # seconds


@contextmanager
def serve(path: Path) -> Iterator[str]:
    """Start a server on this file and yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = ["serve", "--db", str(path), "--user", USER, "--port", str(port), "--no-jobs"]
    environment = {
        **os.environ,
        "MEMORIST_RATE_LIMIT": "0",
        "MEMORIST_STATE_DIR": str(path.parent / "server"),
    }
    command = [sys.executable, "-m", "memorist", *arguments]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment) as process:
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
    """Compare the median of a recall in this process with that over HTTP."""
    await (await fill(path, [USER], size)).close()
    engine = await open_client(path, state_dir=path.parent)  # with the settings of the server
    scope, rng = engine.scope(USER), random.Random(1)
    texts = [sentence(rng) for _ in range(asked + 5)]
    took: dict[str, list[float]] = {"python": [], "rest": []}
    with serve(path) as url, closing(HTTPConnection(url.removeprefix("http://"))) as client:
        for number, text in enumerate(texts):
            for way in ("python", "rest") if number % 2 else ("rest", "python"):
                await asyncio.sleep(PAUSE)
                started = time.perf_counter()
                if way == "python":
                    await scope.recall(text)
                else:
                    body = json.dumps({"query": text})
                    client.request(
                        "POST", "/v1/memory/recall", body, {"Content-Type": "application/json"}
                    )
                    json.loads(client.getresponse().read())["hits"]
                took[way].append(time.perf_counter() - started)
    await engine.close()
    python, rest = (statistics.median(took[way][5:]) for way in ("python", "rest"))
    return {
        "memories": size,
        "python p50 ms": 1000 * python,
        "rest p50 ms": 1000 * rest,
        "ratio": rest / python,
    }


async def load(path: Path, clients: int, seconds: float) -> dict[str, Any]:
    """Read and write with many clients at once."""
    errors: list[str] = []
    written: list[str] = []
    took: list[float] = []
    end = 0.0

    async def one(number: int, client: httpx.AsyncClient) -> None:
        rng = random.Random(number)
        for turn in range(MAX_REQUESTS // clients):
            if time.monotonic() > end:
                return
            started = time.perf_counter()
            writes = rng.random() < 0.3
            body = (
                {"text": f"Client {number} says {turn}: {sentence(rng)}"}
                if writes
                else {"query": sentence(rng)}
            )
            try:
                response = await client.post(
                    f"/v1/memory/{'entries' if writes else 'recall'}", json=body
                )
                took.append(time.perf_counter() - started)
                if response.status_code not in (200, 201):
                    errors.append(f"{response.status_code}")
                elif writes:
                    written.extend(
                        id for outcome in response.json()["outcomes"] for id in outcome["ids"]
                    )
            except httpx.HTTPError as error:
                errors.append(type(error).__name__)

    with serve(path) as url:
        end, limits = time.monotonic() + seconds, httpx.Limits(max_connections=clients)
        async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
            await asyncio.gather(*(one(number, client) for number in range(clients)))
            lost = 0
            for id in dict.fromkeys(written):
                lost += (await client.get(f"/v1/memory/entries/{id}")).status_code != 200
    took.sort()
    return {
        "clients": clients, "requests": len(took), "errors": len(errors), "writes": len(written), "lost": lost,
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
        many = asyncio.run(load(Path(folder) / "many.db", options.clients, options.seconds))
        report.table("Concurrent clients", [many])
    print(report.save("rest", {"ratio": one, "load": many}))


if __name__ == "__main__":
    main()
