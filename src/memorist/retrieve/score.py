"""The scoring engine: a score is a weighted sum of features, so that it can be taken apart again.

Every profile is scored here. The two legs of the default profile are compared on an absolute scale:
BM25 as a share of what the question's terms could reach, cosine as it is. The weights are round
numbers set by hand and checked on parts of LoCoMo and iKAT; no weight is fitted to data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..types import Cut, Memory
from .features import Column, SnapshotSearch, at, compute
from .profiles import Gate, Profile

_LEAST = 0.001  # a best score below this is not stretched to 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The candidates of one question as columns, with their memories once they are read."""

    positions: NDArray[np.intp]  # in the snapshot
    relevance: Column  # similarity, as a hit reports it
    features: Mapping[str, Column]
    memories: Sequence[Memory] = ()

    @property
    def has_semantic(self) -> bool:
        """Whether the dense leg found anything at all: one switch for all candidates."""
        return "semantic" in self.features and bool((self.features["semantic"] > 0).any())

    def pick(self, order: NDArray[np.intp]) -> Candidates:
        """Return some of the candidates, before they are read, in the given order."""
        return Candidates(
            positions=self.positions[order],
            relevance=self.relevance[order],
            features={name: column[order] for name, column in self.features.items()},
        )

    def with_feature(self, name: str, column: Column) -> Candidates:
        """Return the candidates with one more feature."""
        return replace(self, features={**self.features, name: column})


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One memory with its score and the parts that add up to it."""

    memory: Memory
    score: float = 0.0
    parts: Mapping[str, float] = field(default_factory=dict)
    features: Mapping[str, float] = field(default_factory=dict)
    relevance: float = 0.0
    position: int = -1  # in the snapshot; -1 if it was not found there


def select_best(search: SnapshotSearch, *, pool: int) -> Candidates:
    """Score every memory of the scope and return the best; equals are ordered by row."""
    weights, own = search.profile.weights, search.own
    columns = compute(search, {"sparse", "semantic"})
    total = own.copy()
    for name, column in columns.items():
        weight = weights.get(name, 0.0)
        if column is not None and weight and name not in ("sparse", "semantic"):
            total += np.float32(weight) * column
    is_supported = search.usable & (own + search.around > 0)
    total = np.where(is_supported, total, np.float32(-np.inf))
    least = np.partition(total, -pool)[-pool] if 0 < pool < len(total) else -np.inf
    positions = np.flatnonzero((total >= least) & is_supported)
    features = at(positions, columns)
    relevance = search.cosine[positions].astype(np.float64)
    found = Candidates(positions=positions, features=features, relevance=relevance)
    _, score = score_all(search.profile, found)
    rows = search.snapshot.row[positions]  # the same in every process
    return found.pick(np.lexsort((rows, -np.round(score, 7)))[:pool])


def score_all(profile: Profile, found: Candidates) -> tuple[dict[str, Column], Column]:
    """Return the parts of each score, by name, and their sum."""
    weights = profile.weights
    if profile.sparse_weights is not None and not found.has_semantic:
        weights = profile.sparse_weights
    parts = {}
    for name, weight in weights.items():
        if name in found.features:
            parts[name] = weight * found.features[name]
    total = np.sum(list(parts.values()), axis=0) if parts else np.zeros(len(found.positions))
    if profile.semantic_weight is not None and found.has_semantic:
        parts = mix(total, found.features["semantic"], profile.semantic_weight)
        total = np.sum(list(parts.values()), axis=0)
    return parts, total


def mix(deterministic: Column, semantic: Column, weight: float) -> dict[str, Column]:
    """Scale two halves so that the best candidate of each has 1, and mix them by the weight.

    >>> halves = mix(np.array([0.8, 0.4]), np.array([0.6, 0.3]), 0.5)
    >>> {name: half.tolist() for name, half in halves.items()}
    {'deterministic': [0.5, 0.25], 'semantic': [0.5, 0.25]}
    """
    best, nearest = deterministic.max(initial=0.0), semantic.max(initial=0.0)
    return {
        "deterministic": (1 - weight) * (deterministic / max(float(best), _LEAST)),
        "semantic": weight * (semantic / max(float(nearest), _LEAST)),
    }


def rank(profile: Profile, found: Candidates) -> list[Candidate]:
    """Return the candidates best first, equals in the order of the profile."""
    parts, total = score_all(profile, found)
    score = total.tolist()
    features = {name: column.tolist() for name, column in found.features.items()}
    named = {name: column.tolist() for name, column in parts.items()}
    ranked = []
    for i, memory in enumerate(found.memories):
        if profile.only_semantic and found.has_semantic and score[i] <= 0:
            continue
        candidate = Candidate(
            memory=memory,
            position=int(found.positions[i]),
            score=score[i],
            parts={name: column[i] for name, column in named.items() if column[i]},
            features={name: column[i] for name, column in features.items()},
            relevance=float(found.relevance[i]),
        )
        ranked.append(candidate)
    if profile.ties == "row":
        ranked.sort(key=lambda each: (-round(each.score, 7), each.memory.id))
    elif profile.ties == "message_id":
        ranked.sort(key=lambda c: c.memory.source_message_id or c.memory.id, reverse=True)
        ranked.sort(key=lambda c: (-c.memory.importance, -c.memory.created_at.timestamp()))
        ranked.sort(key=lambda c: -round(c.score, 7))
    else:
        ranked.sort(key=lambda c: c.memory.id, reverse=True)
        ranked.sort(key=lambda c: -c.memory.created_at.timestamp())
        ranked.sort(key=lambda c: -round(c.score, 6))  # as many digits as 32-bit features have
    return ranked


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
    short = min(max(0.03 + 0.4 * math.log10(size / 20), 0.03), 0.25)
    return max(short, min(0.12 * math.log10(size / 8), 0.3))


def is_chance(search: SnapshotSearch, candidates: Sequence[Candidate]) -> bool:
    """Whether the best match is no better than the best of so many unrelated memories would be."""
    snapshot = search.snapshot
    if search.profile.candidates != "blend" or search.vector is None or not snapshot.is_embedded:
        return False
    evidence = 0.0
    for each in candidates:
        evidence = max(evidence, each.parts.get("sparse", 0.0) + each.parts.get("semantic", 0.0))
    return evidence < floor(snapshot.count)


def keep(
    profile: Profile, candidates: Sequence[Candidate], *, semantic: bool, chance: bool
) -> tuple[list[Candidate], list[Cut]]:
    """Return those that pass the gate of the profile, in their order, and why the others do not."""
    gate = profile.gate
    if not semantic and profile.gate_without_semantic is not None:
        gate = profile.gate_without_semantic
    best = max((each.score for each in candidates), default=0.0)
    passing = [passes(gate, each, best) for each in candidates]
    if gate.grows and chance:
        passing = [False] * len(candidates)
    everything = not gate.strict and not any(passing)
    kept, cut = [], []
    for each, is_strong in zip(candidates, passing, strict=True):
        memory, reason = each.memory, ""
        if not is_strong and not everything:
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
    score, features = candidate.score, candidate.features
    is_strong = not gate.enough and gate.strong is None
    is_strong = is_strong or _reaches(features, gate.enough)
    if gate.strong is not None and score >= gate.strong:
        is_strong = is_strong or not gate.signal or _reaches(features, gate.signal)
    if gate.floor is not None and score < gate.floor:
        return False
    if gate.share_of_best is not None and score < gate.share_of_best * max(best, 0.0):
        return False
    return is_strong


def _reaches(features: Mapping[str, float], least: Mapping[str, float]) -> bool:
    return any(features.get(name, 0.0) >= enough for name, enough in least.items())
