"""A tool call: its caller, the scope it may use, and what it returns.

The client is opened when it is first needed. Results are typed dictionaries with a schema. The
texts in them are neutralized: they are data, never instructions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from typing_extensions import TypedDict

from ... import aio
from ...client import Client
from ...retrieve import render
from ...scoped import ScopedClient
from ...types import NO_ANSWER, Filter, Memory
from ..rest.auth import Caller

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

    async def query(
        self,
        query: str,
        categories: list[str] | None,
        limit: int,
        budget: int,
        min_confidence: float | None,
    ) -> QueryResult:
        """Search memory; for an agent, what its allowlist names."""
        scope = self.scope()
        if self.agent is None:
            where = Filter(categories=tuple(categories or ()))
            recall = await scope.recall(
                query, limit=limit, budget=budget, where=where, min_confidence=min_confidence
            )
            notes = [NO_ANSWER] if recall.is_unanswered else []
            notes += [f"{leg}: {state}" for leg, state in recall.legs.items() if state != "ok"]
            found = list(map(memory_item, recall.memories))
            return QueryResult(memories=found, confidence=recall.confidence, note="; ".join(notes))
        rows = await scope.query(
            query,
            agent=self.agent,
            categories=categories,
            top_k=limit,
            budget_tokens=budget,
            return_="full",
        )
        result = QueryResult(memories=[], confidence=None, note="")
        if not rows:
            result["note"] = await scope.privacy.disabled_reason() or NO_ANSWER
        for row in rows:
            text = f"{row['text']}: {row['steps_text']}" if row["steps_text"] else row["text"]
            item = ToolMemory(
                id=row["id"],
                text=render.safe(text),
                category=row["category"],
                kind=row["kind"],
                told_by=row["told_by"],
                told_at=row["created_at"],
                pinned=row["pinned"],
            )
            result["memories"].append(item)
        return result

    async def load_context(
        self,
        message: str,
        budget: int,
        min_confidence: float | None = None,
        session: str | None = None,
        since: int | None = None,
    ) -> ContextResult:
        """Return what to read before a message is answered."""
        found = await self.scope(session=session).context(
            message,
            since=since,
            agent=self.agent,
            budget=budget,
            min_confidence=min_confidence,
        )
        states = {leg: state for leg, state in found.legs.items() if state != "ok"}
        notes = [state if leg == "memory" else f"{leg}: {state}" for leg, state in states.items()]
        if found.cut:
            notes.append(f"{len(found.cut)} memories did not fit into the budget")
        return ContextResult(
            context=found.prompt(),
            sources=[ContextSource(source=line.source, id=line.id or "") for line in found.lines],
            confidence=found.confidence,
            revision=found.revision,
            note="; ".join(notes),
        )


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


class ToolMemory(TypedDict):
    """A memory."""

    id: str
    text: str
    category: str
    kind: str
    told_by: str  # empty: the user
    told_at: str
    pinned: bool


class QueryResult(TypedDict):
    memories: list[ToolMemory]
    confidence: float | None  # probability that they contain the answer, if known
    note: str


class ContextSource(TypedDict):
    source: str  # change, profile, pinned, category, recalled or related
    id: str  # of the memory; empty for a field of the profile


class ContextResult(TypedDict):
    context: str
    sources: list[ContextSource]  # of the lines of the context, in order
    confidence: float | None  # probability that the context contains the answer, if known
    revision: int | None  # of the session, to pass as `since`
    note: str


class OutcomeItem(TypedDict):
    status: str
    ids: list[str]
    reason: str
    supersedes: str | None


class RememberResult(TypedDict):
    outcomes: list[OutcomeItem]


class ForgetResult(TypedDict):
    forgotten: list[str]
    would_forget: list[ToolMemory]
    note: str


class HistoryItem(TypedDict):
    event: str
    at: str
    by: str


class HistoryResult(TypedDict):
    memory: ToolMemory | None
    history: list[HistoryItem]
    rests_on: list[ToolMemory]
    said: list[str]


class ConflictItem(TypedDict):
    id: str
    newer: ToolMemory
    older: ToolMemory


class ConflictsResult(TypedDict):
    conflicts: list[ConflictItem]


class ProposalResult(TypedDict):
    field: str
    value: str
    status: str
    note: str


def memory_item(memory: Memory) -> ToolMemory:
    """Return a memory in the format of the tools."""
    return ToolMemory(
        id=memory.id,
        text=render.safe(render.concise(memory)),
        category=render.safe(memory.category or memory.kind),
        kind=memory.kind,
        told_by=render.credit(memory),
        told_at=(memory.occurred_at or memory.created_at).isoformat(),
        pinned=memory.pinned,
    )
