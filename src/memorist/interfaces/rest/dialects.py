"""Routes of the dialects, with the paths and bodies of their specifications."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from ...dialects.clanker import Clanker
from ...errors import NotAllowed
from ...types import GUILD, Memory
from .auth import ClientAccess
from .bodies import OptionalName
from .request import Admin, AuthenticatedRoute, Reader

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


class GuildQuery(BaseModel, extra="forbid"):
    """What to search for in the durable facts of a guild."""

    q: str = ""
    guildId: OptionalName = None  # noqa: N815
    channelId: OptionalName = None  # noqa: N815
    limit: Annotated[int, Field(ge=1, le=24)] = 10


async def require_operator(access: Admin) -> ClientAccess:
    """Return the access of a caller who may read about all users."""
    caller = access.caller
    if caller.tenant != access.client.settings.tenant or caller.space is not None:
        raise NotAllowed("This needs a key of the server's own tenant that is not bound to a space")
    return access


async def require_guild_reader(access: Reader) -> ClientAccess:
    """Return the access of the guild user or of an operator."""
    if access.caller.user != GUILD:
        access.caller.require("admin")
    if access.caller.tenant != access.client.settings.tenant:
        raise NotAllowed("The guilds of this server belong to another tenant")
    return access


GuildReader = Annotated[ClientAccess, Depends(require_guild_reader)]
Operator = Annotated[ClientAccess, Depends(require_operator)]


@routes.get("/api/memory")
async def snapshot(access: Operator) -> MarkdownSnapshot:
    """Return the Markdown snapshot about all users, as last written."""
    return MarkdownSnapshot(markdown=await access.client.snapshot(refresh=False))


@routes.post("/api/memory/refresh")
async def refresh(access: Operator) -> RefreshedSnapshot:
    """Regenerate the Markdown snapshot about all users."""
    return RefreshedSnapshot(ok=True, markdown=await access.client.snapshot())


@routes.get("/api/memory/search")
async def search(access: GuildReader, query: Annotated[GuildQuery, Query()]) -> GuildFacts:
    """Search the durable facts of a guild, about any subject. Empty without `q` or `guildId`."""
    caller = access.caller
    client = access.client
    guild = query.guildId or ""
    text = query.q.strip()
    channel = query.channelId
    if caller.space not in (None, guild):
        raise NotAllowed(f"This key is only for the guild {caller.space!r}")
    found: list[Memory] = []
    limit = query.limit if guild and text else 0
    if limit:
        found = await Clanker(client).search_durable_facts(
            guild, text, channel_id=channel, limit=limit
        )
    return GuildFacts(
        results=found,
        queryText=text,
        guildId=guild,
        channelId=channel,
        limit=limit,
    )
