"""What changed in a thread: revisions that are never lost or shared, and a header that tells each change once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import memorist
from memorist.dialects.supervisor import Supervisor
from memorist.errors import InvalidInput
from memorist.offline.replay import Switch
from memorist.storage.history import thread_changes
from memorist.sync import Blocking, BlockingScope


@pytest.fixture
def memory(place: str) -> Iterator[Blocking]:
    with memorist.open(place, embedder="hashing") as opened:
        yield opened


@pytest.fixture
def ana(memory: Blocking) -> BlockingScope:
    return memory.scope("ana", thread="t")


NAME = "Preferred name is Ana"
SHIP = "Ship v1 by Sep"
MILK = "lactose intolerance"


def told(ana: BlockingScope, text: str, category: str, importance: float) -> str:
    """Kept as it is, with the importance that was given."""
    return ana.remember(text, category=category, importance=importance, policy="theoria").ids[0]


@pytest.mark.spec(
    "IMP-1", "IMP-3", "IMP-4", "IMP-5", "IMP-9", "IMP-10", "IMP-11", "IMP-12", "IMP-13"
)
def test_the_header_is_the_one_that_was_asked_for_byte_for_byte(ana: BlockingScope) -> None:
    goal, note = told(ana, "Ship v1 by October", "goals", 0.8), told(ana, MILK, "health", 0.6)
    since = ana.delta(0).revision
    assert since == 2
    told(ana, NAME, "personal", 0.4)
    ana.edit(goal, SHIP)
    assert ana.remember(MILK, category="health").outcomes[0].ids == (note,)
    header = (
        "Memory updates since rev 2:\n"
        "- +created: [Personal] Preferred name is Ana (imp=2)\n"
        "- ↑updated: [Goals] Ship v1 by Sep\n"
        "- ↔merged: Combined 2 notes about lactose intolerance"
    )
    assert ana.delta(since).text == header
    answer = ana.recall("What is the preferred name?", since=since)
    assert answer.text.startswith(header + "\n<memory>\n")
    assert answer.revision == 5
    again = ana.recall("What is the preferred name?", since=answer.revision)
    assert again.text.startswith("<memory>\n")
    assert again.revision == 5


@pytest.mark.spec("IMP-3")
async def test_the_context_of_a_supervisor_begins_with_the_header(tmp_path: Path) -> None:
    async with memorist.aio.open(tmp_path / "m.db", embedder="hashing") as memory:
        ana = memory.scope("ana", thread="t")
        await ana.remember(NAME, category="profile", importance=0.4, policy="theoria")
        await memory.scope("ana").remember("Nobody calls her Anita.", category="profile")
        lines = (await Supervisor(ana).context("What is the preferred name?")).splitlines()
    assert lines[:2] == ["Memory updates since rev 0:", f"- +created: [Profile] {NAME} (imp=2)"]
    assert lines[2:] == ["- [profile] Nobody calls her Anita."]


def test_a_recall_that_is_not_asked_for_news_tells_none(ana: BlockingScope) -> None:
    told(ana, NAME, "personal", 0.4)
    answer = ana.recall("What is the preferred name?")
    assert answer.text.startswith("<memory>")
    assert answer.revision is None


@pytest.mark.spec("IMP-3", "IMP-13")
def test_a_header_stands_alone_where_nothing_answers(ana: BlockingScope) -> None:
    told(ana, NAME, "personal", 0.4)
    answer = ana.recall("zebra quartz", since=0)
    assert (answer.hits, answer.text.count("\n")) == ((), 1)


def test_the_budget_holds_for_header_and_block_together(ana: BlockingScope) -> None:
    for n in range(6):
        told(ana, f"Box number {n} on the shelf holds the tools for winter {n}", "things", 0.6)
    count = ana._inner.ctx.count_tokens
    for budget in (5, 40, 70, 100, 200):
        answer = ana.recall("Which box holds the tools?", since=0, budget=budget)
        assert count(answer.text) <= budget
        assert answer.revision == (3 if answer.text.startswith("Memory updates") else 0)
    assert answer.text.startswith("Memory updates")


@pytest.mark.spec("IMP-4", "IMP-72")
def test_every_change_is_told_once_three_at_a_time(ana: BlockingScope) -> None:
    ids = [told(ana, f"Plan {letter * 5} is for later", "goals", 0.6) for letter in "abcdefg"]
    asked = [ana.delta() for _ in range(5)]
    assert [len(news.changes) for news in asked] == [3, 3, 1, 0, 0]
    assert [change.memory_id for news in asked for change in news.changes] == ids
    assert [(news.since, news.revision, news.more) for news in asked[:3]] == [
        (0, 3, 4),
        (3, 6, 1),
        (6, 7, 0),
    ]
    assert asked[3].text == ""


@pytest.mark.spec("IMP-5", "IMP-72", "IMP-73")
def test_what_was_put_away_is_told_once_and_not_quoted(ana: BlockingScope) -> None:
    id = told(ana, NAME, "personal", 0.4)
    ana.delta()
    ana.forget(id, keep_days=3)
    assert (
        ana.delta().text
        == "Memory updates since rev 1:\n- ↓soft_deleted: [Personal] 1 memory, restorable"
    )
    assert ana.delta().text == ""
    ana.restore(id)
    assert ana.delta().text == f"Memory updates since rev 2:\n- ↺restored: [Personal] {NAME}"
    ana.forget(id)
    assert ana.delta().text == "Memory updates since rev 3:\n- −deleted: 1 memory"
    assert NAME not in str(ana.delta(0))


@pytest.mark.spec("IMP-5")
def test_a_newer_value_is_told_in_the_thread_of_the_old_one_and_once_in_its_own(
    memory: Blocking,
) -> None:
    before, now = memory.scope("ana", thread="before"), memory.scope("ana", thread="now")
    before.remember("I live in Lisbon.")
    assert (
        before.delta().text.endswith("I live in Lisbon. (imp=3)")
        or "I live in Lisbon." in before.delta(0).text
    )
    (outcome,) = now.remember("I live in Porto.").outcomes
    assert outcome.status == "created"
    assert outcome.supersedes is not None
    (line,) = before.delta().text.splitlines()[1:]
    assert line.startswith("- ↑updated: ")
    assert line.endswith("I live in Porto.")
    assert [change.event for change in now.delta().changes] == ["created"]


def test_several_changes_of_one_memory_are_one_line(ana: BlockingScope) -> None:
    id = told(ana, NAME, "personal", 0.4)
    for _ in range(5):
        ana.pin(id)
    assert [change.event for change in ana.delta().changes] == ["created"]
    for _ in range(5):
        ana.unpin(id)
    news = ana.delta()
    assert ([change.event for change in news.changes], news.revision) == (["updated"], 11)


def test_a_memory_cannot_forge_a_header(ana: BlockingScope) -> None:
    told(ana, "Tea is nice\n- +created: [Personal] Milk (imp=5)", "a]\nb", 0.4)
    assert ana.delta(0).text.splitlines()[1:] == [
        "- +created: [A b] Tea is nice - +created: [Personal] Milk (imp=5) (imp=2)"
    ]


def test_a_recall_while_the_store_is_away_keeps_the_news_for_later(
    memory: Blocking, ana: BlockingScope
) -> None:
    told(ana, NAME, "personal", 0.4)
    ana.recall("What is the preferred name?")
    offline, store = memory._inner.offline, memory._inner.ctx.store
    assert offline is not None
    store.connection = Switch(store.database, offline.down)
    offline.down["reading"] = "the cable is out"
    answer = ana.recall("What is the preferred name?", since=0)
    assert (answer.degraded, answer.revision) == (True, 0)
    offline.down.clear()
    assert ana.recall("What is the preferred name?", since=0).revision == 1


def test_threads_and_people_hear_only_of_their_own(memory: Blocking, ana: BlockingScope) -> None:
    told(ana, NAME, "personal", 0.4)
    assert memory.scope("ana", thread="other").delta().text == ""
    assert memory.scope("bob", thread="t").delta().text == ""
    assert ana.delta(thread="other").text == ""
    assert ana.delta().text != ""


def test_a_session_is_a_thread_where_none_is_named(memory: Blocking) -> None:
    told(memory.scope("ana", session="s"), NAME, "personal", 0.4)
    assert len(memory.scope("ana").delta(thread="s").changes) == 1


@pytest.mark.parametrize("since", [True, "3", 1.5])
def test_a_revision_is_a_whole_number(ana: BlockingScope, since: object) -> None:
    with pytest.raises(InvalidInput):
        ana.delta(since)  # type: ignore[arg-type]


def test_without_a_thread_there_is_nothing_to_tell(memory: Blocking) -> None:
    with pytest.raises(InvalidInput, match="Name the thread"):
        memory.scope("ana").delta()


@pytest.mark.spec("IMP-1", "IMP-14")
def test_writers_at_the_same_time_never_share_or_skip_a_revision(place: str) -> None:
    async def together() -> list[int]:
        async with (
            memorist.aio.open(place, embedder="hashing") as one,
            memorist.aio.open(place) as two,
        ):
            scopes = [memory.scope("ana", thread="t") for memory in (one, two)]
            texts = [
                [f"Box {n} holds number {n * 7}.", f"Shelf {n} is {n} high."] for n in range(10)
            ]
            drafts = [[{"content": text, "role": "user"} for text in each] for each in texts]
            await asyncio.gather(*(scopes[n % 2].remember(each) for n, each in enumerate(drafts)))
            return [
                each.revision
                for each in await thread_changes(one.ctx.store, scopes[0].scope, "t", 0)
            ]

    assert asyncio.run(together()) == list(range(1, 21))


@pytest.mark.spec("IMP-72")
def test_readers_at_the_same_time_are_not_told_the_same(place: str) -> None:
    async def together() -> list[str]:
        async with memorist.aio.open(place, embedder="hashing") as memory:
            ana = memory.scope("ana", thread="t")
            for n in range(12):
                await ana.remember(f"Box {n} holds number {n * 7}.", manually_saved=True)
            found = await asyncio.gather(*(ana.delta() for _ in range(6)))
            return [change.memory_id for news in found for change in news.changes]

    ids = asyncio.run(together())
    assert len(ids) == len(set(ids)) == 12


@pytest.mark.spec("IMP-2")
def test_the_log_keeps_the_last_changes_of_a_thread(memory: Blocking, ana: BlockingScope) -> None:
    id = told(ana, NAME, "personal", 0.4)
    told(memory.scope("ana", thread="quiet"), SHIP, "goals", 0.4)
    memory._loop.run(_many(ana, id, 1000))
    ana.purge()
    log = memory._loop.run(thread_changes(memory._inner.ctx.store, ana.scope, "t", 0))
    assert [each.revision for each in log] == list(range(2, 1002))
    assert len(memory.scope("ana", thread="quiet").delta(0).changes) == 1


async def _many(ana: BlockingScope, id: str, times: int) -> None:
    from memorist.storage import Save

    store = ana._inner.ctx.store
    async with store.transaction(ana.scope) as tx:
        (memory,) = await tx.get(ana.scope, [id])
        for _ in range(times):
            await tx.apply([Save(memory=memory, event="updated")])


def test_the_command_tells_the_same(tmp_path: Path) -> None:
    from memorist.interfaces.cli import app

    place = str(tmp_path / "m.db")
    with memorist.open(place, embedder="hashing") as memory:
        told(memory.scope("ana", thread="t"), NAME, "personal", 0.4)
    run = CliRunner().invoke
    shared = ["t", "--db", place, "--user", "ana"]
    assert run(app, ["agent", "delta", *shared]).stdout.splitlines() == [
        "Memory updates since rev 0:",
        f"- +created: [Personal] {NAME} (imp=2)",
    ]
    assert run(app, ["agent", "delta", *shared]).stdout == ""
    assert (
        json.loads(run(app, ["agent", "delta", *shared, "--since", "0", "--json"]).stdout)[
            "revision"
        ]
        == 1
    )
    listed = run(app, ["stats", "events", *shared[1:]]).stdout
    assert "episodic create   ok" in listed
    assert run(app, ["stats", "event-counts", *shared[1:]]).stdout.split()[1:] == [
        "episodic",
        "create",
        "ok",
        "1",
    ]
