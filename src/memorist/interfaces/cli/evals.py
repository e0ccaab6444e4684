"""`memorist eval`: how well these settings do on tasks that need memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InvalidInput
from ..errors import FAILED
from .app import Call, command

if TYPE_CHECKING:
    from rich.table import Table

    from ...evals import EvalTask, Report, Result, SweepReport

HONESTLY = (
    "Without a language model the recalled block itself is judged: "
    "an earlier value quoted beside the newer fails."
)


@command("Care", name="eval", example="memorist eval --tasks my_tasks --min 0.9")
def eval_(
    call: Call,
    tasks: Annotated[
        str | None,
        typer.Option(
            "--tasks", metavar="DIR", help="A folder with tasks of your own, which are added."
        ),
    ] = None,
    own: Annotated[bool, typer.Option("--own", help="Run the tasks of --tasks alone.")] = False,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help="Rank by this profile. [MEMORIST_PROFILE]"),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="Memories recalled for a question."),
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="Try many settings of the ranking; takes a minute.")
    ] = False,
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="FILE", help="Draw the sweep into an SVG file.")
    ] = None,
    least: Annotated[
        float | None,
        typer.Option(
            "--min",
            metavar="SHARE",
            min=0,
            max=1,
            help="Fail if a smaller share of the tasks passes.",
        ),
    ] = None,
) -> None:
    """Run tasks that need memory: without it, with it, and without vectors; with a model too, if one is configured.

    It runs in a memory of its own, under your settings, and never touches yours.
    """
    from . import output

    chosen = _chosen(tasks, own=own)
    report = _evaluated(chosen, profile, limit, hidden=call.json)
    swept = _swept(chosen, hidden=call.json) if sweep or plot else None
    if plot and swept:
        _draw(swept, plot)
    if call.json:
        output.as_json(as_plain(report, swept))
    else:
        _show(report, swept)
    passed = report.best_equipped.accuracy
    if least is not None and passed < least:
        output.note(f"{passed:.0%} of the tasks passed, and {least:.0%} were asked for")
        raise typer.Exit(FAILED)


def _chosen(folder: str | None, *, own: bool) -> list[EvalTask]:
    from ... import evals

    if own and folder is None:
        raise InvalidInput("Say where your tasks are: --tasks DIR")
    return [
        *([] if own else evals.packaged()),
        *([] if folder is None else evals.from_folder(folder)),
    ]


def _evaluated(
    tasks: list[EvalTask], profile: str | None, limit: int | None, *, hidden: bool
) -> Report:
    import asyncio

    from ... import evals
    from . import output

    with output.progress("Running tasks", None, hidden=hidden) as advance:
        return asyncio.run(evals.evaluate(tasks, profile=profile, limit=limit, progress=advance))


def _swept(tasks: list[EvalTask], *, hidden: bool) -> SweepReport:
    import asyncio

    from ... import evals
    from . import output

    with output.progress("Trying settings", None, hidden=hidden) as advance:
        return asyncio.run(evals.sweep(tasks, progress=advance))


def _draw(swept: SweepReport, file: str) -> None:
    from pathlib import Path

    from ...evals import chart

    Path(file).write_text(chart.svg(swept), encoding="utf-8")


def _show(report: Report, swept: SweepReport | None) -> None:
    from rich.text import Text

    from . import output

    output.show(_runs(report), _kinds(report))
    failed = [each for each in report.best_equipped.results if not each.passed]
    if failed:
        output.show(Text(f"Failed with {report.best_equipped.name}", style="bold"))
    for each in failed:
        output.line(f"  {output.plain(each.task)}: {_why(each)}")
    if report.best_equipped.name == "memory":
        output.show(Text(HONESTLY, style="dim"))
    if swept:
        output.show(_sweep(swept), Text(_verdict(swept)))


def _runs(report: Report) -> Table:
    from rich.table import Table

    table = Table(
        title=f"{len(report.runs[0].results)} tasks", title_justify="left", title_style="bold"
    )
    for name in ("", "passed", "found all", "said too much", "tokens"):
        table.add_column(name, justify="left" if not name else "right")
    for run in report.runs:
        too_much = sum(bool(each.forbidden) for each in run.results)
        table.add_row(
            run.name, f"{run.accuracy:.0%}", f"{run.found:.0%}", f"{too_much}", f"{run.tokens:.0f}"
        )
    return table


def _kinds(report: Report) -> Table:
    """Passed, by the kind of task."""
    from rich.table import Table

    from . import output

    table = Table("passed, by kind", *(run.name for run in report.runs))
    for kind in dict.fromkeys(each.kind for each in report.runs[0].results):
        of_kind = [[each for each in run.results if each.kind == kind] for run in report.runs]
        cells = (f"{sum(each.passed for each in results)} of {len(results)}" for results in of_kind)
        table.add_row(output.plain(kind), *cells)
    return table


def _why(result: Result) -> str:
    from . import output

    lacks = f"lacks {', '.join(result.missing)}" if result.missing else ""
    says = f"says {', '.join(result.forbidden)}" if result.forbidden else ""
    return output.plain("; ".join(filter(None, (lacks, says, result.problem))))


def _sweep(swept: SweepReport) -> Table:
    from rich.table import Table

    table = Table(
        "varied",
        "setting",
        "passed",
        "tokens",
        title="Sweep",
        title_justify="left",
        title_style="bold",
    )
    for axis in ("α", "β", "γ", "τ", "N", "k"):
        for number, point in enumerate(swept.along(axis)):
            table.add_row(
                "" if number else axis, point.label, f"{point.accuracy:.0%}", f"{point.tokens:.0f}"
            )
        table.add_section()
    return table


def _verdict(swept: SweepReport) -> str:
    points = (
        ("usual tri-score", swept.usual),
        ("best tri-score", swept.best),
        ("default profile", swept.ours),
    )
    return "\n".join(
        f"{name}: {p.accuracy:.0%} with {p.tokens:.0f} tokens ({p.label})" for name, p in points
    )


def as_plain(report: Report, swept: SweepReport | None) -> dict[str, Any]:
    """The same for programs."""
    from dataclasses import asdict

    runs = [
        {
            "name": run.name,
            "passed": run.accuracy,
            "found": run.found,
            "tokens": run.tokens,
            "tasks": [{**asdict(each), "passed": each.passed} for each in run.results],
        }
        for run in report.runs
    ]
    if swept is None:
        return {"runs": runs}
    named = {"usual": swept.usual, "best": swept.best, "default": swept.ours}
    points = [asdict(each) for each in swept.points]
    return {
        "runs": runs,
        "sweep": {"points": points, **{name: asdict(each) for name, each in named.items()}},
    }
