"""What a person decides about remembering, what an agent keeps of its threads, and everything out and in again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from ...manage.consent import FIELDS
from ...results import Backlog, Proposal, Saved, Spending
from ...scoped import ScopedClient
from ...types import Receipt
from . import bodies
from .answers import Decision, Privacy, Withdrawn
from .auth import Caller, May
from .bodies import Days, Id, Name, Place, scoped
from .entries import MISSING, Reader, Reads, Some, Writer, Writes, made
from .route import Door

routes = APIRouter(prefix="/v1/memory", route_class=Door)
Admin = Annotated[Caller, Depends(May("admin"))]
Owner = Annotated[Caller, Depends(May("owner"))]
Field = Literal[FIELDS]  # type: ignore[valid-type]


class Lately(Place):
    """How far back."""

    days: Days = 30


async def _privacy(mine: ScopedClient) -> Privacy:
    why = await mine.privacy.disabled_reason()
    return Privacy(
        space=mine.scope.space, **asdict(await mine.privacy.settings()), on=not why, reason=why
    )


@routes.get("/settings")
async def settings(mine: Reads) -> Privacy:
    """Whether anything is remembered in a space, or in a session of it."""
    return await _privacy(mine)


@routes.post("/settings")
async def set_settings(request: Request, caller: Writer, told: bodies.SpaceChoice) -> Privacy:
    """Turn memory in a space on or off, and say whether its sessions begin incognito."""
    mine = scoped(request, caller, told)
    await mine.privacy.set(**told.model_dump(exclude={"space"}), actor=caller.user)
    return await _privacy(mine)


@routes.post("/incognito/start")
async def start_incognito(request: Request, caller: Writer, told: bodies.Session) -> Privacy:
    """Keep nothing of a session and recall nothing in it."""
    mine = scoped(request, caller, told)
    await mine.privacy.start_incognito()
    return await _privacy(mine)


@routes.post("/incognito/end")
async def end_incognito(request: Request, caller: Writer, told: bodies.Session) -> Privacy:
    """Remember and recall in a session as in any other from now on."""
    mine = scoped(request, caller, told)
    await mine.privacy.end_incognito()
    return await _privacy(mine)


@routes.get("/consent")
async def consent(mine: Reads) -> list[Proposal]:
    """What waits for the person's word before it is known of them, oldest first."""
    return await mine.consent.list()


@routes.post("/consent/{id}/approve", responses=MISSING)
async def approve(id: Id, mine: Writes) -> Decision:
    """Let a proposal come into force, as it was shown."""
    return _decided(await mine.consent.approve(id, actor=mine.scope.user))


@routes.post("/consent/{id}/deny", responses=MISSING)
async def deny(id: Id, mine: Writes) -> Decision:
    """Erase a proposal for good; the same is not proposed again."""
    return _decided(await mine.consent.deny(id, actor=mine.scope.user))


def _decided(proposal: Proposal) -> Decision:
    return Decision(id=proposal.id, field=proposal.field, decided=proposal.decided or "")


@routes.get("/about")
async def about(mine: Reads) -> dict[str, str | list[str]]:
    """What is in force of the person's name, pronouns, city, language, tone and goals."""
    return await mine.consent.about()


@routes.put("/about/{field}")
async def tell(field: Field, mine: Writes, told: bodies.Value) -> Decision:
    """What the person says of themselves: it is in force at once."""
    return _decided(await mine.consent.set(field, told.value, actor=mine.scope.user))


@routes.delete("/about/{field}")
async def withdraw(field: Field, mine: Writes) -> Withdrawn:
    """Erase what is known and proposed of a field, and all it held before."""
    return Withdrawn(field=field, values=await mine.consent.withdraw(field, actor=mine.scope.user))


@routes.get("/checkpoints")
async def checkpoints(
    request: Request, caller: Reader, asked: Annotated[Some, Query()]
) -> list[Saved]:
    """Which threads have a checkpoint, the one saved last first."""
    return await scoped(request, caller, asked).checkpoints.list(limit=asked.limit)


@routes.get("/checkpoints/{thread}", responses=MISSING)
async def load_checkpoint(thread: Name, mine: Reads) -> dict[str, Any]:
    """Where a thread stood when it was last saved."""
    return await mine.checkpoints.load(thread)


@routes.put("/checkpoints/{thread}")
async def save_checkpoint(thread: Name, mine: Writes, data: bodies.Checkpoint) -> Saved:
    """Keep where a thread stands, in place of what was saved before."""
    return await mine.checkpoints.save(thread, data.model_dump())


@routes.delete("/checkpoints/{thread}", status_code=204, responses=MISSING)
async def delete_checkpoint(thread: Name, mine: Writes) -> None:
    """Remove the checkpoint of a thread for good."""
    await mine.checkpoints.delete(thread)


@routes.get(
    "/export",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/x-ndjson": {}}}},
)
async def export(mine: Reads) -> StreamingResponse:
    """Everything kept in a space, one JSON record a line, as `import` takes it."""
    return StreamingResponse(_lines(mine), media_type="application/x-ndjson")


async def _lines(mine: ScopedClient) -> AsyncIterator[str]:
    async for record in mine.export():
        yield json.dumps(record) + "\n"


@routes.post(
    "/import",
    status_code=201,
    responses={200: {"model": Receipt, "description": "Nothing new was made"}},
)
async def import_(
    request: Request, response: Response, caller: Owner, told: bodies.Records
) -> Receipt:
    """Import exported records or messages. Needs the right `owner`. Doing it twice changes nothing.

    Records pass the guard and the person's settings like any other write. With `restore`, for an export of your own,
    they are kept as they were.
    """
    return made(
        await scoped(request, caller, told).import_(told.records, restore=told.restore), response
    )


@routes.get("/stats")
async def stats(mine: Reads) -> dict[str, Any]:
    """Counts of a space."""
    return await mine.stats()


@routes.get("/costs")
async def costs(
    request: Request, caller: Reader, asked: Annotated[Lately, Query()]
) -> list[Spending]:
    """What the language model cost in a space, by day, task and model."""
    return await scoped(request, caller, asked).llm_usage(days=asked.days)


@routes.get("/backlog")
async def backlog(request: Request, caller: Admin) -> list[Backlog]:
    """How much work waits on this server, since when, and what fails, by duty."""
    return await bodies.engine_of(request).backlog()
