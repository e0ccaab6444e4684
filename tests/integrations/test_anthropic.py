"""The memory tool of Claude, run by Anthropic's SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import memorist
from memorist.sync import Blocking
from model_server import Call, Model

adapter = pytest.importorskip("memorist.integrations.anthropic", exc_type=ImportError)
ToolError = adapter.ToolError
MemoristMemoryTool = adapter.MemoristMemoryTool


@pytest.fixture
def memory(place: str) -> Iterator[Blocking]:
    with memorist.open(place) as opened:
        yield opened


@pytest.fixture
def tool(memory: Blocking) -> Any:
    return MemoristMemoryTool(memory.scope(user="ana"))


def do(tool: Any, command: str, path: str = "", **fields: Any) -> Any:
    named = {"path": path} if path else {}
    return tool.call({"command": command, **named, **fields})


def text(tool: Any, path: str) -> str:
    shown = do(tool, "view", path).split("\n")[1:]
    return "\n".join(line.partition("\t")[2] for line in shown)


def test_a_file_is_created_changed_moved_and_deleted(tool: Any) -> None:
    made = do(tool, "create", "/memories/trips/a.md", file_text="Paris\nRome\nOslo")
    assert made == "File created successfully at: /memories/trips/a.md"
    assert do(tool, "view", "/memories/trips/a.md", view_range=[2, -1]) == (
        "Here's the content of /memories/trips/a.md with line numbers:\n     2\tRome\n     3\tOslo"
    )
    changed = do(tool, "str_replace", "/memories/trips/a.md", old_str="Rome", new_str="Ghent")
    assert changed.endswith("(with line numbers):\n     1\tParis\n     2\tGhent\n     3\tOslo")
    do(tool, "insert", "/memories/trips/a.md", insert_line=3, insert_text="Turin\n")
    assert text(tool, "/memories/trips/a.md") == "Paris\nGhent\nOslo\nTurin\n"
    do(tool, "rename", old_path="/memories/trips", new_path="/memories/old/trips")
    assert text(tool, "/memories/old/trips/a.md").startswith("Paris")
    assert do(tool, "delete", "/memories/old") == "Successfully deleted /memories/old"
    assert do(tool, "view", "/memories").endswith("excluding hidden items:\n0B\t/memories")


def test_a_directory_is_listed_two_levels_deep_without_hidden_files(tool: Any) -> None:
    for path, size in {"a.md": 512, "b/c.md": 1024, "b/d/e.md": 512, ".x/y": 1, "b/.z": 1}.items():
        do(tool, "create", f"/memories/{path}", file_text="x" * size)
    assert do(tool, "view", "/memories").split("\n")[1:] == [
        "2K\t/memories",
        "512B\t/memories/a.md",
        "1.5K\t/memories/b/",
        "1K\t/memories/b/c.md",
        "512B\t/memories/b/d/",
    ]


@pytest.mark.parametrize(
    ("command", "fields", "why"),
    [
        ("view", {"path": "/etc/passwd"}, "must start with /memories"),
        ("view", {"path": "/memories/../etc"}, "would escape"),
        ("view", {"path": "/memories2"}, "would escape"),
        ("view", {"path": "/memories/no"}, "does not exist"),
        ("create", {"path": "/memories/a", "file_text": ""}, "already exists"),
        ("create", {"path": "/memories/d", "file_text": ""}, "already exists"),
        ("create", {"path": "/memories/a/b", "file_text": ""}, "/memories/a is a file"),
        ("create", {"path": "/memories/" + "x" * 1000, "file_text": ""}, "at most 1,000 bytes"),
        ("create", {"path": "/memories/\x00", "file_text": ""}, "at most 1,000 bytes"),
        ("create", {"path": "/memories/b", "file_text": "x" * (2 << 20)}, "too large"),
        ("str_replace", {"path": "/memories/a", "old_str": "?", "new_str": ""}, "did not appear"),
        ("str_replace", {"path": "/memories/a", "old_str": "", "new_str": ""}, "did not appear"),
        (
            "str_replace",
            {"path": "/memories/a", "old_str": "o", "new_str": ""},
            "in lines: 1, 3, 3",
        ),
        ("str_replace", {"path": "/memories/d", "old_str": "o", "new_str": ""}, "is not a file"),
        ("insert", {"path": "/memories/a", "insert_line": 4, "insert_text": ""}, r"range \[0, 3\]"),
        ("delete", {"path": "/memories/"}, "Cannot delete"),
        ("delete", {"path": "/memories/no"}, "does not exist"),
        ("rename", {"old_path": "/memories", "new_path": "/memories/x"}, "Cannot rename"),
        ("rename", {"old_path": "/memories/d", "new_path": "/memories/a"}, "already exists"),
        ("rename", {"old_path": "/memories/d", "new_path": "/memories/d/e"}, "into itself"),
        ("rename", {"old_path": "/memories/d", "new_path": "/memories/a/e"}, "is a file"),
    ],
)
def test_what_cannot_be_done_changes_nothing_and_says_why(
    command: str, fields: dict[str, Any], why: str
) -> None:
    with memorist.open(":memory:", max_checkpoint_mb=1) as memory:
        tool = MemoristMemoryTool(memory.scope(user="ana"))
        do(tool, "create", "/memories/a", file_text="one\n\ntwo o")
        do(tool, "create", "/memories/d/f", file_text="f")
        before = do(tool, "view", "/memories")
        with pytest.raises(ToolError, match=why):
            do(tool, command, **fields)
        assert do(tool, "view", "/memories") == before


def test_the_longest_file_that_can_be_shown_has_999_999_lines() -> None:
    with memorist.open(":memory:") as memory:
        tool = MemoristMemoryTool(memory.scope(user="ana"))
        do(tool, "create", "/memories/long", file_text="\n" * 999_999)
        with pytest.raises(ToolError, match="999,999 lines"):
            do(tool, "view", "/memories/long")


def test_users_are_apart_and_a_file_keeps_every_character(memory: Blocking, tool: Any) -> None:
    do(tool, "create", "/memories/a", file_text="é \x00 \ud800\r\n")
    assert text(tool, "/memories/a") == "é \x00 \ud800\r\n"
    other = MemoristMemoryTool(memory.scope(user="bo"))
    with pytest.raises(ToolError, match="does not exist"):
        do(other, "view", "/memories/a")
    assert other.clear_all_memory() == "All memory cleared"
    assert "/memories/a" in do(tool, "view", "/memories")
    memory.erase_user("ana")
    assert "/memories/a" not in do(tool, "view", "/memories")


def test_no_edit_of_many_threads_is_lost(tool: Any) -> None:
    do(tool, "create", "/memories/list", file_text="start\n")

    def add(number: int) -> None:
        do(tool, "insert", "/memories/list", insert_line=1, insert_text=f"line {number}")

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add, range(20)))
    lines = text(tool, "/memories/list").split()
    assert sorted(map(int, lines[2::2])) == list(range(20))


def test_nothing_is_stored_or_shown_while_memory_is_off(memory: Blocking, tool: Any) -> None:
    memory.scope(user="ana").privacy.set(memory_enabled=False)
    with pytest.raises(ToolError, match="not available: memory is off"):
        do(tool, "create", "/memories/a", file_text="x")
    with pytest.raises(ToolError, match="not available: memory is off"):
        do(tool, "view", "/memories")


def test_the_async_tool_does_the_same_from_any_event_loop(memory: Blocking) -> None:
    tool = adapter.AsyncMemoristMemoryTool(memory.scope(user="ana"))
    asyncio.run(do(tool, "create", "/memories/a", file_text="x"))
    assert asyncio.run(do(tool, "view", "/memories/a")).endswith("     1\tx")
    assert asyncio.run(tool.clear_all_memory()) == "All memory cleared"
    with pytest.raises(ToolError, match="does not exist"):
        asyncio.run(do(tool, "view", "/memories/a"))


@pytest.mark.slow  # this framework is in the extra `test`, too
def test_the_example_lets_claude_use_its_files(
    run_example: Callable[[str], str], model: Model
) -> None:
    def reply(said: str) -> str | Call:
        if "tool_result" in said:  # newer versions of the SDK send only the result
            return f"I read: {said}" if "Here's the content" in said else "Noted."
        if "Please remember" in said:
            fields = {"path": "/memories/family.md", "file_text": "Mira lives in Ghent."}
            return Call("memory", {"command": "create", **fields})
        return Call("memory", {"command": "view", "path": "/memories/family.md"})

    model.reply = reply
    noted, read = run_example("anthropic_example").splitlines()
    assert noted == "Noted."
    assert "Mira lives in Ghent." in read
    assert model.requests[0]["tools"] == [{"type": "memory_20250818", "name": "memory"}]
