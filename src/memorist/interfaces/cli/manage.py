"""Commands that edit, forget and undo, and the history."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import typer

from ...errors import InvalidInput
from ...results import Forgotten
from ...types import STATES, Filter
from ..call import Call
from ..verbs import BROWSE, CHANGE, SAMPLE
from . import output
from .app import command
from .memories import Id
from .table import complete_id, memory_id
from .transfer import standard_input


@command(
    "edit",
    CHANGE,
    example=f'{SAMPLE} "I moved to Porto in May."',
    text="<[TEXT]> New text; - reads stdin.",
    summary="<TEXT> New summary, at most 280 characters.",
    category="<NAME> New category.",
    tag="<TAG> New tags; can be repeated.",
    importance="<0..1> New importance.",
)
def edit(
    call: Call,
    id: Id,
    text: str | None = None,
    summary: str | None = None,
    category: str | None = None,
    tag: list[str] | None = None,
    importance: float | None = None,
) -> None:
    """Edit a memory. Its id stays, and the previous version stays readable."""
    if all(given is None for given in (text, summary, category, tag, importance)):
        raise typer.BadParameter(
            "Nothing to change: give a new TEXT, --summary, --category, --tag or --importance"
        )
    content = standard_input() if text == "-" else text
    with call.mine() as mine:
        changed = mine.edit(
            memory_id(mine, id),
            content,
            summary=summary,
            category=category,
            tags=tag,
            importance=importance,
            actor=mine.scope.user,
        )
    output.result(changed, json=call.json)


@command(
    "forget",
    CHANGE,
    example='--query "my old address" --dry-run',
    id="<[ID]> Id, or its first characters.",
    query="<TEXT> Memories that this question finds.",
    category="<NAME> Memories of this category.",
    tag="<TAG> Memories with this tag.",
    dry_run="Only list what would be forgotten.",
    reason="<TEXT> Reason, for the history.",
    never_again="Never store it again automatically.",
    yes="Do not ask.",
    keep_days="<DAYS> Only hide it for that many days.",
)
def forget(
    call: Call,
    id: str | None = None,
    query: str | None = None,
    category: list[str] | None = None,
    tag: list[str] | None = None,
    dry_run: bool = False,
    reason: str = "",
    keep_days: float = 0,
    never_again: bool = False,
    yes: bool = False,
) -> None:
    """Forget memories for good, with what was derived from them alone. --keep-days only hides them.

    It lists what it found and asks. Without a terminal, --query, --category and --tag need --yes.
    """
    has_terminal = sys.stdin.isatty() and sys.stderr.isatty()
    is_confirmed = dry_run or yes or keep_days > 0
    with call.mine() as mine:
        if id is not None:
            ids: tuple[str, ...] = (mine.get(memory_id(mine, id)).id,)
        else:
            where = Filter(categories=tuple(category or ()), tags=tuple(tag or ()))
            ids = mine.forget_where(query, where=where).ids
            if ids and not is_confirmed and (call.json or not has_terminal):
                raise InvalidInput(
                    f"Nothing was forgotten: {len(ids)} found, but no terminal to confirm. "
                    "Look with --dry-run, then forget with --yes"
                )
        asks = has_terminal and not (is_confirmed or call.json)
        if asks or (dry_run and not call.json):
            output.show([mine.get(each) for each in ids])
        if asks:
            typer.confirm("Forget this for good?", abort=True, err=True)
        options: dict[str, Any] = {
            "reason": reason,
            "keep_days": keep_days,
            "never_again": never_again,
        }
        actor = mine.scope.user
        if not ids:
            found = Forgotten(dry_run=dry_run)
        elif len(ids) == 1 and not dry_run:
            found = mine.forget(ids[0], actor=actor, **options)
        else:
            where = Filter(ids=ids, states=STATES)
            found = mine.forget_where(where=where, dry_run=dry_run, actor=actor, **options)
    if call.json:
        output.as_json({**asdict(found), "keep_days": keep_days})
        return
    done = "would forget" if dry_run else "forgotten"
    until = ""
    if keep_days and not dry_run:
        until = f"  `memorist restore` brings it back for {keep_days:g} days"
    output.line(f"{done}  {id or f'{len(ids)} memories'}{until}")
    if found.derived:
        output.note(f"{len(found.derived)} more are derived from this alone.")
    if found.flagged:
        output.note(f"{len(found.flagged)} more stay, but lose a source.")


@command(
    "undo",
    CHANGE,
    example="--session chat-7 --dry-run",
    operation="<[OPERATION]> Operation in `memorist history`.",
    dry_run="Only show the result.",
)
def undo(
    call: Call,
    operation: str | None = None,
    dry_run: bool = False,
) -> None:
    """Undo an operation, or a --session. The history shows this, and it can itself be undone."""
    with call.mine() as mine:
        session = call.session
        if operation:
            known = [str(entry.meta.get("operation", "")) for entry in mine.history(limit=10_000)]
            operation, session = complete_id(operation, known), None
        done = mine.undo(operation, session=session, dry_run=dry_run, actor=mine.scope.user)
    if call.json:
        output.as_json(done)
        return
    output.show(done.memories)
    output.line(f"{'would undo' if dry_run else 'undone'}  {' '.join(done.operations)}")


@command(
    "history",
    BROWSE,
    example="--limit 20",
    id="<[ID]> Id, or its first characters.",
    limit="<N> Maximum number of entries.",
)
def history(
    call: Call,
    id: str | None = None,
    limit: int = 100,
) -> None:
    """Show the history of a memory or of all, newest first. With --json, one entry per line."""
    with call.mine() as mine:
        entries = mine.history(None if id is None else memory_id(mine, id), limit=limit)
        if call.json:
            output.result(entries, json=True)
            return
        ids = tuple({entry.memory_id for entry in entries})
        texts: dict[str, str] = {}
        for start in range(0, len(ids), 1000):
            where = Filter(ids=ids[start : start + 1000], states=STATES)
            texts |= {memory.id: memory.text for memory in mine.list(where, limit=1000)}
    output.history(entries, texts)
