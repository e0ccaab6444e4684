"""Questions: what is recalled for a person, for an agent, and what a person says to the memory itself."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from ...types import Recall
from . import bodies
from .answers import Spoken
from .auth import Caller, May
from .bodies import scoped
from .entries import Reader, Writer
from .route import Door

routes = APIRouter(prefix="/v1/memory", route_class=Door)
Asker = Annotated[Caller, Depends(May("ask"))]


@routes.post("/recall")
async def recall(request: Request, caller: Reader, asked: bodies.Question) -> Recall:
    """What is remembered that answers a question, within a budget, with the score of each hit part by part."""
    given = asked.model_dump(exclude={*bodies.Told.model_fields, "query", "where"})
    where = asked.where.filter() if asked.where else None
    return await scoped(request, caller, asked).recall(asked.query, where=where, **given)


@routes.post("/feedback")
async def feedback(request: Request, caller: Reader, told: bodies.Feedback) -> dict[str, str]:
    """Count a turn, and which of the memories went into its reply: told, cited or echoed. No word of it is kept."""
    mine = scoped(request, caller, told)
    how = {"reply": told.reply} if told.used is None else {"used": told.used}
    return await mine.feedback(told.recalled, **how)


@routes.post("/query")
async def query(
    request: Request, caller: Asker, asked: bodies.AgentQuestion
) -> list[dict[str, Any]]:
    """What an agent may read of what answers, as bullets or in full; its allowlist holds whatever the filters say."""
    agent = caller.agent or asked.agent or ""
    mine = scoped(request, caller, asked)
    return await mine.query(
        asked.query,
        agent=agent,
        categories=asked.categories,
        top_k=asked.top_k,
        return_=asked.shape,
        filters=asked.filters.model_dump() if asked.filters else None,
        budget_tokens=asked.budget_tokens,
        threshold=asked.threshold,
    )


@routes.post("/say")
async def say(request: Request, caller: Writer, told: bodies.Say) -> Spoken:
    """Do what a person says to the memory: "what do you remember about …?", "forget that", "turn memory off"."""
    caller.must("read")
    reply = await scoped(request, caller, told).command(told.text, about=told.about)
    if reply is None:
        return Spoken(command="", say="", done=False, ids=[])
    return Spoken(command=reply.command, say=reply.say, done=reply.done, ids=list(reply.ids))
