"""Links between memories in recall: they add weight, and the nearest memories come along."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..storage.queries import Reader
from ..types import Hit, Memory, Query
from .budget import Caps, fit
from .features import Column
from .profiles import Profile
from .render import RENDERERS


async def strengths(query: Query, memories: Sequence[Memory], store: Reader) -> Column:
    """Return the strength of the strongest link of each memory."""
    most: dict[str, float] = {}
    ids = [memory.id for memory in memories]
    for relation in await store.links(query.scope, ids) if ids else ():
        for end in (relation.from_id, relation.to_id):
            most[end] = max(most.get(end, 0.0), relation.strength)
    return np.array([most.get(id, 0.0) for id in ids])


async def add_related(
    profile: Profile,
    query: Query,
    hits: Sequence[Hit],
    text: str,
    store: Reader,
    count: Callable[[str], int],
) -> tuple[tuple[Memory, ...], str]:
    """Return what the hits are linked to, nearest first, as far as it fits, and the text with it.

    Only what the filter lets through, and no how-to.
    """
    own = [hit.memory.id for hit in hits]
    ends: dict[str, None] = {}
    for relation in await store.links(query.scope, own):
        ends |= {relation.from_id: None, relation.to_id: None}
    ids = tuple(id for id in ends if id not in own)
    if not ids:
        return (), text
    page = await store.page(query.scope, replace(query.where, ids=ids), limit=len(ids))
    found = {each.id: each for each in page.memories if each.procedural_form != "workflow"}
    near = [found[id] for id in ids if id in found][: profile.related]

    def render(memories: Sequence[Memory]) -> str:
        lines = [f"{RENDERERS[profile.render]([memory])} (related)" for memory in memories]
        return "\n".join([text, *lines])

    fitted = fit(near, Caps(tokens=query.budget, chars=query.max_chars), render, count)
    if not fitted.taken:
        return (), text
    return tuple(near[i] for i in fitted.taken), fitted.text
