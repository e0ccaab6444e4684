"""Routes with the paths and bodies of Mem0.

Clients of the Mem0 platform work after changing the host and the key. A Mem0 `user_id` is a space
of the key's user: Mem0 users are isolated from each other, and the key still decides whose memory
is used. The other ids are labels. Ids of memories returned here contain the space.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.exceptions import HTTPException

from ...errors import InvalidInput, NotFound
from ...scoped import ScopedClient
from ...types import STATES, Filter, Memory, Page
from .. import Json
from ..auth import ClientAccess
from . import AuthenticatedRoute, Reader, Rememberer, Writer, declare
from .bodies import Id, Name
from .mem0_bodies import (
    LABELS,
    Mem0Add,
    Mem0Batch,
    Mem0List,
    Mem0Names,
    Mem0Search,
    Mem0Update,
    end_of,
    read_filter,
)

routes = APIRouter(route_class=AuthenticatedRoute)
_MISSING = {  # paths of Mem0 that have no counterpart here, and what is missing
    "/v1/exports/{path:path}": "exports by a schema: use GET /v1/memory/export",
    "/v1/summary/": "summaries: use GET /v1/memory/summary",
    "/v1/feedback/": "feedback on one memory: use POST /v1/memory/feedback",
    "/v2/profiles/{path:path}": "profiles: use GET /v1/memory/about",
    "/v2/entities/{kind}/{path:path}": "entities other than users",
    "/api/v1/orgs/{path:path}": "organizations and projects: a key decides both",
    "/api/v1/webhooks/{path:path}": "webhooks",
}


def find_scope(access: ClientAccess, names: Mapping[str, str]) -> ScopedClient:
    """Return the scope that a request names."""
    labels = {label: names.get(name) for name, label in LABELS.items()}
    return access.caller.scope(access.client, names.get("user_id"), **labels)


def find_memories(access: ClientAccess, body: Mem0List) -> tuple[ScopedClient, Filter]:
    """Return the scope that a request names, and a filter of the memories in it."""
    names, where = body.read()
    mine = find_scope(access, names)
    return mine, replace(where, labels=mine.labels, unexpired_at=mine.ctx.clock())


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
    labels = {name: getattr(memory.labels, label) for name, label in LABELS.items()}
    pairs = [tag.split("=", 1) for tag in memory.tags if "=" in tag]  # version 0.1 stored tags
    ends = memory.expires_at
    return {
        "id": external_id(access, memory.id, space),
        "memory": memory.text,
        "user_id": space,
        **labels,
        "metadata": {**dict(pairs), **memory.metadata},
        "expiration_date": ends and (ends - timedelta(microseconds=1)).date().isoformat(),
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
    """Remember messages. The results have the memories that hold them now."""
    names: dict[str, str] = {}
    if read_filter(body.filters or {}, names) != Filter():
        raise InvalidInput("Filters for a new memory can only be ids, such as user_id")
    body.add_names(names)
    mine = find_scope(access, names)
    at = None
    if body.timestamp is not None:
        at = datetime.fromtimestamp(body.timestamp, UTC)
    messages = [{**each.model_dump(), "at": at} for each in body.messages]
    expires_at = end_of(body.expiration_date)
    receipt = await mine.remember(messages, metadata=body.metadata, expires_at=expires_at)
    stored = await mine.ctx.store.get(mine.scope, receipt.ids)
    texts = {memory.id: memory.text for memory in stored}
    results = []
    for outcome in receipt.outcomes:
        is_new = outcome.status == "created" and outcome.supersedes is None
        event = "ADD" if is_new else "UPDATE"
        for id in outcome.ids:
            external = external_id(access, id, mine.scope.space)
            results.append({"id": external, "memory": texts.get(id), "event": event})
    return {"results": results}


@routes.post("/v3/memories/search/")
async def search(access: Reader, body: Mem0Search) -> dict[str, list[Json]]:
    """Search memories."""
    mine, where = find_memories(access, body)
    answer = await mine.recall(body.query, limit=body.top_k, rerank=body.rerank, where=where)
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
    mine, where = find_memories(access, body)
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
    """Change the text, the metadata or the end of a memory."""
    mine, memory_id = find_memory(access, id)
    await mine.edit(memory_id, **body.changes(), actor=access.caller.user)
    return {"id": id, "message": "Memory updated successfully!"}


@routes.delete("/v1/memories/{id}/", responses=declare(404))
async def delete(id: Id, access: Writer) -> dict[str, str]:
    """Forget a memory."""
    mine, memory_id = find_memory(access, id)
    await mine.forget(memory_id, actor=access.caller.user)
    return {"message": "Memory deleted successfully!"}


@routes.put("/v1/batch/", responses=declare(404))
async def update_batch(access: Writer, body: Mem0Batch) -> dict[str, str]:
    """Change several memories. Those before one that fails stay changed."""
    for item in body.memories:
        mine, memory_id = find_memory(access, item.memory_id)
        await mine.edit(memory_id, **item.changes(), actor=access.caller.user)
    return {"message": f"Successfully updated {len(body.memories)} memories"}


@routes.delete("/v1/batch/", responses=declare(404))
async def delete_batch(access: Writer, body: Mem0Batch) -> dict[str, str]:
    """Forget several memories. Those before one that fails stay forgotten."""
    for item in body.memories:
        mine, memory_id = find_memory(access, item.memory_id)
        await mine.forget(memory_id, actor=access.caller.user)
    return {"message": f"Successfully deleted {len(body.memories)} memories"}


@routes.delete("/v1/memories/")
async def delete_all(access: Writer, names: Annotated[Mem0Names, Query()]) -> dict[str, str]:
    """Forget all memories of a user, agent, run or app."""
    found: dict[str, str] = {}
    names.add_names(found)
    if not found:
        raise InvalidInput(f"Name at least one of {', '.join(Mem0Names.model_fields)}")
    await forget_all(find_scope(access, found))
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


async def answer_missing(request: Request, what: str) -> Response:
    """Answer 501 at a path of Mem0 that has no counterpart here."""
    raise HTTPException(501, f"Memorist does not have Mem0's {what}")


for _path, _what in _MISSING.items():
    _answer = partial(answer_missing, what=_what)
    _methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    routes.add_route(_path, _answer, methods=_methods, include_in_schema=False)
