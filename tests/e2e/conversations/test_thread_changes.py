"""What changed in a session: its revisions, its log, and the header that tells each change once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import httpx
import psycopg
import pytest
import pytest_asyncio
from typer.testing import CliRunner

from memorist import aio
from memorist.client import Client
from memorist.dialects.supervisor import Supervisor
from memorist.interfaces.cli import app
from memorist.interfaces.rest.app import create_app
from memorist.scoped import ScopedClient
from memorist.storage.history import thread_changes
from rest_server import ANA

from .conftest import Say

SHIP = "I want to ship version 1 by October."
MILK = "I cannot drink milk at all."
NAME = "Friends call me Ana."
QUESTION = "Which milk can I drink?"


@pytest.fixture
def ana(engine: Client) -> ScopedClient:
    return engine.scope("ana")


@pytest.fixture
def monday(engine: Client) -> ScopedClient:
    return engine.scope("ana", session="monday")


@pytest_asyncio.fixture
async def rest(engine: Client) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(engine, local=ANA))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def select(place: str, statement: str) -> list[tuple[Any, ...]]:
    """Return rows of the database of a memory."""
    if "://" in place:
        with psycopg.connect(place, options="-csearch_path=memorist") as connection:
            return connection.execute(statement.encode()).fetchall()
    file = apsw.Connection(place, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return [tuple(row) for row in file.execute(statement)]
    finally:
        file.close()


@pytest.mark.spec(
    "IMP-1", "IMP-3", "IMP-4", "IMP-5", "IMP-9", "IMP-10", "IMP-11", "IMP-12", "IMP-13"
)
async def test_the_header_of_a_session_tells_what_this_and_other_sessions_changed(
    say: Say, ana: ScopedClient, monday: ScopedClient
) -> None:
    ship, milk = (await say("monday", SHIP, MILK, policy="supervisor")).ids
    assert (await monday.delta(0)).revision == 2
    await say("friday", MILK, policy="supervisor")
    await ana.edit(ship, "I want to ship version 1 by September.")
    await say("monday", NAME, policy="supervisor")
    header = (
        "Memory updates since rev 2:\n"
        f"- ↔merged: Combined 2 notes about {MILK}\n"
        "- ↑updated: [Fact] I want to ship version 1 by September.\n"
        f"- +created: [Event] {NAME} (imp=1)"
    )
    assert (await monday.delta(2)).text == header
    answer = await monday.recall(QUESTION, since=2)
    assert answer.text.startswith(f"{header}\n<memory>\n")
    assert (answer.revision, answer.hits[0].memory.id) == (5, milk)
    again = await monday.recall(QUESTION, since=5)
    assert again.text.startswith("<memory>\n")
    assert again.revision == 5


@pytest.mark.spec("IMP-3", "IMP-4", "IMP-13")
async def test_a_context_of_a_session_begins_with_at_most_three_changes_each_told_once(
    say: Say, ana: ScopedClient, monday: ScopedClient
) -> None:
    said = [f"Box {letter} holds {number} keys." for number, letter in enumerate("PQRST", 11)]
    ids = (await say("monday", *said, policy="supervisor")).ids
    first = await monday.context("Which box?")
    assert first.text.splitlines()[:4] == [
        "Memory updates since rev 0:",
        "- +created: [Event] Box R holds 13 keys. (imp=1)",
        "- +created: [Event] Box S holds 14 keys. (imp=1)",
        "- +created: [Event] Box T holds 15 keys. (imp=1)",
    ]
    for number, id in enumerate(ids, 21):
        await ana.edit(id, f"Box {number} is empty.")
    await say("friday", "The sky was red.", policy="supervisor")
    heads = []
    for _ in range(3):
        found = await monday.context("Which box?")
        before = found.text.partition("<memory>")[0].splitlines()
        heads.append((before[:1], len(before[1:]), found.revision))
    assert heads == [
        (["Memory updates since rev 5:"], 3, 8),
        (["Memory updates since rev 8:"], 2, 10),
        ([], 0, 10),
    ]
    boss = await Supervisor(monday).context("Which box?", since=8)
    assert boss.splitlines()[:3] == [
        "Memory updates since rev 8:",
        "- ↑updated: [Event] Box 24 is empty.",
        "- ↑updated: [Event] Box 25 is empty.",
    ]


@pytest.mark.spec("IMP-5", "IMP-11")
async def test_all_six_events_of_a_turn_are_told_and_what_was_hidden_is_not_quoted(
    say: Say, ana: ScopedClient, monday: ScopedClient
) -> None:
    (id,) = (await say("monday", MILK, policy="supervisor")).ids
    told = [(await monday.delta()).text]
    await say("friday", MILK, policy="supervisor")
    told.append((await monday.delta()).text)
    await ana.edit(id, category="health")
    told.append((await monday.delta()).text)
    await ana.forget(id, keep_days=3)
    told.append((await monday.delta()).text)
    await ana.restore(id)
    told.append((await monday.delta()).text)
    await ana.forget(id)
    told.append((await monday.delta()).text)
    assert [text.partition("\n")[2] for text in told] == [
        f"- +created: [Event] {MILK} (imp=1)",
        f"- ↔merged: Combined 2 notes about {MILK}",
        f"- ↑updated: [Health] {MILK}",
        "- ↓soft_deleted: [Health] 1 memory, restorable",
        f"- ↺restored: [Health] {MILK}",
        "- −deleted: 1 memory",
    ]
    heads = [text.partition("\n")[0] for text in told]
    assert heads == [f"Memory updates since rev {n}:" for n in range(6)]
    assert (await monday.delta()).text == ""


@pytest.mark.spec("IMP-5", "IMP-11", "IMP-13")
async def test_a_session_is_told_the_newer_value_that_another_session_gave(
    place: str, tmp_path: Path
) -> None:
    async with aio.open(place, extract="off", state_dir=tmp_path) as memory:
        days = ("monday", "friday", "sunday")
        monday, friday, sunday = (memory.scope("ana", session=day) for day in days)
        home = {"role": "user", "content": "I live in Lisbon, near the river."}
        reply = {"role": "assistant", "content": "Lisbon is lovely in May."}
        await monday.remember([home, reply])
        assert len((await monday.delta()).changes) == 2
        await friday.remember([{"role": "user", "content": "I live in Porto now."}])
        assert len((await friday.delta()).changes) == 1
        assert (await monday.delta()).text.splitlines() == [
            "Memory updates since rev 2:",
            "- ↑updated: [Event] I live in Porto now.",
        ], "neither the old value nor the reply that repeats it"
        await sunday.remember([{"role": "user", "content": "I live in Braga now."}])
        newest = "- ↑updated: [Event] I live in Braga now."
        assert (await friday.delta()).text.splitlines()[1:] == [newest]
        assert (await monday.delta(2)).text.splitlines()[1:] == [newest]
        assert "Lisbon" not in (await monday.delta(0)).text


@pytest.mark.spec("IMP-1", "IMP-13")
async def test_a_session_has_its_own_revision_and_hears_nothing_of_other_sessions_and_people(
    engine: Client, say: Say
) -> None:
    await say("monday", SHIP, MILK, policy="supervisor")
    await say("friday", NAME, policy="supervisor")
    await say("monday", NAME, user="ben", policy="supervisor")
    revisions = {}
    for user, session in (
        ("ana", "monday"),
        ("ana", "friday"),
        ("ana", "sunday"),
        ("ben", "monday"),
    ):
        revisions[user, session] = (await engine.scope(user, session=session).delta(0)).revision
    assert list(revisions.values()) == [2, 1, 0, 1]
    quiet = await engine.scope("ana", session="sunday").context(QUESTION)
    assert "Memory updates" not in quiet.text


@pytest.mark.spec("IMP-1", "IMP-2", "IMP-6", "IMP-7", "IMP-8")
async def test_the_tables_hold_the_revision_and_the_changes_of_each_session(
    engine: Client, say: Say, place: str
) -> None:
    first, _ = (await say("monday", SHIP, MILK, policy="supervisor")).ids
    await say("friday", SHIP, policy="supervisor")
    (other,) = (await say("friday", NAME, policy="supervisor")).ids
    threads = select(place, "SELECT thread_id, rev FROM thread_revision ORDER BY thread_id")
    assert threads == [("friday", 1), ("monday", 3)]
    sql = "SELECT id, thread_id, rev, memory_id, event, meta, ts FROM change_log ORDER BY 2, 3"
    log = select(place, sql)
    assert [row[1:3] + row[4:5] for row in log] == [
        ("friday", 1, "created"),
        ("monday", 1, "created"),
        ("monday", 2, "created"),
        ("monday", 3, "merged"),
    ]
    assert [str(row[3]) for row in (log[0], log[1], log[3])] == [other, first, first]
    assert len({UUID(str(row[0])) for row in log}) == 4
    for *_, meta, at in log:
        assert isinstance(meta if isinstance(meta, dict) else json.loads(meta), dict)
        assert str(at).startswith("2026-03-01")
    index = "SELECT indexdef FROM pg_indexes WHERE indexname = 'change_log_thread'"
    if "://" not in place:
        index = "SELECT sql FROM sqlite_master WHERE name = 'change_log_thread'"
    assert "(scope, thread_id, rev DESC)" in select(place, index)[0][0]


@pytest.mark.spec("IMP-2")
async def test_the_log_of_a_long_session_keeps_its_last_thousand_changes(
    engine: Client, say: Say, ana: ScopedClient
) -> None:
    await say("quiet", MILK, policy="supervisor")
    said = [f"Box {number} holds {number * 7} keys." for number in range(1003)]
    await say("long", *said, policy="milton")  # which compares nothing
    await ana.purge()
    log = await thread_changes(engine.ctx.store, ana.scope, "long", 0)
    assert [change.revision for change in log] == list(range(4, 1004))
    assert (await ana.delta(1001, thread="long")).text.splitlines()[1:] == [
        "- +created: [Crumb] Box 1001 holds 7007 keys. (imp=3)",
        "- +created: [Crumb] Box 1002 holds 7014 keys. (imp=3)",
    ]
    assert len((await ana.delta(0, thread="quiet")).changes) == 1


@pytest.mark.spec("IMP-1", "IMP-14")
async def test_writers_of_one_session_at_the_same_time_never_share_or_skip_a_revision(
    place: str, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"embedder": "hashing", "extract": "off", "state_dir": tmp_path}
    async with aio.open(place, **options) as one, aio.open(place, **options) as two:
        chats = [memory.scope("ana", session="monday") for memory in (one, two)]
        calls = []
        for number in range(10):
            said = (f"Box {number} holds {number * 7} keys.", f"Shelf {number} is {number} high.")
            turns = [{"role": "user", "content": text} for text in said]
            calls.append(chats[number % 2].remember(turns, policy="supervisor"))
        await asyncio.gather(*calls)
        log = await thread_changes(one.ctx.store, chats[0].scope, "monday", 0)
    assert [change.revision for change in log] == list(range(1, 21))
    assert len({change.memory_id for change in log}) == 20


@pytest.mark.spec("IMP-3", "IMP-9", "IMP-10", "IMP-12", "IMP-13")
async def test_the_header_of_a_session_is_the_same_over_rest(rest: httpx.AsyncClient) -> None:
    url = "/v1/memory"
    for session in ("monday", "friday"):
        turns = [
            {"role": "user", "content": MILK},
            {"role": "assistant", "content": "Good to know."},
        ]
        stored = await rest.post(f"{url}/messages", json={"messages": turns, "session": session})
        assert stored.status_code == 201, stored.text
    asked = {"query": QUESTION, "session": "monday", "since": 2}
    found = (await rest.post(f"{url}/recall", json=asked)).json()
    header = f"Memory updates since rev 2:\n- ↔merged: Combined 2 notes about {MILK}\n"
    assert found["text"].startswith(f"{header}<memory>\n")
    assert found["revision"] == 3
    later = (await rest.post(f"{url}/recall", json={**asked, "since": 3})).json()
    assert later["text"].startswith("<memory>\n")
    asked = {"message": QUESTION, "session": "friday", "since": 0}
    context = (await rest.post(f"{url}/context", json=asked)).json()
    assert context["text"].splitlines()[:2] == [
        "Memory updates since rev 0:",
        "- +created: [Event] assistant: Good to know. (imp=1)",
    ]


@pytest.mark.spec("IMP-3", "IMP-9", "IMP-10", "IMP-13")
async def test_the_command_line_tells_a_session_each_change_once(
    say: Say, place: str, tmp_path: Path
) -> None:
    await say("monday", MILK, policy="supervisor")
    await say("friday", NAME, policy="supervisor")
    env = {"MEMORIST_EMBEDDER": "hashing", "MEMORIST_STATE_DIR": str(tmp_path)}
    command = ["agent", "delta", "monday", "--db", place, "--user", "ana"]

    def run() -> str:
        done = CliRunner().invoke(app, command, env=env)
        assert done.exit_code == 0, done.output
        return done.stdout

    assert (await asyncio.to_thread(run)).splitlines() == [
        "Memory updates since rev 0:",
        f"- +created: [Event] {MILK} (imp=1)",
    ]
    assert await asyncio.to_thread(run) == ""
