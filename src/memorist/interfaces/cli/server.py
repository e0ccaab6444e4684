"""Commands for programs: the HTTP server and its keys, the MCP server, hooks, and agents."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from contextlib import nullcontext
from dataclasses import asdict, replace
from typing import Any, Literal, get_args

import typer

import memorist

from ... import telemetry
from ...errors import Misconfigured
from .. import Blocking, BlockingScope, Call, load, login, plain
from .app import Words, command, memory_id, read_metadata, read_text, report
from .database import announce, on_signals
from .output import as_json, line, note

DRAIN_SECONDS = 10  # for requests in flight when the server stops
KEEP_ALIVE_SECONDS = 75  # longer than clients keep an idle connection, so that they close it
SWITCH_SECONDS = 0.0002  # after which a thread that computes lets the event loop go on
NICENESS = 5  # of threads that run models: what waits for the event loop comes first
Hosts = Literal[
    "claude-code",
    "codex",
    "cursor",
    "claude-desktop",
    "vscode",
    "windsurf",
    "gemini-cli",
    "zed",
    "opencode",
]
Moments = Literal["session-start", "prompt", "stop", "pre-compact", "before", "after"]


@command("serve")
def serve(
    call: Call,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    keys: bool = False,
    jobs: bool = True,
) -> None:
    """Serve REST, MCP and the web page over HTTP. Any address but localhost requires API keys.

    Args:
        host: <ADDRESS> Address to listen on.
        keys: Require an API key on localhost, too.
        port: <0..65535> Port to listen on.
        jobs: Also run background jobs.

    Example: memorist serve --port 8765
    """
    try:
        import uvicorn

        rest = load("interfaces.rest.app")
        auth = load("interfaces.auth")
    except ImportError as error:
        raise Misconfigured(
            'The server is not installed. Run: pip install "memorist[server]"'
        ) from error

    async def run() -> None:
        async with memorist.aio.open(call.db, run_jobs=jobs) as memory:
            settings = memory.settings
            local = None
            telemetry.configure_log(settings.log, memory.ctx.observers)
            if not keys and load("interfaces.remote").is_loopback(host):
                user = call.user or settings.user or login()
                tenant = call.tenant or settings.tenant
                local = auth.Caller(name="local", user=user, tenant=tenant)
            elif settings.jwt_jwks is None:
                now = memory.ctx.clock()
                if not any(key.is_good(now) for key in await memory.keys()):
                    raise Misconfigured(
                        f"Listening on {host} requires an API key: `memorist keys create NAME`"
                    )
            config = uvicorn.Config(
                rest.create_app(memory, local=local),
                host=host,
                port=port,
                http=rest.DeadlineProtocol,
                ws="none",
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
            server = uvicorn.Server(config)
            begin = server.startup

            async def startup(**options: Any) -> None:
                await begin(**options)
                gc.collect()
                gc.freeze()  # a search for garbage stops all threads: it skips the program itself
                if server.started:
                    name, bound, *_ = server.servers[0].sockets[0].getsockname()
                    address = f"[{name}]" if ":" in name else name
                    announce(settings, f"Listening on http://{address}:{bound}")

            def stop() -> None:
                server.force_exit = server.should_exit  # a second signal stops at once
                server.should_exit = True

            on_signals(stop)
            # uvicorn's own handlers would end the process before the memory is closed.
            server.capture_signals = nullcontext  # type: ignore
            server.startup = startup  # type: ignore
            await server.serve()

    sys.setswitchinterval(SWITCH_SECONDS)
    load("providers").begin_thread = lower_priority
    asyncio.run(run())


def lower_priority() -> None:
    """Let the other threads of this process go first, if the system has priorities of threads."""
    if sys.platform == "linux":
        now = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), now + NICENESS)


@command("keys create")
def create(
    call: Call,
    memory: Blocking,
    name: str,
    *,
    agent: str | None = None,
    right: Words = None,
    expires: float | None = None,
) -> object:
    """Create an API key for `memorist serve`. It belongs to --user, in one --space or in all.

    Args:
        name: <NAME> Name of the key.
        agent: <NAME> Agent that the key is for.
        right: <RIGHT> read, write, owner, admin or service; can be repeated. [read and write]
        expires: <1..> Days until the key expires.

    Example: memorist keys create laptop --right read --expires 90
    """
    key, token = memory.create_key(
        name,
        user=call.user or memory.settings.user or login(),
        tenant=call.tenant,
        space=call.space,
        agent=agent,
        rights=tuple(right or ("read", "write")),
        days=expires,
    )
    note = f"Key {key.id} of {key.user}. It is shown only once: keep it safe."
    return {**asdict(key), "token": token}, token, [note]


@command("mcp")
def mcp(
    call: Call,
    action: Literal["install", "uninstall"] | None = None,
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
        action: <[install|uninstall]> Add this server to a host, or remove it.
        agent: <NAME> Answer as this agent, restricted by its allowlist.
        project: Use a space of the current folder, or the one that its file .memorist names.
        hooks: With install: also add hooks, for claude-code.
        yes: With install: write without asking.
        dry_run: With install: only show the change.
        host: <[HOST]> claude-code, codex, cursor, claude-desktop, vscode, windsurf, gemini-cli, zed,
            opencode.

    Example: memorist mcp install claude-code --hooks
    """
    if action is None:
        _serve(call, agent, project)
        return
    if host is None:
        raise typer.BadParameter(f"Missing HOST: choose one of {', '.join(get_args(Hosts))}")
    options = ["--agent", agent] if agent else []
    if project:
        options.append("--project")
    hosts = load("interfaces.hosts")
    remove = action == "uninstall"
    changes = hosts.plan_changes(host, call, options, hooks=hooks, remove=remove)
    for change in changes:
        line(change.diff())
    if not changes:
        note(f"Memorist is {'not' if remove else 'already'} configured in {host}.")
    elif dry_run:
        note("Nothing was written.")
    elif not yes and not (sys.stdin.isatty() and typer.confirm("Write this?", err=True)):
        note("Nothing was written. Use --yes to write without asking.")
    else:
        if not remove:
            hosts.check_server(call, options)
        for change in changes:
            backup = change.write()
            saved = f"; the previous file is {backup}" if backup else ""
            note(f"Wrote {change.path}{saved}")
        note(f"Restart {host} to {'stop using' if remove else 'use'} it.")


def _serve(call: Call, agent: str | None, project: bool) -> None:
    gc.disable()  # imported modules stay: collecting garbage takes 10 % of the startup time
    try:
        import anyio

        server = load("interfaces.mcp")
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("anyio", "mcp", "mcp_types", "starlette"):
            raise
        raise Misconfigured(
            'MCP support is not installed. Run: pip install "memorist[mcp]"'
        ) from error
    gc.enable()
    gc.freeze()
    if project and not call.space:
        folder = os.environ.get("CLAUDE_PROJECT_DIR") or os.getcwd()  # as the hooks do
        found = load("interfaces.hooks").find_project(folder)
        call = replace(call, space=found.space)
        if found.memory is not None:
            with call.mine() as mine:
                found.apply(mine)
    anyio.run(lambda: server.serve_stdio(call, agent=agent))


@command("hook")
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
        _run_host_hook(call, when)
        return None
    if text is None:
        raise typer.BadParameter("Missing TEXT, or - for stdin")
    content = read_text(text)
    with call.mine() as mine:
        hooks = load("sync").blocking(load("dialects.milton").Hooks, mine)
        if when == "after":
            return hooks.after(content, reply)
        context = hooks.before(content)
    as_json({"context": context}) if call.json else print(context)
    return None


def _run_host_hook(call: Call, when: str) -> None:
    """Run a hook with limits of time and input size. Errors go to stderr; the host continues."""
    hooks = load("interfaces.hooks")
    answers: list[str] = []

    def work() -> None:
        try:
            given = sys.stdin.buffer.read(hooks.MAX_INPUT)
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
    mine: BlockingScope,
    question: str,
    *,
    agent: str,
    category: Words = None,
    top_k: int = 3,
    budget: int = 512,
    threshold: float | None = None,
    since: int | None = None,
    filter: Words = None,
    full: bool = False,
) -> object:
    """Recall as an agent. Categories outside its allowlist are refused.

    Args:
        agent: <NAME> Agent that asks. Its allowlist decides what it can read.
        top_k: <N> Maximum number of memories.
        threshold: <0..1> Minimum similarity.
        since: <REVISION> Begin with what changed in the session after this revision.
        filter: <NAME=VALUE> Such as importance_min=3 or run_id=r1; can be repeated.
        full: Print everything about each memory, as JSON.

    Example: memorist agent query "what is left to do?" --agent planner --category tasks
    """
    found = mine.query(
        question,
        agent=agent,
        categories=category,
        filters=read_metadata(filter),
        top_k=top_k,
        return_="full" if full else "bullets",
        budget_tokens=budget,
        threshold=threshold,
        since=since,
    )
    if full:
        as_json(found)
        return None
    return found, "\n".join(f"{item['id']}  {plain(item['text'])}" for item in found)


@command("agent feedback")
def feedback(
    mine: BlockingScope,
    recalled: list[str],
    *,
    reply: str | None = None,
    used: Words = None,
    question: str | None = None,
) -> object:
    """Report whether recalled memories were used in a reply, to measure how often recall helps.

    Args:
        recalled: <ID...> Ids recalled for a turn.
        reply: <TEXT> The reply.
        used: <ID> Instead of --reply: an id that was used; can be repeated.
        question: <TEXT> The message that was answered; its words do not count as used.

    Example: memorist agent feedback 019a3c5e-7ddf-7926-adf6-688e0fc76dd8 --reply "Tea, as always."
    """
    ids = [memory_id(mine, id) for id in recalled]
    chosen = None
    if used or not reply:
        chosen = [memory_id(mine, id) for id in used or ()]
    found = mine.feedback(ids, reply=reply, used=chosen, question=question)
    return found, "\n".join(f"{id}  {how}" for id, how in found.items())
