"""Conversations with questions and the messages that answer them.

Reads the compact form (one conversation a line) and LoCoMo's own file. The data is not part of the project: point
`--data` at a folder that holds it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "shared" / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, and the ids of the messages that answer it."""

    text: str
    evidence: tuple[str, ...]
    category: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What two people, or a person and an assistant, said, and what one may ask about it."""

    name: str
    messages: list[dict[str, Any]]
    questions: list[Question]


def read(path: Path) -> list[Conversation]:
    """All conversations of a file."""
    text = path.read_text("utf-8")
    if path.suffix == ".json":
        return [_locomo(sample) for sample in json.loads(text)]
    return [_compact(json.loads(line)) for line in text.splitlines() if line.strip()]


def _compact(data: dict[str, Any]) -> Conversation:
    people = {name for name in data["speakers"] if name not in ("user", "assistant")}
    messages = [
        {
            "id": said["id"],
            "session": said["session"],
            "at": said["at"],
            "content": said["text"],
            "name": said["speaker"] if said["speaker"] in people else None,
            "role": said["speaker"] if said["speaker"] in ("user", "assistant") else "user",
        }
        for said in data["messages"]
    ]
    questions = [
        Question(text=q["question"], evidence=tuple(q["evidence"]), category=str(q["category"]))
        for q in data["questions"]
    ]
    return Conversation(name=data["name"], messages=messages, questions=questions)


def _locomo(sample: dict[str, Any]) -> Conversation:
    said = sample["conversation"]
    questions = [
        Question(
            text=q["question"], evidence=tuple(q.get("evidence", ())), category=str(q["category"])
        )
        for q in sample["qa"]
        if q.get("evidence")
    ]
    return Conversation(name=sample["sample_id"], messages=list(_turns(said)), questions=questions)


def _turns(said: dict[str, Any]) -> Iterator[dict[str, Any]]:
    number = 1
    while f"session_{number}_date_time" in said:
        at = datetime.strptime(
            said[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y"
        ).isoformat()
        for turn in said.get(f"session_{number}", []):
            image = (
                f" [shares an image: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            )
            yield {
                "id": turn["dia_id"],
                "session": str(number),
                "at": at,
                "content": turn["text"] + image,
                "name": turn["speaker"],
                "role": "user",
            }
        number += 1
