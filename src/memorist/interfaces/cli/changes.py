"""The commands about what changed and when: news of a thread, events, time limits, summaries."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ...types import Receipt
from .app import Call, command
from .decide import SAY
from .memories import Id

if TYPE_CHECKING:
    from ...jobs.summarize import SummaryReport


@command(SAY, example="memorist delta thread-1 --since 4")
def delta(
    call: Call,
    thread: Annotated[
        str, typer.Argument(metavar="THREAD", help="A thread or session.", show_default=False)
    ],
    since: Annotated[
        int | None,
        typer.Option(
            "--since", metavar="REV", help="Since this revision; without it, since the last time."
        ),
    ] = None,
) -> None:
    """Show what changed in a thread, in at most three lines, and go on from there the next time."""
    from . import output

    with call.mine() as mine:
        news = mine.delta(since, thread=thread)
    if call.json:
        output.as_json(news)
    elif news.text:
        for line in news.text.splitlines():
            output.line(output.plain(line))
    else:
        output.note(f"Nothing changed since revision {news.since}.")


@command(SAY, example="memorist events --count")
def events(
    call: Call,
    node: Annotated[
        str | None, typer.Option(metavar="NODE", help="hotpath, context, episodic or worker.")
    ] = None,
    op: Annotated[
        str | None, typer.Option(metavar="OP", help="create, search, merge, delete, …")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", help="So many at most.")
    ] = 100,
    count: Annotated[bool, typer.Option("--count", help="Count them by day instead.")] = False,
    days: Annotated[float, typer.Option(metavar="DAYS", min=0, help="How far back to count.")] = 30,
) -> None:
    """Show what the parts did, newest first, or count it by day. With --json one a line."""
    from . import output

    with call.mine() as mine:
        counted = mine.event_counts(days=days) if count else []
        found = [] if count else mine.events(node=node, op=op, limit=limit)
    for each in (*counted, *found):
        if call.json:
            output.as_line(each)
    if call.json:
        return
    for tally in counted:
        output.line(f"{tally.day}  {tally.node:<9}{tally.op:<9}{tally.status:<8}{tally.count}")
    for line in found:
        near = "" if line.sim is None else f"sim={line.sim:.2f}"
        about = "  ".join(filter(None, (line.memory_id, line.category, line.thread, near)))
        output.line(
            f"{line.at:%Y-%m-%d %H:%M:%S}  {line.node:<9}{line.op:<9}{line.status:<8}{output.plain(about)}".rstrip()
        )


@command(
    SAY,
    example='memorist feedback 019a3c5e-7ddf-7926-adf6-688e0fc76dd8 --reply "Tea, as always."',
    writes=True,
)
def feedback(
    call: Call,
    recalled: Annotated[
        list[str],
        typer.Argument(metavar="ID...", help="What was recalled for a turn.", show_default=False),
    ],
    reply: Annotated[str | None, typer.Option(metavar="TEXT", help="What was replied.")] = None,
    used: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="One that was used; can be repeated, in place of --reply."),
    ] = None,
) -> None:
    """Count whether what was recalled went into a reply: the share of such turns is how often recall helped."""
    from . import output

    with call.mine() as mine:
        found = mine.feedback(recalled, reply=reply, used=used or (None if reply else ()))
    if call.json:
        output.as_json(found)
        return
    for id, how in found.items():
        output.line(f"{id}  {how}")
    if not found:
        output.note("None of them was used, as far as can be told.")


@command(SAY, example="memorist purge --dry-run", writes=True)
def purge(
    call: Call,
    everyone: Annotated[
        bool, typer.Option("--all", help="Of everybody, not only of --user.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Put away what nobody used for long, and erase what was put away for long enough."""
    from . import output

    with call.memory() as memory:
        done = (
            memory.purge(dry_run=dry_run) if everyone else call.scope(memory).purge(dry_run=dry_run)
        )
    if call.json:
        output.as_json(
            {"expired": list(done.expired), "purged": list(done.purged), "dry_run": dry_run}
        )
    else:
        would = "would be " if dry_run else ""
        output.line(f"{len(done.expired)} {would}put away, {len(done.purged)} {would}erased")


@command(SAY, example="memorist extract 019a3c5e-7ddf-7926-adf6-688e0fc76dd8", writes=True)
def extract(call: Call, id: Id) -> None:
    """Draw facts out of what somebody said in a conversation; each rests on it, and goes with it."""
    from . import output

    with call.mine() as mine:
        done = mine.extract(id)
    if call.json:
        output.as_json(asdict(done))
        return
    output.receipt(Receipt(done.outcomes))
    for why in (done.why, *done.dropped):
        if why:
            output.note(f"{why}.")


@command(SAY, example="memorist compress --dry-run", writes=True)
def compress(
    call: Call,
    threshold: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Only if there are more sessions than this."),
    ] = None,
    sessions: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many; else half the threshold.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be summed up.")
    ] = False,
) -> None:
    """Sum up the oldest sessions, each in one memory; what was said is kept behind its summary."""
    with call.mine() as mine:
        _told(
            call, mine.compress(threshold=threshold, sessions=sessions, dry_run=dry_run), "sessions"
        )


@command(SAY, name="roll-up", example="memorist roll-up --days 180 --dry-run", writes=True)
def roll_up(
    call: Call,
    days: Annotated[
        float, typer.Option(metavar="DAYS", min=0, help="Of what nobody used for so long.")
    ] = 90,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be rolled up.")
    ] = False,
) -> None:
    """Make one memory of each topic among what nobody used for long; the originals are archived behind it."""
    with call.mine() as mine:
        _told(call, mine.roll_up(days=days, dry_run=dry_run), "topics")


def _told(call: Call, done: SummaryReport, groups: str) -> None:
    from . import output

    if call.json:
        output.as_json(asdict(done))
        return
    would = "would be " if done.dry_run else ""
    output.line(f"{done.groups} {groups} with {len(done.memories)} memories {would}summed up")
    if done.left:
        output.note(
            f"{done.left} stay as they were: they were changed meanwhile, or a guard refused their summary."
        )
