"""The scoring engine: a score is a weighted sum of features, so that it can be explained.

All profiles select and score their candidates here. The two legs of the default profile have an
absolute scale: BM25 as a share of the maximum for the terms of the question, and the plain cosine.
The weights are round numbers set by hand and checked on parts of LoCoMo and iKAT; no weight is
fitted to data.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from ..index.arrays import Positions, lower_bound
from ..text import normalize, tokens
from ..text.cues import MESSAGE
from ..types import Cut, Memory, frozen
from .estimate import estimate_best
from .features import COMPUTED, Column, Scores, SnapshotSearch, compute, relevance
from .profiles import Gate, Profile

T = TypeVar("T")
MEASURED = 10  # candidates by which confidence is judged
PER_LEG = 100  # of each leg's ranking, where rankings are fused
PASSAGES = 4  # of one message that are looked at for each result
_EVERYTHING = slice(None)
_LEAST = 0.001  # a best score below this is not scaled to 1


@frozen
class Candidates:
    """The candidates of one question as columns, with their memories once they are loaded."""

    positions: Positions  # in the snapshot
    relevance: Column  # similarity, as a hit reports it
    features: dict[str, Column]
    memories: Sequence[Memory] = ()

    @property
    def has_semantic(self) -> bool:
        """Whether the dense leg found any candidate."""
        semantic = self.features.get("semantic", np.empty(0))
        return bool(np.any(semantic > 0))

    def pick(self, order: Sequence[int] | Positions) -> Candidates:
        """Return some of the candidates, in the given order, without their memories."""
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
    confidence: float | None = None  # probability that it is what was asked for, if judged

    @property
    def verdict(self) -> float:
        """The part of the score that the verifier gave, if it was asked."""
        return self.parts.get("verdict", 0.0)

    @property
    def unverified(self) -> float:
        """The score without the verdict."""
        return self.score - self.verdict

    def cut(self, reason: str, *, fits: bool = True) -> Cut:
        """Return why it is left out."""
        return Cut(id=self.memory.id, reason=reason, score=self.score, fits=fits)


_TIE_BREAKERS: dict[str, Callable[[Candidate], Any]] = {
    "row": lambda each: each.memory.id,
    "newest": lambda each: (each.memory.created_at, each.memory.id),
    "message_id": lambda each: (
        each.memory.importance,
        each.memory.created_at,
        each.memory.source_message_id or each.memory.id,
    ),
}

# Selecting candidates


def select(search: SnapshotSearch, limit: int, *, everything: bool = False) -> Candidates:
    """Select candidates: a few more than requested, or everything that matches."""
    profile = search.profile
    pool = max(30, 4 * limit)
    if everything:
        pool = search.snapshot.n
    elif profile.candidates in ("dense", "recent"):
        pool = 0  # their specifications define the number
    elif profile.candidates == "blend" and not profile.rerank and profile.diversity is None:
        pool = max(limit, MEASURED) + 2  # confidence is judged by the same number for any limit
    if profile.candidates == "blend":
        return select_best(search, pool=pool)
    return select_by_legs(search, limit=limit, pool=pool)


def select_best(search: SnapshotSearch, *, pool: int) -> Candidates:
    """Score every memory of the scope and return the best; equals are ordered by row."""
    profile = search.profile
    own = search.own
    total = own.copy()
    slack = 0.0
    for name, weight in profile.weights.items():
        if name == "recency":
            slack = abs(weight)  # it is between 0 and 1, so computing it for candidates is enough
        elif name in COMPUTED and name not in ("sparse", "semantic", "multilingual"):
            column = COMPUTED[name](search, _EVERYTHING)
            if column is not None:
                total += np.float32(weight) * column
    is_supported = search.usable
    if search.in_period is None:
        is_supported = is_supported & (own + search.around > 0)
    np.copyto(total, -np.inf, where=~is_supported)
    least = lower_bound(total, PASSAGES * pool) - slack
    positions = np.flatnonzero((total >= least) & is_supported)
    found = Candidates(
        positions=positions,
        relevance=search.cosine[positions].astype(np.float64),
        features=compute(search, positions),
    )
    order = _order(search, found)
    if "estimate" in profile.weights and search.can_estimate:
        found.features["estimate"] = estimate_best(search, positions, order)
        order = _order(search, found)
    if "passage" in profile.weights:
        found.features["passage"] = passages = count_passages(search, positions, order)
        if passages.any():
            order = _order(search, found)
    return found.pick(order[:pool])


def _order(search: SnapshotSearch, found: Candidates) -> Positions:
    """Return the places of the candidates, best first."""
    _, score = score_all(search.profile, found)
    rows = search.snapshot.row[found.positions]  # the same in every process
    rounded = np.round(score, 7)
    return np.lexsort((rows, -rounded))


def count_passages(
    search: SnapshotSearch,
    positions: Positions,
    order: Positions,
) -> Column:
    """Return for each candidate how many passages of the same message are better, at most 3."""
    counts = np.zeros(len(positions))
    messages = (search.snapshot.flags[positions] >> MESSAGE).tolist()
    sessions = search.snapshot.session[positions].tolist()
    pairs = list(zip(sessions, messages, strict=True))
    if len(set(pairs)) == len(pairs):
        return counts
    seen: Counter[tuple[int, int]] = Counter()
    for i in order.tolist():
        if messages[i]:
            counts[i] = min(seen[pairs[i]], PASSAGES - 1)
            seen[pairs[i]] += 1
    return counts


def select_by_legs(
    search: SnapshotSearch,
    *,
    limit: int,
    pool: int,
) -> Candidates:
    """Select candidates by one leg, by both, or by date, as the profile says."""
    kind = search.profile.candidates
    snapshot = search.snapshot
    fused: dict[int, float] = {}
    scores, _ = search.bm25
    if kind == "fused":
        most = max(pool, PER_LEG)
        legs = [
            _rank_leg(search, scores, most),
            _rank_leg(search, search.semantic, most),
        ]
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
            rows = snapshot.row[positions]
            updated = snapshot.updated[positions]
            newest = np.lexsort((rows, -updated))
            most = max(pool, min(180, 12 * limit))
            positions = positions[newest][:most]
    features = compute(search, positions)
    features["fused"] = np.array([fused.get(each, 0.0) for each in positions.tolist()])
    return Candidates(
        positions=positions,
        features=features,
        relevance=relevance(search, positions).astype(np.float64),
    )


def _rank_leg(search: SnapshotSearch, scores: Scores, most: int) -> list[int]:
    """Return usable positions with a score above 0, best first, equals by row."""
    usable = scores * search.usable
    is_high = usable >= lower_bound(usable, most)
    found = np.flatnonzero((usable > 0) & is_high)
    rows = search.snapshot.row[found]
    order = np.lexsort((rows, -scores[found]))
    best: list[int] = found[order[:most]].tolist()
    return best


def reciprocal_rank(rankings: Sequence[Sequence[T]], *, k: int = 60) -> dict[T, float]:
    """Score items by their rank in each ranking.

    >>> reciprocal_rank([["a", "b"], ["b"]], k=1)
    {'b': 0.8333333333333333, 'a': 0.5}
    """
    scores: dict[T, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, 1):
            scores.setdefault(item, 0.0)
            scores[item] += 1.0 / (k + rank)
    return dict(sorted(scores.items(), key=lambda pair: (-pair[1], pair[0])))


# Scoring


def lexical(profile: Profile, question: str, memories: Sequence[Memory]) -> Column:
    """Return the share of the words of the question that each memory contains.

    In the compact form, the first words of at least three letters count, and a memory whose text or
    evidence contains the whole question has 1.
    """
    is_compact = profile.lexical == "compact"
    asked = normalize.compact(question)
    wanted = set(tokens.words(question))
    if is_compact:
        wanted = _long_words(asked, 32)
    shares = np.zeros(len(memories))
    for i, memory in enumerate(memories):
        fact = ""
        if is_compact:
            fact = normalize.compact(f"{memory.text} {memory.evidence_text or ''}")
            words = _long_words(fact, 96)
        else:
            tags = " ".join(memory.tags)
            words = set(tokens.words(f"{memory.text} {tags}"))
        if wanted:
            shares[i] = len(wanted & words) / len(wanted)
        if asked and asked in fact:
            shares[i] = 1.0
    return shares


def _long_words(text: str, most: int) -> set[str]:
    words = dict.fromkeys(text.split())
    long = (word for word in words if len(word) >= 3)
    return set(islice(long, most))


def score_all(profile: Profile, found: Candidates) -> tuple[dict[str, Column], Column]:
    """Return the parts of all scores, by name, and their sums."""
    weights = profile.weights
    if profile.sparse_weights is not None and not found.has_semantic:
        weights = profile.sparse_weights
    features = found.features
    names = [name for name in weights if name in features]
    columns = np.array([features[name] for name in names])
    factors = np.array([weights[name] for name in names])
    weighted = factors[:, None] * columns.reshape(len(names), len(found.positions))
    parts = dict(zip(names, weighted, strict=True))
    total = weighted.sum(axis=0)
    if profile.semantic_weight is not None and found.has_semantic:
        parts = mix(total, features["semantic"], profile.semantic_weight)
        total = parts["deterministic"] + parts["semantic"]
    return parts, total


def mix(
    deterministic: Column,
    semantic: Column,
    weight: float,
) -> dict[str, Column]:
    """Scale both columns to a maximum of 1, and mix them by the weight.

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
    """Return the candidates, best first; the profile orders equals."""
    columns, total = score_all(profile, found)
    is_semantic = profile.only_semantic and found.has_semantic
    scores = total.tolist()
    parts = _to_rows(columns, len(scores))
    features = _to_rows(found.features, len(scores))
    ranked = []
    for i, memory in enumerate(found.memories):
        if is_semantic and scores[i] <= 0:
            continue
        candidate = Candidate(
            memory=memory,
            position=found.positions.item(i),
            score=scores[i],
            parts={name: part for name, part in parts[i].items() if round(part, 7)},
            features=features[i],
            relevance=found.relevance.item(i),
        )
        ranked.append(candidate)
    ranked.sort(key=_TIE_BREAKERS[profile.ties], reverse=profile.ties != "row")
    digits = 6 if profile.ties == "newest" else 7  # the precision of 32-bit features
    ranked.sort(key=lambda each: -round(each.score, digits))
    return ranked


def _to_rows(columns: Mapping[str, Column], count: int) -> list[dict[str, float]]:
    """Return the values of each candidate by name."""
    values = np.array(list(columns.values())).reshape(len(columns), count).T
    return [dict(zip(columns, row, strict=True)) for row in values.tolist()]


# Gates


def keep(
    profile: Profile,
    candidates: Sequence[Candidate],
    *,
    semantic: bool,
) -> tuple[list[Candidate], list[Cut]]:
    """Return the candidates that pass the gate of the profile, and why the others do not."""
    gate = profile.gate
    if not semantic and profile.gate_without_semantic is not None:
        gate = profile.gate_without_semantic
    strong = [passes(gate, each) for each in candidates]
    everything = not gate.strict and not any(strong)
    kept = []
    cut = []
    for each, is_strong in zip(candidates, strong, strict=True):
        memory = each.memory
        reason = ""
        if not is_strong and not everything:
            reason = "its score is too low to count as evidence"
        elif memory.importance < gate.importance_min and not memory.pinned:
            reason = f"its importance is below {gate.importance_min}"
        elif memory.procedural_form == "workflow" and not profile.workflows:
            reason = "workflows are returned only on request"
        if reason:
            cut.append(each.cut(reason))
        else:
            kept.append(each)
    return kept, cut


def passes(gate: Gate, candidate: Candidate) -> bool:
    """Return whether a candidate is strong enough."""
    features = candidate.features

    def reaches(least: Mapping[str, float]) -> bool:
        return any(features.get(name, 0.0) >= least[name] for name in least)

    score = candidate.score
    least = -math.inf if gate.floor is None else gate.floor
    is_strong = reaches(gate.enough) or (not gate.enough and gate.strong is None)
    if gate.strong is not None and score >= gate.strong:
        is_strong = is_strong or not gate.signal or reaches(gate.signal)
    return is_strong and score >= least
