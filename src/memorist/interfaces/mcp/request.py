"""A tool call: its caller, the scope it may use, and what it returns.

The client is opened when it is first needed. Results are short texts, because models read them:
hosts show structured content instead of the text, if there is any. The texts of memories are
neutralized: they are data, never instructions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

from ... import aio
from ...client import Client
from ...retrieve import render
from ...scoped import ScopedClient
from ...types import Memory
from ..auth import Caller

Request = ServerRequestContext[Any, Any]
MAX_MEMORIES = 50  # in one result
MAX_NAME = 60  # characters of a client's name
# Since this revision, a question to the user is sent in the response to the request.
ELICITS_IN_RESPONSE = "2026-07-28"

_current: ContextVar[tuple[Backend, Request]] = ContextVar("memorist_mcp_request")


@dataclass
class Backend:
    """Opens the client, unless it is given, and authenticates requests."""

    authenticate: Callable[[Client, Request], Caller]
    opened: Client | None = None
    db: str | None = None
    session: str | None = None
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def client(self) -> Client:
        """Return the client, opened once. If opening fails, the next call tries again."""
        async with self.lock:
            if self.opened is None:
                self.opened = await self.stack.enter_async_context(aio.open(self.db))
            return self.opened

    @asynccontextmanager
    async def lifespan(self, _: object) -> AsyncIterator[None]:
        """Close what was opened when the server stops."""
        async with self.stack:
            yield

    async def set_current(self, ctx: Request, call_next: CallNext) -> HandlerResult:
        """Make a request available to the code that handles it, as middleware."""
        token = _current.set((self, ctx))
        try:
            return await call_next(ctx)
        finally:
            _current.reset(token)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One authorized request."""

    client: Client
    caller: Caller
    request: Request
    session: str | None

    @property
    def agent(self) -> str | None:
        """Return the calling agent, if it has an allowlist."""
        agent = self.caller.agent
        return agent if agent in self.client.ctx.allowlists.allowlists else None

    def scope(self, *, role: str | None = None, session: str | None = None) -> ScopedClient:
        """Open the scope of this call; `role` is the speaker, if it is not the user."""
        space = getattr(self.request.request, "query_params", {}).get("space")
        session = session or self.session
        return self.caller.scope(self.client, space, session=session, role=role)

    @property
    def actor(self) -> str:
        """Return the name for the history: the agent, or the name of the MCP client."""
        params = self.request.session.client_params
        name = self.caller.agent or (params.client_info.name if params else "")
        return " ".join(name.split())[:MAX_NAME] or "mcp"

    async def load_context(self, message: str, budget: int, session: str | None = None) -> str:
        """Return what to read before a message is answered."""
        scope = self.scope(session=session)
        found = await scope.context(message, agent=self.agent, budget=budget)
        lines = [found.prompt()] if found.prompt() else []
        lines += notes(found.confidence, found.legs)
        if found.cut:
            lines.append(f"{len(found.cut)} memories did not fit into the budget.")
        return "\n".join(lines)


def notes(confidence: float | None, legs: Mapping[str, str]) -> list[str]:
    """Return the confidence of an answer, and what is missing from it, as lines."""
    lines = []
    if confidence is not None:
        lines.append(f"Confidence: {min(confidence, 0.99):.2f}")  # it is never certain
    for leg, state in legs.items():
        if state != "ok":
            lines.append(state if leg == "memory" else f"{leg}: {state}")
    return lines


async def authorize(right: str) -> ToolCall:
    """Authorize the current request. Raises NotAllowed, and errors of opening the client."""
    backend, request = _current.get()
    client = await backend.client()
    caller = backend.authenticate(client, request)
    caller.require(right)
    return ToolCall(client, caller, request, backend.session)


def can_elicit() -> bool:
    """Return whether the MCP client can ask the user a question."""
    _, request = _current.get()
    session = request.session
    capabilities = session.client_capabilities
    form = capabilities.elicitation if capabilities else None
    if form is None or (form.form is None and form.url is not None):
        return False
    return session.can_send_request or request.protocol_version >= ELICITS_IN_RESPONSE


def memory_line(memory: Memory) -> str:
    """Return a memory as a line for a model: its id, category, day, and text with its speaker."""
    day = (memory.occurred_at or memory.created_at).date().isoformat()
    facts = [memory.category or memory.kind, day]
    if memory.state != "active":
        facts.append(memory.state)
    if memory.pinned:
        facts.append("pinned")
    return format_line(memory.id, facts, render.credit(memory), render.concise(memory))


def format_line(id: str, facts: Sequence[str], who: str, text: str) -> str:
    """Return a line for a model. Nothing in it can be taken for another part of it."""
    label = render.safe(", ".join(facts)).translate(render.IN_NAMES)
    return f"- {id} [{label}] {render.prefix(who, text)}"
