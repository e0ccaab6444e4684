"""Commands for privacy: memory on and off, incognito sessions, withdrawn consent."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

import typer

from ..call import Call
from . import output
from .app import command

if TYPE_CHECKING:
    from ...sync import BlockingScope


@command("privacy status", example="--session chat-7", creates=True)
def status(call: Call) -> None:
    """Show whether memory is on, in a space or in a --session."""
    with call.mine() as mine:
        _show(call, mine)


@command(
    "privacy set",
    example="off",
    creates=True,
    state="<[on|off]> Memory on or off.",
    incognito_default="Start sessions incognito.",
    sharing="Let your other spaces recall what is tagged share:SPACE.",
)
def set_(
    call: Call,
    state: Literal["on", "off"] | None = None,
    incognito_default: bool | None = None,
    sharing: bool | None = None,
) -> None:
    """Change the privacy settings of a space.

    While memory is off you can still look, edit, forget, and save on purpose.
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
        _show(call, mine)


@command(
    "privacy incognito",
    example="start --session chat-7",
    creates=True,
    action="<start|end>",
)
def incognito(
    call: Call,
    action: Literal["start", "end"],
) -> None:
    """Start or end incognito mode of a --session: nothing is stored or recalled in it."""
    if call.session is None:
        raise typer.BadParameter("Which session? Pass --session NAME")
    with call.mine() as mine:
        if action == "start":
            mine.privacy.start_incognito()
        else:
            mine.privacy.end_incognito()
        _show(call, mine)


def _show(call: Call, mine: BlockingScope) -> None:
    reason = mine.privacy.disabled_reason()
    status = {**asdict(mine.privacy.settings()), "on": not reason, "reason": reason}
    output.either(call.json, status, reason or "memory is on")


@command(
    "consent withdraw",
    example="city",
    field="<FIELD> Name of the field.",
)
def withdraw(
    call: Call,
    field: str,
) -> None:
    """Erase a field about you, its proposals and all its previous values."""
    with call.mine() as mine:
        erased = mine.consent.withdraw(field, actor=mine.scope.user)
    output.either(call.json, {"withdrawn": erased}, f"{erased} values of {field} erased")
