"""Conversations with questions and the messages that answer them.

Reads JSONL with one conversation per line, as `memorist eval` does, and the original file of LoCoMo.
Five sets of our own are in `bench/own`. The others are not part of the project: name their folder
with `--data` or the variable MEMORIST_BENCH_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from memorist.evals import questions
from memorist.evals.questions import Conversation, Question

__all__ = ["Conversation", "Question", "add_fit_options", "add_option", "open_cache", "read"]


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option `--data`."""
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(os.environ.get("MEMORIST_BENCH_DATA", "data")),
        help="folder of the data sets, see docs/benchmarks.md [MEMORIST_BENCH_DATA]",
    )


def add_fit_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a fit: `--data`, `--cache` and `--measure`."""
    add_option(parser)
    parser.add_argument("--cache", type=Path, help="where databases are kept between runs")
    parser.add_argument("--measure", nargs="*", default=[], metavar="SET")


@contextmanager
def open_cache(given: Path | None) -> Iterator[Path]:
    """Give the folder for databases: the one that was named, or a temporary one."""
    with tempfile.TemporaryDirectory() as folder:
        cache = given or Path(folder)
        cache.mkdir(parents=True, exist_ok=True)
        yield cache


def read(path: Path) -> list[Conversation]:
    """Read all conversations of a file."""
    if path.suffix == ".json":
        samples = json.loads(path.read_text("utf-8"))
        return [_parse_locomo(sample) for sample in samples]
    return questions.read(path)


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
