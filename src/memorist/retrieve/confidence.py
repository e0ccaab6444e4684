"""Confidence: how likely an answer contains what was asked for, and how likely each hit does.

Both are logistic models over a few readable measures. Their weights are part of the profile;
`bench/fit.py` fits them for the packaged embedding models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..text import cues
from ..text.cues import ONLY_ASKS
from ..types import Cut
from .features import SnapshotSearch
from .score import Candidate

TOP = 3  # candidates whose kinds of content are compared with the question
FEW = 5  # candidates whose mean is taken
DENSE = ("semantic", "multilingual")
USUAL = 100  # memories of a scope to which the threshold of an answer applies as it is
SMALL = 60  # memories of a scope below which the threshold of a hit decreases
SHARE = 0.25  # of the best score that every hit needs


def measure(search: SnapshotSearch, ranked: Sequence[Candidate]) -> dict[str, float]:
    """Return the measures of an answer, given its candidates, best first."""
    question = search.question
    top = ranked[:TOP]
    positions = [each.position for each in top]
    matches = sorted((score_match(search, each) for each in ranked[: 2 * FEW]), reverse=True)
    rest = matches[FEW:] or [0.0]
    meanings = [score_meaning(search, each) for each in ranked[:FEW]]
    terms = zip(question.terms, search.postings, strict=True)
    missing = {term for term, posting in terms if not len(posting.positions)}
    is_personal = bool(question.speakers) or cues.is_personal(question.text)
    contents = int(np.bitwise_or.reduce(search.snapshot.flags[positions]))
    return {
        "always": 1.0,
        "match": matches[0],
        "meaning": sum(meanings) / len(meanings),
        "margin": matches[0] - sum(rest) / len(rest),
        "unknown_name": float(not missing.isdisjoint(question.names)),
        "personal": float(is_personal),
        "general": float(not is_personal and cues.is_task(question.text)),
        "missing_kind": float(bool(question.kinds) and not contents & question.kinds),
        "foreign": float(search.foreign is not None and search.foreign[positions[0]]),
        "size": math.log10(max(search.size, 1)),
    }


def only_asks(search: SnapshotSearch, candidate: Candidate) -> bool:
    """Return whether a memory is a short question, which answers nothing however well it matches."""
    return bool(search.snapshot.flags[candidate.position] & ONLY_ASKS)


def score_meaning(search: SnapshotSearch, candidate: Candidate) -> float:
    """Return how similar a memory is in meaning to the question."""
    if only_asks(search, candidate):
        return 0.0
    similarity = sum(candidate.parts.get(leg, 0.0) for leg in DENSE)
    if search.second is None:  # one model stands in for both
        weights = search.profile.weights
        similarity *= 1 + weights.get("multilingual", 0.0) / weights.get("semantic", 1.0)
    return similarity


def score_match(search: SnapshotSearch, candidate: Candidate) -> float:
    """Return how well a memory matches in words and meaning."""
    if only_asks(search, candidate):
        return 0.0
    return candidate.parts.get("sparse", 0.0) + score_meaning(search, candidate)


def measure_hit(
    search: SnapshotSearch,
    candidate: Candidate,
    *,
    best: float,
    rank: int,
    answer: float,
) -> dict[str, float]:
    """Return the measures of one hit, given the best score and the log odds of the answer."""
    return {
        "always": 1.0,
        "answer": answer,
        "behind": best - candidate.score,
        "rank": math.log(rank),
        "match": score_match(search, candidate),
        "asks": min(1.0, candidate.features.get("question", 0.0)),
    }


def weigh(weights: Mapping[str, float], measures: Mapping[str, float]) -> float:
    """Return the log odds."""
    return sum(weight * measures[name] for name, weight in weights.items())


def to_probability(log_odds: float) -> float:
    """Return the probability for log odds.

    >>> to_probability(0.0)
    0.5
    """
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, log_odds))))


def judge(
    search: SnapshotSearch,
    ranked: Sequence[Candidate],
) -> tuple[float | None, list[Candidate]]:
    """Return the confidence in the answer, and the candidates with theirs.

    It is None if the profile does not define it, or if only words could be compared; it is 0 if only
    questions match.
    """
    model = search.profile.confidence
    if model is None or not ranked or search.vector is None or search.snapshot.unembedded:
        return None, list(ranked)
    measures = measure(search, ranked)
    answer = weigh(model.answer, measures)
    best = ranked[0].score
    judged = []
    for rank, each in enumerate(ranked, 1):
        of_hit = measure_hit(search, each, best=best, rank=rank, answer=answer)
        sure = to_probability(weigh(model.hit, of_hit))
        judged.append(replace(each, confidence=sure))
    return to_probability(answer) if measures["match"] else 0.0, judged


def scale_answer_threshold(count: int) -> float:
    """Return the factor for the threshold of an answer from `count` memories.

    In a large scope something similar is nearly always found, so more confidence is required.

    >>> [round(scale_answer_threshold(count), 2) for count in (10, 100, 1000, 100_000)]
    [0.35, 1.0, 2.15, 2.3]
    """
    share = 1.0 + 1.15 * math.log10(max(count, 1) / USUAL)
    return max(0.35, min(2.3, share))


def scale_hit_threshold(count: int) -> float:
    """Return the factor for the threshold of a hit: a small scope cannot return much anyway.

    >>> [round(scale_hit_threshold(count), 2) for count in (10, 30, 100)]
    [0.4, 0.5, 1.0]
    """
    return max(0.4, min(1.0, count / SMALL))


def select(
    search: SnapshotSearch,
    ranked: Sequence[Candidate],
    sure: float | None,
    least: float | None = None,
    *,
    whole: bool = False,
) -> tuple[list[Candidate], list[Cut]]:
    """Return the hits that count as evidence, and why others do not.

    `least` replaces the threshold of the profile: below it nothing is returned, and at 0 everything
    is. With `whole`, the list is not shortened.
    """
    model = search.profile.confidence
    if model is None or sure is None or least == 0:
        return list(ranked), []
    needed = model.least * scale_answer_threshold(search.size) if least is None else least
    if sure < needed:
        reason = f"the confidence of {sure:.2f} is below the required {needed:.2f}"
        return [], [Cut(id=each.memory.id, reason=reason, score=each.score) for each in ranked]
    needed = model.least_hit * scale_hit_threshold(search.size)
    best = max((each.score for each in ranked), default=0.0)
    kept: list[Candidate] = []
    cut: list[Cut] = []
    for each in ranked:
        is_likely = (each.confidence or 0.0) >= needed and each.score >= SHARE * best
        if whole or not kept or is_likely:
            kept.append(each)
            continue
        reason = "it is unlikely to answer the question"
        cut.append(Cut(id=each.memory.id, reason=reason, score=each.score))
    return kept, cut
