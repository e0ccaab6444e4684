"""The commands for doors that others come in by: the server, and the keys they show."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ...errors import Misconfigured
from .app import Call, command, login
from .cluster import on_signals

if TYPE_CHECKING:
    import uvicorn

    from ...results import Key

SERVER = "Server"
DRAIN_SECONDS = 10


@command(SERVER, example="memorist serve --port 8765", writes=True)
def serve(
    call: Call,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="On which port.")
    ] = 8765,
    keys: Annotated[
        bool, typer.Option("--keys", help="Let nobody in without a key, on this machine either.")
    ] = False,
    tend: Annotated[
        bool, typer.Option("--tend/--no-tend", help="Also do what is due in the background.")
    ] = True,
) -> None:
    """Serve the memory over HTTP until told to stop. Any address but this machine's own needs keys."""
    import asyncio

    asyncio.run(_serve(call, host, port, keys, tend))


async def _serve(call: Call, host: str, port: int, needs_keys: bool, tend: bool) -> None:
    import memorist

    from . import output

    try:
        import uvicorn

        from ...telemetry import logs
        from ..rest import app, auth, middleware
    except ImportError as error:
        raise Misconfigured(
            'The server needs other packages: pip install "memorist[server]"'
        ) from error
    async with memorist.aio.open(call.db, run_jobs=tend) as memory:
        settings, local = memory.settings, None
        logs.configure(settings.log, memory.ctx.observers)
        if not needs_keys and middleware.is_loopback(host):
            user = call.user or settings.user or login()
            local = auth.Caller(name="local", user=user, tenant=call.tenant or settings.tenant)
        elif (
            not any(key.is_good(memory.ctx.clock()) for key in await memory.keys())
            and settings.jwt_jwks is None
        ):
            raise Misconfigured(
                f"Nobody could come in at {host}: make a key with `memorist keys create NAME` first"
            )
        config = uvicorn.Config(
            app.create_app(memory, local=local),
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
        )
        told = f"Listening on http://{f'[{host}]' if ':' in host else host}:{port}; Ctrl-C ends it."
        output.note(told) if settings.log == "off" else logs.log.info(told)
        await _until_told(uvicorn.Server(config))


async def _until_told(server: uvicorn.Server) -> None:
    """Serve until SIGTERM or Ctrl-C, and finish what is under way; the second time, at once."""

    def stop() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    on_signals(stop)
    server.capture_signals = nullcontext  # type: ignore  # it would end the process before the memory is closed
    await server.serve()


@command(SERVER, example="memorist keys create laptop --right read --expires 90", writes=True)
def keys(
    call: Call,
    action: Annotated[
        Literal["create", "list", "revoke"],
        typer.Argument(metavar="create|list|revoke", show_default=False),
    ],
    what: Annotated[
        str | None,
        typer.Argument(metavar="[NAME|ID]", help="A new key's name, or a key.", show_default=False),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="As which agent it asks.")
    ] = None,
    right: Annotated[
        list[str] | None,
        typer.Option(
            "--right",
            metavar="RIGHT",
            help="read, write, owner or admin; can be repeated. [read and write]",
        ),
    ] = None,
    expires: Annotated[
        float | None,
        typer.Option("--expires", metavar="DAYS", min=1, help="For how many days it is good."),
    ] = None,
) -> None:
    """Make, list and revoke keys for `memorist serve`. Whoever shows one is --user, in --space or in every space."""
    from . import output

    if action != "list" and what is None:
        raise typer.BadParameter("Say which: create NAME, or revoke ID")
    with call.memory() as memory:
        if action == "list" or what is None:
            _listed(call, memory.keys())
        elif action == "revoke":
            memory.revoke_key(what)
            output.line(f"{what} lets nobody in any more") if not call.json else output.as_json(
                {"revoked": what}
            )
        else:
            user = call.user or memory.settings.user or login()
            key, token = memory.create_key(
                what,
                user=user,
                tenant=call.tenant,
                space=call.space,
                agent=agent,
                rights=tuple(right or ("read", "write")),
                days=expires,
            )
            output.as_json({**asdict(key), "token": token}) if call.json else output.line(token)
            output.note(f"Key {key.id} of {key.user}. It is shown this once: keep it safe.")


def _listed(call: Call, found: list[Key]) -> None:
    from . import output

    if call.json:
        output.as_json([asdict(key) for key in found])
        return
    for key in found:
        bound = "  ".join(
            f"{name} {output.plain(value)}"
            for name in ("space", "agent")
            if (value := getattr(key, name))
        )
        who = f"{output.plain(key.name)}  {output.plain(key.user)}"
        line = f"{key.id}  {who}  {bound}  {', '.join(key.rights)}  {_state(key)}"
        output.line(" ".join(line.split()))


def _state(key: Key) -> str:
    at = key.revoked_at or key.expires_at
    good = "until" if key.is_good(datetime.now(UTC)) else "expired"
    return (
        f"{'revoked' if key.revoked_at else good} {at:%Y-%m-%d %H:%M} UTC" if at else "without end"
    )
