"""`memorist demo`: store a sample conversation and answer questions about it, in memory only."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from rich.console import Group, RenderableType
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """The conversation, the answers, and how long both took."""

    messages: Sequence[dict[str, Any]]
    answers: Sequence[Recall]
    explained: str  # the question whose answer is explained
    remember_seconds: float
    recall_seconds: float


def run(*, as_json: bool) -> None:
    """Run the demonstration. Raises EmbedderUnavailable if the packaged model cannot be loaded."""
    script = json.loads(files(__package__).joinpath("demo_conversation.json").read_text("utf-8"))
    demo = _play(script, hidden=as_json)
    if as_json:
        output.as_json(as_plain(demo))
    else:
        milliseconds = 1000 * demo.recall_seconds / len(demo.answers)
        took = f"{demo.remember_seconds:.1f} s, including loading the model"
        output.draw(_opening(demo), _answers(demo), _explanation(demo))
        output.draw(
            Text(f"\n{len(demo.messages)} messages took {took}; a question {milliseconds:.0f} ms."),
            Text("Everything ran on this machine, in memory. Nothing was left behind.\n"),
            Text(NEXT),
        )


def _play(script: dict[str, Any], *, hidden: bool) -> Demonstration:
    """Store the conversation and ask the questions, with the packaged model."""
    messages = script["messages"]
    total = len(messages) + len(script["questions"])
    with (
        tempfile.TemporaryDirectory() as folder,
        output.progress("Listening", total, hidden=hidden) as advance,
        memorist.open(":memory:", state_dir=folder, **DEFAULTS) as memory,
    ):
        mine, start, done = memory.scope(user="demo"), time.perf_counter(), 0
        for session in dict.fromkeys(message["session"] for message in messages):
            turns = [message for message in messages if message["session"] == session]
            mine.remember(turns)
            done += len(turns)
            advance(done)
        asked, answers = time.perf_counter(), []
        for question in script["questions"]:
            answers.append(mine.recall(question, limit=HITS))
            advance(len(messages) + len(answers))
        end = time.perf_counter()
    return Demonstration(
        messages=messages,
        answers=answers,
        explained=script["explained"],
        remember_seconds=asked - start,
        recall_seconds=end - asked,
    )


def _opening(demo: Demonstration) -> RenderableType:
    people = " and ".join(dict.fromkeys(message["name"] for message in demo.messages))
    first: dict[str, Any] = {}
    for message in demo.messages:
        first.setdefault(message["session"], message)
    count = f"{len(demo.messages)} messages on {len(first)} days"
    text = Text().append(f"{people} talk: {count}.\n", style="bold")
    for message in first.values():
        content = message["content"]
        if len(content) > 56:
            content = content[:53].rsplit(" ", 1)[0] + " ..."
        text.append(f"  {message['at'][:10]} {message['name']}: ", style="dim")
        text.append(content + "\n")
    return text


def _answers(demo: Demonstration) -> RenderableType:
    """Return the questions with their best memories, and bars that compare these."""
    table = Table(
        title="Questions and answers", title_justify="left", title_style="bold", show_lines=True
    )
    table.add_column("question", width=17)
    table.add_column("memories")
    for answer in demo.answers:
        best = max((hit.score for hit in answer.hits), default=0.0) or 1.0
        grid = Table.grid(padding=(0, 1))
        grid.add_column(no_wrap=True)
        grid.add_column()
        for hit in answer.hits:
            score = Text(f"{hit.score:.2f}", style="dim")
            bar = output.score_bar(hit.score / best, 6)
            grid.add_row(Group(bar, score), output.headline(hit.memory))
        table.add_row(answer.query.text, grid)
    return table


def _explanation(demo: Demonstration) -> RenderableType:
    """Return one answer, part by part."""
    answer = next(each for each in demo.answers if each.query.text == demo.explained)
    hit = answer.hits[0]
    title = f"\nWhy this answers {demo.explained!r}: the parts add up to {hit.score:.2f}\n"
    return Group(Text(title, style="bold"), output.headline(hit.memory), output.score_parts(hit))


def as_plain(demo: Demonstration) -> dict[str, Any]:
    """Return the demonstration as JSON values."""
    questions = []
    for answer in demo.answers:
        answers = []
        for hit in answer.hits:
            memory = hit.memory
            found = {"text": memory.text, "speaker": memory.speaker, "score": hit.score}
            answers.append({**found, "parts": dict(hit.parts)})
        questions.append({"question": answer.query.text, "answers": answers})
    seconds = {
        "taking_in": round(demo.remember_seconds, 3),
        "asking": round(demo.recall_seconds, 3),
    }
    return {"messages": len(demo.messages), "questions": questions, "seconds": seconds}
