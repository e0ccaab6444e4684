"""The real client and the real command line of Mem0, with another host: add, search, read, change and delete."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from .conftest import Server, serving

LISBON = [{"role": "user", "content": "I moved to Lisbon in May."}]


@pytest.fixture(scope="module")
def client_class(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """It tells nobody that it is used: its telemetry is off before it is loaded, and its folder is one of the tests."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("MEM0_TELEMETRY", "False")
        patch.setenv("MEM0_DIR", str(tmp_path_factory.mktemp("mem0")))
        client = pytest.importorskip("mem0.client.main", reason="pip install mem0ai")
        assert not sys.modules["mem0.memory.telemetry"].MEM0_TELEMETRY
        yield client.MemoryClient


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(
        str(tmp_path / "m.db"),
        keys={"app": {"user": "app"}, "bound": {"user": "app", "space": "alex"}},
    ) as it:
        yield it


@pytest.fixture
def app(client_class: Any, server: Server) -> Any:
    client = client_class(api_key=server.tokens["app"], host=server.url)
    yield client
    client.client.close()


def test_what_is_added_is_found_and_stays_with_its_user(app: Any) -> None:
    (added,) = app.add(LISBON, user_id="alex", metadata={"topic": "home"})["results"]
    assert added["event"] == "ADD"
    app.add("I moved to Oslo in June.", filters={"user_id": "bo"})
    (found,) = app.search("Where did I move to?", filters={"user_id": "alex"})["results"]
    assert (found["id"], found["memory"]) == (added["id"], LISBON[0]["content"])
    assert (found["user_id"], found["metadata"]) == ("alex", {"topic": "home"})
    assert 0 < found["score"] <= 1
    both = {"AND": [{"user_id": "bo"}, {"run_id": "r1"}]}
    assert app.search("Where did I move to?", filters=both)["results"] == []


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"user_id": "*"}, "`user_id` is one id"),
    ({"OR": [{"user_id": "alex"}, {"user_id": "bo"}]}, "cannot be in OR or NOT"),
    ({"AND": [{"user_id": "alex"}, {"user_id": "bo"}]}, "user_id.*several values"),
    ({"user_id": "alex", "AND": [{"user_id": "bo"}]}, "user_id.*several values"),
    ({"user_id": "alex", "keywords": {"contains": "tea"}}, "'keywords' is not supported"),
    ({"user_id": "alex", "metadata": {"a": {"icontains": "b"}}}, "are not supported in metadata"),
    ({"user_id": "alex", "created_at": "2026"}, "A time takes gt, gte, lt and lte"),
    ({"user_id": "alex", "created_at": {"lte": "9999-12-31"}}, "is too late"),
    ({"user_id": "alex", "OR": []}, "OR needs at least one condition"),
]


def test_a_condition_that_would_be_left_out_is_refused(app: Any) -> None:
    for filters, why in REFUSED:
        with pytest.raises(Exception, match=why):
            app.search("Where did I move to?", filters=filters)


# The calls of Mem0's client, with an answer that shows that each works. `{0}` is the id of the
# first memory of alex, and so on.
CALLS: list[tuple[str, dict[str, Any], Any]] = [
    ("add", {"messages": "I keep bees.", "user_id": "alex"}, ["I keep bees."]),
    (
        "add",
        {"messages": LISBON, "user_id": "alex", "metadata": {"a": 1, "b": {"c": "x"}}},
        ["I moved to Lisbon in May."],
    ),
    (
        "add",
        {"messages": "I play chess.", "filters": {"user_id": "alex"}, "timestamp": 1_600_000_000},
        ["I play chess."],
    ),
    (
        "add",
        {"messages": "The code is 7781.", "user_id": "alex", "expiration_date": "2020-01-01"},
        ["The code is 7781."],
    ),
    ("add", {"messages": "I am a nurse.", "user_id": "alex", "agent_id": "bot"}, ["I am a nurse."]),
    ("get", {"memory_id": "{1}"}, "I moved to Lisbon in May."),
    ("get_all", {"filters": {"user_id": "alex"}}, {0, 1, 2, 4}),
    ("get_all", {"filters": {"user_id": "alex"}, "page": 2, "page_size": 3}, {0}),
    ("get_all", {"filters": {"user_id": "alex"}, "start_date": "2020-01-01"}, {0, 1, 2, 4}),
    ("get_all", {"filters": {"user_id": "alex"}, "end_date": "2020-01-01"}, set()),
    ("get_all", {"filters": {"user_id": "alex", "metadata": {"a": 1}}}, {1}),
    ("get_all", {"filters": {"user_id": "alex", "metadata": {"a": {"gte": 1, "lt": 2}}}}, {1}),
    ("get_all", {"filters": {"user_id": "alex", "metadata": {"b.c": {"in": ["x", "y"]}}}}, {1}),
    ("get_all", {"filters": {"user_id": "alex", "metadata": {"a": "*"}}}, {1}),
    ("get_all", {"filters": {"user_id": "alex", "NOT": [{"metadata": {"a": 1}}]}}, {0, 2, 4}),
    (
        "get_all",
        {
            "filters": {
                "AND": [{"user_id": "alex"}, {"OR": [{"agent_id": "bot"}, {"metadata": {"a": 1}}]}]
            }
        },
        {1, 4},
    ),
    ("get_all", {"filters": {"AND": [{"user_id": "alex"}, {"agent_id": "bot"}]}}, {4}),
    (
        "get_all",
        {"filters": {"user_id": "alex", "created_at": {"gte": "2020-01-01", "lte": "2099-01-01"}}},
        {0, 1, 2, 4},
    ),
    ("get_all", {"filters": {"user_id": "alex", "categories": {"in": ["nothing"]}}}, set()),
    ("get_all", {"filters": {"user_id": "alex", "memory_ids": ["{2}"]}}, {2}),
    ("search", {"query": "Where did I move to?", "filters": {"user_id": "alex"}, "top_k": 1}, {1}),
    (
        "search",
        {
            "query": "What do I keep?",
            "filters": {"AND": [{"user_id": "alex"}, {"metadata": {"a": 1}}]},
        },
        {1},
    ),
    (
        "update",
        {"memory_id": "{1}", "text": "I moved to Porto in May."},
        "I moved to Porto in May.",
    ),
    ("update", {"memory_id": "{1}", "metadata": {"a": 2}}, "I moved to Porto in May."),
    ("update", {"memory_id": "{1}", "expiration_date": "2099-01-01"}, "I moved to Porto in May."),
    ("history", {"memory_id": "{1}"}, 4),
    ("users", {}, {"alex"}),
    (
        "batch_update",
        {"memories": [{"memory_id": "{0}", "text": "I keep two hives."}]},
        "1 memories",
    ),
    ("batch_delete", {"memories": [{"memory_id": "{0}"}]}, "1 memories"),
    ("delete", {"memory_id": "{2}"}, "deleted"),
]
MISSING: list[tuple[str, dict[str, Any]]] = [
    ("create_memory_export", {"schema": "{}", "filters": {"user_id": "alex"}}),
    ("get_memory_export", {"memory_export_id": "e1"}),
    ("get_summary", {"filters": {"user_id": "alex"}}),
    ("get_profile", {"entity_id": "alex"}),
    ("feedback", {"memory_id": "m1", "feedback": "POSITIVE"}),
    ("get_webhooks", {"project_id": "p1"}),
]


def fill(value: Any, ids: list[str]) -> Any:
    if isinstance(value, dict):
        return {name: fill(each, ids) for name, each in value.items()}
    if isinstance(value, list):
        return [fill(each, ids) for each in value]
    return value.format(*ids) if isinstance(value, str) and value.startswith("{") else value


def test_thirty_calls_of_the_client_answer(app: Any) -> None:
    ids: list[str] = []
    for name, given, wanted in CALLS:
        answer = getattr(app, name)(**fill(given, ids))
        shown: Any = answer
        if name == "add":
            shown = [each["memory"] for each in answer["results"]]
            ids += [each["id"] for each in answer["results"]]
        elif name in ("get_all", "search"):
            shown = {ids.index(each["id"]) for each in answer["results"]}
        elif name in ("get", "update"):
            shown = app.get(fill(given, ids)["memory_id"])["memory"]
        elif name == "history":
            shown = len(answer)
        elif name == "users":
            shown = {each["name"] for each in answer["results"]}
        elif isinstance(wanted, str):
            shown = wanted if wanted in answer["message"] else answer
        assert shown == wanted, (name, given)
    changed = app.get(ids[1])
    assert (changed["metadata"], changed["expiration_date"]) == ({"a": 2}, "2099-01-01")
    assert len(CALLS) == 30


def test_what_is_missing_says_so(app: Any) -> None:
    for name, given in MISSING:
        with pytest.raises(Exception, match="Memorist does not have Mem0's"):
            getattr(app, name)(**given)
    with pytest.raises(Exception, match="`user_id` is one id"):
        app.delete_all(user_id="*")


def test_a_memory_is_read_changed_and_deleted_by_its_id(app: Any) -> None:
    id = app.add(LISBON, user_id="alex")["results"][0]["id"]
    assert app.get(id)["memory"] == LISBON[0]["content"]
    app.update(id, text="I moved to Porto in May.")
    assert app.get(id)["memory"] == "I moved to Porto in May."
    events = app.history(id)
    assert [each["event"] for each in events] == ["ADD", "UPDATE"]
    assert (events[1]["old_memory"], events[1]["new_memory"]) == (
        LISBON[0]["content"],
        "I moved to Porto in May.",
    )
    app.delete(id)
    with pytest.raises(Exception, match="No memory"):
        app.get(id)


def test_memories_are_listed_page_by_page_and_deleted_together(app: Any) -> None:
    for thing in ("tea", "jazz", "rain", "cats", "snow"):
        app.add(f"The word for today is {thing}.", user_id="alex", run_id="r1")
    app.add("I moved to Oslo.", user_id="bo")
    first = app.get_all(filters={"user_id": "alex"}, page=1, page_size=3)
    second = app.get_all(filters={"user_id": "alex"}, page=2, page_size=3)
    assert (first["count"], len(first["results"]), len(second["results"])) == (5, 3, 2)
    assert (first["previous"], second["next"]) == (None, None)
    assert app.get_all(filters={"user_id": "alex"}, page=9, page_size=3)["results"] == []
    users = {each["name"]: each["total_memories"] for each in app.users()["results"]}
    assert users == {"alex": 5, "bo": 1}
    app.delete_all(user_id="alex")
    assert app.get_all(filters={"user_id": "alex"})["count"] == 0
    assert app.get_all(filters={"user_id": "bo"})["count"] == 1
    app.delete_users(user_id="bo")
    assert app.get_all(filters={"user_id": "bo"})["count"] == 0


def test_a_key_for_one_user_reaches_no_other(client_class: Any, server: Server, app: Any) -> None:
    id = app.add(LISBON, user_id="bo")["results"][0]["id"]
    bound = client_class(api_key=server.tokens["bound"], host=server.url)
    assert bound.add(LISBON)["results"]
    assert [each["name"] for each in bound.users()["results"]] == ["alex"]
    for work in (
        lambda: bound.get(id),
        lambda: bound.search("Lisbon", filters={"user_id": "bo"}),
        lambda: bound.batch_delete([{"memory_id": id}]),
        lambda: bound.batch_update([{"memory_id": id, "text": "I moved."}]),
    ):
        with pytest.raises(Exception, match="only for"):
            work()
    bound.client.close()


def test_a_wrong_key_is_told_at_once(client_class: Any, server: Server) -> None:
    with (
        httpx.Client() as own,
        pytest.raises(ValueError, match="Invalid, expired or revoked API key"),
    ):
        client_class(api_key="nonsense", host=server.url, client=own)


def test_the_tests_left_the_home_of_whoever_runs_them_alone(client_class: Any) -> None:
    assert client_class is not None
    assert Path(os.environ["MEM0_DIR"]) != Path.home() / ".mem0"


def test_its_command_line_works_with_another_host(server: Server, tmp_path: Path) -> None:
    command = pytest.importorskip("mem0_cli", reason="pip install mem0-cli") and Path(
        sys.executable
    ).with_name("mem0")
    own = {
        **os.environ,
        "HOME": str(tmp_path),
        "MEM0_TELEMETRY": "false",
        "MEM0_API_KEY": server.tokens["app"],
    }

    def mem0(*words: str) -> Any:
        asked = [str(command), "--json", *words, "--base-url", server.url]
        done = subprocess.run(
            asked, env=own, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)["data"]

    mem0("add", "I moved to Lisbon in May.", "--user-id", "alex")
    (found,) = mem0("search", "Where did I move to?", "--user-id", "alex")
    mem0("update", found["id"], "I moved to Porto in May.")
    assert mem0("get", found["id"])["memory"] == "I moved to Porto in May."
    assert [each["memory"] for each in mem0("list", "--user-id", "alex")] == [
        "I moved to Porto in May."
    ]
    mem0("delete", found["id"], "--force")
    assert mem0("list", "--user-id", "alex") == []
