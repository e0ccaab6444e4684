"""One caller must not stop the others: work grows with what is asked, and long work leaves the event loop free.

Durations are compared with each other, in CPU time, because a busy machine makes everything slower: four times as much
work costs 4 times as much where it is linear and 16 times as much where it is quadratic.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest

import memorist
from e2e.rest.conftest import ANA, asking

LINEAR = 7  # times the CPU time that four times as much may take


async def cpu_of(call: Callable[[], Awaitable[Any]]) -> float:
    """Return the CPU seconds of a call: the least of three."""
    measured = []
    for _ in range(3):
        before = time.process_time()
        await call()
        measured.append(time.process_time() - before)
    return min(measured)


async def longest_turn(work: Awaitable[Any]) -> float:
    """Run a call; return the share of its CPU time that it took in one turn of the event loop."""
    turns = []
    ended = asyncio.Event()

    async def watch() -> None:
        while not ended.is_set():
            before = time.thread_time()
            await asyncio.sleep(0.002)
            turns.append(time.thread_time() - before)

    before = time.process_time()
    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    await work
    ended.set()
    await watching
    return max(turns) / (time.process_time() - before)


def prose(characters: int) -> str:
    chance = random.Random(1)
    words = [
        "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9)))
        for _ in range(3000)
    ]
    text = " ".join(
        word + "." * (chance.random() < 0.08) for word in chance.choices(words, k=characters // 5)
    )
    return text[:characters]


TEXTS = {"prose": prose(100_000), "lines": "a\n" * 50_000, "Chinese": "猫" * 100_000}


@pytest.mark.parametrize("kind", TEXTS)
async def test_a_long_text_is_taken_in_beside_the_event_loop(tmp_path: Path, kind: str) -> None:
    async with memorist.aio.open(tmp_path / "m.db", embedder="hashing") as memory:
        await memory.scope("ana").remember("I like tea.")
        assert await longest_turn(memory.scope("ana").remember(TEXTS[kind])) < 0.15


async def test_recall_grows_linearly_with_what_it_cuts_to_a_budget(tmp_path: Path) -> None:
    async with memorist.aio.open(tmp_path / "m.db", embedder="hashing") as memory:
        durations, text = [], prose(24_000)
        for count in (60, 240):
            ana = memory.scope(f"ana{count}")
            lines = [f"Train {n} leaves for {text[100 * n : 100 * n + 100]}" for n in range(count)]
            await ana.remember([{"id": f"m{n}", "content": line} for n, line in enumerate(lines)])
            ask = partial(ana.recall, "train", limit=count, budget=count * 20, min_confidence=0)
            assert count / 3 < len(await ask()) < count
            durations.append(await cpu_of(ask))
        assert durations[1] < LINEAR * durations[0]


async def test_one_large_float_does_not_make_a_checkpoint_of_digits_expensive(
    tmp_path: Path,
) -> None:
    numbers = [int("7" * 4000)] * 5
    async with memorist.aio.open(tmp_path / "m.db", embedder="hashing") as memory:
        save = memory.scope("ana").checkpoints.save
        without = await cpu_of(lambda: save("t", {"graph_state": {"n": numbers, "x": 1.5}}))
        assert (
            await cpu_of(lambda: save("t", {"graph_state": {"n": numbers, "x": 1e30}}))
            < 8 * without
        )


async def test_consolidation_grows_linearly_with_the_length_of_two_texts(tmp_path: Path) -> None:
    durations = []
    for words in (800, 3200):
        async with memorist.aio.open(tmp_path / f"{words}.db", embedder="hashing") as memory:
            ana = memory.scope("ana")
            (tea,) = (await ana.remember("I drink tea from my cup.")).ids
            (dog,) = (await ana.remember("The dog sleeps on the floor.")).ids
            await ana.edit(tea, "tea " * words + "cup")
            await ana.edit(dog, "tea " * words + "mug")
            before = time.process_time()
            await memory.run_jobs(only=["consolidate"])
            durations.append(time.process_time() - before)
    assert durations[1] < LINEAR * durations[0]


ROUTES = {
    "entities": ("GET", "/v1/entities/", None),
    "shared": ("POST", "/v1/memory/shared", {"query": "tea"}),
    "settings page": ("GET", "/settings", None),
}


@pytest.mark.parametrize("route", ROUTES)
async def test_a_route_costs_the_same_however_many_other_tenants_there_are(
    tmp_path: Path, route: str
) -> None:
    method, url, body = ROUTES[route]
    durations = []
    for others in (100, 20_000):
        place = tmp_path / f"{others}.db"
        async with (
            memorist.aio.open(place, embedder="hashing") as memory,
            asking(memory, local=ANA) as client,
        ):
            await memory.scope("ana").remember("I like tea.")
            add_scopes(place, others)
            ask = partial(client.request, method, url, json=body)
            assert (await ask()).status_code == 200
            durations.append(await cpu_of(ask))
    assert durations[1] < 2.5 * durations[0]


def add_scopes(place: Path, count: int) -> None:
    """Add empty scopes of another tenant."""
    connection = apsw.Connection(str(place))
    sql = "INSERT INTO scopes (tenant, user_id, space) VALUES ('other', ?, 'default')"
    with connection:
        connection.executemany(sql, ((f"user {n}",) for n in range(count)))
    connection.close()


def test_each_repeat_of_a_sentence_adds_as_many_bytes_as_the_one_before(tmp_path: Path) -> None:
    sizes = []
    with memorist.open(tmp_path / "m.db", embedder="hashing") as memory:
        for n in range(121):
            id = f"message {n} {'x' * 200}"
            memory.scope("ana").remember(
                [{"id": id, "content": "The nightly backup of the server ended well."}]
            )
            if n % 60 == 0:
                memory.backup(tmp_path / f"copy{n}.db")
                sizes.append((tmp_path / f"copy{n}.db").stat().st_size)
        assert [each.repeat_count for each in memory.scope("ana").list()] == [120]
    none, sixty, twice = sizes
    assert twice - sixty < 1.5 * (sixty - none)


@contextmanager
def served(folder: Path, **settings: str) -> Iterator[tuple[int, int]]:
    """Start `memorist serve` with at most 128 open files; give its port and its process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {**os.environ, "MEMORIST_DB": str(folder / "m.db"), **settings}
    command = f"ulimit -n 128; exec {sys.executable} -m memorist serve --port {port}"
    process = subprocess.Popen(["sh", "-c", command], env=environment, stderr=subprocess.DEVNULL)
    try:
        if not wait_until_healthy(port, 120):
            raise RuntimeError("the server did not start")
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def wait_until_healthy(port: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=2).status_code == 200
        except httpx.TransportError:
            time.sleep(0.1)
    return False


HEADERS = b"POST /v1/memory/entries HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99"


@pytest.mark.slow  # the deadline for a request can only be seen by waiting for it
@pytest.mark.parametrize("half", [HEADERS, HEADERS + b'\r\n\r\n{"text":'], ids=["headers", "body"])
def test_a_server_full_of_half_sent_requests_answers_again_within_20_seconds(
    tmp_path: Path, half: bytes
) -> None:
    server = served(tmp_path, MEMORIST_EMBEDDER="hashing")
    with server as (port, _), ExitStack() as stack:
        for _ in range(
            140
        ):  # those that the server does not accept wait in the queue of its socket
            half_sent = stack.enter_context(
                socket.create_connection(("127.0.0.1", port), timeout=2)
            )
            half_sent.sendall(half)
        assert wait_until_healthy(port, 20)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
def test_models_of_a_server_run_at_a_lower_priority_than_its_event_loop(tmp_path: Path) -> None:
    with served(tmp_path) as (port, process):
        asked = {"query": "Where is the harbor?"}
        httpx.post(f"http://127.0.0.1:{port}/v1/memory/recall", json=asked, timeout=60)
        priorities = {}
        for task in Path(f"/proc/{process}/task").iterdir():
            priorities[int(task.name)] = os.getpriority(os.PRIO_PROCESS, int(task.name))
    loop = priorities.pop(process)
    assert max(priorities.values()) == loop + 5
    assert min(priorities.values()) == loop  # those that read and write
