"""`memorist demo`: a conversation goes in, questions come out. It runs in memory and leaves nothing behind."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...types import Recall
from . import output

if TYPE_CHECKING:
    from ...sync import BlockingScope

BEST = 2  # memories shown for each question
PLAINLY: dict[str, Any] = {  # as it comes, whatever this machine is set to
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
  memorist import chat.jsonl                       take in a file of messages
  memorist doctor                                  see what is installed"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the demonstration is about, and how it went."""

    messages: Sequence[dict[str, Any]]
    answers: Sequence[Recall]
    explained: str  # the question whose answer is taken apart
    taking_in: float  # seconds
    asking: float


def run(*, as_json: bool) -> None:
    """Show it all. Raises EmbedderUnavailable if the packaged model cannot be loaded."""
    script = json.loads(files(__package__).joinpath("demo_conversation.json").read_text("utf-8"))
    told = played(script, hidden=as_json)
    if as_json:
        output.as_json(as_plain(told))
        return
    output.show(_opening(told), _answers(told), _explanation(told), _closing(told))


def played(script: dict[str, Any], *, hidden: bool) -> Told:
    """Take the conversation in and ask the questions, with the packaged model, wherever nothing is kept."""
    import memorist

    total = len(script["messages"]) + len(script["questions"])
    with (
        tempfile.TemporaryDirectory() as folder,
        output.progress("Listening", total, hidden=hidden) as advance,
        memorist.open(":memory:", state_dir=folder, **PLAINLY) as memory,
    ):
        mine, begun = memory.scope(user="demo"), time.perf_counter()
        _take_in(mine, script["messages"], advance)
        asked, answers = time.perf_counter(), []
        for question in script["questions"]:
            answers.append(mine.recall(question, limit=BEST))
            advance(len(script["messages"]) + len(answers))
        ended = time.perf_counter()
    return Told(
        messages=script["messages"],
        answers=answers,
        explained=script["explained"],
        taking_in=asked - begun,
        asking=ended - asked,
    )


def _take_in(
    mine: BlockingScope, messages: Sequence[dict[str, Any]], advance: Callable[[int], None]
) -> None:
    """Session by session, as it was said."""
    done = 0
    for session in dict.fromkeys(message["session"] for message in messages):
        said = [message for message in messages if message["session"] == session]
        mine.remember(said)
        done += len(said)
        advance(done)


def _opening(told: Told) -> RenderableType:
    people = " and ".join(dict.fromkeys(message["name"] for message in told.messages))
    sessions = {message["session"]: message["at"][:10] for message in told.messages}
    lines = Text().append(
        f"{people} talk: {len(told.messages)} messages on {len(sessions)} days.\n", style="bold"
    )
    for session, day in sessions.items():
        first = next(message for message in told.messages if message["session"] == session)
        lines.append(f"  {day} {first['name']}: ", style="dim").append(
            _cut(first["content"], 56) + "\n"
        )
    return lines


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3].rsplit(" ", 1)[0] + " ..."


def _answers(told: Told) -> RenderableType:
    """The questions, and for each the best memories, with bars that compare them with the best of that answer."""
    table = Table(
        title="What is asked, and what comes back",
        title_justify="left",
        title_style="bold",
        show_lines=True,
    )
    table.add_column("question", width=17)
    table.add_column("what is remembered")
    for answer in told.answers:
        table.add_row(answer.query.text, _found(answer))
    return table


def _found(answer: Recall) -> RenderableType:
    best = max((hit.score for hit in answer.hits), default=0.0) or 1.0
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column()
    for hit in answer.hits:
        scored = Group(output.score_bar(hit.score / best, 6), Text(f"{hit.score:.2f}", style="dim"))
        grid.add_row(scored, output.said(hit.memory))
    return grid


def _explanation(told: Told) -> RenderableType:
    """One answer, part by part."""
    answer = next(answer for answer in told.answers if answer.query.text == told.explained)
    hit = answer.hits[0]
    title = Text(
        f"\nWhy this answers {told.explained!r}: the parts add up to {hit.score:.2f}\n",
        style="bold",
    )
    return Group(title, output.said(hit.memory), output.made_of(hit))


def _closing(told: Told) -> RenderableType:
    each = 1000 * told.asking / max(1, len(told.answers))
    took = (
        f"{len(told.messages)} messages took {told.taking_in:.1f} s, with loading the model; "
        f"a question {each:.0f} ms."
    )
    return Text(
        f"\n{took}\nEverything ran on this machine, in memory. Nothing was left behind.\n\n{NEXT}"
    )


def as_plain(told: Told) -> dict[str, Any]:
    """The same for programs."""
    questions = [
        {
            "question": answer.query.text,
            "answers": [
                {
                    "text": hit.memory.text,
                    "speaker": hit.memory.speaker,
                    "score": hit.score,
                    "parts": dict(hit.parts),
                }
                for hit in answer.hits
            ],
        }
        for answer in told.answers
    ]
    seconds = {"taking_in": round(told.taking_in, 3), "asking": round(told.asking, 3)}
    return {"messages": len(told.messages), "questions": questions, "seconds": seconds}
