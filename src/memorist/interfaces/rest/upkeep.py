"""What is done to a space as a whole, and what its parts did."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request

from ...extraction.job import Extracted
from ...jobs.summarize import SummaryReport
from ...results import Purged, Tally
from ...types import Recall
from . import bodies
from .bodies import Id, Word, scoped
from .entries import CLASHES, Reader, Some, Writer, Writes
from .people import Lately
from .route import Door

routes = APIRouter(prefix="/v1/memory", route_class=Door)


class Happening(Some):
    """Which of what the parts did."""

    node: Literal["hotpath", "context", "episodic", "worker"] | None = None
    op: Word | None = None


@routes.post("/shared")
async def recall_shared(request: Request, caller: Reader, asked: bodies.Shared) -> list[Recall]:
    """What the same person's other spaces share with this one and answers a question: an answer for each space."""
    mine = scoped(request, caller, asked)
    return await mine.recall_shared(asked.query, limit=asked.limit, budget=asked.budget)


@routes.get("/events")
async def events(
    request: Request, caller: Reader, asked: Annotated[Happening, Query()]
) -> list[dict[str, Any]]:
    """What the parts did, newest first: how often and when, never what was said."""
    found = await scoped(request, caller, asked).events(
        node=asked.node, op=asked.op, limit=asked.limit
    )
    return [asdict(each) for each in found]


@routes.get("/tallies")
async def tallies(
    request: Request, caller: Reader, asked: Annotated[Lately, Query()]
) -> list[Tally]:
    """How often the parts did what, day by day."""
    return await scoped(request, caller, asked).event_counts(days=asked.days)


@routes.post("/purge")
async def purge(request: Request, caller: Writer, told: bodies.Upkeep) -> Purged:
    """Put away what nobody used for long, and erase what was put away for long enough."""
    return await scoped(request, caller, told).purge(dry_run=told.dry_run)


@routes.post("/compress")
async def compress(request: Request, caller: Writer, told: bodies.Compress) -> SummaryReport:
    """Sum up the oldest sessions, each in one memory, if there are more of them than the threshold."""
    mine = scoped(request, caller, told)
    return await mine.compress(
        threshold=told.threshold, sessions=told.sessions, dry_run=told.dry_run
    )


@routes.post("/roll_up")
async def roll_up(request: Request, caller: Writer, told: bodies.RollUp) -> SummaryReport:
    """Make one memory of each topic among what nobody used for so many days."""
    return await scoped(request, caller, told).roll_up(days=told.days, dry_run=told.dry_run)


@routes.post("/entries/{id}/extract", responses=CLASHES)
async def extract(id: Id, mine: Writes) -> Extracted:
    """Draw facts out of what somebody said in a conversation, now."""
    return await mine.extract(id)
