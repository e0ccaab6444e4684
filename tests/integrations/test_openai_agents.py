"""The session of the OpenAI Agents SDK, run by the real SDK."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

import memorist
from memorist.errors import InvalidInput, MemoristError, Refused
from memorist.storage import sqlite
from memorist.sync import Blocking
from model_server import Call, Model

adapter = pytest.importorskip("memorist.integrations.openai_agents", exc_type=ImportError)
agents = pytest.importorskip("agents")
MemoristSession = adapter.MemoristSession


@pytest.fixture
def memory(place: str) -> Iterator[Blocking]:
    with memorist.open(place) as opened:
        yield opened


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def call(number: int) -> list[dict[str, Any]]:
    made = {"type": "function_call", "call_id": f"c{number}", "name": "look", "arguments": "{}"}
    return [made, {"type": "function_call_output", "call_id": f"c{number}", "output": "found"}]


async def test_items_are_returned_as_they_were_added(memory: Blocking) -> None:
    session = MemoristSession("chat", memory.scope(user="ana"))
    assert isinstance(session, agents.Session)
    assert await session.get_items() == []
    items = [user("Hi \x00 \ud800"), *call(1), {"role": "assistant", "content": "é"}]
    await session.add_items(items)
    await session.add_items([])
    await session.add_items([user(str(number)) for number in range(12)])
    assert await session.get_items() == [*items, *(user(str(number)) for number in range(12))]
    assert await session.get_items(2) == [user("10"), user("11")]
    assert await session.get_items(0) == []


async def test_the_limit_of_the_settings_counts_if_a_call_names_none(memory: Blocking) -> None:
    settings = agents.SessionSettings(limit=1)
    session = MemoristSession("chat", memory.scope(user="ana"), session_settings=settings)
    await session.add_items([user("a"), user("b"), user("c")])
    assert await session.get_items() == [user("c")]
    assert await session.get_items(2) == [user("b"), user("c")]


async def test_settings_may_be_a_dict(memory: Blocking) -> None:
    ana = memory.scope(user="ana")
    session = MemoristSession("chat", ana, session_settings={"limit": 2})
    assert session.session_settings == agents.SessionSettings(limit=2)
    await session.add_items([user("a"), user("b"), user("c")])
    assert await session.get_items() == [user("b"), user("c")]
    with pytest.raises(TypeError, match="limitt"):
        MemoristSession("chat", ana, session_settings={"limitt": 2})


async def test_a_closed_session_refuses_calls_and_the_memory_stays_open(memory: Blocking) -> None:
    ana = memory.scope(user="ana")
    session = MemoristSession("chat", ana)
    await session.add_items([user("I play the cello.")])
    session.close()
    session.close()
    for call in (session.get_items, session.pop_item, session.clear_session):
        with pytest.raises(RuntimeError, match="MemoristSession is closed"):
            await call()
    with pytest.raises(RuntimeError, match="MemoristSession is closed"):
        await session.add_items([])
    assert await MemoristSession("chat", ana).get_items() == [user("I play the cello.")]


async def test_damaged_items_are_left_out(memory: Blocking) -> None:
    session = MemoristSession("chat", memory.scope(user="ana"))
    await session.add_items([user("a"), user("b")])
    kept = session._kept
    damaged = ["{", "", '{"role": "user"']
    await session._loop.wait(kept.transcript.append(damaged, kept.scope.ctx.clock()))
    assert await session.get_items() == [user("a"), user("b")]
    assert await session.get_items(1) == [user("b")]
    assert await session.pop_item() == user("b")
    assert await session.get_items() == [user("a")]
    await session._loop.wait(kept.transcript.append(damaged, kept.scope.ctx.clock()))
    await session.add_items([user("c")])
    assert await session.get_items(2) == [user("a"), user("c")]
    assert [await session.pop_item() for _ in range(3)] == [user("c"), user("a"), None]


async def test_pop_returns_the_last_item_once(memory: Blocking) -> None:
    session = MemoristSession("chat", memory.scope(user="ana"))
    await session.add_items([user(str(number)) for number in range(11)])
    popped = await asyncio.gather(*(session.pop_item() for _ in range(3)))
    assert sorted(item["content"] for item in popped) == ["10", "8", "9"]
    await session.add_items([user("new")])
    assert (await session.get_items(2)) == [user("7"), user("new")]
    await session.clear_session()
    assert await session.pop_item() is None
    assert await session.get_items() == []


async def test_sessions_and_users_are_apart(memory: Blocking) -> None:
    ana = MemoristSession("chat", memory.scope(user="ana"))
    other = MemoristSession("chat.2", memory.scope(user="ana"))
    bo = MemoristSession("chat", memory.scope(user="bo"))
    await ana.add_items([user("I play the cello.")])
    await other.add_items([user("I live in Ghent.")])
    assert await bo.get_items() == []
    await bo.clear_session()
    await other.clear_session()
    assert await ana.get_items() == [user("I play the cello.")]


async def test_what_was_said_is_remembered_but_not_prompts_and_tools(memory: Blocking) -> None:
    ana = memory.scope(user="ana")
    session = MemoristSession("chat", ana)
    parts = [{"type": "input_text", "text": "I play the cello."}, {"type": "input_image"}]
    said = {"role": "assistant", "type": "message", "id": "__fake_id__", "status": "completed"}
    said["content"] = [{"type": "output_text", "text": "Noted: the cello."}]
    prompt = {"role": "system", "content": "Be brief."}
    await session.add_items([prompt, {"role": "user", "content": parts}, *call(1), said])
    await session.add_items([{**said, "content": "Bach wrote suites for it."}])
    listed = [(each.text, each.labels.session) for each in ana.list() if each.speaker]
    assert sorted(listed) == [
        ("Bach wrote suites for it.", "chat"),
        ("I play the cello.", "chat"),
        ("Noted: the cello.", "chat"),
    ]
    await session.clear_session()
    assert "cello" in ana.recall("Which instrument do I play?").text


async def test_nothing_is_remembered_if_the_session_is_told_so(memory: Blocking) -> None:
    ana = memory.scope(user="ana")
    session = MemoristSession("chat", ana, remember=False)
    await session.add_items([user("I play the cello.")])
    assert await session.get_items() == [user("I play the cello.")]
    assert ana.list().memories == ()


async def test_an_item_that_is_not_json_changes_nothing(memory: Blocking) -> None:
    session = MemoristSession("chat", memory.scope(user="ana"))
    for kind in (InvalidInput, TypeError):
        with pytest.raises(kind, match="must be JSON"):
            await session.add_items([user("kept out"), user(object())])  # type: ignore[arg-type]
    assert await session.get_items() == []


async def test_items_are_not_added_if_their_texts_cannot_be_remembered(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    with memorist.open(path, embedder="hashing") as memory:
        session = MemoristSession("chat", memory.scope(user="ana"))
        await session.add_items([user("I play the cello.")])
        with closing(apsw.Connection(str(path))) as other:
            other.execute(
                "CREATE TRIGGER fail BEFORE INSERT ON memories BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
            with pytest.raises(MemoristError):
                await session.add_items([user("I live in Ghent."), *call(1)])
            assert await session.get_items() == [user("I play the cello.")]
            other.execute("DROP TRIGGER fail")
        await session.add_items([user("I live in Ghent."), *call(1)])
        assert await session.get_items() == [
            user("I play the cello."),
            user("I live in Ghent."),
            *call(1),
        ]


async def test_an_incognito_session_stores_nothing(memory: Blocking) -> None:
    ana = memory.scope(user="ana")
    ana.privacy.start_incognito("chat")
    session = MemoristSession("chat", ana)
    with pytest.raises(Refused, match="incognito"):
        await session.add_items([user("I play the cello.")])
    assert await session.get_items() == []


async def test_a_cancelled_call_adds_all_of_its_items_or_none(memory: Blocking) -> None:
    ana = memory.scope(user="ana")
    sizes = set()
    for number in range(12):
        session = MemoristSession(f"chat {number}", ana, remember=False)
        adding = asyncio.create_task(session.add_items([user("a"), user("b"), user("c")]))
        await asyncio.sleep(number / 2000)
        adding.cancel()
        await asyncio.gather(adding, return_exceptions=True)
        await session.add_items([user("d")])
        sizes.add(len(await session.get_items()))
    assert sizes <= {1, 4}


@pytest.mark.parametrize("change", ["add", "pop", "clear"])
async def test_a_cancelled_change_is_visible_when_the_cancellation_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    commits = threading.Event()
    commit = sqlite._commit

    def commit_slowly(connection: Any) -> None:
        commits.set()
        time.sleep(0.1)
        commit(connection)

    with memorist.open(tmp_path / "m.db", embedder="hashing") as memory:
        session = MemoristSession("chat", memory.scope(user="ana"), remember=False)
        await session.add_items([user("a"), user("b")])
        monkeypatch.setattr(sqlite, "_commit", commit_slowly)
        calls = {
            "add": lambda: session.add_items([user("c")]),
            "pop": session.pop_item,
            "clear": session.clear_session,
        }
        after = {"add": ["a", "b", "c"], "pop": ["a"], "clear": []}
        changing = asyncio.create_task(calls[change]())
        assert await asyncio.to_thread(commits.wait, 10)
        for _ in range(2):
            changing.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await changing
        assert [item["content"] for item in await session.get_items()] == after[change]


async def test_a_cancelled_call_that_fails_is_cancelled(memory: Blocking) -> None:
    ana = memory.scope(user="ana")
    ana.privacy.start_incognito("chat")
    adding = asyncio.create_task(MemoristSession("chat", ana).add_items([user("a")]))
    await asyncio.sleep(0)
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding


def test_threads_with_loops_of_their_own_share_a_session(memory: Blocking) -> None:
    session = MemoristSession("chat", memory.scope(user="ana"), remember=False)

    def add(name: str) -> None:
        for number in range(5):
            asyncio.run(
                session.add_items([user(f"{name}{number} question"), user(f"{name}{number}")])
            )

    threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = [item["content"] for item in asyncio.run(session.get_items())]
    assert len(texts) == 40
    pairs = zip(texts[::2], texts[1::2], strict=True)
    assert all(first == f"{second} question" for first, second in pairs)


def test_a_closed_memory_is_named(tmp_path: Any) -> None:
    with memorist.open(tmp_path / "m.db") as memory:
        session = MemoristSession("chat", memory.scope(user="ana"))
    with pytest.raises(MemoristError, match="closed"):
        asyncio.run(session.get_items())


async def test_the_runner_sends_the_transcript_and_the_memory(
    memory: Blocking, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in model.environment.items():
        monkeypatch.setenv(name, value)
    agents.set_tracing_disabled(True)
    ana = memory.scope(user="ana")
    ana.remember("My sister Mira lives in Ghent.")

    @agents.function_tool
    def count(word: str) -> int:
        """Count letters."""
        return len(word)

    def reply(said: str) -> str | Call:
        return "Five." if "function_call_output" in said else Call("count", {"word": "Ghent"})

    model.reply = reply
    told = adapter.with_memory(ana, "Be brief.")
    agent = agents.Agent(name="Assistant", instructions=told, tools=[count])
    session = MemoristSession("chat", ana)
    done = await agents.Runner.run(agent, "How long is the name of Mira's town?", session=session)
    assert done.final_output == "Five."
    assert "Mira lives in Ghent" in model.requests[0]["instructions"]
    kinds = [item.get("type", item.get("role")) for item in await session.get_items()]
    assert kinds == ["user", "function_call", "function_call_output", "message"]
    await agents.Runner.run(agent, "And of mine?", session=session)
    assert len(model.requests[-1]["input"]) == 5


def test_the_example_remembers_between_conversations(
    run_example: Callable[[str], str], model: Model
) -> None:
    assert "Mira lives in Ghent" in run_example("openai_agents_example")
    assert [len(request["input"]) for request in model.requests] == [1, 1]
