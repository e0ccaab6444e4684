"""`memorist demo`: store a sample conversation and answer questions about it, in memory only."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

import memorist

from ...types import Recall
from . import output

HITS = 2  # shown for each question
DEFAULTS: dict[str, Any] = {  # whatever this machine is configured for
    "embedder": "minilm",
    "reranker": "none",
    "profile": "default",
    "policy": "default",
    "language": "english",
    "cache_mb": 0,
    "vector_index": None,
    "journal_dir": None,
}

NEXT = """\
Next
  memorist remember "I moved to Lisbon in May."    remember something yourself
  memorist recall "where do I live?" --explain     ask, and see why
  memorist import chat.jsonl                       import a file of messages
  memorist doctor                                  check the installation"""


def run(*, as_json: bool) -> None:
    """Run the demonstration. Raises EmbedderUnavailable if the packaged model cannot be loaded."""
    script = json.loads(files(__package__).joinpath("demo_conversation.json").read_text("utf-8"))
    messages, questions, answers = script["messages"], script["questions"], []
    sessions: dict[str, list[dict[str, Any]]] = {}
    for message in messages:
        sessions.setdefault(message["session"], []).append(message)
    with (
        tempfile.TemporaryDirectory() as folder,
        output.progress("Listening", len(messages) + len(questions), hidden=as_json) as advance,
        memorist.open(":memory:", state_dir=folder, **DEFAULTS) as memory,
    ):
        mine, start, done = memory.scope(user="demo"), time.perf_counter(), 0
        for turns in sessions.values():
            mine.remember(turns)
            done += len(turns)
            advance(done)
        asked = time.perf_counter()
        for question in questions:
            answers.append(mine.recall(question, limit=HITS))
            advance(len(messages) + len(answers))
        end = time.perf_counter()
    if as_json:
        seconds = {"taking_in": round(asked - start, 3), "asking": round(end - asked, 3)}
        plain = {"messages": len(messages), "questions": as_plain(answers), "seconds": seconds}
        output.as_json(plain)
        return
    people = " and ".join(dict.fromkeys(message["name"] for message in messages))
    text = Text()
    text.append(f"{people} talk: {len(messages)} messages on {len(sessions)} days.\n", style="bold")
    for first, *_ in sessions.values():
        content = first["content"]
        if len(content) > 56:
            content = content[:53].rsplit(" ", 1)[0] + " ..."
        text.append(f"  {first['at'][:10]} {first['name']}: ", style="dim")
        text.append(content + "\n")
    output.draw(text, answers_table(answers))
    (explained,) = (each for each in answers if each.query.text == script["explained"])
    hit = explained.hits[0]
    title = f"\nWhy this answers {explained.query.text!r}: the parts add up to {hit.score:.2f}\n"
    milliseconds = 1000 * (end - asked) / len(answers)
    took = f"{asked - start:.1f} s, including loading the model"
    output.draw(
        Text(title, style="bold"),
        output.headline(hit.memory),
        output.score_parts(hit),
        Text(f"\n{len(messages)} messages took {took}; a question {milliseconds:.0f} ms."),
        Text("Everything ran on this machine, in memory. Nothing was left behind.\n"),
        Text(NEXT),
    )


def answers_table(answers: Sequence[Recall]) -> Table:
    """Return the questions with their best memories, and bars that compare these."""
    table = Table(
        title="Questions and answers", title_justify="left", title_style="bold", show_lines=True
    )
    table.add_column("question", width=17)
    table.add_column("memories")
    for answer in answers:
        best = max((hit.score for hit in answer.hits), default=0.0) or 1.0
        rows = []
        for hit in answer.hits:
            score = Text(f"{hit.score:.2f}", style="dim")
            bar = output.score_bar(hit.score / best, 6)
            rows.append((Group(bar, score), output.headline(hit.memory)))
        table.add_row(answer.query.text, output.grid(rows, columns=2))
    return table


def as_plain(answers: Sequence[Recall]) -> list[dict[str, Any]]:
    """Return the questions and answers as JSON values."""
    questions = []
    for answer in answers:
        found = []
        for hit in answer.hits:
            memory = {"text": hit.memory.text, "speaker": hit.memory.speaker}
            found.append({**memory, "score": hit.score, "parts": dict(hit.parts)})
        questions.append({"question": answer.query.text, "answers": found})
    return questions
