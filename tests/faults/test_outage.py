"""The store goes away in the middle of work: what is told is kept, answers go on, and later all of it is there once."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import memorist
from faults.proxy import Proxy
from faults.server import Server
from faults.witness import everything
from memorist.errors import StoreUnavailable

WORDS = "tea milk water ship train lisbon porto october kettle garden violin letter".split()
CHILD = """
import os, sys, itertools, memorist
url, folder, name, most = sys.argv[1:]
os.write(1, b"begin\\n")
with memorist.open(url, embedder="hashing", spool_dir=folder) as memory:
    ana = memory.scope("ana")
    os.write(1, b"open\\n")
    for number in itertools.count() if most == "-" else range(int(most)):
        text = f"{name} told {number} things, {number * 7919} in all."
        status = ana.remember(text, policy="milton").outcomes[0].status
        os.write(1, f"{status} {text}\\n".encode())
"""


class Place:
    """A store that can go away and come back."""

    def __init__(
        self, url: str, folder: Path, leave: Callable[[], Any], back: Callable[[], Any]
    ) -> None:
        self.url, self.folder, self.leave, self.back = url, folder / "failsafe", leave, back

    def open(self, **settings: Any) -> Any:
        return memorist.open(
            self.url, **{"embedder": "hashing", "spool_dir": self.folder, **settings}
        )

    def child(self, name: str, most: str = "-") -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", CHILD, self.url, str(self.folder), name, most]
        made = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert made.stdout is not None
        assert made.stdout.readline() == b"begin\n"
        return made

    def waiting(self) -> int:
        return sum(
            len(file.read_bytes().splitlines()) for file in self.folder.rglob("*_term.jsonl")
        )


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sqlite":
        disk = tmp_path / "disk"
        disk.mkdir()
        away = tmp_path / "away"
        yield Place(
            str(disk / "memory.db"), tmp_path, lambda: disk.rename(away), lambda: away.rename(disk)
        )
        return
    server: Server = request.getfixturevalue("server")
    yield Place(request.getfixturevalue("own_database"), tmp_path, server.stop, server.start)
    server.start()


@pytest.fixture
def away(server: Server, own_database: str, tmp_path: Path) -> Iterator[Place]:
    """A database whose server was reached once and is stopped now."""
    place = Place(own_database, tmp_path, server.stop, server.start)
    place.open().close()
    place.leave()
    yield place
    server.start()


def until(holds: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


class Load:
    """Threads that tell and ask, as fast as they can."""

    def __init__(self, memory: Any, tellers: int, askers: int) -> None:
        self.ana, self.stop = memory.scope("ana"), threading.Event()
        self.told: list[tuple[str, str]] = []  # status, text
        self.asked: list[
            tuple[float, bool]
        ] = []  # seconds, whether it was answered without the store
        self.errors: list[str] = []
        work = [lambda n=n: self._tell(n) for n in range(tellers)] + [self._ask] * askers
        self.threads = [threading.Thread(target=self._go, args=(each,)) for each in work]
        for thread in self.threads:
            thread.start()

    def _go(self, work: Callable[[], None]) -> None:
        try:
            while not self.stop.is_set():
                work()
        except Exception as error:
            self.errors.append(repr(error))

    def _tell(self, number: int) -> None:
        words = " ".join(random.choices(WORDS, k=6))
        text = f"{words} {random.getrandbits(30)} and {random.getrandbits(30)} of {number}"
        receipt = self.ana.remember([{"id": text, "content": text}] if number % 2 else text)
        self.told.append((receipt.outcomes[0].status, text))
        time.sleep(0.005)

    def _ask(self) -> None:
        begun = time.monotonic()
        found = self.ana.recall(f"a {random.choice(WORDS)} in the {random.choice(WORDS)}")
        self.asked.append((time.monotonic() - begun, found.degraded))
        time.sleep(0.02)

    def end(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()


def loaded(place: Place, seconds: float) -> dict[str, Any]:
    """The store away for so long under load; gives what became of it all."""
    with place.open() as memory:
        load = Load(memory, tellers=4, askers=2)
        try:
            time.sleep(1)
            place.leave()
            time.sleep(seconds)
            place.back()
            until(lambda: not memory._inner.offline.down)
            time.sleep(0.5)
        finally:
            load.end()
        until(lambda: place.waiting() == 0)
        kept = Counter(each.text for each in everything(load.ana))
        checked = memory.check()
    statuses = Counter(status for status, _ in load.told)
    told = [text for _, text in load.told]
    return {
        "statuses": dict(statuses),
        "lost": len([text for text in told if text not in kept]),
        "twice": sum(times - 1 for times in kept.values()),
        "errors": load.errors,
        "asked": len(load.asked),
        "degraded": sum(degraded for _, degraded in load.asked),
        "slowest answer": round(max(took for took, _ in load.asked), 2),
        "check": checked,
    }


def judge(seen: dict[str, Any]) -> None:
    assert set(seen["statuses"]) == {"created", "pending"}
    assert (seen["lost"], seen["twice"], seen["errors"], seen["check"]) == (0, 0, [], [])
    assert seen["asked"] > 20
    assert seen["slowest answer"] < 5


@pytest.mark.spec("THE-115")
def test_a_store_that_is_away_for_three_seconds_under_load_loses_and_doubles_nothing(
    place: Place,
) -> None:
    seen = loaded(place, 3)
    judge(seen)
    assert seen["statuses"]["pending"] > 50


@pytest.mark.slow
def test_a_store_that_is_away_for_thirty_seconds_under_load_loses_and_doubles_nothing(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = loaded(place, 30)
    with capsys.disabled():
        print(f"\naway for 30 s under load: {seen}")
    judge(seen)
    assert seen["statuses"]["pending"] > 500


def acknowledged(child: subprocess.Popen[bytes]) -> list[tuple[str, str]]:
    """What a process that was killed had acknowledged."""
    assert child.stdout is not None
    lines = child.stdout.read().decode().splitlines(keepends=True)
    child.wait()
    child.stdout.close()
    whole = [line.strip() for line in lines if line.endswith("\n") and " " in line]
    return [(status, text) for status, _, text in (line.partition(" ") for line in whole)]


def texts(place: Place) -> Counter[str]:
    with place.open() as memory:
        until(lambda: place.waiting() == 0)
        return Counter(each.text for each in everything(memory.scope("ana")))


def test_what_was_acknowledged_as_pending_survives_being_killed(place: Place) -> None:
    place.open().close()
    child = place.child("ana")
    assert child.stdout is not None
    said = [child.stdout.readline() for _ in range(10)]  # it is at work
    place.leave()
    until(lambda: place.waiting() > 20)
    child.send_signal(signal.SIGKILL)
    told = acknowledged(child)
    place.back()
    assert said[-1].startswith(b"created")
    assert "pending" in {status for status, _ in told}
    kept = texts(place)
    assert [text for _, text in told if kept[text] != 1] == []
    assert max(kept.values()) == 1


def left_behind(place: Place, number: int) -> list[str]:
    """So many things that wait after the process that took them in has ended."""
    with place.open() as memory:
        place.leave()
        ana = memory.scope("ana")
        made = [f"Box {n} holds {n * 7919} letters." for n in range(number)]
        for text in made:
            assert ana.remember(text, policy="milton").count("pending") == 1
    place.back()
    return made


def test_being_killed_while_it_hands_over_loses_and_doubles_nothing(place: Place) -> None:
    made = left_behind(place, 600)
    chance, left = random.Random(7), [600]
    for _ in range(12):
        child = place.child("bob", "0")
        time.sleep(chance.uniform(0.05, 0.4))
        child.kill()
        acknowledged(child)
        left.append(place.waiting())
        if not left[-1]:
            break
    kept = texts(place)
    assert kept == Counter(made)


def test_processes_that_hand_over_at_the_same_time_do_it_once(place: Place) -> None:
    made = left_behind(place, 400)
    children = [place.child("bob", "0") for _ in range(3)]
    for child in children:
        acknowledged(child)
        assert child.returncode == 0
    assert texts(place) == Counter(made)
    with place.open() as memory:
        assert Counter(line.event for line in memory.scope("ana").history(limit=10_000)) == {
            "ADD": len(made)
        }


@pytest.mark.spec("MIL-36", "THE-73", "THE-106", "THE-111")
def test_recall_goes_on_with_what_was_lately_seen_and_says_so(place: Place) -> None:
    with place.open() as memory:
        ana = memory.scope("ana")
        ana.remember("My bike is red.", tags=["things"])
        gone = ana.remember("My car is a red Beetle.").ids[0]
        assert len(ana.recall("what is red?").hits) == 2
        ana.forget(gone)
        assert len(ana.recall("what is red?").hits) == 1
        ana.remember("My coat is red.")
        place.leave()
        ana.remember("My boat is red too.")
        found = ana.recall("what is red?")
        assert {hit.memory.text for hit in found} == {
            "My bike is red.",
            "My coat is red.",
            "My boat is red too.",
        }
        if "postgresql" in place.url:  # an open file can be read wherever it was moved to
            assert found.degraded
            assert "store" in found.legs
        place.back()
        until(lambda: not memory._inner.offline.down)
        found = ana.recall("what is red?")
        assert (len(found.hits), found.degraded) == (3, False)


@pytest.mark.spec("THE-73", "THE-111")
def test_without_a_model_recall_goes_on_by_words(away: Place) -> None:
    with away.open(embedder="none") as memory:
        ana = memory.scope("ana")
        ana.remember("My bike is red.")
        found = ana.recall("what colour is the bike?")
        assert [hit.memory.text for hit in found] == ["My bike is red."]
        assert set(found.legs) == {"sparse", "dense", "store"}


def test_a_server_that_was_reached_before_may_be_away_when_it_is_opened(
    away: Place, tmp_path: Path
) -> None:
    with away.open() as memory:
        ana = memory.scope("ana")
        id = ana.remember("My bike is red.").ids[0]
        with pytest.raises(StoreUnavailable):
            ana.list()
        away.back()
        until(lambda: not memory._inner.offline.down)
        assert ana.get(id).text == "My bike is red."
        assert ana.remember("My boat is blue.").count("created") == 1


def test_a_server_that_was_never_reached_is_an_error_when_it_is_opened(
    away: Place, tmp_path: Path
) -> None:
    with pytest.raises(StoreUnavailable):
        away.open(spool_dir=tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(StoreUnavailable):
        away.open(spool=False)


def test_the_command_line_keeps_what_it_is_told_and_says_so(
    away: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORIST_DB", away.url)
    monkeypatch.setenv("MEMORIST_USER", "ana")
    monkeypatch.setenv("MEMORIST_EMBEDDER", "hashing")
    monkeypatch.setenv("MEMORIST_SPOOL_DIR", str(away.folder))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "memorist", *words], capture_output=True, text=True, check=False
        )

    told = run("remember", "My bike is red.")
    assert (told.returncode, told.stdout.split()[0]) == (0, "pending")
    assert run("list").returncode == 5
    findings = json.loads(run("--json", "doctor").stdout)["findings"]
    assert any("1 wait" in each["seen"] for each in findings if each["about"] == "spool")
    away.back()
    assert "My bike is red." in run("list").stdout


@pytest.fixture
def line(server: Server, own_database: str, tmp_path: Path) -> Iterator[tuple[Proxy, Place]]:
    """A database behind a line that can be harmed."""
    proxy = Proxy(server.socket)
    url = f"postgresql://postgres@127.0.0.1:{proxy.port}{urlsplit(own_database).path}"
    yield proxy, Place(url, tmp_path, proxy.cut, proxy.mend)
    proxy.end()


def test_a_commit_whose_answer_is_lost_is_kept_once(line: tuple[Proxy, Place]) -> None:
    proxy, place = line
    with place.open(policy="milton") as memory:  # which keeps a text as often as it is told
        ana = memory.scope("ana")
        ana.remember("The weather is fine.")
        proxy.lose_answer_to(b"COMMIT\x00")
        receipt = ana.remember("My kettle is blue.")
        assert receipt.count("pending") == 1
        until(lambda: place.waiting() == 0 and not memory._inner.offline.down)
        assert sorted(each.text for each in everything(ana)) == [
            "My kettle is blue.",
            "The weather is fine.",
        ]
        assert ana.get(receipt.ids[0]).text == "My kettle is blue."


def test_only_the_first_call_waits_for_a_server_that_does_not_answer(
    line: tuple[Proxy, Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    from memorist.storage.postgres import connection

    for name in ("ANSWER_SECONDS", "_GRACE_SECONDS", "CONNECT_SECONDS"):
        monkeypatch.setattr(connection, name, 0.5)
    proxy, place = line
    with place.open() as memory:
        ana = memory.scope("ana")
        ana.remember("My bike is red.")
        assert ana.recall("bike").hits
        proxy.stall()
        assert ana.recall("bike").degraded
        begun = time.monotonic()
        for number in range(10):
            assert ana.remember(f"There are {number} boats.").count("pending") == 1
            assert ana.recall("bike").hits
        assert time.monotonic() - begun < 20  # one call alone would wait for longer
        proxy.mend()
        until(lambda: not memory._inner.offline.down)
        assert len(everything(ana)) == 11
