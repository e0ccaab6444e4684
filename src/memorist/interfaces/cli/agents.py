"""Commands for agents and their hosts: the MCP server, hooks, and what agents ask."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from dataclasses import asdict, replace
from shlex import quote
from typing import Annotated, Any, Literal, get_args

import typer

from ..call import Call
from ..mcp import require_mcp
from ..render import plain
from ..verbs import SAMPLE
from . import lazy, output
from .app import command, report
from .memories import Categories, Question
from .table import memory_id
from .transfer import standard_input

AGENTS = "Agents"
Hosts = Literal["claude-code", "codex", "cursor", "claude-desktop"]


@command(
    "mcp",
    AGENTS,
    example="install claude-code --hooks",
    creates=True,
    action="<[install]> Add this server to a host.",
    agent="<NAME> Answer as this agent, restricted by its allowlist.",
    project="Use the name of the current folder as the space.",
    hooks="With install: also add hooks, for claude-code.",
    yes="With install: write without asking.",
    dry_run="With install: only show the change.",
    host=f"<[HOST]> {', '.join(get_args(Hosts))}.",
)
def mcp(
    call: Call,
    action: Literal["install"] | None = None,
    host: Hosts | None = None,
    agent: str | None = None,
    project: bool = False,
    hooks: bool = False,
    yes: bool = False,
    dry_run: bool = False,
) -> None:
    """Serve MCP on stdin and stdout, or add the server to the configuration of a host."""
    if action is not None:
        if host is None:
            raise typer.BadParameter(f"Which host? {', '.join(get_args(Hosts))}")
        _install(call, host, agent, project, hooks, yes, dry_run)
        return
    gc.disable()  # the loaded modules stay; collecting garbage costs a tenth of the start
    with require_mcp():
        import anyio

        server = lazy.mcp_server
    gc.enable()
    gc.freeze()
    space = call.space or (lazy.hooks.project(os.getcwd()) if project else None)
    anyio.run(lambda: server.serve_stdio(replace(call, space=space), agent=agent))


def _install(
    call: Call, host: Hosts, agent: str | None, project: bool, hooks: bool, yes: bool, dry_run: bool
) -> None:
    program = lazy.mcp_install.program()
    args = [*program[1:], "mcp"]
    if agent:
        args += ["--agent", agent]
    if project:
        args.append("--project")
    entry: dict[str, Any] = {"command": program[0], "args": args}
    environment = _environment(call)
    if environment:
        entry["env"] = environment
    variables = [f"{name}={quote(value)}" for name, value in environment.items()]
    hook_command = " ".join([*variables, *map(quote, program), "hook"])
    changes = lazy.mcp_install.plan_changes(host, entry, hook_command if hooks else None)
    needed = [change for change in changes if change.is_needed]
    for change in needed:
        output.line(change.diff())
    if not needed:
        output.note(f"Memorist is already configured in {host}.")
        return
    if dry_run:
        output.note("Nothing was written.")
        return
    if not yes and not (sys.stdin.isatty() and typer.confirm("Write this?", err=True)):
        output.note("Nothing was written. --yes writes it.")
        return
    for change in needed:
        backup = change.write()
        saved = f"; the previous file is {backup}" if backup else ""
        output.note(f"Wrote {change.path}{saved}")
    output.note(f"Restart {host} to use it.")


def _environment(call: Call) -> dict[str, str]:
    """Return the settings that hold here, for the configuration of a host: all but secrets."""
    names = []
    for name, field in lazy.settings.Settings.model_fields.items():
        if "Secret" not in str(field.annotation):
            names.append(name)
    found = {}
    for name in (*names, "config"):
        value = getattr(call, name, None) if name in ("db", "user", "space", "tenant") else None
        value = value or os.environ.get(f"MEMORIST_{name.upper()}")
        if value:
            found[f"MEMORIST_{name.upper()}"] = str(value)
    return found


Moments = Literal["session-start", "prompt", "stop", "pre-compact", "before", "after"]


@command(
    "hook",
    AGENTS,
    example='before "Where shall we eat tonight?"',
    creates=True,
    when="<session-start|prompt|stop|pre-compact|before|after>",
    text="<[TEXT]> For before and after: the message; - reads stdin.",
    reply="<TEXT> For after: the reply.",
)
def hook(
    call: Call,
    when: Moments,
    text: str | None = None,
    reply: str | None = None,
) -> None:
    """Print context before a turn of an agent, or store the messages after it.

    session-start, prompt, stop and pre-compact are called by hosts of coding agents, with JSON on
    stdin. They never fail and are limited in time.
    """
    if when not in ("before", "after"):
        _run_host_hook(call, when)
        return
    if text is None:
        raise typer.BadParameter("Missing TEXT, or - for stdin")
    content = standard_input() if text == "-" else text
    with call.mine() as mine:
        hooks = lazy.milton.BlockingHooks(mine)
        if when == "after":
            output.result(hooks.after(content, reply), json=call.json)
            return
        context = hooks.before(content)
    output.as_json({"context": context}) if call.json else print(context)


def _run_host_hook(call: Call, when: str) -> None:
    """Answer within limits of time and size. Errors go to stderr, and the host continues."""
    hooks = lazy.hooks
    answers: list[str] = []

    def work() -> None:
        try:
            given = sys.stdin.buffer.read(hooks.MAX_INPUT + 1)[: hooks.MAX_INPUT]
            answers.append(hooks.answer(when, call, given.decode("utf-8", "replace")))
        except Exception as error:
            report(error, as_json=call.json)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(hooks.SECONDS)
    if thread.is_alive():
        print("memorist: timed out; continuing without memory", file=sys.stderr, flush=True)
        os._exit(0)
    print(*filter(None, answers), end="")


@command(
    "agent query",
    example='"what is left to do?" --agent planner --category tasks',
    top_k="<N> Maximum number of memories.",
    budget="<TOKENS> Token budget.",
    threshold="<0..1> Minimum similarity.",
    filter="<NAME=VALUE> Such as importance_min=3 or run_id=r1; can be repeated.",
    full="Print everything about each memory, as JSON.",
)
def query(
    call: Call,
    question: Question,
    agent: Annotated[
        str, typer.Option(metavar="NAME", help="Who asks. Its allowlist decides what it reads.")
    ],
    category: Categories = None,
    top_k: int = 3,
    budget: int = 512,
    threshold: float | None = None,
    filter: list[str] | None = None,
    full: bool = False,
) -> None:
    """Ask as an agent. Categories that its allowlist does not name are refused."""
    filters: dict[str, Any] = {}
    for each in filter or ():
        name, is_pair, value = each.partition("=")
        if not is_pair:
            raise typer.BadParameter(f"{each!r} is not a filter: write NAME=VALUE")
        try:
            filters[name] = json.loads(value)  # numbers, true and false
        except ValueError:
            filters[name] = value
    with call.mine() as mine:
        found = mine.query(
            question,
            agent=agent,
            categories=category,
            filters=filters,
            top_k=top_k,
            return_="full" if full else "bullets",
            budget_tokens=budget,
            threshold=threshold,
        )
    if call.json or full:
        output.as_json(found)
        return
    for item in found:
        output.line(f"{item['id']}  {plain(item['text'])}")


@command(
    "agent feedback",
    example=f'{SAMPLE} --reply "Tea, as always."',
    creates=True,
    recalled="<ID...> What was recalled for a turn.",
    reply="<TEXT> The reply.",
    used="<ID> Instead of --reply: an id that was used; repeatable.",
)
def feedback(
    call: Call,
    recalled: list[str],
    reply: str | None = None,
    used: list[str] | None = None,
) -> None:
    """Report whether recalled memories were used in a reply, to measure how often recall helps."""
    with call.mine() as mine:
        ids = [memory_id(mine, id) for id in recalled]
        chosen = [memory_id(mine, id) for id in used] if used else None
        if chosen is None and not reply:
            chosen = []
        found = mine.feedback(ids, reply=reply, used=chosen)
    if call.json:
        output.as_json(found)
        return
    for id, how in found.items():
        output.line(f"{id}  {how}")
    if not found:
        output.note("None of them was used, as far as is known.")


@command(
    "agent say",
    example='"what do you remember about tea?"',
    creates=True,
    text="<TEXT> The message.",
    about="<ID> What was last talked about; can be repeated.",
)
def say(
    call: Call,
    text: str,
    about: list[str] | None = None,
) -> None:
    """Run a chat command: "forget that", "pin this", "turn memory off", "start incognito"."""
    with call.mine() as mine:
        ids = [memory_id(mine, id) for id in about or ()]
        reply = mine.command(text, about=ids)
    if call.json:
        output.as_json(None if reply is None else asdict(reply))
    elif reply is None:
        output.note("Not a command: nothing was done.")
    else:
        for line in reply.say.splitlines():
            output.line(plain(line))
