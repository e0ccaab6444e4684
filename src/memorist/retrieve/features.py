"""Features: what speaks for a memory, one number per position of the snapshot.

`SnapshotSearch` is one question against one snapshot. It computes the two legs once, and every
feature from them and from the columns of the snapshot. Only `lexical`, `related` and `fused` come
from elsewhere: they need texts, links or rankings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..index import NO_TIME, Neighbors, Snapshot
from ..text import clock, normalize, tokens
from ..text.tokens import FROM_ASSISTANT, FROM_USER, HAS_TIME, IS_QUESTION, IS_SUMMARY
from ..types import KINDS, Memory
from .profiles import Profile
from .question import ParsedQuestion

Scores = NDArray[np.float32]
Column = NDArray[np.float64]
K1, B = 1.2, 0.9  # of BM25
TOLD_WITHIN = timedelta(days=31)  # people tell what happened some weeks later
_INSIGHT = KINDS.index("insight")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_ASKED, _MOST_FACT = 32, 96  # words that the compact overlap compares


@dataclass(frozen=True, kw_only=True)
class SnapshotSearch:
    """One question against one snapshot."""

    profile: Profile
    snapshot: Snapshot
    question: ParsedQuestion
    vector: NDArray[np.float32] | None  # of the question
    usable: NDArray[np.bool_]  # what may be returned
    now: datetime
    channel: int = -1  # code of the channel of the question; -1 if it has none

    @cached_property
    def used(self) -> set[str]:
        """Features that a weight or a gate of the profile names."""
        profile = self.profile
        names = {*profile.weights, *(profile.sparse_weights or ())}
        for gate in (profile.gate, profile.gate_without_semantic or profile.gate):
            names |= {*gate.enough, *gate.signal}
        return names

    @cached_property
    def bm25(self) -> tuple[Scores, float]:
        """BM25 of each position, and about the best that the terms of the question could reach."""
        return bm25(self.snapshot, self.question.terms)

    @cached_property
    def cosine(self) -> Scores:
        """Cosine of each position with the question; 0 where there is no vector."""
        if self.vector is None:
            return np.zeros(self.snapshot.n, np.float32)
        return self.snapshot.similarity(self.vector)

    @cached_property
    def sparse(self) -> Scores:
        """The sparse leg: absolute where all memories are ranked, else a share of the best."""
        scores, bound = self.bm25
        if self.profile.candidates == "blend":
            share = scores / np.float32(bound) if bound > 0 else np.zeros_like(scores)
            is_filtered = self.usable is not self.snapshot.alive  # the dead have no postings
            return share * self.usable if is_filtered else share
        best = float(scores.max(initial=0.0))
        return scores / best if best > 0 else scores

    @cached_property
    def semantic(self) -> Scores:
        """The dense leg, never below 0."""
        positive = np.maximum(self.cosine, np.float32(0.0))
        return positive * self.usable if self.profile.candidates == "blend" else positive

    @cached_property
    def own(self) -> Scores:
        """How well each memory matches by its own words; 0 for what may not be returned."""
        weights = self.profile.weights
        total = np.float32(weights.get("sparse", 0.0)) * self.sparse
        total += np.float32(weights.get("semantic", 0.0)) * self.semantic
        return total if self.profile.candidates == "blend" else total * self.usable

    @cached_property
    def around(self) -> Scores:
        """How well the turns before and after each memory match."""
        return neighbors(self.own, self.snapshot.neighbors)


def bm25(snapshot: Snapshot, terms: Sequence[int]) -> tuple[Scores, float]:
    """Score each position by BM25, and return about the best that these terms could reach.

    The bound makes the scores of different questions comparable.
    """
    scores, total = np.zeros(snapshot.n, np.float32), 0.0
    for term in terms:
        where, counts = snapshot.postings(term)
        rare = (snapshot.count - len(where) + 0.5) / (len(where) + 0.5)
        weight = float(np.log1p(rare))
        total += weight
        if len(where):
            norm = K1 * (1.0 - B + B * snapshot.length_share[where])
            scores[where] += np.float32(weight * (K1 + 1.0)) * counts / (counts + norm)
    return scores, 0.6 * (K1 + 1.0) * total


# What stands around a memory


def neighbors(scores: Scores, place: Neighbors) -> Scores:
    """Return the better score of the two turns around each: who speaks of a thing goes on about it.

    >>> place = Neighbors.of(np.array([0, 1, 2], np.int32), np.array([5, 5, 6], np.int32))
    >>> neighbors(np.array([0.5, 0.0, 0.25], dtype=np.float32), place).tolist()
    [0.0, 0.5, 0.0]
    """
    padded = np.append(scores, np.float32(0.0))
    return np.maximum(padded[place.before], padded[place.after])


def answers(search: SnapshotSearch) -> Scores:
    """Return the score of the turn before, if that ended in a question: the reply answers it.

    A reply of the assistant tells nothing about the person, so it counts only where the assistant
    is asked about.
    """
    snapshot, replies = search.snapshot, search.snapshot.replies
    if not search.question.asks_assistant:
        replies = replies[~snapshot.marked[FROM_ASSISTANT][replies]]
    found = np.zeros(snapshot.n, np.float32)
    found[replies] = search.own[snapshot.neighbors.before[replies]]
    return found


def session(scores: Scores, place: Neighbors) -> Scores:
    """Return the best score in the session of each.

    >>> place = Neighbors.of(np.array([1, 0, 2], np.int32), np.array([5, 5, 6], np.int32))
    >>> session(np.array([0.5, 0.0, 0.25], dtype=np.float32), place).tolist()
    [0.5, 0.5, 0.25]
    """
    if not len(place.order):
        return np.zeros_like(scores)
    best = np.maximum.reduceat(scores[place.order], place.starts)
    return np.append(best, np.float32(0.0))[place.group]


# Who said it and when


def role(search: SnapshotSearch) -> NDArray[np.bool_]:
    """Mark what the side said that is not asked about: nearly always the assistant."""
    assistant = search.snapshot.marked[FROM_ASSISTANT]
    if search.question.asks_assistant and assistant.any():
        return search.snapshot.marked[FROM_USER]
    return assistant


def speaker(search: SnapshotSearch) -> NDArray[np.bool_] | None:
    """Mark what the person said whom the question names, if it names exactly one."""
    named = search.question.speakers
    return search.snapshot.speaker == named[0] if len(named) == 1 else None


def time(search: SnapshotSearch) -> Scores | None:
    """Return 1 for what was said in the time that the question names, 0.5 in the month after."""
    occurred = search.snapshot.occurred
    known = occurred[occurred != NO_TIME] if search.question.intervals else occurred[:0]
    if not len(known):
        return None
    first = _EPOCH + timedelta(microseconds=int(known.min())) - TOLD_WITHIN
    last = _EPOCH + timedelta(microseconds=int(known.max()))
    found = np.zeros(len(occurred), np.float32)
    stretches = []
    for interval in search.question.intervals:
        stretches += interval.within(first, last)
    for _, end in stretches:
        after = clock.micros(end + TOLD_WITHIN)
        found[(occurred >= clock.micros(end)) & (occurred < after)] = 0.5
    for start, end in stretches:
        found[(occurred >= clock.micros(start)) & (occurred < clock.micros(end))] = 1.0
    return found


def recency(search: SnapshotSearch) -> NDArray[Any] | None:
    """Return how new each is: 1 for now, towards 0 with age; a date in the future is now."""
    fading = search.profile.recency
    if fading is None:
        return None
    if fading.shape == "half_life":
        today = np.float32(clock.micros(search.now) / 86_400_000_000)
        days = np.maximum(today - search.snapshot.days, np.float32(0.0))
        return np.asarray(np.exp2(-days / np.float32(fading.scale / 86_400)))
    age = np.maximum(clock.micros(search.now) - search.snapshot.created, 0) / 1e6
    if fading.shape == "hyperbolic":
        return np.asarray(1.0 / (1.0 + age / fading.scale))
    return np.asarray(np.exp(-age / fading.scale))


# What is stored with it


def channel(search: SnapshotSearch) -> Column | None:
    """Return 1 in the channel of the question, 0.25 for what belongs to none, 0 elsewhere."""
    if search.channel == -1:
        return None
    there = search.snapshot.channel
    return np.where(there == search.channel, 1.0, np.where(there == -1, 0.25, 0.0))


def level(search: SnapshotSearch) -> Column:
    """Return the importance as one of five levels, from 0.2 to 1."""
    importance = search.snapshot.importance.astype(np.float64)
    return np.asarray(np.clip(np.ceil(np.round(5 * importance, 6)), 1, 5) / 5)


def relevance(search: SnapshotSearch) -> Scores:
    """Return the semantic score of memories with a vector, if any matches, else the sparse one."""
    by_meaning = search.snapshot.embedded & search.semantic.any()
    return np.where(by_meaning, search.semantic, search.sparse)


# One number per position, or None where the feature says nothing about this question.
Feature = Callable[[SnapshotSearch], NDArray[Any] | None]
COMPUTED: dict[str, Feature] = {
    "sparse": lambda search: search.sparse,
    "semantic": lambda search: search.semantic,
    "neighbours": lambda search: search.around,
    "answers": answers,
    "session": lambda search: session(search.own, search.snapshot.neighbors),
    "summary": lambda search: search.own * search.snapshot.marked[IS_SUMMARY],
    "question": lambda search: search.snapshot.marked[IS_QUESTION],
    "role": role,
    "insight": lambda search: search.snapshot.kind == _INSIGHT,
    "speaker": speaker,
    "time": time,
    "tells_when": lambda search: (
        search.snapshot.marked[HAS_TIME] if search.question.asks_when else None
    ),
    "recency": recency,
    "relevance": relevance,
    "importance": lambda search: search.snapshot.importance,
    "level": level,
    "confidence": lambda search: search.snapshot.confidence,
    "channel": channel,
    "pinned": lambda search: search.snapshot.pinned,
}


def compute(search: SnapshotSearch, always: set[str]) -> dict[str, NDArray[Any] | None]:
    """Return these features and those that the profile uses, for all positions."""
    columns = {}
    for name, feature in COMPUTED.items():
        if name in always or name in search.used:
            columns[name] = feature(search)
    return columns


def at(
    positions: NDArray[np.intp], columns: Mapping[str, NDArray[Any] | None]
) -> dict[str, Column]:
    """Return the features of some positions, exact enough to be added up."""
    found = {}
    for name, column in columns.items():
        if column is None:
            found[name] = np.zeros(len(positions))
        else:
            found[name] = column[positions].astype(np.float64)
    return found


# What needs the text


def lexical(profile: Profile, question: str, memories: Sequence[Memory]) -> Column:
    """Return how much of the question's words each memory shares, from 0 to 1."""
    if profile.lexical == "compact":
        return np.array(_compact_overlap(question, memories), np.float64)
    asked = set(tokens.words(question))
    shares = []
    for memory in memories:
        words = set(tokens.words(f"{memory.text} {' '.join(memory.tags)}"))
        shares.append(len(asked & words) / len(asked) if asked else 0.0)
    return np.array(shares, np.float64)


def _compact_overlap(question: str, memories: Sequence[Memory]) -> list[float]:
    """Return 1 if the fact or its evidence contains the question, else the share of its words."""
    asked = normalize.compact(question)
    wanted = _first_words(asked, _MOST_ASKED)
    shares = []
    for memory in memories:
        fact = normalize.compact(f"{memory.text} {memory.evidence_text or ''}")
        if asked and asked in fact:
            shares.append(1.0)
        else:
            shared = wanted & _first_words(fact, _MOST_FACT)
            shares.append(len(shared) / len(wanted) if wanted else 0.0)
    return shares


def _first_words(text: str, most: int) -> set[str]:
    words = dict.fromkeys(word for word in text.split() if len(word) >= 3)
    return set(list(words)[:most])
