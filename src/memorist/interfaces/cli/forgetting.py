"""Commands that take something back: forget memories, or undo an operation."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from ...errors import InvalidInput
from ...types import STATES, Filter
from .. import Blocking, BlockingScope, Call, load
from . import output
from .app import Words, command, complete_id, memory_id

if TYPE_CHECKING:
    from ...manage.forget import Forgotten
    from ...storage import HistoryEntry


@command("forget")
def forget(
    call: Call,
    memory: Blocking,
    id: Words = None,
    *,
    query: str | None = None,
    category: Words = None,
    tag: Words = None,
    all: bool = False,
    dry_run: bool = False,
    reason: str = "",
    keep_days: float = 0,
    never_again: bool = False,
    yes: bool = False,
) -> object:
    """Forget memories for good, and those derived only from them. --keep-days only hides them.

    It lists the matches and asks. Without a terminal it needs --yes. A --query can mean something
    else: with --yes it only forgets one memory that has exactly these words.

    Args:
        id: <[ID]> Ids, or their first or last characters.
        query: <TEXT> Memories that this names. For "my old address", what was replaced.
        category: <NAME> Memories of this category.
        tag: <TAG> Memories with this tag.
        all: All memories of the user in the space, or of --session.
        dry_run: Only list what would be forgotten.
        reason: <TEXT> Reason, for the history.
        never_again: Never store it again automatically.
        yes: Do not ask.
        keep_days: <DAYS> Only hide it, for this many days.

    Example: memorist forget --query "my old address" --dry-run
    """
    if all and (id or query or category or tag):
        raise typer.BadParameter("--all cannot be combined with an ID or a filter")
    if not (all or id or query or category or tag):
        raise InvalidInput("Nothing selected: give an ID, --query, --tag, --category or --all")
    mine = call.scope(memory)  # also with --all: never more than one user and space
    has_terminal = _has_terminal(call)
    is_confirmed = dry_run or yes or keep_days > 0
    asks = has_terminal and not is_confirmed
    where = Filter(categories=tuple(category or ()), tags=tuple(tag or ()))
    options: dict[str, Any] = {
        "actor": mine.scope.user,
        "reason": reason,
        "keep_days": keep_days,
        "never_again": never_again,
    }
    if id:
        ids = tuple(mine.get(memory_id(mine, each)).id for each in id)
    elif all:
        ids = mine.forget_all().ids
    else:
        ids = mine.forget_where(query, where=where, **options).ids
    if ids and not is_confirmed and not has_terminal:
        raise InvalidInput(
            f"Nothing was forgotten: {len(ids)} found, but no terminal to confirm. "
            "Review them with --dry-run, then forget them with --yes"
        )
    memories = [mine.get(each) for each in ids] if dry_run or not all else []
    if (asks or dry_run or not id) and not call.json:
        output.show(memories)
    if asks:
        what = f"all {len(ids)} memories of {mine.scope.user!r}" if all else "this"
        typer.confirm(f"Forget {what} for good?", abort=True, err=True)
    if not ids:
        nothing = load("manage.forget").Forgotten(dry_run=dry_run)
        result = {**asdict(nothing), "keep_days": keep_days, "memories": []}
        return result, "", [] if call.json else ["No memories match. Nothing was forgotten."]
    if query and not asks and not dry_run:
        found = _forget_named(mine, query, where, ids, options)
    elif len(ids) == 1 and not dry_run:
        found = mine.forget(ids[0], **options)
    else:
        where = Filter(ids=ids, states=STATES)
        found = mine.forget_where(where=where, dry_run=dry_run, **options)
    what = "1 memory" if len(ids) == 1 else f"{len(ids)} memories"
    if id and len(ids) == 1:
        what = output.short(ids[0])
    text = f"{'would forget' if dry_run else 'forgotten'}  {what}"
    if keep_days and not dry_run:
        text += f"  `memorist restore` can bring it back for {keep_days:g} days"
    listed = []
    for each in memories:
        at = each.occurred_at or each.created_at
        listed.append({"id": each.id, "at": at.isoformat(), "text": each.text})
    result = {**asdict(found), "keep_days": keep_days, "memories": listed}
    return result, text, [] if call.json else _describe_rest(found)


def _describe_rest(found: Forgotten) -> list[str]:
    """Return what else was forgotten with the memories, and what still says the same."""
    notes = []
    if found.derived:
        also = "Would also forget" if found.dry_run else "Also forgotten"
        notes.append(
            f"{also}: {len(found.derived)} earlier versions or memories derived only from it."
        )
    if found.flagged:
        notes.append(f"{len(found.flagged)} more kept, but without one of their sources.")
    if found.sources:
        named = ", ".join(map(output.short, found.sources))
        notes.append(f"{named} says this too, among other things: forget that as well?")
    if found.copies:
        named = ", ".join(map(output.short, found.copies))
        notes.append(f"The same text is also in {named}: forget that as well?")
    return notes


def _forget_named(
    mine: BlockingScope, query: str, where: Filter, ids: Sequence[str], options: dict[str, Any]
) -> Forgotten:
    """Forget what a query names. Raises InvalidInput with the ids if that is not certain."""
    try:
        return mine.forget_where(query, where=where, dry_run=False, **options)
    except InvalidInput as error:
        named = " ".join(output.short(each) for each in ids)
        raise InvalidInput(f"{error}: memorist forget {named} --yes") from error


def _has_terminal(call: Call) -> bool:
    """Return whether a person can answer questions on a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not call.json


@command("undo")
def undo(
    call: Call, mine: BlockingScope, operation: str | None = None, *, dry_run: bool = False
) -> object:
    """Undo an operation, or a --session. The history shows this, and it can itself be undone.

    Without either, it shows the last operation and asks.

    Args:
        operation: <[OPERATION]> Operation in `memorist history`.
        dry_run: Only show the result.

    Example: memorist undo --session chat-7 --dry-run
    """
    session = call.session
    if operation or not session:
        entries = mine.history(limit=10_000)
        if operation:
            known = [str(entry.meta.get("operation", "")) for entry in entries]
            operation = complete_id(operation, known)
        else:
            operation = _choose_last(call, mine, entries, asks=not dry_run)
        session = None
    done = mine.undo(operation, session=session, dry_run=dry_run, actor=mine.scope.user)
    named = " ".join(map(output.short, done.operations))
    text = f"{'would undo' if dry_run else 'undone'}  {named}"
    return done, [*done.memories, text]


def _choose_last(
    call: Call, mine: BlockingScope, entries: Sequence[HistoryEntry], *, asks: bool
) -> str:
    """Return the last operation that was not undone, if the person agrees."""
    undone: set[str] = set()
    last = ""
    for entry in entries:
        undone.update(entry.meta.get("undoes", ()))
        name = str(entry.meta.get("operation", ""))
        if name and name not in undone and "undoes" not in entry.meta:
            last = name
            break
    has_terminal = _has_terminal(call)
    if not last or (asks and not has_terminal):
        problem = "Say what to undo: an operation id from `memorist history`, or --session NAME"
        if last:
            problem += f". The last operation is {output.short(last)}"
        raise InvalidInput(problem)
    if asks:
        output.show(mine.undo(last, dry_run=True).memories)
        typer.confirm("Undo the last operation? The result is shown above.", abort=True, err=True)
    return last
