"""What recall makes of the links between memories: they lend each other weight, and the nearest come along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..ports import Reading
from ..storage.changes import Relation
from ..types import Memory, Query
from .candidates import Candidates
from .profiles import Profile


async def with_links(
    profile: Profile, query: Query, found: Candidates, memories: Sequence[Memory], store: Reading
) -> Candidates:
    """The candidates with the strength of their nearest link, where the profile counts it."""
    if "related" not in profile.weights or not memories:
        return found
    most: dict[str, float] = {}
    for relation in await store.links(query.scope, [memory.id for memory in memories]):
        for end in (relation.from_id, relation.to_id):
            most[end] = max(most.get(end, 0.0), relation.strength)
    strength = np.array([most.get(memory.id, 0.0) for memory in memories])
    return replace(found, features={**found.features, "related": strength})


async def beside(
    profile: Profile, query: Query, hits: Sequence[Memory], store: Reading
) -> list[Memory]:
    """What the hits are linked to and do not hold themselves, nearest first, as far as the filter lets it through."""
    if not profile.related or not hits or query.as_of is not None:
        return []
    ids = _others(
        await store.links(query.scope, [memory.id for memory in hits]),
        {memory.id for memory in hits},
    )
    if not ids:
        return []
    page = await store.page(query.scope, replace(query.where, ids=tuple(ids)), limit=len(ids))
    there = {memory.id: memory for memory in page.memories if memory.procedural_form != "workflow"}
    return [there[id] for id in ids if id in there][: profile.related]


def _others(relations: Sequence[Relation], own: set[str]) -> list[str]:
    """The other ends, nearest first."""
    ends = (end for relation in relations for end in (relation.from_id, relation.to_id))
    return [end for end in dict.fromkeys(ends) if end not in own]
