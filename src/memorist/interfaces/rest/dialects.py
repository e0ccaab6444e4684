"""Routes with the paths and bodies of other systems: the Clanker dialect, and Mem0.

Clients of the Mem0 platform work after changing the host and the key. A Mem0 `user_id` is a space
of the key's user: Mem0 users are isolated from each other, and the key still decides whose memory
is used. The other ids are labels. Ids of memories returned here contain the space.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from ...dialects.clanker import Clanker
from ...errors import InvalidInput, NotAllowed, NotFound
from ...scoped import ScopedClient
from ...types import GUILD, STATES, Filter, Memory, Page
from . import bodies
from .auth import ClientAccess
from .bodies import Count, Id, Name, OptionalName, Share, Text, Word, whole
from .request import Admin, AuthenticatedRoute, Reader, Rememberer, Writer, declare

routes = APIRouter(route_class=AuthenticatedRoute)
Json = dict[str, Any]
_LABELS = {"agent_id": "agent", "run_id": "run", "app_id": "channel"}
_SUPPORTED = (
    "Filters are user_id, agent_id, run_id and app_id, or AND of these: "
    "OR, NOT and other conditions are not supported"
)


async def _require_operator(access: Admin) -> ClientAccess:
    """Return the access of a caller who may read about all users."""
    caller = access.caller
    if caller.tenant != access.client.settings.tenant or caller.space is not None:
        raise NotAllowed("This needs a key of the server's own tenant that is not bound to a space")
    return access


async def _require_guild_reader(access: Reader) -> ClientAccess:
    """Return the access of the guild user or of an operator."""
    if access.caller.user != GUILD:
        access.caller.require("admin")
    if access.caller.tenant != access.client.settings.tenant:
        raise NotAllowed("The guilds of this server belong to another tenant")
    return access


GuildReader = Annotated[ClientAccess, Depends(_require_guild_reader)]
Operator = Annotated[ClientAccess, Depends(_require_operator)]


@routes.get("/api/memory")
async def snapshot(access: Operator) -> bodies.MarkdownSnapshot:
    """Return the Markdown snapshot about all users, as last written."""
    markdown = await access.client.snapshot(refresh=False)
    return bodies.MarkdownSnapshot(markdown=markdown)


@routes.post("/api/memory/refresh")
async def refresh(access: Operator) -> bodies.RefreshedSnapshot:
    """Regenerate the Markdown snapshot about all users."""
    markdown = await access.client.snapshot()
    return bodies.RefreshedSnapshot(ok=True, markdown=markdown)


@routes.get("/api/memory/search", name="search")
async def search_guild(
    access: GuildReader,
    query: Annotated[bodies.GuildQuery, Query()],
) -> bodies.GuildFacts:
    """Search the durable facts of a guild, about any subject. Empty without `q` or `guildId`."""
    bound = access.caller.space
    guild = query.guildId or ""
    if bound not in (None, guild):
        raise NotAllowed(f"This key is only for the guild {bound!r}")
    text = query.q.strip()
    facts = bodies.GuildFacts(
        results=[],
        queryText=text,
        guildId=guild,
        channelId=query.channelId,
        limit=0,
    )
    if guild and text:
        rank = Clanker(access.client).rank_durable_facts
        found = await rank(guild, text, query.channelId, query.limit)
        facts.limit = found.query.limit
        facts.results = list(map(bodies.GuildFact.of, found.hits))
    return facts


class Mem0Names(BaseModel):
    """Whose memories. Routes for all memories require at least one."""

    user_id: OptionalName = None
    agent_id: OptionalName = None
    run_id: OptionalName = None
    app_id: OptionalName = None


class Mem0Condition(Mem0Names, extra="forbid", strict=True):
    """Whose memories. Unsupported conditions are rejected, not ignored."""

    @model_validator(mode="before")
    @classmethod
    def _reject_unsupported(cls, given: Any) -> Any:
        if isinstance(given, dict) and not given.keys() <= cls.model_fields.keys():
            raise PydanticCustomError("condition", _SUPPORTED)
        return given


class Mem0Filters(Mem0Condition):
    """Whose memories: flat, or as conditions that must all be met."""

    AND: list[Mem0Condition] = []


class Mem0Body(BaseModel, strict=True):
    """A body. Unknown fields are ignored, because other client versions may send more."""

    filters: Mem0Filters | None = None


class Mem0Message(BaseModel, strict=True):
    """One message."""

    role: Name = "user"
    content: Text
    name: OptionalName = None


class Mem0Add(Mem0Names, Mem0Body):
    """Messages to remember, and whose they are: here, or in `filters`."""

    messages: Annotated[list[Mem0Message], Field(min_length=1, max_length=1000)]
    metadata: Json | None = None
    timestamp: Annotated[int, Field(ge=0, lt=2**33), whole] | None = None


class Mem0List(Mem0Body):
    """Which memories to list."""

    categories: list[Word] | None = None

    def where(self, mine: ScopedClient) -> Filter:
        """Return the filter for memories in a scope."""
        categories = tuple(self.categories or ())
        return Filter(labels=mine.labels, categories=categories)


class Mem0Search(Mem0List):
    """What to search for."""

    query: str
    top_k: Count = 10
    threshold: Share | None = None
    rerank: bool | None = None


class Mem0Update(BaseModel, strict=True):
    """The new text of a memory."""

    text: Text


def find_scope(access: ClientAccess, *given: Mem0Names | None) -> ScopedClient:
    """Return the scope that a request names. Raises InvalidInput if its names contradict."""
    found: dict[str, str] = {}
    for each in given:
        for part in (each, *getattr(each, "AND", ())):
            for name in Mem0Names.model_fields:
                value = getattr(part, name, None)
                if value and found.setdefault(name, value) != value:
                    raise InvalidInput(f"`{name}` has several values: send one request for each")
    space = found.get("user_id")
    labels = {label: found.get(name) for name, label in _LABELS.items()}
    return access.caller.scope(access.client, space, **labels)


def find_memory(access: ClientAccess, id: str) -> tuple[ScopedClient, str]:
    """Return the scope and the id of a memory from its external id. Raises NotFound."""
    memory_id, _, encoded = id.partition("~")
    space = None
    if encoded:
        padding = "=" * (-len(encoded) % 4)
        try:
            space = base64.urlsafe_b64decode(encoded + padding).decode()
        except ValueError as error:
            raise NotFound(f"No memory with id {id!r}") from error
    return access.caller.scope(access.client, space), memory_id


def external_id(access: ClientAccess, memory_id: str, space: str) -> str:
    """Return the id of a memory with its space, unless that is the default space."""
    if space == access.client.settings.space:
        return memory_id
    encoded = base64.urlsafe_b64encode(space.encode()).decode()
    return f"{memory_id}~{encoded.rstrip('=')}"


def to_item(access: ClientAccess, memory: Memory) -> Json:
    """Return a memory in the format of Mem0."""
    space = memory.scope.space
    labels = {name: getattr(memory.labels, label) for name, label in _LABELS.items()}
    metadata = {}
    for tag in memory.tags:
        name, is_pair, value = tag.partition("=")
        if is_pair:
            metadata[name] = value
    return {
        "id": external_id(access, memory.id, space),
        "memory": memory.text,
        "user_id": space,
        **labels,
        "metadata": metadata,
        "categories": [memory.category] if memory.category else [],
        "created_at": memory.created_at.isoformat(),
        "updated_at": memory.updated_at.isoformat(),
    }


@routes.get("/v1/ping/")
async def ping(access: Reader) -> dict[str, str | None]:
    """Check an API key."""
    return {
        "status": "ok",
        "org_id": access.caller.tenant,
        "project_id": access.caller.space or "default",
        "user_email": None,
    }


@routes.post("/v3/memories/add/")
async def add(access: Rememberer, body: Mem0Add) -> Json:
    """Remember messages. Metadata is stored as tags, in lower case."""
    mine = find_scope(access, body.filters, body)
    at = None
    if body.timestamp is not None:
        at = datetime.fromtimestamp(body.timestamp, UTC)
    messages = [{**each.model_dump(), "at": at} for each in body.messages]
    metadata = body.metadata or {}
    tags = [f"{name}={value}" for name, value in metadata.items()]
    receipt = await mine.remember(messages, tags=tags)
    results = []
    for outcome in receipt.outcomes:
        is_new = outcome.status == "created" and outcome.supersedes is None
        event = "ADD" if is_new else "UPDATE"
        for id in outcome.ids:
            external = external_id(access, id, mine.scope.space)
            results.append({"id": external, "event": event})
    return {"results": results}


@routes.post("/v3/memories/search/")
async def search(access: Reader, body: Mem0Search) -> dict[str, list[Json]]:
    """Search memories."""
    mine = find_scope(access, body.filters)
    answer = await mine.recall(
        body.query,
        limit=body.top_k,
        rerank=body.rerank,
        where=body.where(mine),
    )
    results = []
    for hit in answer:
        if hit.relevance >= (body.threshold or 0.0):
            item = to_item(access, hit.memory)
            results.append({**item, "score": hit.relevance})
    return {"results": results}


@routes.post("/v3/memories/")
async def get_all(
    request: Request,
    access: Reader,
    body: Mem0List,
    page: Annotated[int, Query(ge=1, le=1000)] = 1,
    page_size: Annotated[int, Query(ge=1, le=100)] = 100,
) -> Json:
    """List memories, newest first, page by page."""
    mine = find_scope(access, body.filters)
    where = body.where(mine)
    found = await mine.list(where, limit=page_size)
    for _ in range(1, page):
        if found.cursor is None:
            found = Page(memories=())
            break
        found = await mine.list(where, limit=page_size, cursor=found.cursor)
    rows = await access.client.ctx.store.rows_where(mine.scope, where)
    link = f"{request.url.path}?page={{}}&page_size={page_size}"
    return {
        "count": len(rows),
        "next": link.format(page + 1) if found.cursor else None,
        "previous": link.format(page - 1) if page > 1 else None,
        "results": [to_item(access, memory) for memory in found],
    }


@routes.get("/v1/memories/{id}/", responses=declare(404))
async def get(id: Id, access: Reader) -> Json:
    """Return one memory."""
    mine, memory_id = find_memory(access, id)
    return to_item(access, await mine.get(memory_id))


@routes.put("/v1/memories/{id}/", responses=declare(404))
async def update(id: Id, access: Writer, body: Mem0Update) -> dict[str, str]:
    """Change the text of a memory."""
    mine, memory_id = find_memory(access, id)
    await mine.edit(memory_id, body.text, actor=access.caller.user)
    return {"id": id, "message": "Memory updated successfully!"}


@routes.delete("/v1/memories/{id}/", responses=declare(404))
async def delete(id: Id, access: Writer) -> dict[str, str]:
    """Forget a memory."""
    mine, memory_id = find_memory(access, id)
    await mine.forget(memory_id, actor=access.caller.user)
    return {"message": "Memory deleted successfully!"}


@routes.delete("/v1/memories/")
async def delete_all(access: Writer, names: Annotated[Mem0Names, Query()]) -> dict[str, str]:
    """Forget all memories of a user, agent, run or app."""
    if not any(value for _, value in names):
        raise InvalidInput(f"Name at least one of {', '.join(Mem0Names.model_fields)}")
    await forget_all(find_scope(access, names))
    return {"message": "Memories deleted successfully!"}


@routes.delete("/v2/entities/user/{name}/")
async def delete_entity(name: Name, access: Writer) -> dict[str, str]:
    """Forget all memories of a user."""
    await forget_all(access.caller.scope(access.client, name))
    return {"message": "Entity deleted successfully!"}


async def forget_all(mine: ScopedClient) -> None:
    """Forget all memories with the labels of a scope, as of now."""
    now = mine.ctx.clock()
    where = Filter(states=STATES, labels=mine.labels, created_before=now)
    await mine.forget_where(where=where, dry_run=False, actor=mine.scope.user)


@routes.get("/v1/memories/{id}/history/")
async def history(id: Id, access: Reader) -> list[Json]:
    """List the history of a memory, oldest first."""
    mine, memory_id = find_memory(access, id)
    entries = await mine.history(memory_id)
    old_refs = filter(None, (entry.old_ref for entry in entries))
    versions = [memory_id, *old_refs]
    stored = await mine.ctx.store.get(mine.scope, versions)
    texts = {memory.id: memory.text for memory in stored}
    events: list[Json] = []
    new = texts.get(memory_id)
    for entry in entries:  # newest first
        old = None if entry.event == "ADD" else new
        if entry.old_ref:
            old = texts.get(entry.old_ref)
        at = entry.at.isoformat()
        events.append(
            {
                "id": entry.id,
                "memory_id": id,
                "event": entry.event,
                "old_memory": old,
                "new_memory": new,
                "created_at": at,
                "updated_at": at,
            }
        )
        new = old
    return events[::-1]


@routes.get("/v1/entities/")
async def entities(access: Reader) -> Json:
    """List all users (the spaces of the key's user) that have memories."""
    caller = access.caller
    found = []
    for space in await caller.spaces(access.client):
        counts = await caller.scope(access.client, space).stats()
        entity = {"id": space, "name": space, "type": "user"}
        found.append({**entity, "total_memories": counts["memories"]})
    return {
        "count": len(found),
        "next": None,
        "previous": None,
        "results": found,
    }
