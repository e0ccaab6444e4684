"""Commands for agents and their hosts: the MCP server, hooks, and what agents ask."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
from dataclasses import replace
from typing import Any, Literal, get_args

import typer

from ...errors import Misconfigured
from .. import plain
from ..call import Call, load
from . import output
from .app import Words, command, report
from .files import read_text
from .table import memory_id

Hosts = Literal["claude-code", "codex", "cursor", "claude-desktop"]
Moments = Literal["session-start", "prompt", "stop", "pre-compact", "before", "after"]


@command("mcp", "Agents", creates=True)
def mcp(
    call: Call,
    action: Literal["install"] | None = None,
    host: Hosts | None = None,
    *,
    agent: str | None = None,
    project: bool = False,
    hooks: bool = False,
    yes: bool = False,
    dry_run: bool = False,
) -> None:
    """Serve MCP on stdin and stdout, or add the server to the configuration of a host.

    Args:
        action: <[install]> Add this server to a host.
        agent: <NAME> Answer as this agent, restricted by its allowlist.
        project: Use the name of the current folder as the space.
        hooks: With install: also add hooks, for claude-code.
        yes: With install: write without asking.
        dry_run: With install: only show the change.
        host: <[HOST]> claude-code, codex, cursor, claude-desktop.

    Example: memorist mcp install claude-code --hooks
    """
    if action is None:
        _serve(call, agent, project)
        return
    if host is None:
        raise typer.BadParameter(f"Which host? {', '.join(get_args(Hosts))}")
    options = [*(["--agent", agent] if agent else []), *(["--project"] if project else [])]
    changes = load("interfaces.mcp.install").plan_changes(host, call, options, hooks=hooks)
    for change in changes:
        output.line(change.diff())
    if not changes:
        output.note(f"Memorist is already configured in {host}.")
    elif dry_run:
        output.note("Nothing was written.")
    elif not yes and not (sys.stdin.isatty() and typer.confirm("Write this?", err=True)):
        output.note("Nothing was written. --yes writes it.")
    else:
        for change in changes:
            backup = change.write()
            saved = f"; the previous file is {backup}" if backup else ""
            output.note(f"Wrote {change.path}{saved}")
        output.note(f"Restart {host} to use it.")


def _serve(call: Call, agent: str | None, project: bool) -> None:
    gc.disable()  # the loaded modules stay; collecting garbage costs a tenth of the start
    try:
        import anyio

        server = load("interfaces.mcp.server")
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "starlette"):
            raise
        raise Misconfigured(
            'MCP support is not installed. Run: pip install "memorist[mcp]"'
        ) from error
    gc.enable()
    gc.freeze()
    if project and not call.space:
        call = replace(call, space=load("interfaces.hooks").project(os.getcwd()))
    anyio.run(lambda: server.serve_stdio(call, agent=agent))


@command("hook", "Agents", creates=True)
def hook(call: Call, when: Moments, text: str | None = None, *, reply: str | None = None) -> object:
    """Print context before a turn of an agent, or store the messages after it.

    session-start, prompt, stop and pre-compact are called by hosts of coding agents, with JSON on
    stdin. They never fail and are limited in time.

    Args:
        when: <session-start|prompt|stop|pre-compact|before|after>
        text: <[TEXT]> For before and after: the message; - reads stdin.
        reply: <TEXT> For after: the reply.

    Example: memorist hook before "Where shall we eat tonight?"
    """
    if when not in ("before", "after"):
        run_host_hook(call, when)
        return None
    if text is None:
        raise typer.BadParameter("Missing TEXT, or - for stdin")
    content = read_text(text)
    with call.mine() as mine:
        hooks = load("sync").blocking(load("dialects.milton").Hooks, mine)
        if when == "after":
            return hooks.after(content, reply)
        context = hooks.before(content)
    output.as_json({"context": context}) if call.json else print(context)
    return None


def run_host_hook(call: Call, when: str) -> None:
    """Answer within limits of time and size. Errors go to stderr, and the host continues."""
    hooks = load("interfaces.hooks")
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


@command("agent query")
def query(
    call: Call,
    question: str,
    *,
    agent: str,
    category: Words = None,
    top_k: int = 3,
    budget: int = 512,
    threshold: float | None = None,
    filter: Words = None,
    full: bool = False,
) -> object:
    """Ask as an agent. Categories that its allowlist does not name are refused.

    Args:
        agent: <NAME> Who asks. Its allowlist decides what it reads.
        top_k: <N> Maximum number of memories.
        threshold: <0..1> Minimum similarity.
        filter: <NAME=VALUE> Such as importance_min=3 or run_id=r1; can be repeated.
        full: Print everything about each memory, as JSON.

    Example: memorist agent query "what is left to do?" --agent planner --category tasks
    """
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
    if full:
        output.as_json(found)
        return None
    return found, "\n".join(f"{item['id']}  {plain(item['text'])}" for item in found)


@command("agent feedback", creates=True)
def feedback(
    call: Call, recalled: list[str], *, reply: str | None = None, used: Words = None
) -> object:
    """Report whether recalled memories were used in a reply, to measure how often recall helps.

    Args:
        recalled: <ID...> What was recalled for a turn.
        reply: <TEXT> The reply.
        used: <ID> Instead of --reply: an id that was used; repeatable.

    Example: memorist agent feedback 019a3c5e-7ddf-7926-adf6-688e0fc76dd8 --reply "Tea, as always."
    """
    with call.mine() as mine:
        ids = [memory_id(mine, id) for id in recalled]
        chosen = None
        if used or not reply:
            chosen = [memory_id(mine, id) for id in used or ()]
        found = mine.feedback(ids, reply=reply, used=chosen)
    if not found and not call.json:
        output.note("None of them was used, as far as is known.")
    return found, "\n".join(f"{id}  {how}" for id, how in found.items())


@command("agent say", creates=True)
def say(call: Call, text: str, *, about: Words = None) -> object:
    """Run a chat command: "forget that", "pin this", "turn memory off", "start incognito".

    Args:
        text: <TEXT> The message.
        about: <ID> What was last talked about; can be repeated.

    Example: memorist agent say "what do you remember about tea?"
    """
    with call.mine() as mine:
        ids = [memory_id(mine, id) for id in about or ()]
        reply = mine.command(text, about=ids)
    if reply is None and not call.json:
        output.note("Not a command: nothing was done.")
    said = reply.say if reply else ""
    return reply, "\n".join(map(plain, said.splitlines()))
