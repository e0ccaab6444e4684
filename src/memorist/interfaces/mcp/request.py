"""Who asks over this protocol, and about whose memory. The engine is opened when it is first needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

if TYPE_CHECKING:
    from ...client import Client
    from ...scoped import ScopedClient
    from ..rest.auth import Caller

    Request = ServerRequestContext[Any, Any]
    Opening = Callable[[AsyncExitStack], Awaitable[Client]]
    Knowing = Callable[[Client, Request], Caller]

LONGEST_NAME = 60  # characters of what a client calls itself
ASKS_IN_ANSWERS = (
    "2026-07-28"  # from this revision on, a question to the person is an answer to the request
)

_now: ContextVar[tuple[Door, Request]] = ContextVar("memorist_mcp_request")


class Door:
    """The way from a request to the memory it is about."""

    def __init__(self, opening: Opening, knowing: Knowing, *, session: str | None = None) -> None:
        self.knowing, self.session = knowing, session
        self._opening, self._opened, self._lock = opening, AsyncExitStack(), asyncio.Lock()
        self._engine: Client | None = None

    async def engine(self) -> Client:
        """The engine, opened once. Raises as opening does, and tries again the next time."""
        async with self._lock:
            if self._engine is None:
                self._engine = await self._opening(self._opened)
            return self._engine

    @asynccontextmanager
    async def lifespan(self, _: object) -> AsyncIterator[None]:
        """For the length of a server; what was opened is closed at its end."""
        async with self._opened:
            yield

    async def note(self, ctx: Request, call_next: CallNext) -> HandlerResult:
        """Let what runs under a request find it."""
        token = _now.set((self, ctx))
        try:
            return await call_next(ctx)
        finally:
            _now.reset(token)


class Asking:
    """One request: whose it is, and what it is about."""

    def __init__(
        self, engine: Client, caller: Caller, request: Request, session: str | None
    ) -> None:
        self._engine, self._caller, self._request, self._session = engine, caller, request, session

    @property
    def agent(self) -> str | None:
        """The agent whose allowlist holds, if there is one."""
        named = self._caller.agent
        return named if named in self._engine.ctx.allowlists.allowlists else None

    def mine(self, *, role: str | None = None) -> ScopedClient:
        """The memory that is asked about; `role` is who speaks, if it is not the person."""
        named = getattr(self._request.request, "query_params", {}).get("space")
        return self._caller.scope(self._engine, named, session=self._session, role=role)

    @property
    def actor(self) -> str:
        """Under which name changes stand in the history: the agent's, or what the client calls itself."""
        params = self._request.session.client_params
        named = self._caller.agent or (params.client_info.name if params else "")
        return " ".join(named.split())[:LONGEST_NAME] or "mcp"


async def asking(right: str) -> Asking:
    """Who asks now. Raises NotAllowed without that right, and as opening the memory does."""
    door, request = _now.get()
    engine = await door.engine()
    caller = door.knowing(engine, request)
    caller.require(right)
    return Asking(engine, caller, request, door.session)


def can_ask() -> bool:
    """Whether the client can put a question to the person."""
    _, request = _now.get()
    session, able = request.session, request.session.client_capabilities
    form = able.elicitation if able else None
    has_form = form is not None and (form.form is not None or form.url is None)
    return has_form and (session.can_send_request or request.protocol_version >= ASKS_IN_ANSWERS)
