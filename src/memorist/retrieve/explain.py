"""Why was this memory not returned? Rank it among everything that matches the question."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from ..context import Context
from ..types import Filter, Memory, Query, Reason
from . import pipeline, score
from .profiles import Profile


async def explain(
    ctx: Context,
    query: Query,
    memory: Memory,
    profile: Profile,
    now: datetime,
) -> Reason:
    """Return how one memory ranks for a question, and why it was returned or left out."""
    answer = await pipeline.recall(ctx, query, profile, now)
    for rank, hit in enumerate(answer.hits, 1):
        if hit.memory.id == memory.id:
            why = "it was returned"
            return Reason(
                id=memory.id,
                returned=True,
                reason=why,
                rank=rank,
                score=hit.score,
                parts=hit.parts,
            )
    search, _ = await pipeline.prepare(ctx, query, profile, now)
    found = pipeline.select(search, query, everything=True)
    if search.used & {"lexical", "related"}:
        found = await pipeline.read(found, search, query, ctx.store, {})
    parts, total = score.score_all(profile, found)
    where = Filter(ids=(memory.id,), states=())
    rows = await ctx.store.rows_where(query.scope, where)
    candidates = search.snapshot.row[found.positions]
    places = np.flatnonzero(np.isin(candidates, rows))
    if not len(places):
        return Reason(id=memory.id, returned=False, reason=_why_absent(memory, query))
    i = int(places[0])
    better = int((total > total[i]).sum())
    reasons = [cut.reason for cut in answer.cut if cut.id == memory.id]
    if not answer.hits:
        reasons += [cut.reason for cut in answer.cut]
        reasons.append("nothing that is remembered counts as evidence")
    if better:
        reasons.append(f"{better} memories fit the question better")
    return Reason(
        id=memory.id,
        returned=False,
        reason=[*reasons, "others fit the question as well"][0],
        rank=better + 1,
        score=float(total[i]),
        parts={name: float(column[i]) for name, column in parts.items() if column[i]},
    )


def _why_absent(memory: Memory, query: Query) -> str:
    states = query.where.states
    then = query.as_of
    if then is not None:
        begins = memory.valid_from is None or memory.valid_from <= then
        ends = memory.valid_to is not None and memory.valid_to <= then
        if not begins or ends:
            return f"it did not hold at {then.isoformat()}"
    elif states and memory.state not in states:
        return f"it is {memory.state}; only {', '.join(states)} memories were asked for"
    if not query.where.is_plain:
        return "the filter leaves it out"
    return "it shares no word with the question, and its meaning is not near to it"
