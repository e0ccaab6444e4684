"""The scoring engine: a score is a weighted sum of features, so that it can be taken apart again.

Every profile finds its candidates here and is scored here. The two legs of the default profile are
compared on an absolute scale: BM25 as a share of what the question's terms could reach, cosine as
it
is. The weights are round numbers set by hand and checked on parts of LoCoMo and iKAT; no weight is
fitted to data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TypeVar

import numpy as np

from ..index.arrays import Positions
from ..types import Cut, Memory, frozen
from .features import COMPUTED, Column, Scores, SnapshotSearch, compute, relevance
from .profiles import Gate, Profile

T = TypeVar("T")
PER_LEG = 100  # of each leg's ranking, where rankings are fused
_EVERYTHING = slice(None)
_LEAST = 0.001  # a best score below this is not stretched to 1


@frozen
class Candidates:
    """The candidates of one question as columns, with their memories once they are read."""

    positions: Positions  # in the snapshot
    relevance: Column  # similarity, as a hit reports it
    features: dict[str, Column]
    memories: Sequence[Memory] = ()

    @property
    def has_semantic(self) -> bool:
        """Whether the dense leg found anything at all: one switch for all candidates."""
        return bool(np.any(self.features.get("semantic", np.empty(0)) > 0))

    def pick(self, order: Sequence[int] | Positions) -> Candidates:
        """Return some of the candidates, before they are read, in the given order."""
        return Candidates(
            positions=self.positions[order],
            relevance=self.relevance[order],
            features={name: column[order] for name, column in self.features.items()},
        )


@frozen
class Candidate:
    """One memory with its score and the parts that add up to it."""

    memory: Memory
    score: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    features: Mapping[str, float] = field(default_factory=dict)
    relevance: float = 0.0
    position: int = -1  # in the snapshot; -1 if it was not found there


# Finding candidates


def select_best(search: SnapshotSearch, *, pool: int) -> Candidates:
    """Score every memory of the scope and return the best; equals are ordered by row."""
    profile = search.profile
    own = search.own
    total = own.copy()
    slack = 0.0
    for name, weight in profile.weights.items():
        if name == "recency":
            slack = abs(weight)  # a number from 0 to 1 each: enough to know it of the candidates
        elif name in COMPUTED and name not in ("sparse", "semantic"):
            column = COMPUTED[name](search, _EVERYTHING)
            if column is not None:
                total += np.float32(weight) * column
    is_supported = search.usable & (own + search.around > 0)
    total = np.where(is_supported, total, np.float32(-np.inf))
    least = lower_bound(total, pool) - slack
    positions = np.flatnonzero((total >= least) & is_supported)
    similar = search.cosine[positions].astype(np.float64)
    features = compute(search, positions)
    found = Candidates(positions=positions, relevance=similar, features=features)
    _, score = score_all(profile, found)
    rows = search.snapshot.row[positions]  # the same in every process
    order = np.lexsort((rows, -np.round(score, 7)))
    return found.pick(order[:pool])


def lower_bound(scores: Scores, count: int) -> float:
    """Return a number that at least `count` scores reach and few others, without sorting them all.

    >>> lower_bound(np.arange(100, dtype=np.float32), 2)
    94.0
    """
    if not 0 < count < len(scores):
        return -math.inf
    size = max(1, len(scores) // (10 * count))
    blocks = np.arange(0, len(scores), size)
    best = np.maximum.reduceat(scores, blocks)
    return float(np.partition(best, -count)[-count])


def select_by_legs(search: SnapshotSearch, *, limit: int, pool: int) -> Candidates:
    """Choose candidates by one leg, both, or the calendar, as the profile says."""
    kind = search.profile.candidates
    snapshot = search.snapshot
    fused: dict[int, float] = {}
    scores, _ = search.bm25
    if kind == "fused":
        most = max(pool, PER_LEG)
        legs = [_rank_leg(search, leg, most) for leg in (scores, search.semantic)]
        fused = reciprocal_rank(legs, k=search.profile.rrf_k)
        positions = np.array(list(fused), np.intp)
    elif kind == "dense":
        has_semantic = (search.semantic * search.usable).any()
        leg = search.semantic if has_semantic else scores
        best = _rank_leg(search, leg, max(pool, 4 * limit))
        positions = np.array(best, np.intp)
    else:
        positions = np.flatnonzero(search.usable)
        if kind == "recent":
            newest = np.lexsort((snapshot.row[positions], -snapshot.updated[positions]))
            most = max(pool, min(180, 12 * limit))
            positions = positions[newest][:most]
    features = compute(search, positions)
    features["fused"] = np.array([fused.get(each, 0.0) for each in positions.tolist()])
    similar = relevance(search, positions).astype(np.float64)
    return Candidates(positions=positions, features=features, relevance=similar)


def _rank_leg(search: SnapshotSearch, scores: Scores, most: int) -> list[int]:
    """Return usable positions with a score above 0, best first, equals by row."""
    usable = scores * search.usable
    least = lower_bound(usable, most)
    found = np.flatnonzero((usable > 0) & (usable >= least))
    rows = search.snapshot.row[found]
    order = np.lexsort((rows, -scores[found]))[:most]
    return [int(each) for each in found[order]]


def reciprocal_rank(rankings: Sequence[Sequence[T]], *, k: int = 60) -> dict[T, float]:
    """Score items by how high they stand in each ranking.

    >>> reciprocal_rank([["a", "b"], ["b"]], k=1)
    {'b': 0.8333333333333333, 'a': 0.5}
    """
    scores: dict[T, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, 1):
            scores[item] = scores.get(item, 0.0) + 1.0 / (k + rank)
    return dict(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])))


# Scoring


def score_all(profile: Profile, found: Candidates) -> tuple[dict[str, Column], Column]:
    """Return the parts of each score, by name, and their sum."""
    weights = profile.weights
    has_semantic = found.has_semantic
    if profile.sparse_weights is not None and not has_semantic:
        weights = profile.sparse_weights
    features = found.features
    parts = {name: weights[name] * features[name] for name in weights if name in features}
    total = np.zeros(len(found.positions))
    if parts:
        total = np.sum(list(parts.values()), axis=0)
    if profile.semantic_weight is not None and has_semantic:
        parts = mix(total, features["semantic"], profile.semantic_weight)
        total = parts["deterministic"] + parts["semantic"]
    return parts, total


def mix(deterministic: Column, semantic: Column, weight: float) -> dict[str, Column]:
    """Scale two halves so that the best candidate of each has 1, and mix them by the weight.

    >>> halves = mix(np.array([0.8, 0.4]), np.array([0.6, 0.3]), 0.5)
    >>> {name: half.tolist() for name, half in halves.items()}
    {'deterministic': [0.5, 0.25], 'semantic': [0.5, 0.25]}
    """
    best = deterministic.max(initial=_LEAST)
    nearest = semantic.max(initial=_LEAST)
    return {
        "deterministic": (1 - weight) * (deterministic / best),
        "semantic": weight * (semantic / nearest),
    }


def rank(profile: Profile, found: Candidates) -> list[Candidate]:
    """Return the candidates best first, equals in the order of the profile."""
    parts, total = score_all(profile, found)
    scores = total.tolist()
    features = {name: column.tolist() for name, column in found.features.items()}
    named = {name: column.tolist() for name, column in parts.items()}
    is_semantic = profile.only_semantic and found.has_semantic
    ranked = []
    for i, memory in enumerate(found.memories):
        candidate = Candidate(
            memory=memory,
            position=int(found.positions[i]),
            score=scores[i],
            parts={name: column[i] for name, column in named.items() if column[i]},
            features={name: column[i] for name, column in features.items()},
            relevance=float(found.relevance[i]),
        )
        if scores[i] > 0 or not is_semantic:
            ranked.append(candidate)
    if profile.ties == "row":
        ranked.sort(key=lambda c: c.memory.id)
    elif profile.ties == "newest":
        ranked.sort(key=lambda c: (c.memory.created_at, c.memory.id), reverse=True)
    else:
        ranked.sort(key=lambda c: c.memory.source_message_id or c.memory.id, reverse=True)
        ranked.sort(key=lambda c: (c.memory.importance, c.memory.created_at), reverse=True)
    digits = 6 if profile.ties == "newest" else 7  # as many as 32-bit features have
    ranked.sort(key=lambda c: -round(c.score, digits))
    return ranked


def put_repeats_last(ranked: list[Candidate], limit: int) -> list[Candidate]:
    """Put a fact last if the turns it was extracted from are among the first themselves."""
    first = {each.memory.id for each in ranked[:limit]}

    def is_repeated(candidate: Candidate) -> bool:
        sources = candidate.memory.evidence_ids
        return bool(candidate.memory.evidence_text and sources) and first.issuperset(sources)

    return sorted(ranked, key=is_repeated)


# What is strong enough


def floor(count: int) -> float:
    """Return the evidence below which a scope of so many memories has nothing to say.

    The best of many unrelated memories looks better than the best of a few, and in a short list
    even a faint match may be meant; so the floor rises with the size of the scope, steeply at
    first. It is for both legs together: where there is no vector, a shared word is evidence enough.

    >>> [round(floor(n), 2) for n in (10, 34, 100, 600, 100_000)]
    [0.03, 0.12, 0.25, 0.25, 0.3]
    """
    size = max(count, 1)
    growing = 0.03 + 0.4 * math.log10(size / 20)
    short = min(max(growing, 0.03), 0.25)
    long = min(0.12 * math.log10(size / 8), 0.3)
    return max(short, long)


def is_chance(search: SnapshotSearch, candidates: Sequence[Candidate]) -> bool:
    """Whether the best match is no better than the best of so many unrelated memories would be."""
    snapshot = search.snapshot
    if search.profile.candidates != "blend" or search.vector is None or snapshot.unembedded:
        return False
    evidence = 0.0
    for each in candidates:
        legs = each.parts.get("sparse", 0.0) + each.parts.get("semantic", 0.0)
        evidence = max(evidence, legs)
    return evidence < floor(snapshot.count)


def keep(
    profile: Profile,
    candidates: Sequence[Candidate],
    *,
    semantic: bool,
    chance: bool,
) -> tuple[list[Candidate], list[Cut]]:
    """Return those that pass the gate of the profile, in their order, and why the others do not."""
    gate = profile.gate
    if not semantic and profile.gate_without_semantic is not None:
        gate = profile.gate_without_semantic
    best = max((each.score for each in candidates), default=0.0)
    is_weak = gate.grows and chance
    strong = [not is_weak and passes(gate, each, best) for each in candidates]
    if not gate.strict and not any(strong):
        strong = [True] * len(candidates)
    kept = []
    cut = []
    for each, is_strong in zip(candidates, strong, strict=True):
        memory = each.memory
        reason = ""
        if not is_strong:
            reason = "its score is too low to count as evidence"
        elif memory.importance < gate.importance_min and not memory.pinned:
            reason = f"its importance is below {gate.importance_min}"
        elif memory.procedural_form == "workflow" and not profile.workflows:
            reason = "how-to memories have to be asked for"
        if reason:
            cut.append(Cut(id=memory.id, reason=reason, score=each.score))
        else:
            kept.append(each)
    return kept, cut


def passes(gate: Gate, candidate: Candidate, best: float) -> bool:
    """Whether a candidate is strong enough, beside the best score."""

    def reaches(least: Mapping[str, float]) -> bool:
        return any(candidate.features.get(name, 0.0) >= least[name] for name in least)

    score = candidate.score
    least = -math.inf if gate.floor is None else gate.floor
    if gate.share_of_best is not None:
        least = max(least, gate.share_of_best * max(best, 0.0))
    is_strong = reaches(gate.enough) or (not gate.enough and gate.strong is None)
    if gate.strong is not None and score >= gate.strong:
        is_strong = is_strong or not gate.signal or reaches(gate.signal)
    return is_strong and score >= least
