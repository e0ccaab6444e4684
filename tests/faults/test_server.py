"""PostgreSQL stopped, killed, cut off and stalled in the middle of work: nothing acknowledged is lost or kept twice."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import memorist
from faults.proxy import Proxy
from faults.server import Server
from faults.test_kill import kill_loop
from faults.witness import CHILDREN, Told, everything, half_written, lost, whole_lines
from memorist.client import Client
from memorist.errors import StoreUnavailable

COMMIT = b"COMMIT\x00"  # the last word of a transaction, as it is sent


def started(url: str, folder: Path, *, writers: int) -> list[subprocess.Popen[bytes]]:
    """Processes that remember and recall until they are killed; each tells a file what was acknowledged."""
    running = []
    for number in range(writers):
        command = [sys.executable, str(CHILDREN), "load", url, f"writer{number}", "hashing"]
        with (folder / f"told{number}").open("ab") as told:
            running.append(subprocess.Popen(command, stdout=told))
    while not all((folder / f"told{number}").read_bytes() for number in range(writers)):
        time.sleep(0.05)
    return running


def busy(folder: Path, times: int = 15) -> None:
    """Wait until each of them was acknowledged so many times more."""
    files = sorted(folder.glob("told*"))
    before = [file.read_bytes().count(b'["said"') for file in files]
    until = time.monotonic() + 60
    while any(
        file.read_bytes().count(b'["said"') < many + times
        for file, many in zip(files, before, strict=True)
    ):
        assert time.monotonic() < until, "nothing more is acknowledged"
        time.sleep(0.05)


def ended(running: list[subprocess.Popen[bytes]], folder: Path) -> tuple[Told, Counter[str]]:
    """Kill them; gives what they told, and the errors they met."""
    for process in running:
        assert process.poll() is None, "it ended by itself"
        process.kill()
        process.wait()
    told, errors = Told(), Counter[str]()
    for file in sorted(folder.glob("told*")):
        for line in whole_lines(file.read_text("utf-8")):
            told.hear(*line)
            errors.update(line[1:] if line[0] == "failed" else [])
    return told, errors


def found(url: str, told: Told) -> dict[str, int]:
    """What the database holds, against what was acknowledged."""
    with memorist.open(url, embedder="hashing", spool=False) as memory:
        ana = memory.scope("ana")
        texts = Counter(each.text for each in everything(ana))
        twice = sum(times - 1 for times in texts.values())
        return {
            "lost": len(lost(told, ana)),
            "twice": twice,
            "half written": len(half_written(memory, ana)),
        }


def harmed(
    server: Server, url: str, folder: Path, *, writers: int, harms: list[signal.Signals]
) -> dict[str, int]:
    memorist.open(url, embedder="hashing", spool=False).close()
    running = started(url, folder, writers=writers)
    for harm in harms:
        busy(folder)
        server.stop(harm)
        time.sleep(0.3)
        server.start()
    busy(folder)
    told, errors = ended(running, folder)
    assert set(errors) == {"StoreUnavailable"}
    return {"acknowledged": told.acks, "errors": errors.total(), **found(url, told)}


def test_a_server_that_is_stopped_and_killed_under_load_loses_nothing(
    server: Server, own_database: str, tmp_path: Path
) -> None:
    harms = [signal.SIGINT, signal.SIGQUIT, signal.SIGKILL]
    seen = harmed(server, own_database, tmp_path, writers=2, harms=harms)
    assert seen["acknowledged"] > 50
    assert (seen["lost"], seen["twice"], seen["half written"]) == (0, 0, 0)


@pytest.mark.slow
def test_a_server_that_is_killed_20_times_under_load_loses_nothing(
    server: Server, own_database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    harms = [signal.SIGKILL, signal.SIGQUIT] * 10
    seen = harmed(server, own_database, tmp_path, writers=4, harms=harms)
    with capsys.disabled():
        print(f"\nserver killed 20 times: {seen}")
    assert (seen["lost"], seen["twice"], seen["half written"]) == (0, 0, 0)


def test_clients_that_are_killed_lose_nothing_that_was_acknowledged(own_database: str) -> None:
    told, missing, halves, _ = kill_loop(own_database, kills=6)
    assert told.acks > 6
    assert (missing, halves) == ([], [])


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A line to the server that can be harmed."""
    made = Proxy(server.socket)
    yield made
    made.end()


@asynccontextmanager
async def through(proxy: Proxy, url: str) -> AsyncIterator[Client]:
    """A memory that reaches its database over the line."""
    address = f"postgresql://postgres@127.0.0.1:{proxy.port}{urlsplit(url).path}"
    async with memorist.aio.open(address, embedder="hashing", spool=False) as engine:
        yield engine


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not answer is given up after a second."""
    from memorist.storage.postgres import connection

    for name in ("ANSWER_SECONDS", "_GRACE_SECONDS", "CONNECT_SECONDS"):
        monkeypatch.setattr(connection, name, 0.5)


async def test_a_line_that_is_cut_is_told_and_used_again(proxy: Proxy, own_database: str) -> None:
    async with through(proxy, own_database) as engine:
        ana = engine.scope("ana")
        await ana.remember("My kettle is blue.")
        proxy.cut()
        for verb in (
            lambda: ana.remember("My kettle is red."),
            lambda: ana.recall("kettle"),
            ana.list,
        ):
            with pytest.raises(StoreUnavailable, match="retry"):
                await verb()
        proxy.mend()
        assert (await ana.remember("My kettle is green.")).count("created") == 1
        assert {each.text for each in await ana.list()} == {
            "My kettle is blue.",
            "My kettle is green.",
        }


@pytest.mark.usefixtures("hurry")
async def test_a_line_that_stalls_is_given_up_and_used_again(
    proxy: Proxy, own_database: str
) -> None:
    async with through(proxy, own_database) as engine:
        ana = engine.scope("ana")
        await ana.remember("My kettle is blue.")
        proxy.stall()
        start = time.monotonic()
        verbs = [
            ana.remember("My kettle is red."),
            ana.list(),
            *(ana.recall("kettle") for _ in range(6)),
        ]
        answers = await asyncio.gather(*verbs, return_exceptions=True)
        assert {type(answer) for answer in answers} == {StoreUnavailable}
        assert (
            time.monotonic() - start < 20
        )  # the driver itself waits for ten seconds before it hangs up
        proxy.mend()
        assert (await ana.remember("My kettle is green.")).count("created") == 1
        assert not (await ana.recall("kettle")).degraded


async def test_a_commit_whose_answer_is_lost_is_no_success_and_happens_once(
    proxy: Proxy, own_database: str
) -> None:
    async with through(proxy, own_database) as engine:
        ana = engine.scope("ana")
        await ana.remember("The weather is fine.")
        said = {"id": "m1", "content": "My kettle is blue."}
        proxy.lose_answer_to(COMMIT)
        with pytest.raises(StoreUnavailable, match="not known"):
            await ana.remember([said])
        kept = [each for each in await ana.list() if "kettle" in each.text]
        assert len(kept) == 1, "the fault was not caused"
        again = await ana.remember([said])
        assert again.ids == (kept[0].id,)
        assert len(await ana.list()) == 2
        assert [line.event for line in await ana.history(kept[0].id)] == ["ADD"]
