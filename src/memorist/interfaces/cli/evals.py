"""Commands that use a memory of their own: the evaluation, and the demonstration."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

import memorist

from ...errors import InvalidInput
from ...types import Recall
from .. import FAILED, Call, load, plain
from .app import command
from .output import as_json, draw, grid, headline, line, note, progress, score_bar, score_parts

if TYPE_CHECKING:
    from ...evals import Report, SweepReport

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


@command("demo", "Remember and recall")
def demo(call: Call) -> object:
    """Store a sample conversation and answer questions about it. Leaves nothing behind."""
    script = json.loads(files(__package__).joinpath("demo_conversation.json").read_text("utf-8"))
    messages = script["messages"]
    questions = script["questions"]
    answers = []
    with (
        tempfile.TemporaryDirectory() as folder,
        progress("Listening", len(messages) + len(questions), hidden=call.json) as advance,
        memorist.open(":memory:", state_dir=folder, **DEFAULTS) as memory,
    ):
        mine = memory.scope(user="demo")
        start = time.perf_counter()
        done = 0
        for _, session in groupby(messages, key=itemgetter("session")):
            turns = list(session)
            mine.remember(turns)
            done += len(turns)
            advance(done)
        asked = time.perf_counter()
        for question in questions:
            answers.append(mine.recall(question, limit=HITS))
            advance(len(messages) + len(answers))
        end = time.perf_counter()
    if call.json:
        seconds = {"taking_in": round(asked - start, 3), "asking": round(end - asked, 3)}
        asked_and_found = []
        for answer in answers:
            found = []
            for hit in answer.hits:
                memory_fields = {"text": hit.memory.text, "speaker": hit.memory.speaker}
                found.append({**memory_fields, "score": hit.score, "parts": dict(hit.parts)})
            asked_and_found.append({"question": answer.query.text, "answers": found})
        return {"messages": len(messages), "questions": asked_and_found, "seconds": seconds}
    _show_demo(script, answers)
    milliseconds = 1000 * (end - asked) / len(answers)
    took = f"{asked - start:.1f} s, including loading the model"
    draw(
        Text(f"\n{len(messages)} messages took {took}; a question {milliseconds:.0f} ms."),
        Text("Everything ran on this machine, in memory. Nothing was left behind.\n"),
        Text(NEXT),
    )
    return None


def _show_demo(script: Mapping[str, Any], answers: Sequence[Recall]) -> None:
    """Print how each session begins, the best memories for each question, and one score."""
    messages = script["messages"]
    first: dict[str, Any] = {}
    for message in messages:
        first.setdefault(message["session"], message)
    people = " and ".join(dict.fromkeys(message["name"] for message in messages))
    count = f"{len(messages)} messages on {len(first)} days"
    text = Text().append(f"{people} talk: {count}.\n", style="bold")
    for message in first.values():
        content = message["content"]
        if len(content) > 56:
            content = content[:53].rsplit(" ", 1)[0] + " ..."
        text.append(f"  {message['at'][:10]} {message['name']}: ", style="dim")
        text.append(content + "\n")
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
            bar = score_bar(hit.score / best, 6)
            rows.append((Group(bar, score), headline(hit.memory)))
        table.add_row(answer.query.text, grid(rows, columns=2))
    question = script["explained"]
    (hit, *_) = next(each.hits for each in answers if each.query.text == question)
    title = f"\nWhy this answers {question!r}: the parts add up to {hit.score:.2f}\n"
    draw(text, table, Text(title, style="bold"), headline(hit.memory), score_parts(hit))


CAVEAT = (
    "Without a language model the recalled block itself is judged: "
    "an old value quoted beside the new one fails."
)


@command("eval", "Administration")
def eval_(
    call: Call,
    *,
    tasks: str | None = None,
    own: bool = False,
    profile: str | None = None,
    limit: int | None = None,
    sweep: bool = False,
    plot: str | None = None,
    min: float | None = None,
) -> None:
    """Run tasks without memory, with memory, and without vectors; with a model too, if configured.

    It uses a memory of its own, with your settings, and never touches yours.

    Args:
        tasks: <DIR> Folder with additional tasks of your own.
        own: Only run the tasks of --tasks.
        sweep: Try many ranking settings; takes a minute.
        plot: <FILE> Draw the sweep as an SVG file.
        limit: <1..> Memories recalled per question.
        min: <0..1> Fail if a smaller share of the tasks passes.

    Example: memorist eval --tasks my_tasks --min 0.9
    """
    evals = load("evals")
    if own and tasks is None:
        raise InvalidInput("--own needs your tasks: --tasks DIR")
    chosen = [] if own else evals.packaged()
    if tasks is not None:
        chosen += evals.from_folder(tasks)
    with progress("Running tasks", None, hidden=call.json) as advance:
        evaluation = evals.evaluate(chosen, profile=profile, limit=limit, progress=advance)
        report: Report = asyncio.run(evaluation)
    swept: SweepReport | None = None
    if sweep or plot:
        with progress("Trying settings", None, hidden=call.json) as advance:
            swept = asyncio.run(evals.sweep(chosen, progress=advance))
    if plot and swept:
        Path(plot).write_text(evals.svg(swept), encoding="utf-8")
    if call.json:
        runs = []
        for run in report.runs:
            results = [{**asdict(each), "passed": each.passed} for each in run.results]
            figures = {"passed": run.accuracy, "found": run.found, "tokens": run.tokens}
            runs.append({"name": run.name, **figures, "tasks": results})
        values: dict[str, Any] = {"runs": runs}
        if swept:
            best = {"usual": swept.usual, "best": swept.best, "default": swept.ours}
            values["sweep"] = {"points": swept.points, **best}
        as_json(values)
    else:
        _show_report(report, swept)
    passed = report.best_equipped.accuracy
    if min is not None and passed < min:
        note(f"{passed:.0%} of the tasks passed; {min:.0%} are required")
        raise typer.Exit(FAILED)


def _show_report(report: Report, swept: SweepReport | None) -> None:
    """Print how each run did, also by kind of task, why tasks failed, and the sweep."""
    results = report.runs[0].results
    table = Table(title=f"{len(results)} tasks", title_justify="left", title_style="bold")
    table.add_column("")
    for name in ("passed", "found all", "said too much", "tokens"):
        table.add_column(name, justify="right")
    kinds = Table("passed, by kind", *(run.name for run in report.runs))
    for run in report.runs:
        too_much = sum(bool(each.forbidden) for each in run.results)
        figures = (f"{run.accuracy:.0%}", f"{run.found:.0%}", f"{too_much}", f"{run.tokens:.0f}")
        table.add_row(run.name, *figures)
    for kind in dict.fromkeys(each.kind for each in results):
        cells = []
        for run in report.runs:
            passed = [each.passed for each in run.results if each.kind == kind]
            cells.append(f"{sum(passed)} of {len(passed)}")
        kinds.add_row(plain(kind), *cells)
    draw(table, kinds)
    best = report.best_equipped
    if best.accuracy < 1:
        draw(Text(f"Failed with {best.name}", style="bold"))
    for each in best.results:
        missing = ", ".join(each.missing)
        forbidden = ", ".join(each.forbidden)
        reasons = [missing and f"lacks {missing}", forbidden and f"says {forbidden}", each.problem]
        if not each.passed:
            line("  " + plain(f"{each.task}: {'; '.join(filter(None, reasons))}"))
    if best.name == "memory":
        draw(Text(CAVEAT, style="dim"))
    if swept is None:
        return
    columns = ("varied", "setting", "passed", "tokens")
    table = Table(*columns, title="Sweep", title_justify="left", title_style="bold")
    for axis in ("α", "β", "γ", "τ", "N", "k"):
        for number, point in enumerate(swept.along(axis)):
            name = "" if number else axis
            table.add_row(name, point.label, f"{point.accuracy:.0%}", f"{point.tokens:.0f}")
        table.add_section()
    draw(table)
    points = {
        "usual tri-score": swept.usual,
        "best tri-score": swept.best,
        "default profile": swept.ours,
    }
    for name, point in points.items():
        result = f"{point.accuracy:.0%} with {point.tokens:.0f} tokens ({point.label})"
        draw(Text(f"{name}: {result}"))
