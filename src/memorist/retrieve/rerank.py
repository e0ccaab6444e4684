"""A closer look at the best candidates, where the profile wants one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..errors import ProviderFailed
from ..ports import Reranker
from .profiles import Profile
from .score import Candidate

SIMILARITY, IMPORTANCE = 0.8, 0.2  # the mix that replaces a reranker


async def rerank(
    question: str,
    profile: Profile,
    reranker: Reranker | None,
    candidates: list[Candidate],
    *,
    semantic: bool,
) -> tuple[list[Candidate], str]:
    """Return the candidates in the order of the reranker, and "ok" or why it could not rank them.

    Without a reranker, a profile that would rank by it alone mixes similarity and importance; the
    others stay as they are. Equals are ordered by the newer change.
    """
    try:
        if reranker is None:
            raise ProviderFailed("no re-ranker is configured: set `reranker`")
        scores = await reranker.score(question, [each.memory.text for each in candidates])
    except ProviderFailed as error:
        if profile.candidates == "blend" or profile.rerank_weight is not None:
            return candidates, str(error)
        leg = "semantic" if semantic else "sparse"
        mixed = []
        for each in candidates:
            similarity = SIMILARITY * each.features[leg]
            mixed.append({leg: similarity, "importance": IMPORTANCE * each.memory.importance})
        return _sort(candidates, mixed), str(error)
    parts: list[Mapping[str, float]] = []
    for each, value in zip(candidates, scores.tolist(), strict=True):
        if profile.rerank_weight is None:
            parts.append({"rerank": value})
        else:
            parts.append({**each.parts, "rerank": profile.rerank_weight * value})
    return _sort(candidates, parts), "ok"


def _sort(candidates: Sequence[Candidate], parts: Sequence[Mapping[str, float]]) -> list[Candidate]:
    """Score the candidates by new parts, best first."""
    scored = []
    for each, named in zip(candidates, parts, strict=True):
        shown = {name: part for name, part in named.items() if part}
        scored.append(replace(each, parts=shown, score=sum(named.values())))
    scored.sort(key=lambda c: (-c.score, -c.memory.updated_at.timestamp(), c.memory.id))
    return scored
