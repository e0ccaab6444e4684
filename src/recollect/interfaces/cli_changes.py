"""The commands about what changed and when: news of a thread, events, time limits."""

from __future__ import annotations

from typing import Annotated

import typer

from .cli_app import Call, command
from .cli_decide import SAY


@command(SAY, example="recollect delta thread-1 --since 4")
def delta(
    call: Call,
    thread: Annotated[str, typer.Argument(metavar="THREAD", help="A thread or session.", show_default=False)],
    since: Annotated[
        int | None, typer.Option("--since", metavar="REV", help="Since this revision; without it, since the last time.")
    ] = None,
) -> None:
    """Show what changed in a thread, in at most three lines, and go on from there the next time."""
    from . import show

    with call.mine() as mine:
        news = mine.delta(since, thread=thread)
    if call.json:
        show.as_json(news)
    elif news.text:
        for line in news.text.splitlines():
            show.line(show.plain(line))
    else:
        show.note(f"Nothing changed since revision {news.since}.")


@command(SAY, example="recollect events --count")
def events(
    call: Call,
    node: Annotated[str | None, typer.Option(metavar="NODE", help="hotpath, context, episodic or worker.")] = None,
    op: Annotated[str | None, typer.Option(metavar="OP", help="create, search, merge, delete, …")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="So many at most.")] = 100,
    count: Annotated[bool, typer.Option("--count", help="Count them by day instead.")] = False,
    days: Annotated[float, typer.Option(metavar="DAYS", min=0, help="How far back to count.")] = 30,
) -> None:
    """Show what the parts did, newest first, or count it by day. With --json one a line."""
    from . import show

    with call.mine() as mine:
        counted = mine.tallies(days=days) if count else []
        found = [] if count else mine.events(node=node, op=op, limit=limit)
    for each in (*counted, *found):
        if call.json:
            show.as_line(each)
    if call.json:
        return
    for tally in counted:
        show.line(f"{tally.day}  {tally.node:<9}{tally.op:<9}{tally.status:<8}{tally.count}")
    for line in found:
        near = "" if line.sim is None else f"sim={line.sim:.2f}"
        about = "  ".join(filter(None, (line.memory_id, line.category, line.thread, near)))
        show.line(
            f"{line.at:%Y-%m-%d %H:%M:%S}  {line.node:<9}{line.op:<9}{line.status:<8}{show.plain(about)}".rstrip()
        )


@command(SAY, example="recollect purge --dry-run", writes=True)
def purge(
    call: Call,
    everyone: Annotated[bool, typer.Option("--all", help="Of everybody, not only of --user.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Put away what nobody used for long, and erase what was put away for long enough."""
    from . import show

    with call.memory() as memory:
        done = memory.purge(dry_run=dry_run) if everyone else call.scope(memory).purge(dry_run=dry_run)
    if call.json:
        show.as_json({"expired": list(done.expired), "purged": list(done.purged), "dry_run": dry_run})
    else:
        would = "would be " if dry_run else ""
        show.line(f"{len(done.expired)} {would}put away, {len(done.purged)} {would}erased")
