"""The commands by which a person decides over what is remembered: correct, pin, forget, restore, look back."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ..model import Memory
from .cli_app import Call, command
from .cli_memories import Id

SAY = "Decide"


@command(SAY, example='recollect edit 019a3c5e-7ddf-7926-adf6-688e0fc76dd8 "I moved to Porto in May."')
def edit(
    call: Call,
    id: Id,
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="The new text; - reads stdin.", show_default=False)
    ] = None,
    summary: Annotated[str | None, typer.Option(metavar="TEXT", help="A summary of at most 280 characters.")] = None,
    category: Annotated[str | None, typer.Option(metavar="NAME", help="What it is about.")] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="The tags it has from now on.")] = None,
    importance: Annotated[float | None, typer.Option(metavar="0..1", min=0, max=1, help="How much it matters.")] = None,
) -> None:
    """Correct a memory. Its id stays, and the version before can still be read."""
    from .cli_files import standard_input

    if all(given is None for given in (text, summary, category, tag, importance)):
        raise typer.BadParameter("Say what to change: a new TEXT, or --summary, --category, --tag, --importance")
    said = standard_input() if text == "-" else text
    with call.mine() as mine:
        changed = mine.edit(id, said, summary=summary, category=category, tags=tag, importance=importance)
    _now(call, changed)


@command(SAY, example="recollect pin 019a3c5e-7ddf-7926-adf6-688e0fc76dd8")
def pin(call: Call, id: Id) -> None:
    """Pin a memory: it is never trimmed or expired."""
    with call.mine() as mine:
        _now(call, mine.pin(id))


@command(SAY, example="recollect unpin 019a3c5e-7ddf-7926-adf6-688e0fc76dd8")
def unpin(call: Call, id: Id) -> None:
    """Take the pin off a memory."""
    with call.mine() as mine:
        _now(call, mine.unpin(id))


@command(SAY, example="recollect forget 019a3c5e-7ddf-7926-adf6-688e0fc76dd8 --keep-days 30")
def forget(
    call: Call,
    id: Id,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the history.")] = "",
    keep_days: Annotated[float, typer.Option(metavar="DAYS", min=0, help="Only hide it for so many days.")] = 0,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Forget a memory everywhere, for good, or hide it for a while with --keep-days."""
    from . import show

    with call.mine() as mine:
        memory = mine.get(id)
        if not (yes or keep_days or call.json) and _somebody_is_there():
            typer.confirm(f"Forget for good: {show.plain(memory.text)[:200]!r}?", abort=True, err=True)
        mine.forget(id, reason=reason, keep_days=keep_days)
    if call.json:
        show.as_json({"id": id, "forgotten": True, "keep_days": keep_days})
    else:
        until = f"  `recollect restore` brings it back for {keep_days:g} days" if keep_days else ""
        show.line(f"forgotten  {id}{until}")


@command(SAY, example="recollect restore 019a3c5e-7ddf-7926-adf6-688e0fc76dd8")
def restore(call: Call, id: Id) -> None:
    """Bring back a memory that was hidden, trimmed, expired or archived."""
    with call.mine() as mine:
        _now(call, mine.restore(id))


@command(SAY, example="recollect history --limit 20")
def history(
    call: Call,
    id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="One memory; without it, all.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="So many lines at most.")] = 100,
) -> None:
    """Show what happened to a memory, or to all of them, newest first. With --json one entry a line."""
    from . import show

    with call.mine() as mine:
        entries = mine.history(id, limit=limit)
    if not call.json:
        show.history(entries)
        return
    for entry in entries:
        show.as_line(entry)


def _now(call: Call, memory: Memory) -> None:
    """A memory as it stands after a change."""
    from . import show

    show.as_json(memory) if call.json else show.memories([memory])


def _somebody_is_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
