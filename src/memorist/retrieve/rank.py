"""From features to a score that is the sum of its parts, by the formula of the profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..text import normalize, tokens
from ..types import Memory
from .candidates import Candidates, Column
from .profiles import Profile

_LEAST = 0.001  # a best score below this is not stretched to 1
_MOST_QUERY, _MOST_FACT = 32, 96


def scored(profile: Profile, found: Candidates) -> Candidates:
    """The candidates with score and parts; those that `blend` has scored stay as they are."""
    if profile.candidates == "blend":
        return found
    weights = profile.weights
    if profile.sparse_weights is not None and not has_semantic(found):
        weights = profile.sparse_weights
    parts = {
        name: weight * found.features[name]
        for name, weight in weights.items()
        if name in found.features
    }
    if profile.semantic_weight is not None and has_semantic(found):
        parts = mixed(parts, found.features["semantic"], profile.semantic_weight)
    return replace(found, parts=parts, score=_sum(parts, len(found.positions)))


def has_semantic(found: Candidates) -> bool:
    """Whether the dense leg found anything at all: one switch for all candidates."""
    return bool((found.features.get("semantic", np.zeros(0)) > 0).any())


def mixed(parts: Mapping[str, Column], semantic: Column, weight: float) -> dict[str, Column]:
    """Two halves, each scaled so that its best candidate has 1, mixed by the weight.

    >>> two = mixed({"all": np.array([0.8, 0.4])}, np.array([0.6, 0.3]), 0.5)
    >>> {name: half.tolist() for name, half in two.items()}
    {'deterministic': [0.5, 0.25], 'semantic': [0.5, 0.25]}
    """
    return {
        "deterministic": (1 - weight) * scaled(_sum(parts, len(semantic))),
        "semantic": weight * scaled(semantic),
    }


def scaled(scores: Column) -> Column:
    """Divided by the largest.

    >>> scaled(np.array([1.0, 4.0])).tolist()
    [0.25, 1.0]
    """
    return scores / max(float(scores.max(initial=0.0)), _LEAST)


def _sum(parts: Mapping[str, Column], n: int) -> Column:
    return np.sum(list(parts.values()), axis=0) if parts else np.zeros(n)


def lexical(profile: Profile, question: str, memories: Sequence[Memory]) -> Column:
    """How much of the question's words each memory shares, from 0 to 1."""
    overlap = _compact_overlap if profile.lexical == "compact" else _word_overlap
    return np.array(overlap(question, memories), np.float64)


def _word_overlap(question: str, memories: Sequence[Memory]) -> list[float]:
    """Shared words over the words of the question; a memory's tags count like its text."""
    asked = set(tokens.words(question))
    if not asked:
        return [0.0] * len(memories)
    said = (set(tokens.words(f"{memory.text} {' '.join(memory.tags)}")) for memory in memories)
    return [len(asked & words) / len(asked) for words in said]


def _compact_overlap(question: str, memories: Sequence[Memory]) -> list[float]:
    """1 if the whole question stands in the fact or its evidence, else shared tokens over the question's."""
    asked = normalize.compact(question)
    wanted = _few(asked, _MOST_QUERY)
    facts = (
        normalize.compact(f"{memory.text} {memory.evidence_text or ''}") for memory in memories
    )
    return [1.0 if asked and asked in fact else _share(wanted, fact) for fact in facts]


def _few(text: str, most: int) -> list[str]:
    return list(dict.fromkeys(word for word in text.split() if len(word) >= 3))[:most]


def _share(wanted: Sequence[str], fact: str) -> float:
    return len(set(wanted) & set(_few(fact, _MOST_FACT))) / len(wanted) if wanted else 0.0
