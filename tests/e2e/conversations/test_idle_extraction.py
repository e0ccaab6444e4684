"""Facts appear without anybody starting anything, also those of turns that another process left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from memorist import aio, context
from memorist.client import Client
from memorist.context import IdleRunner
from memorist.interfaces.cli import app
from memorist.types import Filter

FACTS = Filter(tags=("extracted",))
SAID = ("I'm allergic to walnuts.", "I live in Ghent.", "My brother is called Piet.")
KNOWN = (
    "The user is allergic to walnuts.",
    "The user lives in Ghent.",
    "The user's brother is called Piet.",
)


@asynccontextmanager
async def opened(place: str | Path, folder: Path, **options: Any) -> AsyncIterator[Client]:
    async with aio.open(place, state_dir=folder, embedder="hashing", **options) as memory:
        yield memory


async def leave_turns(
    place: str | Path, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> None:
    """Store turns in a process that has no time for their facts."""
    with monkeypatch.context() as patch:
        patch.setattr(context, "CLOSING_SECONDS", 0)
        async with opened(place, folder, **options) as memory:
            for number, text in enumerate(SAID):
                chat = memory.scope("ana", session=f"s{number}")
                await chat.remember([{"role": "user", "content": text}])
    async with opened(place, folder, extract="off") as memory:
        assert (await count_waiting(memory), await find_facts(memory)) == (3, ())


async def count_waiting(memory: Client) -> int:
    return sum(each.waiting for each in await memory.backlog() if each.name == "extract")


async def find_facts(memory: Client) -> tuple[str, ...]:
    found = await memory.scope("ana").list(FACTS)
    return tuple(sorted(fact.text for fact in found))


async def wait_for_facts(memory: Client) -> tuple[str, ...]:
    for _ in range(600):
        await asyncio.sleep(0.05)
        if len(found := await find_facts(memory)) == len(SAID):
            break
    return found


async def test_a_client_that_only_recalls_extracts_what_another_one_left(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leave_turns(place, tmp_path, monkeypatch)
    monkeypatch.setattr(context, "IDLE_SECONDS", 0.05)
    async with opened(place, tmp_path) as memory:
        assert (await memory.scope("ana").recall("Where do I live?")).memories
        assert await wait_for_facts(memory) == KNOWN


async def test_a_client_that_was_opened_before_finds_them_after_a_recall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: list[str]
) -> None:
    monkeypatch.setattr(context, "IDLE_SECONDS", 0.05)
    place = tmp_path / "m.db"
    async with opened(place, tmp_path) as memory:
        for _ in range(600):
            await asyncio.sleep(0.05)
            if any("FROM tasks" in sql for sql in statements):  # it looks after opening
                break
        await leave_turns(place, tmp_path, monkeypatch)
        assert await find_facts(memory) == ()
        await memory.scope("ana").recall("Where do I live?")
        assert await wait_for_facts(memory) == KNOWN


async def test_closing_extracts_what_another_one_left(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leave_turns(place, tmp_path, monkeypatch)
    async with opened(place, tmp_path) as memory:
        assert await find_facts(memory) == ()
    async with opened(place, tmp_path, extract="off") as memory:
        assert await find_facts(memory) == KNOWN


async def test_the_command_line_extracts_what_another_one_left_after_it_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leave_turns(tmp_path / "m.db", tmp_path, monkeypatch)
    usual = ["--db", str(tmp_path / "m.db"), "--user", "ana", "--tag", "extracted"]
    env = {"MEMORIST_EMBEDDER": "hashing", "MEMORIST_STATE_DIR": str(tmp_path)}

    def run() -> str:
        return CliRunner().invoke(app, ["list", *usual], env=env).stdout

    assert KNOWN[0] not in await asyncio.to_thread(run)
    assert KNOWN[0] in await asyncio.to_thread(run)


async def test_a_client_that_finds_nothing_to_extract_writes_nothing_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statements: list[str]
) -> None:
    async with opened(tmp_path / "m.db", tmp_path) as memory:
        await memory.scope("ana", session="s").remember([{"role": "user", "content": SAID[0]}])
    del statements[:]
    async with opened(tmp_path / "m.db", tmp_path) as memory:
        await memory.scope("ana").recall("Am I allergic?")
    asked = [sql for sql in statements if "tasks" in sql]
    assert asked
    assert not [sql for sql in asked if "UPDATE tasks" in sql]


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_a_database_that_cannot_be_written_is_only_read(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leave_turns(place, tmp_path, monkeypatch)
    monkeypatch.setattr(context, "IDLE_SECONDS", 0.01)
    joint = "&" if "?" in place else "?"
    read_only = f"{place}{joint}options=-c%20default_transaction_read_only%3Don"
    async with opened(read_only, tmp_path) as memory:
        assert (await memory.scope("ana").recall("Where do I live?")).memories
        await asyncio.sleep(0.1)
    async with opened(place, tmp_path, extract="off") as memory:
        assert (await count_waiting(memory), await find_facts(memory)) == (3, ())


async def test_closing_waits_two_seconds_for_steps() -> None:
    loop = asyncio.get_running_loop()
    now = [loop.time()]
    steps = []

    async def step() -> bool:
        steps.append(now[0])
        now[0] += 0.5
        await asyncio.sleep(0)
        return True

    runner = IdleRunner(step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "time", lambda: now[0])
        await runner.close()
    assert steps[-1] - steps[0] == pytest.approx(2.0), "then none is started any more"


async def test_a_step_that_never_ends_is_given_back_when_the_client_closes(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def never(prompt: str) -> str:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(context, "CLOSING_SECONDS", 0.5)
    async with asyncio.timeout(60):
        async with opened(place, tmp_path, llm=never, extract="model") as memory:
            said = f"{SAID[1]} " + "The depot in Ghent closes at six. " * 9
            chat = memory.scope("ana", session="s")
            await chat.remember([{"role": "user", "content": said}])
            assert not asked.is_set()
        assert asked.is_set()
    async with opened(place, tmp_path, extract="off") as memory:
        (waiting,) = [each for each in await memory.backlog() if each.name == "extract"]
        assert (waiting.waiting, waiting.running, waiting.failing) == (1, 0, 0)


async def test_a_model_is_not_asked_when_a_client_closes_that_stored_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leave_turns(tmp_path / "m.db", tmp_path, monkeypatch)
    asked = []
    options: dict[str, Any] = {"llm": asked.append, "extract": "model"}
    async with opened(tmp_path / "m.db", tmp_path, **options) as memory:
        assert await find_facts(memory) == ()
    assert asked == []
