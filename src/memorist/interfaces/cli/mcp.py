"""The commands for agents and the programs they live in: a server for MCP hosts, and hooks."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from shlex import quote
from typing import Annotated, Any, Literal, get_args

import typer

from .app import Call, command, told
from .memories import ASK

AGENTS = "For agents"
Hosts = Literal["claude-code", "codex", "cursor", "claude-desktop"]


@command(AGENTS, example="memorist mcp install claude-code --hooks", writes=True)
def mcp(
    call: Call,
    action: Annotated[
        Literal["install"] | None,
        typer.Argument(
            metavar="[install]", help="Tell a host about this server.", show_default=False
        ),
    ] = None,
    host: Annotated[
        Hosts | None,
        typer.Argument(metavar="[HOST]", help=f"{', '.join(get_args(Hosts))}.", show_default=False),
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Answer as this agent: it sees what its allowlist names."
        ),
    ] = None,
    project: Annotated[
        bool,
        typer.Option(
            "--project", help="The space is the name of the folder that it is started in."
        ),
    ] = False,
    hooks: Annotated[
        bool, typer.Option("--hooks", help="With install: also hooks, for claude-code.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="With install: write without asking.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With install: only show the change.")
    ] = False,
) -> None:
    """Serve MCP on stdin and stdout, or write that into the configuration of a host, after showing the change."""
    if action is None:
        _serve(call, agent, project)
    elif host is None:
        raise typer.BadParameter(f"Say which host: {', '.join(get_args(Hosts))}")
    else:
        _install(call, host, agent, project, hooks, yes, dry_run)


def _serve(call: Call, agent: str | None, project: bool) -> None:
    import gc

    gc.disable()  # what is loaded now stays: looking for garbage in it costs a tenth of the start
    from ..hooks import project as project_of
    from ..mcp import require_mcp

    with require_mcp():
        import anyio

        from ..mcp import server
    gc.enable()
    gc.freeze()
    named = call.space or (project_of(os.getcwd()) if project else None)
    anyio.run(lambda: server.serve_stdio(replace(call, space=named), agent=agent))


def _install(
    call: Call, host: Hosts, agent: str | None, project: bool, hooks: bool, yes: bool, dry_run: bool
) -> None:
    from ..mcp import install
    from . import output

    words = install.program()
    options = [*(("--agent", agent) if agent else ()), *(("--project",) if project else ())]
    env = _environment(call)
    entry: dict[str, Any] = {"command": words[0], "args": [*words[1:], "mcp", *options]}
    entry |= {"env": env} if env else {}
    shell = " ".join(
        [*(f"{name}={quote(value)}" for name, value in env.items()), *map(quote, words), "hook"]
    )
    made = install.plan_changes(host, entry, shell if hooks else None)
    needed = [change for change in made if change.is_needed]
    for change in needed:
        output.line(change.diff())
    if not needed:
        output.note(f"{host} knows Memorist already.")
    elif dry_run or not (yes or _agreed()):
        output.note("Nothing was written." + ("" if dry_run else " --yes writes it."))
    else:
        for change in needed:
            backup = change.write()
            output.note(
                f"Wrote {change.path}" + (f"; what was there is in {backup}" if backup else "")
            )
        output.note(f"Start {host} anew to use it.")


def _environment(call: Call) -> dict[str, str]:
    """What holds here and would not where a host starts it: the variables of settings, and what was said instead of
    them; no secrets, which a file of a host is not the place for."""
    from ...settings import Settings

    said = {
        name: str(value)
        for name in ("db", "user", "space", "tenant")
        if (value := getattr(call, name))
    }
    known = [
        name
        for name, field in Settings.model_fields.items()
        if "Secret" not in str(field.annotation)
    ]
    set_here = {
        name: value
        for name in (*known, "config")
        if (value := os.environ.get(f"MEMORIST_{name.upper()}"))
    }
    return {f"MEMORIST_{name.upper()}": value for name, value in {**set_here, **said}.items()}


def _agreed() -> bool:
    return sys.stdin.isatty() and typer.confirm("Write this?", err=True)


Moments = Literal["session-start", "prompt", "stop", "pre-compact", "before", "after"]


@command(ASK, example='memorist hook before "Where shall we eat tonight?"', writes=True)
def hook(
    call: Call,
    when: Annotated[
        Moments,
        typer.Argument(
            metavar="session-start|prompt|stop|pre-compact|before|after", show_default=False
        ),
    ],
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT]",
            help="For before and after: what was said; - reads stdin.",
            show_default=False,
        ),
    ] = None,
    reply: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What was answered, for `after`.")
    ] = None,
) -> None:
    """For the loop of an agent: before a turn, print what to put before the model; after it, keep what was said.

    The first four are for hosts of coding agents, which give JSON on stdin; they never fail and never take long.
    """
    if when in ("before", "after"):
        _around_a_turn(call, when, text, reply)
    else:
        _for_a_host(call, when)


def _around_a_turn(call: Call, when: str, text: str | None, reply: str | None) -> None:
    from ...dialects.milton import BlockingHooks
    from . import output
    from .files import standard_input

    if text is None:
        raise typer.BadParameter("Say what was said: TEXT, or - for stdin")
    said = standard_input() if text == "-" else text
    with call.mine() as mine:
        hooks = BlockingHooks(mine)
        done = hooks.before(said) if when == "before" else hooks.after(said, reply)
    if isinstance(done, str):
        output.as_json({"context": done}) if call.json else print(done)
    else:
        output.as_json(done) if call.json else output.receipt(done)


def _for_a_host(call: Call, when: Any) -> None:
    """Answer within bounds of time and size; whatever goes wrong is a note on stderr, and the host goes on."""
    import threading

    from .. import hooks

    answers: list[str] = []

    def work() -> None:
        try:
            given = sys.stdin.buffer.read(hooks.MOST_INPUT + 1)
            answers.append(
                hooks.answer(when, call, given[: hooks.MOST_INPUT].decode("utf-8", "replace"))
            )
        except Exception as error:
            told(error, as_json=call.json)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(hooks.SECONDS)
    if thread.is_alive():
        print(
            "memorist: the memory took too long; this went on without it",
            file=sys.stderr,
            flush=True,
        )
        os._exit(0)
    print(*filter(None, answers), end="")
