"""The routes that clients of Mem0 call, so that they work by changing the host and the key.

Whom a client calls `user_id` is a space of whoever holds the key: its users are walled off from each other, and the key
still says whose memory it is. Other names are labels. An id that is given out here names its space, too.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from ...errors import InvalidInput, NotFound
from ...results import Entry, Page
from ...scoped import ScopedClient
from ...types import STATES, Filter, Labels, Memory, Scope
from .auth import Caller
from .bodies import Count, Id, Name, Share, Text, Word, engine_of, whole
from .entries import MISSING, Reader, Teller, Writer
from .route import Door

routes = APIRouter(route_class=Door)
_LABELS = {"agent_id": "agent", "run_id": "run", "app_id": "channel"}
_ONLY = (
    "Filters are user_id, agent_id, run_id and app_id, or AND of these: "
    "OR, NOT and other conditions are not supported"
)
_MOST = 1000  # pages that can be asked for by number


class Names(BaseModel):
    """Whose memories: one of these, where all are meant."""

    model_config = ConfigDict(extra="ignore")
    user_id: Name | None = None
    agent_id: Name | None = None
    run_id: Name | None = None
    app_id: Name | None = None


class Condition(Names):
    """Whose memories, and nothing that would be left out in silence."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _is_known(cls, given: Any) -> Any:
        if isinstance(given, dict) and not given.keys() <= cls.model_fields.keys():
            raise PydanticCustomError("condition", _ONLY)
        return given


class Filters(Condition):
    """Whose memories: flat, or as conditions that all hold."""

    AND: list[Condition] = []


class _Open(BaseModel):
    """A body that other versions of a client may say more in."""

    model_config = ConfigDict(extra="ignore", strict=True)
    filters: Filters | None = None


class Message(BaseModel):
    """One thing that was said."""

    model_config = ConfigDict(extra="ignore", strict=True)
    role: Name = "user"
    content: Text
    name: Name | None = None


class Add(Names, _Open):
    """What to remember, and whose it is: here, or in `filters`."""

    model_config = ConfigDict(extra="ignore", strict=True)
    messages: Annotated[list[Message], Field(min_length=1, max_length=1000)]
    metadata: dict[str, Any] | None = None
    timestamp: Annotated[int, Field(ge=0, lt=2**33), whole] | None = None


class Search(_Open):
    """What to look for."""

    query: str
    top_k: Count = 10
    threshold: Share | None = None
    rerank: bool | None = None
    categories: list[Word] | None = None


class GetAll(_Open):
    """Which memories to list."""

    categories: list[Word] | None = None


class Pages(BaseModel):
    """Which page of them."""

    model_config = ConfigDict(extra="ignore")
    page: Annotated[int, Field(ge=1, le=_MOST)] = 1
    page_size: Annotated[int, Field(ge=1, le=100)] = 100


class Update(BaseModel):
    """The new text of a memory."""

    model_config = ConfigDict(extra="ignore", strict=True)
    text: Text


def _named(*given: Names | None) -> Names:
    """All the names that a request gives, in whatever way. Raises InvalidInput if it contradicts itself."""
    found: dict[str, str] = {}
    for part in (part for each in given if each for part in (each, *getattr(each, "AND", ()))):
        for name in Names.model_fields:
            value = getattr(part, name)
            if value and found.setdefault(name, value) != value:
                raise InvalidInput(f"`{name}` has more than one value here: ask for each by itself")
    return Names(**found)


def _mine(request: Request, caller: Caller, names: Names) -> ScopedClient:
    labels = {label: getattr(names, name, None) for name, label in _LABELS.items()}
    return caller.scope(engine_of(request), names.user_id, **labels)


def _where(mine: ScopedClient, categories: list[str] | None = None) -> Filter:
    labels = Labels(agent=mine.labels.agent, run=mine.labels.run, channel=mine.labels.channel)
    return Filter(labels=labels, categories=tuple(categories or ()))


def _id(memory_id: str, scope: Scope, usual: str) -> str:
    named = (
        ""
        if scope.space == usual
        else "~" + base64.urlsafe_b64encode(scope.space.encode()).decode().rstrip("=")
    )
    return memory_id + named


def _of(request: Request, caller: Caller, id: str) -> tuple[ScopedClient, str]:
    """The memory that an id names, and where. Raises NotFound."""
    memory_id, _, space = id.partition("~")
    try:
        named = (
            base64.urlsafe_b64decode(space + "=" * (-len(space) % 4)).decode() if space else None
        )
    except ValueError as error:
        raise NotFound(f"No memory with id {id!r}") from error
    return caller.scope(engine_of(request), named), memory_id


def _item(memory: Memory, usual: str, score: float | None = None) -> dict[str, Any]:
    names = {name: getattr(memory.labels, label) for name, label in _LABELS.items()}
    return {
        "id": _id(memory.id, memory.scope, usual),
        "memory": memory.text,
        "user_id": memory.scope.space,
        **names,
        "metadata": dict(tag.split("=", 1) for tag in memory.tags if "=" in tag),
        "categories": [memory.category] if memory.category else [],
        "created_at": memory.created_at.isoformat(),
        "updated_at": memory.updated_at.isoformat(),
        **({} if score is None else {"score": score}),
    }


def _usual(request: Request) -> str:
    return engine_of(request).settings.space


@routes.get("/v1/ping/")
async def ping(caller: Reader) -> dict[str, str | None]:
    """Whether a key is good."""
    return {
        "status": "ok",
        "org_id": caller.tenant,
        "project_id": caller.space or "default",
        "user_email": None,
    }


@routes.post("/v3/memories/add/")
async def add(request: Request, caller: Teller, told: Add) -> dict[str, Any]:
    """Remember what was said; the metadata of a memory are kept as tags, in lower case."""
    mine = _mine(request, caller, _named(told.filters, told))
    at = None if told.timestamp is None else datetime.fromtimestamp(told.timestamp, UTC)
    said = [{**each.model_dump(), "at": at} for each in told.messages]
    receipt = await mine.remember(
        said, tags=[f"{name}={value}" for name, value in (told.metadata or {}).items()]
    )
    usual = _usual(request)
    results = []
    for each in receipt.outcomes:
        is_new = each.status == "created" and each.supersedes is None
        event = "ADD" if is_new else "UPDATE"
        results += [{"id": _id(id, mine.scope, usual), "event": event} for id in each.ids]
    return {"results": results}


@routes.post("/v3/memories/search/")
async def search(
    request: Request, caller: Reader, asked: Search
) -> dict[str, list[dict[str, Any]]]:
    """What is remembered that answers."""
    mine = _mine(request, caller, _named(asked.filters))
    found = await mine.recall(
        asked.query, limit=asked.top_k, rerank=asked.rerank, where=_where(mine, asked.categories)
    )
    least = asked.threshold or 0.0
    return {
        "results": [
            _item(hit.memory, _usual(request), hit.relevance)
            for hit in found
            if hit.relevance >= least
        ]
    }


@routes.post("/v3/memories/")
async def get_all(
    request: Request, caller: Reader, asked: GetAll, pages: Annotated[Pages, Query()]
) -> dict[str, Any]:
    """Memories, newest first, page by page."""
    mine = _mine(request, caller, _named(asked.filters))
    where = _where(mine, asked.categories)
    page = await _page(mine, where, pages)
    count = len(await engine_of(request).ctx.store.rows_where(mine.scope, where))
    link = f"{request.url.path}?page={{}}&page_size={pages.page_size}"
    return {
        "count": count,
        "next": link.format(pages.page + 1) if page.cursor else None,
        "previous": link.format(pages.page - 1) if pages.page > 1 else None,
        "results": [_item(each, _usual(request)) for each in page],
    }


async def _page(mine: ScopedClient, where: Filter, pages: Pages) -> Page:
    """The page of that number, or an empty one."""
    page = await mine.list(where, limit=pages.page_size)
    for _ in range(1, pages.page):
        if page.cursor is None:
            return Page(())
        page = await mine.list(where, limit=pages.page_size, cursor=page.cursor)
    return page


@routes.get("/v1/memories/{id}/", responses=MISSING)
async def get(request: Request, id: Id, caller: Reader) -> dict[str, Any]:
    """One memory."""
    mine, memory_id = _of(request, caller, id)
    return _item(await mine.get(memory_id), _usual(request))


@routes.put("/v1/memories/{id}/", responses=MISSING)
async def update(request: Request, id: Id, caller: Writer, told: Update) -> dict[str, str]:
    """Give a memory another text."""
    mine, memory_id = _of(request, caller, id)
    await mine.edit(memory_id, told.text, actor=caller.user)
    return {"id": id, "message": "Memory updated successfully!"}


@routes.delete("/v1/memories/{id}/", responses=MISSING)
async def delete(request: Request, id: Id, caller: Writer) -> dict[str, str]:
    """Forget a memory."""
    mine, memory_id = _of(request, caller, id)
    await mine.forget(memory_id, actor=caller.user)
    return {"message": "Memory deleted successfully!"}


@routes.delete("/v1/memories/")
async def delete_all(
    request: Request, caller: Writer, names: Annotated[Names, Query()]
) -> dict[str, str]:
    """Forget all memories of somebody."""
    if not any(value for _, value in names):
        raise InvalidInput(f"Say whose: {', '.join(Names.model_fields)}")
    await _forget_all(request, _mine(request, caller, names), caller)
    return {"message": "Memories deleted successfully!"}


async def _forget_all(request: Request, mine: ScopedClient, caller: Caller) -> None:
    labels = _where(mine).labels
    where = Filter(states=STATES, labels=labels, created_before=engine_of(request).ctx.clock())
    await mine.forget_where(where=where, dry_run=False, actor=caller.user)


@routes.get("/v1/memories/{id}/history/")
async def history(request: Request, id: Id, caller: Reader) -> list[dict[str, Any]]:
    """What happened to a memory, oldest first."""
    mine, memory_id = _of(request, caller, id)
    entries = await mine.history(memory_id)
    refs = [memory_id, *(each.old_ref for each in entries if each.old_ref)]
    texts = {
        each.id: each.text for each in await engine_of(request).ctx.store.get(mine.scope, refs)
    }
    events, new = [], texts.get(memory_id)
    for entry in entries:
        old = texts.get(entry.old_ref) if entry.old_ref else (None if entry.event == "ADD" else new)
        events.append(_event(entry, id, old, new))
        new = old
    return events[::-1]


def _event(entry: Entry, id: str, old: str | None, new: str | None) -> dict[str, Any]:
    return {
        "id": entry.id,
        "memory_id": id,
        "event": entry.event,
        "old_memory": old,
        "new_memory": new,
        "created_at": entry.at.isoformat(),
        "updated_at": entry.at.isoformat(),
    }


@routes.get("/v1/entities/")
async def entities(request: Request, caller: Reader) -> dict[str, Any]:
    """Everybody the holder of the key remembers something of."""
    mine = [
        each
        for each in await engine_of(request).scopes()
        if (each.tenant, each.user) == (caller.tenant, caller.user)
        and caller.space in (None, each.space)
    ]
    found = [await _entity(caller.scope(engine_of(request), each.space)) for each in mine]
    return {"count": len(found), "next": None, "previous": None, "results": found}


async def _entity(mine: ScopedClient) -> dict[str, Any]:
    space, counts = mine.scope.space, await mine.stats()
    return {"id": space, "name": space, "type": "user", "total_memories": counts["memories"]}


@routes.delete("/v2/entities/user/{name}/")
async def delete_entity(request: Request, name: Name, caller: Writer) -> dict[str, str]:
    """Forget all that is remembered of somebody."""
    await _forget_all(request, caller.scope(engine_of(request), name), caller)
    return {"message": "Entity deleted successfully!"}
