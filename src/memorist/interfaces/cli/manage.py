"""Commands that edit, forget and undo, and those for privacy and consent."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal

import typer

from ...errors import InvalidInput
from ...types import STATES, Filter
from .. import Call, load
from . import output
from .app import Words, command, complete_id, memory_id
from .files import read_text

if TYPE_CHECKING:
    from ...sync import BlockingScope


@command("edit", "Change")
def edit(
    call: Call,
    id: str,
    text: str | None = None,
    *,
    summary: str | None = None,
    category: str | None = None,
    tag: Words = None,
    importance: float | None = None,
) -> object:
    """Edit a memory. Its id stays, and the previous version stays readable.

    Args:
        text: <[TEXT]> New text; - reads stdin.
        summary: <TEXT> New summary, at most 280 characters.
        category: <NAME> New category.
        tag: <TAG> New tags; can be repeated.
        importance: <0..1> New importance.

    Example: memorist edit 019a3c5e-7ddf-7926-adf6-688e0fc76dd8 "I moved to Porto in May."
    """
    changes: dict[str, Any] = {"summary": summary, "category": category, "tags": tag}
    changes |= {"text": text and read_text(text), "importance": importance}
    if all(given is None for given in changes.values()):
        raise typer.BadParameter(
            "Nothing to change: give a new TEXT, --summary, --category, --tag or --importance"
        )
    with call.mine() as mine:
        return mine.edit(memory_id(mine, id), actor=mine.scope.user, **changes)


@command("forget", "Change")
def forget(
    call: Call,
    id: str | None = None,
    *,
    query: str | None = None,
    category: Words = None,
    tag: Words = None,
    dry_run: bool = False,
    reason: str = "",
    keep_days: float = 0,
    never_again: bool = False,
    yes: bool = False,
) -> None:
    """Forget memories for good, with what was derived from them alone. --keep-days only hides them.

    It lists what it found and asks. Without a terminal, --query, --category and --tag need --yes.

    Args:
        id: <[ID]> Id, or its first characters.
        query: <TEXT> Memories that this question finds.
        category: <NAME> Memories of this category.
        tag: <TAG> Memories with this tag.
        dry_run: Only list what would be forgotten.
        reason: <TEXT> Reason, for the history.
        never_again: Never store it again automatically.
        yes: Do not ask.
        keep_days: <DAYS> Only hide it for that many days.

    Example: memorist forget --query "my old address" --dry-run
    """
    has_terminal = sys.stdin.isatty() and sys.stderr.isatty() and not call.json
    is_confirmed = dry_run or yes or keep_days > 0
    with call.mine() as mine:
        if id is not None:
            ids: tuple[str, ...] = (mine.get(memory_id(mine, id)).id,)
        else:
            where = Filter(categories=tuple(category or ()), tags=tuple(tag or ()))
            ids = mine.forget_where(query, where=where).ids
            if ids and not is_confirmed and not has_terminal:
                raise InvalidInput(
                    f"Nothing was forgotten: {len(ids)} found, but no terminal to confirm. "
                    "Look with --dry-run, then forget with --yes"
                )
        asks = has_terminal and not is_confirmed
        if asks or (dry_run and not call.json):
            output.show([mine.get(each) for each in ids])
        if asks:
            typer.confirm("Forget this for good?", abort=True, err=True)
        options: dict[str, Any] = {
            "actor": mine.scope.user,
            "reason": reason,
            "keep_days": keep_days,
            "never_again": never_again,
        }
        if not ids:
            found = load("manage.forget").Forgotten(dry_run=dry_run)
        elif len(ids) == 1 and not dry_run:
            found = mine.forget(ids[0], **options)
        else:
            where = Filter(ids=ids, states=STATES)
            found = mine.forget_where(where=where, dry_run=dry_run, **options)
    text = f"{'would forget' if dry_run else 'forgotten'}  {id or f'{len(ids)} memories'}"
    if keep_days and not dry_run:
        text += f"  `memorist restore` brings it back for {keep_days:g} days"
    output.result(({**asdict(found), "keep_days": keep_days}, text), json=call.json)
    if found.derived and not call.json:
        output.note(f"{len(found.derived)} more are derived from this alone.")
    if found.flagged and not call.json:
        output.note(f"{len(found.flagged)} more stay, but lose a source.")


@command("undo", "Change")
def undo(call: Call, operation: str | None = None, *, dry_run: bool = False) -> object:
    """Undo an operation, or a --session. The history shows this, and it can itself be undone.

    Args:
        operation: <[OPERATION]> Operation in `memorist history`.
        dry_run: Only show the result.

    Example: memorist undo --session chat-7 --dry-run
    """
    with call.mine() as mine:
        session = call.session
        if operation:
            known = [str(entry.meta.get("operation", "")) for entry in mine.history(limit=10_000)]
            operation, session = complete_id(operation, known), None
        done = mine.undo(operation, session=session, dry_run=dry_run, actor=mine.scope.user)
    if not call.json:
        output.show(done.memories)
    return done, f"{'would undo' if dry_run else 'undone'}  {' '.join(done.operations)}"


@command("privacy status", creates=True)
def privacy_status(call: Call) -> object:
    """Show whether memory is on, in a space or in a --session.

    Example: memorist privacy status --session chat-7
    """
    with call.mine() as mine:
        return _status(mine)


@command("privacy set", creates=True)
def privacy_set(
    call: Call,
    state: Literal["on", "off"] | None = None,
    *,
    incognito_default: bool | None = None,
    sharing: bool | None = None,
) -> object:
    """Change the privacy settings of a space.

    While memory is off you can still look, edit, forget, and save on purpose.

    Args:
        state: <[on|off]> Memory on or off.
        incognito_default: Start sessions incognito.
        sharing: Let your other spaces recall what is tagged share:SPACE.

    Example: memorist privacy set off
    """
    if (state, incognito_default, sharing) == (None, None, None):
        raise typer.BadParameter("Nothing to set: on, off, --incognito-default or --sharing")
    with call.mine() as mine:
        mine.privacy.set(
            memory_enabled=None if state is None else state == "on",
            incognito_default=incognito_default,
            sharing=sharing,
            actor=mine.scope.user,
        )
        return _status(mine)


@command("privacy incognito", creates=True)
def incognito(call: Call, action: Literal["start", "end"]) -> object:
    """Start or end incognito mode of a --session: nothing is stored or recalled in it.

    Args:
        action: <start|end>

    Example: memorist privacy incognito start --session chat-7
    """
    if call.session is None:
        raise typer.BadParameter("Which session? Pass --session NAME")
    with call.mine() as mine:
        privacy = mine.privacy
        privacy.start_incognito() if action == "start" else privacy.end_incognito()
        return _status(mine)


def _status(mine: BlockingScope) -> tuple[dict[str, Any], str]:
    reason = mine.privacy.disabled_reason()
    settings = asdict(mine.privacy.settings())
    return {**settings, "on": not reason, "reason": reason}, reason or "memory is on"


@command("consent withdraw")
def withdraw(call: Call, field: str) -> object:
    """Erase a field about you, its proposals and all its previous values.

    Args:
        field: <FIELD> Name of the field.

    Example: memorist consent withdraw city
    """
    with call.mine() as mine:
        erased = mine.consent.withdraw(field, actor=mine.scope.user)
    return {"withdrawn": erased}, f"{erased} values of {field} erased"
