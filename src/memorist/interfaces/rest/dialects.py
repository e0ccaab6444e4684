"""Routes with the paths and bodies of the Clanker dialect."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from ...dialects.clanker import Clanker
from ...errors import NotAllowed
from ...types import GUILD
from ..auth import ClientAccess
from . import Admin, AuthenticatedRoute, Reader, bodies

routes = APIRouter(route_class=AuthenticatedRoute)


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
