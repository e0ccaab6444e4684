"""`memorist eval`: how well the current settings do on tasks that need memory."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table
from rich.text import Text

from ...errors import InvalidInput
from .. import plain
from ..call import Call, load
from ..errors import FAILED
from . import output
from .app import command

if TYPE_CHECKING:
    from ...evals import Report, SweepReport

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
        chosen = [*chosen, *evals.from_folder(tasks)]
    with output.progress("Running tasks", None, hidden=call.json) as advance:
        evaluation = evals.evaluate(chosen, profile=profile, limit=limit, progress=advance)
        report = asyncio.run(evaluation)
    swept = None
    if sweep or plot:
        with output.progress("Trying settings", None, hidden=call.json) as advance:
            swept = asyncio.run(evals.sweep(chosen, progress=advance))
    if plot and swept:
        Path(plot).write_text(load("evals.chart").svg(swept), encoding="utf-8")
    if call.json:
        output.as_json(as_plain(report, swept))
    else:
        _show(report, swept)
    passed = report.best_equipped.accuracy
    if min is not None and passed < min:
        output.note(f"{passed:.0%} of the tasks passed; {min:.0%} are required")
        raise typer.Exit(FAILED)


def _show(report: Report, swept: SweepReport | None) -> None:
    output.draw(_runs(report), _kinds(report))
    best = report.best_equipped
    failed = [each for each in best.results if not each.passed]
    if failed:
        output.draw(Text(f"Failed with {best.name}", style="bold"))
    for each in failed:
        reasons = []
        if each.missing:
            reasons.append(f"lacks {', '.join(each.missing)}")
        if each.forbidden:
            reasons.append(f"says {', '.join(each.forbidden)}")
        if each.problem:
            reasons.append(each.problem)
        output.line("  " + plain(f"{each.task}: {'; '.join(reasons)}"))
    if best.name == "memory":
        output.draw(Text(CAVEAT, style="dim"))
    if swept:
        output.draw(_sweep(swept))
        for name, point in (
            ("usual tri-score", swept.usual),
            ("best tri-score", swept.best),
            ("default profile", swept.ours),
        ):
            result = f"{point.accuracy:.0%} with {point.tokens:.0f} tokens ({point.label})"
            output.draw(Text(f"{name}: {result}"))


def _runs(report: Report) -> Table:
    title = f"{len(report.runs[0].results)} tasks"
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in ("", "passed", "found all", "said too much", "tokens"):
        table.add_column(name, justify="left" if not name else "right")
    for run in report.runs:
        too_much = sum(bool(each.forbidden) for each in run.results)
        figures = (f"{run.accuracy:.0%}", f"{run.found:.0%}", f"{too_much}", f"{run.tokens:.0f}")
        table.add_row(run.name, *figures)
    return table


def _kinds(report: Report) -> Table:
    """Return how many tasks passed, by kind."""
    table = Table("passed, by kind", *(run.name for run in report.runs))
    for kind in dict.fromkeys(each.kind for each in report.runs[0].results):
        cells = []
        for run in report.runs:
            results = [each for each in run.results if each.kind == kind]
            cells.append(f"{sum(each.passed for each in results)} of {len(results)}")
        table.add_row(plain(kind), *cells)
    return table


def _sweep(swept: SweepReport) -> Table:
    columns = ("varied", "setting", "passed", "tokens")
    table = Table(*columns, title="Sweep", title_justify="left", title_style="bold")
    for axis in ("α", "β", "γ", "τ", "N", "k"):
        for number, point in enumerate(swept.along(axis)):
            name = "" if number else axis
            table.add_row(name, point.label, f"{point.accuracy:.0%}", f"{point.tokens:.0f}")
        table.add_section()
    return table


def as_plain(report: Report, swept: SweepReport | None) -> dict[str, Any]:
    """Return the report as JSON values."""
    runs = []
    for run in report.runs:
        tasks = [{**asdict(each), "passed": each.passed} for each in run.results]
        figures = {"passed": run.accuracy, "found": run.found, "tokens": run.tokens}
        runs.append({"name": run.name, **figures, "tasks": tasks})
    if swept is None:
        return {"runs": runs}
    sweep: dict[str, Any] = {"points": [asdict(each) for each in swept.points]}
    for name, point in (("usual", swept.usual), ("best", swept.best), ("default", swept.ours)):
        sweep[name] = asdict(point)
    return {"runs": runs, "sweep": sweep}
