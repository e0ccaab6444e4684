"""The endpoints of other systems under the addresses and with the bodies that they have there."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from ...errors import NotAllowed
from ...storage.history import HistoryEntry
from ...types import GUILD
from .answers import Found, Markdown, Refreshed
from .auth import Caller, May
from .bodies import Id, Name, engine_of, scoped
from .entries import Reader, Some
from .people import Admin
from .route import Door

routes = APIRouter(route_class=Door)


class Searched(BaseModel):
    """What to look for in the durable facts of a guild."""

    model_config = ConfigDict(extra="forbid")
    q: str = ""
    guildId: Name | None = None  # noqa: N815
    channelId: Name | None = None  # noqa: N815
    limit: Annotated[int, Field(ge=1, le=24)] = 10


def _of_guilds(request: Request, caller: Annotated[Caller, Depends(May("read"))]) -> Caller:
    """Whoever may read the facts of a guild: a key of the guild's own user, or an operator."""
    if caller.user != GUILD:
        caller.must("admin")
    if caller.tenant != engine_of(request).settings.tenant:
        raise NotAllowed("The guilds of this server belong to another tenant")
    return caller


def _of_everybody(request: Request, caller: Admin) -> Caller:
    """Whoever may read of everybody: an operator of the whole server."""
    if caller.tenant != engine_of(request).settings.tenant or caller.space is not None:
        raise NotAllowed(
            "This is about everybody: it needs a key of this server's own tenant, bound to no space"
        )
    return caller


Operator = Annotated[Caller, Depends(_of_everybody)]


@routes.get("/memory/{id}/history")
async def memory_history(
    request: Request, id: Id, caller: Reader, asked: Annotated[Some, Query()]
) -> list[HistoryEntry]:
    """What happened to a memory, newest first."""
    return await scoped(request, caller, asked).history(id, limit=asked.limit)


@routes.get("/api/memory")
async def snapshot(request: Request, caller: Operator) -> Markdown:
    """What is known of everybody, as Markdown, as it was written last."""
    return Markdown(markdown=await engine_of(request).snapshot(refresh=False))


@routes.post("/api/memory/refresh")
async def refresh(request: Request, caller: Operator) -> Refreshed:
    """Write what is known of everybody anew."""
    return Refreshed(ok=True, markdown=await engine_of(request).snapshot())


@routes.get("/api/memory/search")
async def search(
    request: Request,
    caller: Annotated[Caller, Depends(_of_guilds)],
    asked: Annotated[Searched, Query()],
) -> Found:
    """The durable facts of a guild that answer, whomever they are about; without `q` or `guildId`, none."""
    from ...dialects.clanker import Clanker

    guild, said = asked.guildId or "", asked.q.strip()
    if caller.space not in (None, guild):
        raise NotAllowed(f"This key is for the guild {caller.space!r} alone")
    if not (guild and said):
        return Found(results=[], queryText=said, guildId=guild, channelId=asked.channelId, limit=0)
    clanker = Clanker(engine_of(request))
    found = await clanker.search_durable_facts(
        guild, said, channel_id=asked.channelId, limit=asked.limit
    )
    return Found(
        results=found, queryText=said, guildId=guild, channelId=asked.channelId, limit=asked.limit
    )
