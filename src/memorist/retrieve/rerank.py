"""A closer look at the best candidates, where the profile wants one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..errors import ProviderFailed
from ..ports import Reranker
from ..types import Memory
from . import rank
from .candidates import Candidates, Column
from .profiles import Profile

SIMILARITY, IMPORTANCE = 0.8, 0.2  # the blend that stands in for a re-ranker


async def closer(
    question: str,
    profile: Profile,
    reranker: Reranker | None,
    found: Candidates,
    memories: list[Memory],
) -> tuple[Candidates, list[Memory], str]:
    """The candidates in the order a re-ranker gives them, and "ok" or why it could not.

    Without one, a profile that would rank by it alone blends similarity and importance; the others stay as they are.
    Equals are ordered by the newer change.
    """
    try:
        if reranker is None:
            raise ProviderFailed("no re-ranker is configured: set `reranker`")
        scores = (await reranker.score(question, [memory.text for memory in memories])).astype(
            np.float64
        )
    except ProviderFailed as error:
        if profile.candidates == "blend" or profile.rerank_weight is not None:
            return found, memories, str(error)
        return *_sorted(found, _blend(found, memories), memories), str(error)
    if profile.rerank_weight is None:
        return *_sorted(found, {"rerank": scores}, memories), "ok"
    return *_sorted(
        found, {**found.parts, "rerank": profile.rerank_weight * scores}, memories
    ), "ok"


def _blend(found: Candidates, memories: list[Memory]) -> dict[str, Column]:
    importance = np.array([memory.importance for memory in memories])
    leg = "semantic" if rank.has_semantic(found) else "sparse"
    return {leg: SIMILARITY * found.features[leg], "importance": IMPORTANCE * importance}


def _sorted(
    found: Candidates, parts: dict[str, Column], memories: list[Memory]
) -> tuple[Candidates, list[Memory]]:
    score = np.sum(list(parts.values()), axis=0)
    order = sorted(
        range(len(memories)),
        key=lambda i: (-score[i], -memories[i].updated_at.timestamp(), memories[i].id),
    )
    return replace(found, parts=parts, score=score).taken(np.array(order, np.intp)), [
        memories[i] for i in order
    ]
