"""The memory block in a real LlamaIndex `Memory`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import memorist
from memorist.errors import InvalidInput

adapter = pytest.importorskip("memorist.integrations.llama_index", exc_type=ImportError)

from llama_index.core.base.llms.types import ChatMessage  # noqa: E402
from llama_index.core.memory import Memory  # noqa: E402


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Any]:
    with memorist.open(tmp_path / "m.db", state_dir=tmp_path, extract="off") as opened:
        yield opened


def test_the_example_recalls_what_left_the_history(run_example: Callable[..., str]) -> None:
    printed = run_example("llama_index_example")
    ana, ben = printed[printed.index("ana:") :].split("ben:")
    assert "I moved to Lisbon in May." in ana
    assert ben.strip() == "Noted."


async def test_what_is_flushed_is_remembered_with_its_session(memory: Any) -> None:
    block = adapter.MemoristMemoryBlock(memory.scope("ana"))
    history = Memory.from_defaults(session_id="s1", token_limit=40, memory_blocks=[block])
    await history.aput(ChatMessage(role="system", content="You are a helpful assistant."))
    await history.aput(ChatMessage(role="user", content="My cat is called Mochi."))
    await history.aput(ChatMessage(role="assistant", content="Mochi is a lovely name!"))
    await history.aput(ChatMessage(role="tool", content="tool output 12345"))
    await history.aput(ChatMessage(role="user", content="Let us talk of other things. " * 20))
    stored = [(each.text, each.labels.session) for each in memory.scope("ana").list()]
    assert ("My cat is called Mochi.", "s1") in stored
    assert ("Mochi is a lovely name!", "s1") in stored
    assert not [text for text, _ in stored if "tool output" in text or "helpful" in text]
    shown = await history.aget(input="What is my cat called?")
    assert "My cat is called Mochi." in str(shown[0].content)
    await history.sql_store._async_engine.dispose()  # LlamaIndex leaves its own database open


async def test_users_are_apart_and_nothing_is_shown_for_nothing(memory: Any) -> None:
    ana = adapter.MemoristMemoryBlock(memory.scope("ana"))
    ben = adapter.MemoristMemoryBlock(memory.scope("ben"))
    await ana.aput([ChatMessage(role="user", content="My cat is called Mochi.")])
    asked = [ChatMessage(role="user", content="What is my cat called?")]
    assert "Mochi" in await ana.aget(asked)
    assert await ben.aget(asked) == ""
    assert await ana.aget([]) == ""
    assert await ana.aget() == ""


async def test_a_block_gives_up_its_last_memories_first(memory: Any) -> None:
    block = adapter.MemoristMemoryBlock(memory.scope("ana"))
    for text in ("My cat is called Mochi.", "My cat Mochi eats tuna.", "My cat is five."):
        await block.aput([ChatMessage(role="user", content=text)])
    whole = await block.aget([ChatMessage(role="user", content="Tell me about my cat")])
    short = await block.atruncate(whole, 12)
    assert 2 < len(short.splitlines()) < len(whole.splitlines())
    assert whole.startswith(short.rpartition("\n")[0])
    assert await block.atruncate(whole, 10_000) is None


async def test_the_budget_holds(memory: Any) -> None:
    block = adapter.MemoristMemoryBlock(memory.scope("ana"), budget=60)
    for number in range(9):
        said = f"My cat number {number} is called Mochi the {number}th and eats tuna."
        await block.aput([ChatMessage(role="user", content=said)])
    shown = await block.aget([ChatMessage(role="user", content="What are my cats called?")])
    assert 0 < memory._inner.ctx.count_tokens(shown) <= 60


async def test_something_else_than_a_scope_is_refused(memory: Any) -> None:
    with pytest.raises(InvalidInput, match=r"takes a scope, memory\.scope\(user=…\), not Blocking"):
        adapter.MemoristMemoryBlock(memory)
