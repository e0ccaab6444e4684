"""Commands for the HTTP server and its API keys."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import memorist

from ... import telemetry
from ...errors import Misconfigured
from ..call import Call, load, login
from . import output
from .app import Words, command
from .database import on_signals
from .table import complete_id

DRAIN_SECONDS = 10  # for requests in flight when the server stops


@command("serve", "Server", creates=True)
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

        rest, auth = load("interfaces.rest.app"), load("interfaces.rest.auth")
    except ImportError as error:
        raise Misconfigured('The server needs an extra: pip install "memorist[server]"') from error

    async def run() -> None:
        async with memorist.aio.open(call.db, run_jobs=jobs) as memory:
            settings, local = memory.settings, None
            telemetry.configure_log(settings.log, memory.ctx.observers)
            if not keys and auth.is_loopback(host):
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
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
            address = f"[{host}]" if ":" in host else host
            message = f"Listening on http://{address}:{port}; Ctrl-C ends it."
            output.note(message) if settings.log == "off" else telemetry.log.info(message)
            server = uvicorn.Server(config)

            def stop() -> None:
                server.force_exit = server.should_exit  # at once, the second time
                server.should_exit = True

            on_signals(stop)
            # uvicorn's own handlers would end the process before the memory is closed.
            server.capture_signals = nullcontext  # type: ignore
            await server.serve()

    asyncio.run(run())


@command("keys create", creates=True)
def create(
    call: Call,
    name: str,
    *,
    agent: str | None = None,
    right: Words = None,
    expires: float | None = None,
) -> None:
    """Create an API key of --user for `memorist serve`, for one --space or for all.

    Args:
        name: <NAME> Name of the key.
        agent: <NAME> Agent that the key is for.
        right: <RIGHT> read, write, owner or admin; can be repeated. [read and write]
        expires: <1..> Days until the key expires.

    Example: memorist keys create laptop --right read --expires 90
    """
    with call.memory() as memory:
        key, token = memory.create_key(
            name,
            user=call.user or memory.settings.user or login(),
            tenant=call.tenant,
            space=call.space,
            agent=agent,
            rights=tuple(right or ("read", "write")),
            days=expires,
        )
    output.result(({**asdict(key), "token": token}, token), json=call.json)
    output.note(f"Key {key.id} of {key.user}. It is shown only once: keep it safe.")


@command("keys list", creates=True)
def list_(call: Call) -> object:
    """List API keys."""
    with call.memory() as memory:
        found = memory.keys()
    return found, found


@command("keys revoke", creates=True)
def revoke(call: Call, id: str) -> object:
    """Revoke an API key.

    Args:
        id: <ID> Id, or its first characters.

    Example: memorist keys revoke 4f1a2b
    """
    with call.memory() as memory:
        known: Any = memory.keys()
        key_id = complete_id(id, [key.id for key in known])
        memory.revoke_key(key_id)
    return {"revoked": key_id}, f"{key_id} revoked"
