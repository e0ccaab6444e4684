"""Commands for the HTTP server and its API keys."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import memorist

from ... import telemetry
from ...errors import Misconfigured
from ..call import Call, login
from ..render import plain
from . import lazy, output
from .app import command
from .database import on_signals
from .table import complete_id

if TYPE_CHECKING:
    from ...storage.keys import Key

DRAIN_SECONDS = 10  # for requests in flight when the server stops


@command(
    "serve",
    "Server",
    example="--port 8765",
    creates=True,
    host="<ADDRESS> Address to listen on.",
    keys="Require an API key on localhost, too.",
    port="<0..65535> Port to listen on.",
    jobs="Also run background jobs.",
)
def serve(
    call: Call,
    host: str = "127.0.0.1",
    port: int = 8765,
    keys: bool = False,
    jobs: bool = True,
) -> None:
    """Serve REST, MCP and the web page over HTTP. Any address but localhost requires API keys."""
    asyncio.run(_serve(call, host, port, keys, jobs))


async def _serve(call: Call, host: str, port: int, needs_keys: bool, jobs: bool) -> None:
    try:
        import uvicorn

        create_app, auth = lazy.rest_app.create_app, lazy.rest_auth
    except ImportError as error:
        raise Misconfigured('The server needs an extra: pip install "memorist[server]"') from error
    async with memorist.aio.open(call.db, run_jobs=jobs) as memory:
        settings, local = memory.settings, None
        telemetry.configure_log(settings.log, memory.ctx.observers)
        if not needs_keys and auth.is_loopback(host):
            user = call.user or settings.user or login()
            local = auth.Caller(name="local", user=user, tenant=call.tenant or settings.tenant)
        elif settings.jwt_jwks is None:
            now = memory.ctx.clock()
            if not any(key.is_good(now) for key in await memory.keys()):
                raise Misconfigured(
                    f"Listening on {host} requires an API key: `memorist keys create NAME`"
                )
        config = uvicorn.Config(
            create_app(memory, local=local),
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


@command(
    "keys create",
    example="laptop --right read --expires 90",
    creates=True,
    name="<NAME> Name of the key.",
    agent="<NAME> Agent that the key is for.",
    right="<RIGHT> read, write, owner or admin; can be repeated. [read and write]",
    expires="<1..> Days until the key expires.",
)
def create(
    call: Call,
    name: str,
    agent: str | None = None,
    right: list[str] | None = None,
    expires: float | None = None,
) -> None:
    """Create an API key of --user for `memorist serve`, for one --space or for all."""
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
    output.either(call.json, {**asdict(key), "token": token}, token)
    output.note(f"Key {key.id} of {key.user}. It is shown only once: keep it safe.")


@command("keys list", creates=True)
def list_(call: Call) -> None:
    """List API keys."""
    with call.memory() as memory:
        found = memory.keys()
    if call.json:
        output.as_json([asdict(key) for key in found])
        return
    for key in found:
        words: list[Any] = [key.id, key.name, key.user]
        if key.space:
            words.append(f"space {key.space}")
        if key.agent:
            words.append(f"agent {key.agent}")
        output.line(plain("  ".join([*words, ", ".join(key.rights), _validity(key)])))


def _validity(key: Key) -> str:
    if key.revoked_at:
        return f"revoked {key.revoked_at:%Y-%m-%d %H:%M} UTC"
    if key.expires_at is None:
        return "does not expire"
    state = "until" if key.is_good(datetime.now(UTC)) else "expired"
    return f"{state} {key.expires_at:%Y-%m-%d %H:%M} UTC"


@command(
    "keys revoke",
    example="4f1a2b",
    creates=True,
    id="<ID> Id, or its first characters.",
)
def revoke(
    call: Call,
    id: str,
) -> None:
    """Revoke an API key."""
    with call.memory() as memory:
        known = memory.keys()
        key_id = complete_id(id, [key.id for key in known])
        memory.revoke_key(key_id)
    output.either(call.json, {"revoked": key_id}, f"{key_id} revoked")
