"""kill -9 in the middle of each duty: after the leases everything drains, and nothing was done twice or lost."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

import memorist
from faults.children import WORDS
from faults.witness import CHILDREN, everything, whole_lines
from llm_server import Request, Server
from memorist.jobs import reflect
from memorist.sync import Blocking, BlockingScope

LEASE = 1.0  # seconds
CAP = 6  # memories of a scope that trimming leaves
LONG_AGO = datetime.now(UTC) - timedelta(days=100)


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a duty is given to do in a new scope, and what is wrong if it was not done there, and once."""

    give: Callable[[BlockingScope], object]
    left: Callable[[BlockingScope], list[str]]
    is_old: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


def told(scope: BlockingScope, many: int = 12) -> list[str]:
    chance = random.Random(scope.scope.user)
    texts = [f"{' '.join(chance.sample(WORDS, 6))} {chance.getrandbits(40)}" for _ in range(many)]
    return [
        id for text in texts for id in scope.remember(text, importance=0.4, policy="theoria").ids
    ]


def old(scope: BlockingScope) -> None:
    """Some that nobody used for long, and some that were put away for long enough."""
    for id in told(scope)[:4]:
        scope.forget(id, keep_days=1)


def said(scope: BlockingScope) -> None:
    for number, text in enumerate(FACTS):
        scope.remember([{"role": "user", "content": text, "id": str(number)}], policy="default")


def said_twice(scope: BlockingScope) -> None:
    for what in ("peanuts", "eggs", "cats", "wool"):
        for text in (f"I am allergic to {what}", f"Remember: I am allergic to {what}!"):
            scope.remember(text, policy="milton")


def spoken(scope: BlockingScope) -> None:
    for day in range(6):
        lines = [
            f"On day {day} we spoke of the {what} ship and its {day + 2} sails."
            for what in WORDS[:3]
        ]
        talk = [
            {"role": "user", "content": line, "id": line, "session": f"day {day}"} for line in lines
        ]
        scope.remember(talk, policy="default")


def alike(scope: BlockingScope) -> None:
    """Two topics of three memories each that nobody used for long."""
    for topic in ("Grandmother waters her white roses", "Village bakers sell warm rye bread"):
        for day in ("Monday", "Tuesday", "Friday"):
            scope.remember(f"{topic} on {day}", importance=0.4, policy="default")


def behind(scope: BlockingScope, state: str, least: int) -> list[str]:
    """Each memory that was put behind a summary is so once, with all that the summary stands for."""
    above = Counter(
        id for each in everything(scope) if each.compression_source for id in each.evidence_ids
    )
    gone = {each.id for each in everything(scope, state)}
    return [id for id in gone | set(above) if above[id] != 1 or id not in gone] + (
        ["few"] if len(gone) < least else []
    )


def insights(scope: BlockingScope) -> list[str]:
    found = [each for each in everything(scope) if each.category == reflect.CATEGORY]
    return [] if len(found) == 1 else [f"{scope.scope.user}: {len(found)} insights"]


def events(scope: BlockingScope, event: str, many: int) -> list[str]:
    """What is wrong if not so many memories have an event in their history."""
    seen = len({line.memory_id for line in scope.history(limit=10_000) if line.event == event})
    return [] if seen == many else [f"{scope.scope.user}: {event} {seen} times instead of {many}"]


FACTS = [
    "I live in Porto.",
    "I work as a nurse.",
    "I'm allergic to peanuts.",
    "My favourite tea is oolong.",
]
WORKS = {
    "embed": Work(give=told, left=lambda s: [m.id for m in everything(s) if m.needs_embedding]),
    "purge": Work(
        give=old, left=lambda s: [*(m.id for m in everything(s)), *events(s, "TTL", 12), *events(s, "DELETE", 4)],
        is_old=True,
    ),
    "trim": Work(give=told, left=lambda s: events(s, "TTL", 12 - CAP), settings={"policy": "theoria", "capacity": CAP}),
    "snapshot": Work(give=told, left=lambda s: []),
    "extract": Work(give=said, left=lambda s: events(s, "ADD", 2 * len(FACTS)), settings={"extract": "rules"}),
    "consolidate": Work(give=said_twice, left=lambda s: events(s, "MERGE", 4)),
    "compress": Work(
        give=spoken, left=lambda s: behind(s, "compressed", 6), settings={"compression_threshold": 4}
    ),
    "rollup": Work(give=alike, left=lambda s: behind(s, "archived", 6), is_old=True, settings={"rollup_days": 90}),
    "reflect": Work(give=said, left=insights, settings={"llm": "openai:small"}),
}  # fmt: skip
INSIGHT = {
    "summary": "The user trusts few people and plans far ahead.",
    "tags": ["trust"],
    "importance": 2,
}


@pytest.fixture
def asked(tmp_path: Path, llm_server: Server) -> Callable[[str], dict[str, Any]]:
    """The settings of whoever tends, by the duty that they tend to; the language model takes its time."""

    def answer(request: Request) -> dict[str, Any]:
        time.sleep(0.02)
        return {"insights": [INSIGHT]}

    llm_server.answer = answer
    model = {
        "llm_url": f"{llm_server.url}/v1",
        "llm_key": "none",
        "llm_daily_tokens_per_user": 10**9,
        "llm_daily_tokens_per_tenant": 10**9,
    }
    usual = {"embedder": "hashing", "spool": False, "journal_dir": str(tmp_path / "journal")}
    return lambda duty: {**usual, **WORKS[duty].settings, **(model if duty == "reflect" else {})}


def given(place: str, settings: dict[str, Any], duty: str, users: list[str]) -> None:
    """Work for a duty, in new scopes that nobody has tended."""
    with memorist.open(place, **{**settings, "capacity": 0}) as memory:
        if WORKS[duty].is_old:
            memory._inner.ctx.clock = lambda: LONG_AGO
        for user in users:
            WORKS[duty].give(memory.scope(user))


def killed(place: str, settings: dict[str, Any], duty: str, seconds: float) -> bool:
    """Begin a duty and kill whoever does it after a while; False if it was done by then."""
    command = [sys.executable, str(CHILDREN), "tend", place, duty, str(LEASE), json.dumps(settings)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == ["open"]
        time.sleep(seconds)
        child.send_signal(signal.SIGKILL)
        return list(whole_lines(child.stdout.read())) == []


def kill_loop(place: str, settings: dict[str, Any], duty: str, kills: int) -> dict[str, list[Any]]:
    """Kill a duty so many times; what is left, done twice or half written when another has finished it."""
    chance, users, window = random.Random(duty), list[str](), 0.2
    while kills:
        new = [f"{duty}-{len(users) + n}" for n in range(4)]
        given(place, settings, duty, new)
        users += new
        is_killed = killed(place, settings, duty, chance.uniform(0.0, window))
        kills, window = kills - is_killed, window * (1.0 if is_killed else 0.7)
    time.sleep(LEASE + 0.5)
    with memorist.open(place, **settings) as memory:
        memory.run_jobs(only=[duty])
        return seen(memory, duty, [memory.scope(user) for user in users])


def seen(memory: Blocking, duty: str, scopes: list[BlockingScope]) -> dict[str, list[Any]]:
    return {
        "stuck": [
            log
            for log in memory.backlog()
            if log.name == duty and (log.waiting or log.running or log.failing)
        ],
        "lost": [wrong for scope in scopes for wrong in WORKS[duty].left(scope)],
        "twice": [wrong for scope in scopes for wrong in twice(scope)],
        "half written": memory.check(),
    }


def twice(scope: BlockingScope) -> Iterator[Any]:
    """What is there or happened once more than it should."""
    lines = Counter((line.memory_id, line.event) for line in scope.history(limit=10_000))
    yield from (each for each, times in lines.items() if times > 1 and each[1] in ONCE)
    vectors = Counter(
        line.memory_id for line in scope.events(node="worker", op="embed", limit=10_000)
    )
    yield from ((id, "embed") for id, times in vectors.items() if id is not None and times > 1)
    yield from (
        text
        for text, times in Counter(each.text for each in everything(scope)).items()
        if times > 1
    )


ONCE = ("ADD", "TTL", "DELETE", "MERGE")
CLEAN: dict[str, list[Any]] = {"stuck": [], "lost": [], "twice": [], "half written": []}


@pytest.mark.spec("THE-94")
@pytest.mark.parametrize("duty", ["embed", "purge", "extract"])
def test_a_duty_that_is_killed_is_done_by_the_next_and_nothing_twice(
    place: str, asked: Callable[[str], dict[str, Any]], duty: str
) -> None:
    assert kill_loop(place, asked(duty), duty, kills=1) == CLEAN


@pytest.mark.slow
@pytest.mark.parametrize("duty", WORKS)
def test_a_duty_that_is_killed_15_times_leaves_nothing_stuck_lost_or_twice(
    place: str, asked: Callable[[str], dict[str, Any]], duty: str
) -> None:
    assert kill_loop(place, asked(duty), duty, kills=15) == CLEAN


def test_the_fill_of_the_second_model_survives_a_kill(tmp_path: Path) -> None:
    place = str(tmp_path / "memory.db")
    with memorist.open(place, multilingual=False) as memory:
        texts = [f"On day {day} I drew {day} clouds." for day in range(80)]
        memory.scope("ana").remember([{"content": text} for text in texts], policy="theoria")
        before = texts_by_id(memory.scope("ana"))
    with subprocess.Popen(
        [sys.executable, str(CHILDREN), "fill", place], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert json.loads(child.stdout.readline()) == ["stuck"]
        child.send_signal(signal.SIGKILL)
    assert second_vectors(place) == 32
    with memorist.open(place) as memory:
        assert texts_by_id(memory.scope("ana")) == before
        assert memory.check() == []
    connection = apsw.Connection(place)
    connection.execute("UPDATE claims SET until = 0")  # the lease of the dead process ends
    connection.close()
    with memorist.open(place) as memory:
        end = time.monotonic() + 30
        while second_vectors(place) < len(before):
            memory.scope("ana").recall("clouds")
            assert time.monotonic() < end
        assert texts_by_id(memory.scope("ana")) == before
        assert memory.check() == []


def texts_by_id(scope: BlockingScope) -> dict[str, str]:
    return {memory.id: memory.text for memory in everything(scope)}


def second_vectors(place: str) -> int:
    connection = apsw.Connection(place, flags=apsw.SQLITE_OPEN_READONLY)
    sql = "SELECT count(*) FROM vectors WHERE model = 'use-multilingual-v3-256'"
    ((count,),) = connection.execute(sql)
    connection.close()
    return int(count)
