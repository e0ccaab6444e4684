"""The commands by which a person decides over what is remembered: correct, pin, forget, restore, look back."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import InvalidInput
from ...types import STATES, Filter, Forgotten, Memory
from .app import Call, command
from .memories import Id

if TYPE_CHECKING:
    from ...sync import BlockingScope

SAY = "Decide"


@command(
    SAY, example='memorist edit 019a3c5e-7ddf-7926-adf6-688e0fc76dd8 "I moved to Porto in May."'
)
def edit(
    call: Call,
    id: Id,
    text: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", help="The new text; - reads stdin.", show_default=False),
    ] = None,
    summary: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A summary of at most 280 characters.")
    ] = None,
    category: Annotated[str | None, typer.Option(metavar="NAME", help="What it is about.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="The tags it has from now on.")
    ] = None,
    importance: Annotated[
        float | None, typer.Option(metavar="0..1", min=0, max=1, help="How much it matters.")
    ] = None,
) -> None:
    """Correct a memory. Its id stays, and the version before can still be read."""
    from .files import standard_input

    if all(given is None for given in (text, summary, category, tag, importance)):
        raise typer.BadParameter(
            "Say what to change: a new TEXT, or --summary, --category, --tag, --importance"
        )
    said = standard_input() if text == "-" else text
    with call.mine() as mine:
        changed = mine.edit(
            id,
            said,
            summary=summary,
            category=category,
            tags=tag,
            importance=importance,
            actor=mine.scope.user,
        )
    _now(call, changed)


@command(SAY, example="memorist pin 019a3c5e-7ddf-7926-adf6-688e0fc76dd8")
def pin(call: Call, id: Id) -> None:
    """Pin a memory: it is never trimmed or expired."""
    with call.mine() as mine:
        _now(call, mine.pin(id, actor=mine.scope.user))


@command(SAY, example="memorist unpin 019a3c5e-7ddf-7926-adf6-688e0fc76dd8")
def unpin(call: Call, id: Id) -> None:
    """Take the pin off a memory."""
    with call.mine() as mine:
        _now(call, mine.unpin(id, actor=mine.scope.user))


@command(SAY, example='memorist forget --query "my old address" --dry-run')
def forget(
    call: Call,
    id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="One memory.", show_default=False)
    ] = None,
    query: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What this question finds.")
    ] = None,
    category: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="What has this category.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="What has this tag.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would go.")] = False,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why, for the history.")] = "",
    keep_days: Annotated[
        float, typer.Option(metavar="DAYS", min=0, help="Only hide it for so many days.")
    ] = 0,
    never_again: Annotated[
        bool, typer.Option("--never-again", help="Never take it in again by itself.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Forget memories everywhere, for good, or hide them for a while with --keep-days; what rests on them goes too.

    It shows what it found and asks first. Without a terminal to ask, --query, --category and --tag need --yes.
    """
    from . import output

    with call.mine() as mine:
        if id is not None:
            ids: tuple[str, ...] = (mine.get(id).id,)
        else:
            ids = mine.forget_where(
                query, where=Filter(categories=tuple(category or ()), tags=tuple(tag or ()))
            ).ids
        is_agreed = dry_run or yes or keep_days > 0
        if ids and id is None and not is_agreed and (call.json or not _has_terminal()):
            raise InvalidInput(
                f"Nothing was forgotten: {len(ids)} found, but there is no terminal to confirm on. "
                "Look with --dry-run, then forget with --yes"
            )
        asks = not (is_agreed or call.json) and _has_terminal()
        if asks or (dry_run and not call.json):
            output.memories([mine.get(each) for each in ids])
        if asks:
            typer.confirm("Forget this for good?", abort=True, err=True)
        found = _forgotten(
            mine, ids, dry_run=dry_run, reason=reason, keep_days=keep_days, never_again=never_again
        )
    if call.json:
        output.as_json({**asdict(found), "keep_days": keep_days})
        return
    until = (
        f"  `memorist restore` brings it back for {keep_days:g} days"
        if keep_days and not dry_run
        else ""
    )
    output.line(
        f"{'would forget' if dry_run else 'forgotten'}  {id or f'{len(ids)} memories'}{until}"
    )
    for number, why in (
        (len(found.derived), "rest on this alone"),
        (len(found.flagged), "stay, but lose a source"),
    ):
        if number:
            output.note(f"{number} more {why}.")


def _forgotten(
    mine: BlockingScope, ids: tuple[str, ...], *, dry_run: bool, **manner: Any
) -> Forgotten:
    """Forget exactly these."""
    if len(ids) == 1 and not dry_run:
        return mine.forget(ids[0], actor=mine.scope.user, **manner)
    if not ids:
        return Forgotten(dry_run=dry_run)
    return mine.forget_where(
        where=Filter(ids=ids, states=STATES), dry_run=dry_run, actor=mine.scope.user, **manner
    )


@command(SAY, example="memorist undo --session chat-7 --dry-run")
def undo(
    call: Call,
    operation: Annotated[
        str | None,
        typer.Argument(
            metavar="[OPERATION]", help="As `memorist history` names it.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show how things would stand.")
    ] = False,
) -> None:
    """Take back an operation or a session. This is in the history too, and can itself be undone."""
    from . import output

    with call.mine() as mine:
        done = mine.undo(
            operation,
            session=None if operation else call.session,
            dry_run=dry_run,
            actor=mine.scope.user,
        )
    if call.json:
        output.as_json(done)
        return
    output.memories(done.memories)
    output.line(f"{'would undo' if dry_run else 'undone'}  {' '.join(done.operations)}")


@command(SAY, example="memorist restore 019a3c5e-7ddf-7926-adf6-688e0fc76dd8")
def restore(call: Call, id: Id) -> None:
    """Bring back a memory that was hidden, trimmed, expired or archived."""
    with call.mine() as mine:
        _now(call, mine.restore(id, actor=mine.scope.user))


@command(SAY, example="memorist conflicts")
def conflicts(
    call: Call,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", help="So many at most.")
    ] = 100,
) -> None:
    """List newer statements that took the place of older ones and wait for a decision. With --json one a line."""
    from . import output

    with call.mine() as mine:
        found = mine.conflicts(limit=limit)
    for each in found:
        if call.json:
            output.as_line(
                {"id": each.id, "new": each.new.text, "old": each.old.text, "old_id": each.old.id}
            )
        else:
            output.line(f"{each.id}  {output.plain(each.new.text)}")
            output.line(f"{'in place of':>{len(each.id)}}  {output.plain(each.old.text)}")
    if not (found or call.json):
        output.note("Nothing waits for a decision.")


@command(SAY, example="memorist confirm 019a3c5e-7ddf-7926-adf6-688e0fc76dd8")
def confirm(call: Call, id: Id) -> None:
    """Let the newer statement of a conflict stand."""
    with call.mine() as mine:
        _now(call, mine.confirm(id, actor=mine.scope.user))


@command(SAY, example="memorist reject 019a3c5e-7ddf-7926-adf6-688e0fc76dd8")
def reject(call: Call, id: Id) -> None:
    """Bring the older statement of a conflict back in the place of the newer one."""
    with call.mine() as mine:
        _now(call, mine.reject(id, actor=mine.scope.user))


@command(SAY, example="memorist history --limit 20")
def history(
    call: Call,
    id: Annotated[
        str | None,
        typer.Argument(metavar="[ID]", help="One memory; without it, all.", show_default=False),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", help="So many lines at most.")
    ] = 100,
) -> None:
    """Show what happened to a memory, or to all of them, newest first. With --json one entry a line."""
    from . import output

    with call.mine() as mine:
        entries = mine.history(id, limit=limit)
    if not call.json:
        output.history(entries)
        return
    for entry in entries:
        output.as_line(entry)


def _now(call: Call, memory: Memory) -> None:
    """A memory as it stands after a change."""
    from . import output

    output.as_json(memory) if call.json else output.memories([memory])


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
