"""Confidence: how likely an answer contains what was asked for, and how likely each hit does.

Both are logistic models over a few readable measures. Their weights are part of the profile;
`bench/fit.py` fits them for the packaged models.

Where they are uncertain, `verification.py` has the best candidates verified, and both are judged
again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..text import cues
from ..text.cues import IS_FOREIGN, ONLY_ASKS
from ..types import Cut
from .estimate import NEUTRAL
from .features import SnapshotSearch
from .profiles import Confidence
from .question import is_aside
from .score import Candidate

TOP = 3  # candidates whose words are compared with the question
FEW_FOREIGN = 20  # memories of a scope below which it decreases in languages other than English
TINY = 4  # memories of a scope below which the threshold of an answer decreases
FEW = 5  # candidates whose mean is taken
DENSE = ("semantic", "multilingual", "unembedded")
USUAL = 100  # memories of a scope above which the threshold of an answer increases
SMALL = 30  # memories of a scope below which the threshold of a hit decreases
LARGE = 300  # and above which it increases
CERTAIN = 4.0  # log odds from which a verdict counts fully
IN_PERIOD = 0.9  # for the best of what a period has, if the question asks for nothing else
SHARE = 0.25  # of the best score, without verdicts, that every hit needs
_LEAST = 1e-9  # of a score that others are compared with
NEXT_PART = re.compile(r"(?i),? and (?=(?:who|whom|whose|what|which|when|where|why|how)\b)")


def measure(search: SnapshotSearch, ranked: Sequence[Candidate]) -> dict[str, float]:
    """Return the measures of an answer, given its candidates, best first."""
    question = search.question
    meanings = [score_meaning(search, each) for each in ranked[:FEW]]
    meaning = sum(meanings) / len(meanings)
    terms = zip(question.terms, search.postings, strict=True)
    missing = {term for term, posting in terms if not len(posting.positions)}
    is_personal = question.is_personal
    is_request = question.kinds & cues.HAS_RULE
    is_unknown = not is_request and not missing.isdisjoint(question.names)
    shared = max(count_shared(search, each) for each in ranked[:TOP])
    is_covered = 0 < len(question.terms) <= shared  # such as "who is Jonas?"
    is_general = question.is_task and not (is_personal or is_covered)
    size = math.log10(max(search.size, 1))
    few = 0.0 if shared else max(0.0, 1.0 - size)  # 1 for one memory, 0 from ten on
    return {
        "always": 1.0,
        "shared": shared,
        "meaning": meaning,
        "unknown_name": float(is_unknown),
        "personal": float(is_personal),
        "general": float(is_general),
        "size": size,
        "small": max(0.0, min(1.0, 2.0 - size)) * (meaning + 0.5 * is_personal),
        "few": few,
        "few_best": few * max(meanings),
        "few_personal": few * is_personal,
        "estimate": max(measure_estimate(each) for each in ranked[:FEW]),
    }


def count_shared(search: SnapshotSearch, candidate: Candidate) -> float:
    """Return how many words of the question a memory has."""
    if only_asks(search, candidate):
        return 0.0
    return float(sum(candidate.position in each.positions for each in search.postings))


def only_asks(search: SnapshotSearch, candidate: Candidate) -> bool:
    """Return whether a memory is a short question, which answers nothing however well it matches."""
    return bool(search.snapshot.flags.item(candidate.position) & ONLY_ASKS)


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
) -> dict[str, float]:
    """Return the measures of one hit, given the best score."""
    return {
        "always": 1.0,
        "behind": best - candidate.score,
        "rank": math.log(rank),
        "match": score_match(search, candidate),
        "asks": min(1.0, candidate.features.get("question", 0.0)),
        "estimate": measure_estimate(candidate),
    }


def measure_estimate(candidate: Candidate) -> float:
    """Return the estimate of a candidate, from -0.5 to 0.5; 0 if there is none."""
    return candidate.features.get("estimate", NEUTRAL) - NEUTRAL


def uses_foreign_weights(search: SnapshotSearch, ranked: Sequence[Candidate]) -> bool:
    """Return whether the best candidate or the question is not in English, and estimates are known."""
    is_foreign = search.foreign is not None and bool(search.foreign[ranked[0].position])
    return is_foreign and search.can_estimate


def weigh(weights: Mapping[str, float], measures: Mapping[str, float]) -> float:
    """Return the log odds."""
    return sum(weight * measures[name] for name, weight in weights.items())


def to_probability(log_odds: float) -> float:
    """Return the probability for log odds.

    >>> to_probability(0.0)
    0.5
    """
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, log_odds))))


def to_log_odds(probability: float) -> float:
    """Return the log odds of a probability.

    >>> to_log_odds(0.5)
    0.0
    """
    bounded = max(1e-6, min(1 - 1e-6, probability))
    return math.log(bounded / (1 - bounded))


def judge(
    search: SnapshotSearch,
    ranked: Sequence[Candidate],
) -> tuple[float | None, list[Candidate]]:
    """Return the confidence in the answer, and the candidates with theirs.

    It is None if the profile does not define it, or if only words could be compared, because the
    question or all candidates have no vector. It is 0 if only questions match, or if nothing is
    asked, as in "ok, thanks".
    """
    if search.in_period is not None:
        return judge_by_period(ranked)
    model = search.profile.confidence
    positions = [each.position for each in ranked]
    if model is None or search.vector is None or not search.snapshot.embedded[positions].any():
        return None, list(ranked)
    answer, hit = model.answer, model.hit
    if uses_foreign_weights(search, ranked):
        answer, hit = model.answer_foreign, model.hit_foreign
    best = ranked[0].score
    judged = []
    for rank, each in enumerate(ranked, 1):
        of_hit = measure_hit(search, each, best=best, rank=rank)
        sure = to_probability(weigh(hit, of_hit))
        judged.append(replace(each, confidence=sure))
    matches = any(score_match(search, each) for each in ranked[: 2 * FEW])
    if not matches or not search.question.needs_memory:
        return 0.0, judged
    return to_probability(weigh(answer, measure(search, ranked))), judged


def judge_by_period(ranked: Sequence[Candidate]) -> tuple[float, list[Candidate]]:
    """Return the confidence in what a period has, if the question asks for nothing else.

    Of "ok, thanks" and the like it is 0.
    """
    best = max((each.score for each in ranked), default=0.0)
    judged = []
    for each in ranked:
        share = 0.0 if is_aside(each.memory.text) else each.score / max(best, _LEAST)
        judged.append(replace(each, confidence=IN_PERIOD * max(0.0, min(1.0, share))))
    return max((each.confidence or 0.0 for each in judged), default=0.0), judged


def is_uncertain(search: SnapshotSearch, ranked: Sequence[Candidate], sure: float) -> bool:
    """Return whether an answer that has the confidence it needs is worth verifying.

    The verifier knows short questions in English: nothing is verified if the question is long, or if
    it or the best match is in another language.
    """
    if search.in_period is not None:
        return False
    model = search.profile.confidence
    question = search.question
    is_foreign = search.snapshot.marked[IS_FOREIGN]
    is_known = question.is_english and not question.is_long
    if model is None or not is_known or is_foreign[ranked[0].position]:
        return False
    return model.least * scale_answer_threshold(search.size) <= sure < model.certain


def judge_verified(
    search: SnapshotSearch,
    ranked: Sequence[Candidate],
    sure: float,
    odds: Mapping[str, float],
) -> tuple[float, list[Candidate]]:
    """Return the confidence and the candidates after verification, best first.

    What was not verified gets the least verdict, so that it overtakes nothing, and keeps its
    confidence. What is not in English gets a neutral one. The confidence in the answer to a request
    stays: a memory serves a request without answering it, so a verdict hardly tells whether it does.
    """
    model = search.profile.confidence
    assert model is not None
    is_request = not search.question.is_direct
    weight = search.profile.weights.get("verdict", 0.0)
    least = min(odds.values())
    is_foreign = search.snapshot.marked[IS_FOREIGN]
    changed = []
    for each in ranked:
        mine = odds.get(each.memory.id, 0.0 if is_foreign[each.position] else least)
        likely = each.confidence
        if each.memory.id in odds and likely is not None:
            likely = judge_again(model.hit_verified, likely, mine, is_request)
        part = weight * scale_verdict(mine)
        parts = {**each.parts, "verdict": part}
        changed.append(replace(each, score=each.score + part, parts=parts, confidence=likely))
    changed.sort(key=lambda each: -round(each.score, 7))
    if not is_request:
        sure = judge_again(model.answer_verified, sure, max(odds.values()))
    return sure, changed


def judge_again(
    weights: Mapping[str, float],
    before: float,
    odds: float,
    is_request: bool = False,
) -> float:
    """Return the confidence after a verdict, given the confidence before it."""
    measures = {
        "always": 1.0,
        "before": to_log_odds(before),
        "verdict": odds,
        "request": float(is_request),
    }
    return to_probability(weigh(weights, measures))


def scale_verdict(odds: float) -> float:
    """Return log odds as a feature, from 0 to 1.

    >>> scale_verdict(-4.0), scale_verdict(0.0), scale_verdict(4.0)
    (0.0, 0.5, 1.0)
    """
    return 0.5 + odds / (2 * CERTAIN)


def scale_answer_threshold(count: int) -> float:
    """Return the factor for the threshold of an answer from `count` memories.

    In a large scope something similar is nearly always found, so more confidence is required. One or
    two memories seldom contain what is asked for, and cost little if they do not.

    >>> [round(scale_answer_threshold(count), 2) for count in (1, 2, 10, 100, 1000, 100_000)]
    [0.12, 0.3, 1.0, 1.0, 1.75, 1.8]
    """
    if count < TINY:
        return max(0.12, 1.0 - 1.4 * (0.8 - math.log10(max(count, 1))))
    share = 1.0 + 0.75 * math.log10(max(count, USUAL) / USUAL)
    return min(1.8, share)


def scale_hit_threshold(count: int) -> float:
    """Return the factor for the threshold of a hit.

    A small scope cannot return much anyway, and a large one has more that is only similar.

    >>> [round(scale_hit_threshold(count), 2) for count in (10, 20, 100, 3000)]
    [0.55, 0.67, 1.0, 1.5]
    """
    share = max(0.55, min(1.0, count / SMALL))
    return share + 0.5 * math.log10(max(count, LARGE) / LARGE)


def select(
    search: SnapshotSearch,
    ranked: Sequence[Candidate],
    sure: float | None,
    least: float | None = None,
    *,
    verified: bool = False,
    whole: bool = False,
) -> tuple[list[Candidate], list[Cut]]:
    """Return the hits that count as evidence, and why others do not.

    `least` replaces the threshold of the profile: below it nothing is returned, and at 0 everything
    is. With `whole`, the list is not shortened. If only words could be compared, a hit needs one of
    the question.
    """
    model = search.profile.confidence
    if model is None or least == 0 or not ranked:
        return list(ranked), []
    if sure is None:
        return _select_by_words(ranked)
    needed = least
    if needed is None:
        needed = find_threshold(search, ranked, model, verified=verified)
    if sure < needed:
        reason = f"the confidence of {sure:.2f} is below the required {needed:.2f}"
        return [], [Cut(id=each.memory.id, reason=reason, score=each.score) for each in ranked]
    least_hit = model.least_hit_foreign if uses_foreign_weights(search, ranked) else model.least_hit
    needed = least_hit * scale_hit_threshold(search.size)
    if NEXT_PART.search(search.question.text):  # what answers one part seldom matches the other
        needed *= 0.8
    elif verified and search.question.is_direct:
        surest = max((each.confidence or 0.0 for each in ranked), default=0.0)
        share = model.share_verified / scale_answer_threshold(max(search.size, TINY)) ** 2
        needed = max(needed, share * surest)
    best = max((each.unverified for each in ranked), default=0.0)
    kept: list[Candidate] = []
    cut: list[Cut] = []
    for each in ranked:
        is_likely = (each.confidence or 0.0) >= needed and each.unverified >= SHARE * best
        if whole or not kept or is_likely:
            kept.append(each)
            continue
        reason = "it is unlikely to answer the question"
        cut.append(Cut(id=each.memory.id, reason=reason, score=each.score))
    return kept, cut


def find_threshold(
    search: SnapshotSearch, ranked: Sequence[Candidate], model: Confidence, *, verified: bool
) -> float:
    """Return the confidence that an answer needs.

    In languages other than English, where less is certain, it is lower in scopes of few memories: an
    answer costs little there.
    """
    share = scale_answer_threshold(search.size)
    if verified and search.question.is_direct:
        return model.least_verified * min(1.0, share)
    if uses_foreign_weights(search, ranked):
        return model.least_foreign * min(share, max(0.4, search.size / FEW_FOREIGN))
    return model.least * share


def _select_by_words(ranked: Sequence[Candidate]) -> tuple[list[Candidate], list[Cut]]:
    """Return the candidates that have a word of the question, or replace one that has."""
    kept: list[Candidate] = []
    cut: list[Cut] = []
    for each in ranked:
        if each.features.get("sparse", 1.0) > 0 or "current" in each.parts:
            kept.append(each)
        else:
            cut.append(each.cut("without vectors, it has no word of the question"))
    return kept, cut
