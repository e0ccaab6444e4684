"""Routes of the dialects, with the paths and bodies of their specifications."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from ...errors import NotAllowed
from ...types import GUILD, Memory
from .auth import Caller, Requires
from .bodies import Name, client_of
from .memories import Reader
from .route import AuthenticatedRoute

routes = APIRouter(route_class=AuthenticatedRoute)


class MarkdownSnapshot(BaseModel):
    """The Markdown snapshot."""

    markdown: str


class RefreshedSnapshot(BaseModel):
    """The regenerated Markdown snapshot."""

    ok: bool
    markdown: str


class GuildFacts(BaseModel):
    """Durable facts of a guild that match a query."""

    results: list[Memory]
    queryText: str  # noqa: N815
    guildId: str  # noqa: N815
    channelId: str | None  # noqa: N815
    limit: int


class GuildQuery(BaseModel):
    """What to search for in the durable facts of a guild."""

    model_config = ConfigDict(extra="forbid")
    q: str = ""
    guildId: Name | None = None  # noqa: N815
    channelId: Name | None = None  # noqa: N815
    limit: Annotated[int, Field(ge=1, le=24)] = 10


def require_guild_reader(request: Request, caller: Reader) -> Caller:
    """Return the caller if they may read guild facts: as the guild user or as an operator."""
    if caller.user != GUILD:
        caller.require("admin")
    if caller.tenant != client_of(request).settings.tenant:
        raise NotAllowed("The guilds of this server belong to another tenant")
    return caller


def require_operator(
    request: Request, caller: Annotated[Caller, Depends(Requires("admin"))]
) -> Caller:
    """Return the caller if they may read about all users."""
    if caller.tenant != client_of(request).settings.tenant or caller.space is not None:
        raise NotAllowed("This needs a key of the server's own tenant that is not bound to a space")
    return caller


Operator = Annotated[Caller, Depends(require_operator)]


@routes.get("/api/memory")
async def snapshot(request: Request, caller: Operator) -> MarkdownSnapshot:
    """Return the Markdown snapshot about all users, as last written."""
    return MarkdownSnapshot(markdown=await client_of(request).snapshot(refresh=False))


@routes.post("/api/memory/refresh")
async def refresh(request: Request, caller: Operator) -> RefreshedSnapshot:
    """Regenerate the Markdown snapshot about all users."""
    return RefreshedSnapshot(ok=True, markdown=await client_of(request).snapshot())


@routes.get("/api/memory/search")
async def search(
    request: Request,
    caller: Annotated[Caller, Depends(require_guild_reader)],
    query: Annotated[GuildQuery, Query()],
) -> GuildFacts:
    """Search the durable facts of a guild, about any subject. Empty without `q` or `guildId`."""
    from ...dialects.clanker import Clanker  # loaded for the guilds of a dialect only

    guild, text = query.guildId or "", query.q.strip()
    if caller.space not in (None, guild):
        raise NotAllowed(f"This key is only for the guild {caller.space!r}")
    found: list[Memory] = []
    limit = 0
    if guild and text:
        limit = query.limit
        clanker = Clanker(client_of(request))
        found = await clanker.search_durable_facts(
            guild, text, channel_id=query.channelId, limit=limit
        )
    return GuildFacts(
        results=found, queryText=text, guildId=guild, channelId=query.channelId, limit=limit
    )
