"""Why was this memory not returned? The same question, with nothing left out, and where the memory stands in it."""

from __future__ import annotations

from datetime import datetime

import numpy as np

from ..types import Filter, Memory, Query, Reason
from . import links, pipeline, rank
from .profiles import Profile

_ALL = 10**9


async def stands(
    query: Query, memory: Memory, profile: Profile, parts: pipeline.Retrieve, now: datetime
) -> Reason:
    """Where one memory stands for a question, whether it was returned or not."""
    answer = await pipeline.recall(query, profile, parts, now)
    for place, hit in enumerate(answer.hits, 1):
        if hit.memory.id == memory.id:
            return Reason(
                id=memory.id,
                returned=True,
                reason="it was returned",
                rank=place,
                score=hit.score,
                parts=hit.parts,
            )
    place_in_all = await _measured(query, memory, profile, parts, now)
    if place_in_all is None:
        return Reason(id=memory.id, returned=False, reason=_absent(memory, query))
    place, score, named = place_in_all
    reason = next((cut.reason for cut in answer.cut if cut.id == memory.id), "")
    if not reason and not answer.hits:
        reason = next(
            (cut.reason for cut in answer.cut), "nothing that is remembered counts as evidence"
        )
    better = (
        f"{place - 1} memories fit the question better"
        if place > 1
        else "others fit the question as well"
    )
    return Reason(
        id=memory.id, returned=False, reason=reason or better, rank=place, score=score, parts=named
    )


async def _measured(
    query: Query, memory: Memory, profile: Profile, parts: pipeline.Retrieve, now: datetime
) -> tuple[int, float, dict[str, float]] | None:
    snapshot, found, _ = await pipeline.look(query, profile, parts, now, pool=_ALL)
    if profile.needs_text or "related" in profile.weights:
        found, memories = await pipeline.read(snapshot, found, query, parts.store, {})
        found = pipeline.with_words(profile, query, found, memories)
        found = await links.with_links(profile, query, found, memories, parts.store)
    found = rank.scored(profile, found)
    rows = await parts.store.rows_where(query.scope, Filter(ids=(memory.id,), states=()))
    where = np.flatnonzero(np.isin(snapshot.row[found.positions], rows))
    if not len(where):
        return None
    i = int(where[0])
    return int((found.score > found.score[i]).sum()) + 1, float(found.score[i]), found.parts_of(i)


def _absent(memory: Memory, query: Query) -> str:
    if query.as_of is not None and not _held(memory, query.as_of):
        return f"it did not hold at {query.as_of.isoformat()}"
    if query.as_of is None and query.where.states and memory.state not in query.where.states:
        return f"it is {memory.state}; only {', '.join(query.where.states)} memories were asked for"
    if not query.where.is_plain:
        return "the filter leaves it out"
    return "it shares no word with the question, and its meaning is not near to it"


def _held(memory: Memory, at: datetime) -> bool:
    return (memory.valid_from is None or memory.valid_from <= at) and (
        memory.valid_to is None or at < memory.valid_to
    )
