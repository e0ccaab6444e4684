"""Tasks are read from files, and what is wrong with one is said by file and field."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from memorist import evals
from memorist.errors import InvalidInput, NotFound
from memorist.evals import tasks

TASK: dict[str, Any] = {
    "sessions": [
        {"at": "2026-05-04T09:00:00Z", "messages": [{"content": "The gate is painted green."}]}
    ],
    "question": "Which colour has the gate?",
    "asked_at": "2026-05-20T09:00:00Z",
    "must": ["green"],
}
TOML = """
question = "Which colour has the gate?"
asked_at = 2026-05-20T09:00:00Z
must = [["green", "verde"]]
must_not = ["red"]
kind = "house"

[[sessions]]
at = 2026-05-04T09:00:00Z
messages = [{role = "user", content = "The gate is painted green."}]
"""


def written(folder: Path, name: str, text: str | dict[str, Any]) -> Path:
    (folder / name).write_text(
        text if isinstance(text, str) else json.dumps(text), encoding="utf-8"
    )
    return folder


@pytest.mark.spec("THE-103")
def test_there_are_about_twenty_tasks_about_all_that_a_memory_is_for() -> None:
    found = evals.packaged()
    assert 20 <= len(found) <= 30
    assert {task.kind for task in found} >= {
        "preference",
        "meeting",
        "goal",
        "correction",
        "private",
    }
    assert all(task.must and task.about for task in found), (
        "a task that asks for nothing is passed by knowing nothing"
    )
    assert any(len(task.sessions) > 2 for task in found)


def test_what_a_packaged_task_asks_for_was_said_in_it() -> None:
    for task in evals.packaged():
        said = "\n".join(turn.content for session in task.sessions for turn in session.messages)
        said += "".join(f"\n{turn.name}" for session in task.sessions for turn in session.messages)
        assert not task.missing(said), task.name
        assert len(task.forbidden(said)) == len(task.must_not), (
            f"{task.name} forbids what nobody said"
        )
        assert task.missing(task.question) or task.must_not, f"{task.name} gives its answer away"


def test_a_task_is_a_file_in_json_or_toml(tmp_path: Path) -> None:
    written(tmp_path, "a.json", TASK)
    written(tmp_path, "b.toml", TOML)
    written(tmp_path, "notes.txt", "not a task")
    first, second = evals.from_folder(tmp_path)
    assert (first.name, first.kind, first.must) == ("a", "own", ("green",))
    assert (second.name, second.kind, second.must_not) == ("b", "house", ("red",))
    assert second.missing("Verde!") == ()
    assert second.missing("blue") == ("green / verde",)
    assert second.forbidden("green, once red") == ("red",)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"question": ""}, "question: String should have at least 1 character"),
        ({"asked_at": "soon"}, "asked_at: "),
        ({"asked_at": "2026-05-20T09:00:00"}, "asked_at: Input should have timezone info"),
        (
            {"asked_at": "2026-05-01T09:00:00Z"},
            "asked_at: the question comes before the last session",
        ),
        ({"must": []}, "must: list what an answer has to contain"),
        ({"must": [[]]}, "must.0"),
        ({"sessions": []}, "sessions: "),
        (
            {"sessions": [{"at": "2026-05-04T09:00:00Z", "messages": [{"role": "user"}]}]},
            "sessions.0.messages.0.content",
        ),
        ({"mustnot": ["red"]}, "mustnot: "),
    ],
)
def test_a_task_that_cannot_be_used_is_named_with_its_field(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    written(tmp_path, "gate.json", {**TASK, **change})
    with pytest.raises(InvalidInput) as error:
        evals.from_folder(tmp_path)
    assert str(error.value).startswith(f"gate.json: {told}")


@pytest.mark.parametrize(
    ("name", "text"), [("a.json", "{"), ("a.json", "[]"), ("a.toml", "= 1"), ("a.toml", "\udce9")]
)
def test_a_file_that_is_no_json_or_toml_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidInput, match=f"^{name}: "):
        evals.from_folder(tmp_path)


def test_a_folder_without_tasks_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="No tasks in"):
        evals.from_folder(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("text", "wanted", "is_said"),
    [
        ("On THURSDAY\n at 14:30.", "Thursday at 14:30", True),
        ("for 3,200 euros", "3,200", True),
        ("for 13,200 euros", "3,200", False),
        ("at 19:15", "9:15", False),
        ("Ms Brandt’s room", "Brandt", True),
        ("brandishing", "brand", False),
        ("Größe und STRASSE", "straße", True),
        ("version 3.5", "3", False),
        ("C++ and NET-4471!", "NET-4471", True),
    ],
)
def test_words_are_found_whole_in_any_case(text: str, wanted: str, is_said: bool) -> None:
    assert tasks.says(text, wanted) is is_said


def test_small_talk_never_says_what_a_task_is_about() -> None:
    asked = datetime(2026, 5, 20, tzinfo=UTC)
    told = evals.EvalSession(
        at=asked - timedelta(days=1), messages=(evals.EvalTurn(content="My cat is grey."),)
    )
    task = evals.EvalTask(
        name="cat", sessions=(told,), question="Which cat?", asked_at=asked, must=("cat",)
    )
    lines = [turn.content for session in tasks.small_talk(task) for turn in session.messages]
    assert len(lines) > 40
    assert not any(tasks.says(line, "cat") for line in lines)
    assert all(session.at < asked for session in tasks.small_talk(task))
