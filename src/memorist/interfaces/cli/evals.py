"""Commands that try memory out: `demo`, and `eval`, with tasks or with questions of one's own."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

import memorist

from ...errors import InvalidInput
from ...types import Recall
from .. import FAILED, load, plain
from . import output
from .app import command
from .output import Progress

if TYPE_CHECKING:
    from ...evals import Report, SweepReport
    from ...evals.questions import Figures

DEMO = Path(__file__).with_name("demo_conversation.json")
HITS = 2  # shown for each question of the demo
CAVEAT = (
    "Without a language model the recalled block itself is judged: "
    "an old value quoted next to the new one fails."
)


@command("demo")
def demo(progress: Progress) -> object:
    """Store a sample conversation and answer questions about it. Leaves nothing behind."""
    script = json.loads(DEMO.read_text("utf-8"))
    sessions = script["sessions"]
    with (
        tempfile.TemporaryDirectory() as folder,
        progress("Listening", len(sessions)) as advance,
        memorist.open(":memory:", state_dir=folder, **script["settings"]) as memory,
    ):
        mine = memory.scope(user="demo")
        start = time.perf_counter()
        for done, session in enumerate(sessions, 1):
            mine.remember(session)
            advance(done)
        asked = time.perf_counter()
        answers = [mine.recall(question, limit=HITS) for question in script["questions"]]
        end = time.perf_counter()
    values = []
    for answer in answers:
        found = []
        for hit in answer.hits:
            about = {"text": hit.memory.text, "speaker": hit.memory.speaker, "score": hit.score}
            found.append({**about, "parts": dict(hit.parts)})
        values.append({"question": answer.query.text, "answers": found})
    messages = sum(map(len, sessions))
    seconds = {"taking_in": round(asked - start, 3), "asking": round(end - asked, 3)}
    milliseconds = 1000 * (end - asked) / len(answers)
    took = f"{asked - start:.1f} s, including loading the model; a question {milliseconds:.0f} ms."
    shown = [
        Text.from_markup("\n".join([*script["introduction"], ""])),
        *_show_answers(answers, script["explained"]),
        Text("\n".join([f"\n{messages} messages took {took}", *script["end"]])),
    ]
    return {"messages": messages, "questions": values, "seconds": seconds}, shown


def _show_answers(answers: Sequence[Recall], explained: str) -> list[RenderableType]:
    """Return the best memories for each question, and the score of one of them."""
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
    (hit, *_) = next(each.hits for each in answers if each.query.text == explained)
    title = f"\nWhy this answers {explained!r}: the parts add up to {hit.score:.2f}\n"
    return [table, Text(title, style="bold"), output.headline(hit.memory), output.score_parts(hit)]


@command("eval")
def eval_(
    progress: Progress,
    questions: str | None = None,
    *,
    tasks: str | None = None,
    own: bool = False,
    profile: str | None = None,
    limit: int | None = None,
    min_confidence: float | None = None,
    sweep: bool = False,
    plot: str | None = None,
    min: float | None = None,
) -> object:
    """Run tasks without memory, with memory, and without vectors; with a model too, if configured.

    With a FILE, ask its questions instead and measure how much of the evidence is recalled. It runs
    in a temporary memory with your settings and never touches your data.

    Args:
        questions: <[FILE]> Conversations with questions, one per line (.jsonl).
        tasks: <DIR> Folder with your own tasks, to run in addition.
        own: Run only the tasks of --tasks.
        sweep: Try many ranking settings; takes a minute.
        plot: <FILE> Draw the sweep as an SVG file.
        limit: <1..> Memories recalled per question.
        min_confidence: <0..1> Return nothing below this confidence. Only with FILE.
        min: <0..1> Fail if a smaller share of the tasks passes, or of the evidence is recalled.

    Example: memorist eval --tasks my_tasks --min 0.9
    """
    evals = load("evals")
    if questions is not None:
        if tasks or own or sweep or plot:
            raise InvalidInput("FILE cannot be combined with --tasks, --own, --sweep or --plot")
        options = {"profile": profile, "limit": limit, "min_confidence": min_confidence}
        return _ask_questions(progress, questions, options, min)
    if min_confidence is not None:
        raise InvalidInput("--min-confidence requires a FILE with questions")
    if own and tasks is None:
        raise InvalidInput("--own requires --tasks DIR")
    chosen = [] if own else evals.packaged()
    if tasks is not None:
        chosen += evals.from_folder(tasks)
    with progress("Running tasks") as advance:
        evaluation = evals.evaluate(chosen, profile=profile, limit=limit, progress=advance)
        report: Report = asyncio.run(evaluation)
    runs = []
    for run in report.runs:
        results = [{**asdict(each), "passed": each.passed} for each in run.results]
        figures = {"passed": run.accuracy, "found": run.found, "tokens": run.tokens}
        runs.append({"name": run.name, **figures, "tasks": results})
    values: dict[str, Any] = {"runs": runs}
    shown = _show_report(report)
    if sweep or plot:
        with progress("Trying settings") as advance:
            swept: SweepReport = asyncio.run(evals.sweep(chosen, progress=advance))
        best = {"usual": swept.usual, "best": swept.best, "default": swept.ours}
        values["sweep"] = {"points": swept.points, **best}
        shown += _show_sweep(swept)
        if plot:
            Path(plot).write_text(evals.svg(swept), encoding="utf-8")
    passed = report.best_equipped.accuracy
    if min is not None and passed < min:
        note = f"{passed:.0%} of the tasks passed; {min:.0%} are required"
        return values, shown, [note], FAILED
    return values, shown


COLUMNS = {  # of the table of questions, by the name of the figure
    "questions": "asked",
    "@1": "@1",
    "@5": "@5",
    "@10": "@10",
    "default": "recall",
    "precision": "precision",
    "tokens": "tokens",
    "empty": "empty",
    "silent": "silent",
}
LEGEND = """\
@1, @5, @10: share of the evidence among the first hits, without a threshold
recall, precision, tokens: of the answers to questions that have evidence
empty: share of these questions that got no answer: lower is better
silent: share of the other questions that got no answer: higher is better"""


def _ask_questions(
    progress: Progress, path: str, options: dict[str, Any], required: float | None
) -> object:
    """Measure recall on the questions of a file."""
    if Path(path).suffix != ".jsonl":
        raise InvalidInput(
            f"{path!r} is not a .jsonl file; a folder of tasks is given with --tasks"
        )
    asking = load("evals.questions")
    conversations = asking.read(path)
    with progress("Asking") as advance:
        measuring = asking.measure(conversations, options=options, progress=advance)
        figures: dict[str, Figures] = asyncio.run(measuring)
    rows = {name: each.row() for name, each in figures.items()}
    # One line for all questions, and one for each category.
    table = Table("", box=box.SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for title in COLUMNS.values():
        table.add_column(title, justify="right")
    for name, row in rows.items():
        cells = []
        for column in COLUMNS:
            value = row[column]
            if value is None:
                cells.append("–")
            elif column in ("questions", "tokens"):
                cells.append(f"{value:.0f}")
            else:
                cells.append(f"{value:.2f}")
        table.add_row(plain(name), *cells)
    shown: list[RenderableType] = [table, Text(LEGEND, style="dim")]
    recalled = rows["all"]["default"] or 0.0
    if required is not None and recalled < required:
        note = f"{recalled:.0%} of the evidence is recalled; {required:.0%} are required"
        return {"parts": rows}, shown, [note], FAILED
    return {"parts": rows}, shown


def _show_report(report: Report) -> list[RenderableType]:
    """Return the results of each run, in total and by kind of task, and why tasks failed."""
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
    shown: list[RenderableType] = [table, kinds]
    best = report.best_equipped
    if best.accuracy < 1:
        shown.append(Text(f"Failed with {best.name}", style="bold"))
    for each in best.results:
        missing = ", ".join(each.missing)
        forbidden = ", ".join(each.forbidden)
        reasons = [missing and f"lacks {missing}", forbidden and f"says {forbidden}", each.problem]
        if not each.passed:
            shown.append("  " + plain(f"{each.task}: {'; '.join(filter(None, reasons))}"))
    if best.name == "memory":
        shown.append(Text(CAVEAT, style="dim"))
    return shown


def _show_sweep(swept: SweepReport) -> list[RenderableType]:
    columns = ("varied", "setting", "passed", "tokens")
    table = Table(*columns, title="Sweep", title_justify="left", title_style="bold")
    for axis in ("α", "β", "γ", "τ", "N", "k"):
        for number, point in enumerate(swept.along(axis)):
            name = "" if number else axis
            table.add_row(name, point.label, f"{point.accuracy:.0%}", f"{point.tokens:.0f}")
        table.add_section()
    points = {"usual tri-score": swept.usual, "best tri-score": swept.best}
    points["default profile"] = swept.ours
    shown: list[RenderableType] = [table]
    for name, point in points.items():
        result = f"{point.accuracy:.0%} with {point.tokens:.0f} tokens ({point.label})"
        shown.append(Text(f"{name}: {result}"))
    return shown
