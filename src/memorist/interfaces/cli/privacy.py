"""Commands for privacy: settings, incognito sessions, and the erasure of a person."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any, Literal

import typer

from ...errors import InvalidInput
from .. import Blocking, BlockingScope, Call
from .app import command


@command("privacy status")
def privacy_status(mine: BlockingScope) -> object:
    """Show whether memory is on, in a space or in a --session.

    Example: memorist privacy status --session chat-7
    """
    return _status(mine)


@command("privacy set")
def privacy_set(
    call: Call,
    state: Literal["on", "off"] | None = None,
    *,
    incognito_default: bool | None = None,
    sharing: bool | None = None,
) -> object:
    """Change the privacy settings of a space.

    While memory is off you can still read, edit, forget and save explicitly.

    Args:
        state: <[on|off]> Memory on or off.
        incognito_default: Start sessions incognito.
        sharing: Let your other spaces recall what is tagged share:SPACE.

    Example: memorist privacy set off
    """
    if (state, incognito_default, sharing) == (None, None, None):
        raise typer.BadParameter("Nothing to set: pass on, off, --incognito-default or --sharing")
    with call.mine() as mine:
        mine.privacy.set(
            memory_enabled=None if state is None else state == "on",
            incognito_default=incognito_default,
            sharing=sharing,
            actor=mine.scope.user,
        )
        return _status(mine)


@command("privacy incognito")
def incognito(call: Call, action: Literal["start", "end"]) -> object:
    """Start or end incognito mode of a --session: nothing is stored or recalled in it.

    Args:
        action: <start|end>

    Example: memorist privacy incognito start --session chat-7
    """
    if call.session is None:
        raise typer.BadParameter("Missing --session NAME")
    with call.mine() as mine:
        privacy = mine.privacy
        privacy.start_incognito() if action == "start" else privacy.end_incognito()
        return _status(mine)


@command("privacy erase")
def erase(call: Call, memory: Blocking, *, yes: bool = False) -> object:
    """Erase everything of a user for good.

    That is every space, API key, checkpoint, spooled write and line of the journal. It asks for
    confirmation; without a terminal it needs --yes. Backups and exports are files of yours: delete
    them yourself.

    Args:
        yes: Do not ask.

    Example: memorist privacy erase --user ana
    """
    scope = call.scope(memory).scope
    spaces = len(memory.scopes(user=scope.user, tenant=scope.tenant))
    if not yes:
        if call.json or not sys.stdin.isatty():
            raise InvalidInput(
                f"Nothing was erased of {scope.user!r} (spaces: {spaces}), because there is no "
                "terminal to confirm it. Pass --yes"
            )
        question = f"Erase everything of {scope.user!r} for good (spaces: {spaces})?"
        typer.confirm(question, abort=True, err=True)
    done = memory.erase_user(scope.user, tenant=scope.tenant)
    text = f"erased  memories: {done.memories}, spaces: {len(done.spaces)}, keys: {done.keys}"
    return done, text


def _status(mine: BlockingScope) -> tuple[dict[str, Any], str]:
    reason = mine.privacy.disabled_reason()
    settings = asdict(mine.privacy.settings())
    return {**settings, "on": not reason, "reason": reason}, reason or "memory is on"
