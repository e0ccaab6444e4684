"""Stored checkpoints are data: no row and no archive can name code that runs when it is read."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import apsw
import ormsgpack
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph

from memorist.aio import copy_store
from memorist.errors import NotAllowed, StoreDamaged
from memorist.integrations.langgraph import MemoristSaver

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
SINGLE_ARGUMENT, POSITIONAL, KEYWORDS, METHOD = (
    0,
    1,
    2,
    3,
)  # the extension codes of LangGraph's format


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORIST_STATE_DIR", str(tmp_path / "state"))


def write_hostile_row(db: Path, data: bytes, type: str = "msgpack") -> None:
    """Keep a checkpoint, then replace its value in the file."""
    with MemoristSaver.from_url(db) as saver:
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"x": 1}
        checkpoint["channel_versions"] = {"x": saver.get_next_version(None, None)}
        saver.put(
            CONFIG,
            checkpoint,
            {"source": "input", "step": 1, "parents": {}},
            checkpoint["channel_versions"],
        )
    connection = apsw.Connection(str(db))
    connection.execute("UPDATE graph_values SET type = ?, data = ?", (type, data))
    connection.close()


def extension(code: int, *parts: Any) -> bytes:
    return ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(parts)))


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        pytest.param(SINGLE_ARGUMENT, lambda command: (command,), id="one argument"),
        pytest.param(POSITIONAL, lambda command: ([command],), id="positional"),
        pytest.param(KEYWORDS, lambda command: ({"command": command},), id="keywords"),
        pytest.param(METHOD, lambda command: (command, "__call__"), id="method"),
    ],
)
def test_a_row_that_names_a_command_does_not_run_it(
    tmp_path: Path, code: int, arguments: Callable[..., Any]
) -> None:
    ran = tmp_path / "ran"
    write_hostile_row(
        tmp_path / "m.db", extension(code, "os", "system", *arguments(f"touch {ran}"))
    )
    with (
        MemoristSaver.from_url(tmp_path / "m.db") as saver,
        pytest.raises(NotAllowed, match=r"os\.system"),
    ):
        saver.get_tuple(CONFIG)
    assert not ran.exists()


def test_the_same_row_does_run_with_the_serializer_that_langgraph_uses_by_default(
    tmp_path: Path,
) -> None:
    """Shows that the rows above are a real attack."""
    ran = tmp_path / "ran"
    JsonPlusSerializer().loads_typed(
        ("msgpack", extension(SINGLE_ARGUMENT, "os", "system", f"touch {ran}"))
    )
    assert ran.exists()


def test_a_type_that_another_serializer_blocks_causes_no_warning_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    strict = JsonPlusSerializer(allowed_msgpack_modules=None)
    strict.loads_typed(("msgpack", extension(SINGLE_ARGUMENT, "os", "getenv", "HOME")))
    assert "Serde listener failed" not in caplog.text


def test_an_archive_from_a_stranger_runs_nothing(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    write_hostile_row(
        tmp_path / "evil.db", extension(SINGLE_ARGUMENT, "os", "system", f"touch {ran}")
    )
    asyncio.run(copy_store(str(tmp_path / "evil.db"), str(tmp_path / "evil.jsonl")))
    asyncio.run(copy_store(str(tmp_path / "evil.jsonl"), str(tmp_path / "new.db")))
    with MemoristSaver.from_url(tmp_path / "new.db") as saver, pytest.raises(NotAllowed):
        saver.get_tuple(CONFIG)
    assert not ran.exists()


def test_pickled_data_is_not_read(tmp_path: Path) -> None:
    write_hostile_row(tmp_path / "m.db", b"cos\nsystem\n(S'true'\ntR.", type="pickle")
    with (
        MemoristSaver.from_url(tmp_path / "m.db") as saver,
        pytest.raises(StoreDamaged, match="'pickle'"),
    ):
        saver.get_tuple(CONFIG)


@dataclass
class Place:
    """A type of an application's own state."""

    city: str


class Trip(TypedDict):
    places: Annotated[list[Place], operator.add]


def travel(saver: MemoristSaver) -> Any:
    graph = (
        StateGraph(Trip)
        .add_node("go", lambda _: {"places": [Place("Porto")]})
        .add_edge(START, "go")
    )
    return graph.compile(checkpointer=saver).invoke({"places": [Place("Lisbon")]}, CONFIG)


def test_types_that_the_application_lists_are_restored(tmp_path: Path) -> None:
    with MemoristSaver.from_url(tmp_path / "m.db", allowed_types=[Place]) as saver:
        travel(saver)
        assert saver.get_tuple(CONFIG).checkpoint["channel_values"]["places"] == [
            Place("Lisbon"),
            Place("Porto"),
        ]


def test_a_type_that_is_not_listed_is_named_and_its_checkpoint_is_kept(tmp_path: Path) -> None:
    with MemoristSaver.from_url(tmp_path / "m.db") as saver:
        travel(saver)
        with pytest.raises(NotAllowed, match=r"Place.*allowed_types"):
            saver.get_tuple(CONFIG)
    with MemoristSaver.from_url(tmp_path / "m.db", allowed_types=[Place]) as saver:
        assert saver.get_tuple(CONFIG).checkpoint["channel_values"]["places"] == [
            Place("Lisbon"),
            Place("Porto"),
        ]
