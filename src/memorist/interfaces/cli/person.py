"""The commands by which a person decides whether anything is remembered, and what may be known of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .app import Call, command

if TYPE_CHECKING:
    from ...results import Proposal
    from ...sync import BlockingScope

PRIVACY = "Privacy"


@command(PRIVACY, example="memorist memory off", writes=True)
def memory(
    call: Call,
    state: Annotated[
        Literal["on", "off"] | None,
        typer.Argument(metavar="[on|off]", help="Without it, only say.", show_default=False),
    ] = None,
    incognito_default: Annotated[
        bool | None,
        typer.Option(
            "--incognito-default/--no-incognito-default", help="Begin sessions incognito."
        ),
    ] = None,
    sharing: Annotated[
        bool | None,
        typer.Option(
            "--sharing/--no-sharing",
            help="Let your other spaces recall what is tagged share:SPACE.",
        ),
    ] = None,
) -> None:
    """Turn memory on or off in a space. While it is off you can still look, correct, forget, and save on purpose."""
    with call.mine() as mine:
        if (state, incognito_default, sharing) != (None, None, None):
            on = None if state is None else state == "on"
            mine.privacy.set(
                memory_enabled=on,
                incognito_default=incognito_default,
                sharing=sharing,
                actor=mine.scope.user,
            )
        _state(call, mine)


@command(PRIVACY, example="memorist incognito start --session chat-7", writes=True)
def incognito(
    call: Call,
    action: Annotated[
        Literal["start", "end", "status"],
        typer.Argument(metavar="start|end|status", show_default=False),
    ],
) -> None:
    """Keep nothing of a session and recall nothing in it, until it ends. Name it with --session."""
    if call.session is None:
        raise typer.BadParameter("Say which session: --session NAME")
    with call.mine() as mine:
        if action != "status":
            (mine.privacy.start_incognito if action == "start" else mine.privacy.end_incognito)()
        _state(call, mine)


def _state(call: Call, mine: BlockingScope) -> None:
    from . import output

    why, settings = mine.privacy.disabled_reason(), mine.privacy.settings()
    if call.json:
        output.as_json({**asdict(settings), "on": not why, "reason": why})
    else:
        output.line(why or "memory is on")


@command(PRIVACY, example="memorist consent approve 019a3c5e-7ddf-7926-adf6-688e0fc76dd8")
def consent(
    call: Call,
    action: Annotated[
        Literal["list", "approve", "deny", "about", "tell", "withdraw"],
        typer.Argument(metavar="list|approve|deny|about|tell|withdraw", show_default=False),
    ],
    what: Annotated[
        str | None,
        typer.Argument(metavar="[ID|FIELD]", help="A proposal, or a field.", show_default=False),
    ] = None,
    value: Annotated[
        str | None,
        typer.Argument(metavar="[VALUE]", help="What to tell of it.", show_default=False),
    ] = None,
) -> None:
    """Decide what may be known of you: your name, pronouns, city, language, tone and goals.

    list: what waits for your word. approve, deny ID: decide it. about: what is in force. tell FIELD VALUE: say it
    yourself. withdraw FIELD: erase it, and all it held before.
    """
    with call.mine() as mine:
        if action == "list":
            _waiting(call, mine)
        elif action == "about":
            _about(call, mine)
        elif what is None or (action == "tell") != (value is not None):
            raise typer.BadParameter(
                "Say what: approve ID, deny ID, tell FIELD VALUE, or withdraw FIELD"
            )
        elif action == "withdraw":
            _withdrawn(call, mine, what)
        elif value is not None:
            _told(call, mine.consent.set(what, value, actor=mine.scope.user))
        else:
            _told(
                call,
                (mine.consent.approve if action == "approve" else mine.consent.deny)(
                    what, actor=mine.scope.user
                ),
            )


def _about(call: Call, mine: BlockingScope) -> None:
    from . import output

    about = mine.consent.about()
    if call.json:
        output.as_json(about)
        return
    for field, value in about.items():
        output.line(
            f"{field}: {output.plain(value if isinstance(value, str) else '; '.join(value))}"
        )


def _withdrawn(call: Call, mine: BlockingScope, field: str) -> None:
    from . import output

    gone = mine.consent.withdraw(field, actor=mine.scope.user)
    output.as_json({"withdrawn": gone}) if call.json else output.line(
        f"{gone} values of {field} are erased"
    )


def _waiting(call: Call, mine: BlockingScope) -> None:
    from . import output

    waiting = mine.consent.list()
    for each in waiting:
        _told(call, each)
    if not (waiting or call.json):
        output.note("Nothing waits for your word.")


def _told(call: Call, proposal: Proposal) -> None:
    from . import output

    if call.json:
        output.as_line(proposal)
        return
    state = proposal.decided or f"waits until {proposal.lapses_at:%Y-%m-%d %H:%M} UTC"
    output.line(f"{proposal.id}  {proposal.field}: {output.plain(proposal.value)}  {state}")


@command(PRIVACY, example='memorist say "what do you remember about tea?"', writes=True)
def say(
    call: Call,
    text: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="As you would say it in a chat.", show_default=False),
    ],
    about: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="What was last spoken of; may be repeated."),
    ] = None,
) -> None:
    """Say something to the memory: "forget that", "pin this", "turn memory off", "start incognito for this chat"."""
    from . import output

    with call.mine() as mine:
        reply = mine.command(text, about=about or ())
    if call.json:
        output.as_json(None if reply is None else asdict(reply))
    elif reply is None:
        output.note("That is no command: nothing was done.")
    else:
        for line in reply.say.splitlines():
            output.line(output.plain(line))
