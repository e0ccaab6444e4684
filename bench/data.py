"""Conversations with questions and the messages that answer them.

Reads JSONL with one conversation per line, and the original file of LoCoMo. The data is not part of
the project: name its folder with `--data` or the variable MEMORIST_BENCH_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question and the ids of the messages that answer it."""

    text: str
    evidence: tuple[str, ...]  # empty if nothing in the conversation answers it
    category: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Messages between two people, or a person and an assistant, with questions about them."""

    name: str
    messages: list[dict[str, Any]]
    questions: list[Question]


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option `--data`."""
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(os.environ.get("MEMORIST_BENCH_DATA", "data")),
        help="folder of the data sets, see docs/benchmarks.md [MEMORIST_BENCH_DATA]",
    )


def read(path: Path) -> list[Conversation]:
    """Read all conversations of a file."""
    text = path.read_text("utf-8")
    if path.suffix == ".json":
        return [_parse_locomo(sample) for sample in json.loads(text)]
    return [_parse_compact(json.loads(line)) for line in text.splitlines() if line.strip()]


def _parse_compact(data: dict[str, Any]) -> Conversation:
    people = {name for name in data["speakers"] if name not in ("user", "assistant")}
    messages = [
        {
            "id": message["id"],
            "session": message["session"],
            "at": message["at"],
            "content": message["text"],
            "name": message["speaker"] if message["speaker"] in people else None,
            "role": message["speaker"] if message["speaker"] in ("user", "assistant") else "user",
        }
        for message in data["messages"]
    ]
    questions = [
        Question(text=q["question"], evidence=tuple(q["evidence"]), category=str(q["category"]))
        for q in data["questions"]
    ]
    return Conversation(name=data["name"], messages=messages, questions=questions)


def _parse_locomo(sample: dict[str, Any]) -> Conversation:
    conversation = sample["conversation"]
    questions = [
        Question(
            text=q["question"], evidence=tuple(q.get("evidence", ())), category=str(q["category"])
        )
        for q in sample["qa"]
        if q.get("evidence")
    ]
    return Conversation(
        name=sample["sample_id"], messages=list(_turns(conversation)), questions=questions
    )


def _turns(conversation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    number = 1
    while f"session_{number}_date_time" in conversation:
        at = datetime.strptime(
            conversation[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y"
        ).isoformat()
        for turn in conversation.get(f"session_{number}", []):
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
