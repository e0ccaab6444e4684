"""Conversations with questions: how a file is read, what counts as found, and what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memorist.errors import InvalidInput, NotFound
from memorist.evals.questions import Figures, read

TALK: dict[str, Any] = {
    "name": "ana",
    "speakers": ["user", "assistant"],
    "messages": [
        {"id": "m1", "session": "s1", "at": "2026-05-04", "speaker": "user", "text": "I sail."},
        {"id": "m2", "speaker": "assistant", "text": "How nice."},
        {"id": "m3", "speaker": "Tom", "text": "I row."},
    ],
    "questions": [
        {"question": "What do I do?", "evidence": ["m1", "m1"], "category": 1},
        {"question": "Where do I live?", "evidence": []},
    ],
}


def write(path: Path, *lines: object) -> Path:
    file = path / "mine.jsonl"
    texts = [each if isinstance(each, str) else json.dumps(each) for each in lines]
    file.write_text("\n".join(texts), "utf-8")
    return file


def test_a_conversation_is_read_with_its_speakers_and_questions(tmp_path: Path) -> None:
    (talk,) = read(write(tmp_path, "", TALK, ""))
    said = [(each["name"], each["role"]) for each in talk.messages]
    assert said == [(None, "user"), (None, "assistant"), ("Tom", "user")]
    assert talk.messages[0]["at"] == "2026-05-04T00:00:00"
    assert talk.texts == {"m1": "I sail.", "m2": "How nice.", "m3": "I row."}
    first, second = talk.questions
    assert (first.evidence, first.category) == (("m1",), "1")
    assert (second.evidence, second.category) == ((), "")


def change(**more: Any) -> dict[str, Any]:
    return {**TALK, **more}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not valid JSON: Expecting property name"),
        ("[" * 100_000, "not valid JSON"),
        ("[1]", "not a JSON object. Expected one per line: {"),
        ({}, "name: "),
        (change(name=""), "name: "),
        (change(messages=[]), "messages: "),
        (change(messages=[{"id": "m1", "speaker": "user"}]), "messages.0.text: "),
        (change(messages=[{"id": "m1", "text": "a"}]), "messages.0.speaker: "),
        (change(messages=[{**TALK["messages"][0], "at": "soon"}]), "messages.0.at: "),
        (change(messages=[TALK["messages"][0]] * 2), "messages.1.id: 'm1' is used twice"),
        (change(questions=[{"question": "Why?"}]), "questions.0.evidence: "),
        (change(questions=[{"question": "Why?", "evidence": "m1"}]), "questions.0.evidence: "),
        (
            change(questions=[{"question": "Why?", "evidence": ["m9"]}]),
            "questions.0.evidence: no message has the id 'm9'",
        ),
        (change(name="bo"), "name: 'bo' is used by an earlier line"),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(tmp_path: Path, line: object, problem: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        read(write(tmp_path, change(name="bo"), line))
    assert str(raised.value).startswith(f"mine.jsonl, line 2: {problem}")


def test_a_file_without_conversations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"mine.jsonl is empty. Expected one conversation"):
        read(write(tmp_path, "", " "))
    (tmp_path / "raw.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        read(tmp_path / "raw.jsonl")
    with pytest.raises(NotFound, match="No file"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(NotFound, match="No file"):
        read(tmp_path)


def test_figures_without_questions_have_no_means() -> None:
    row = Figures().row()
    assert row.pop("questions") == 0
    assert set(row.values()) == {None}
