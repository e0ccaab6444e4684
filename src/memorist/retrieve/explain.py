"""Why one memory was returned for a question, or was left out."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from ..context import Context
from ..types import Filter, Memory, Query, Reason
from . import score
from .pipeline import prepare, read, recall, select
from .profiles import Profile


async def explain(
    ctx: Context,
    query: Query,
    memory: Memory,
    profile: Profile,
    now: datetime,
) -> Reason:
    """Return how one memory ranks for a question, and why it was returned or left out."""
    id = memory.id
    answer = await recall(ctx, query, profile, now)
    for rank, hit in enumerate(answer.hits, 1):
        if hit.memory.id == id:
            return Reason(
                id=id,
                returned=True,
                reason="it was returned",
                rank=rank,
                score=hit.score,
                parts=hit.parts,
            )
    search, legs = await prepare(ctx, query, profile, now)
    found = select(search, query, everything=True)
    if search.used & {"lexical", "related"}:
        found = await read(found, search, query, ctx.store, legs)
    parts, total = score.score_all(profile, found)
    rows = await ctx.store.rows_where(query.scope, Filter(ids=(id,), states=()))
    found_rows = search.snapshot.row[found.positions]
    places = np.flatnonzero(np.isin(found_rows, rows))
    if not len(places):
        return Reason(id=id, returned=False, reason=_why_absent(memory, query))
    i = int(places[0])
    better = int((total > total[i]).sum())
    reasons = [cut.reason for cut in answer.cut if cut.id == id]
    if not answer.hits:
        reasons += [cut.reason for cut in answer.cut]
    if better:
        reasons.append(f"{better} memories match the question better")
    return Reason(
        id=id,
        returned=False,
        reason=[*reasons, "others match the question equally well"][0],
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
            return f"it was not valid at {then.isoformat()}"
    elif states and memory.state not in states:
        return f"it is {memory.state}; only {', '.join(states)} memories were requested"
    if not query.where.is_plain:
        return "it does not pass the filter"
    return "it shares no word with the question, and its meaning is not similar"
