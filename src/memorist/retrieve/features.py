"""Features: one number each for how well a memory matches a question.

`SnapshotSearch` is one question against one snapshot. It computes the two legs once, and every
feature from them and from the columns of the snapshot. Only `lexical`, `related` and `fused` are
computed elsewhere: they need texts, links or rankings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..index import Snapshot
from ..index.arrays import Bools, Floats, Ints, Positions, mark_best
from ..ports import Vectors
from ..text import clock, cues
from ..text.cues import (
    ASKING,
    ENDS_ASKING,
    FROM_ASSISTANT,
    FROM_USER,
    IS_BRIEF,
    IS_SUMMARY,
    MOST_ASKING,
    ONLY_ASKS,
)
from ..types import KINDS
from .profiles import Profile
from .question import ParsedQuestion

Scores = NDArray[np.float32]  # one per position
Column = NDArray[np.float64]  # one per candidate
Places = Positions | slice  # positions for which a feature is wanted
TOLD_WITHIN = timedelta(days=31)  # events are often mentioned some weeks later
_INSIGHT = KINDS.index("insight")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY = 86_400_000_000  # microseconds
_NOTHING = np.float32(0.0)
K1, B = 1.2, 0.9  # of BM25
FOREIGN = 2.0  # weight of the second model where the first one cannot compare
WHOLE = 5_000  # memories of a scope that the second model compares all
LIKELY = 1_000  # best matches by words and the first model that it compares in a larger scope
LONG = 60.0  # terms of a message of the assistant that is mostly general advice
REPEATS = 2.0  # times its own match that a short question loses, by the weight of `question`
OTHER_SIDE = 0.4  # for what the user said, if the question is about the assistant


class Posting(NamedTuple):
    """A term of a question in a scope."""

    positions: Ints
    counts: Floats
    rarity: float  # inverse document frequency


@dataclass(frozen=True, kw_only=True)
class SnapshotSearch:
    """One question against one snapshot."""

    profile: Profile
    snapshot: Snapshot
    question: ParsedQuestion
    usable: Bools  # what may be returned
    now: datetime
    vector: Vectors | None = None  # of the question
    second: Vectors | None = None  # of the question, by the second model
    in_period: Bools | None = None  # what the period has, if the question asks for nothing else
    channel: int = -1  # code of the channel of the question; -1 if it has none

    @cached_property
    def size(self) -> int:
        """How many memories may be returned."""
        return int(self.usable.sum())

    @property
    def can_estimate(self) -> bool:
        """Whether memories are compared with the question by the network of `estimate.py`."""
        return self.second is not None and not self.question.is_long

    @cached_property
    def postings(self) -> list[Posting]:
        """Where each term of the question occurs among the memories alive, and how rare it is."""
        found = []
        for where, counts in self.snapshot.postings(self.question.terms):
            having = len(where) + 0.5
            lacking = self.snapshot.count - len(where) + 0.5
            found.append(Posting(where, counts, math.log1p(lacking / having)))
        return found

    @cached_property
    def bm25(self) -> tuple[Scores, float]:
        """BM25 of each position, and roughly the maximum for the terms of the question.

        The bound makes the scores of different questions comparable.
        """
        scores = np.zeros(self.snapshot.n, np.float32)
        total = 0.0
        for where, counts, rarity in self.postings:
            total += rarity
            if len(where):
                share = self.snapshot.length[where] / max(self.snapshot.mean_length, 1e-9)
                norm = K1 * (1.0 - B + B * share)  # long texts score less
                most = np.float32(rarity * (K1 + 1.0))
                scores[where] += most * counts / (counts + norm)
        return scores, 0.6 * (K1 + 1.0) * total

    @cached_property
    def sparse(self) -> Scores:
        """The sparse leg: absolute where all memories are ranked, else a share of the best."""
        scores, bound = self.bm25
        if self.profile.candidates != "blend":
            bound = float(scores.max(initial=0.0))
        return scores / np.float32(bound or 1.0)

    @cached_property
    def cosine(self) -> Scores:
        """Cosine of each position with the question; 0 where there is no vector."""
        if self.vector is None:
            return np.zeros(self.snapshot.n, np.float32)
        return self.snapshot.similarity(self.vector)

    @cached_property
    def semantic(self) -> Scores:
        """The dense leg, never below 0; 0 where only the second model can compare."""
        near = np.maximum(self.cosine, _NOTHING)
        return near if self.foreign is None else np.where(self.foreign, _NOTHING, near)

    @cached_property
    def foreign(self) -> Bools | None:
        """Where the text or the question is not English; None if that is nowhere."""
        if self.second is None:
            return None
        return self.snapshot.foreign if self.question.is_english else self.snapshot.has_second

    @cached_property
    def multilingual(self) -> Scores:
        """Cosine by the second model, never below 0, and more where the first cannot compare.

        The first model stands in for the second until a memory has its vector and, in a large
        scope, where both languages are English and the match is poor.
        """
        snapshot = self.snapshot
        if self.second is None:
            return np.zeros(snapshot.n, np.float32)
        is_compared = snapshot.has_second
        if snapshot.n > WHOLE:
            is_near = mark_best(self.first, LIKELY)
            if self.foreign is not None:
                is_near |= self.foreign
            is_compared = is_compared & is_near
        cosine = snapshot.second_similarity(self.second, is_compared, self.cosine)
        near = np.maximum(cosine, _NOTHING)
        return near if self.foreign is None else np.where(self.foreign, FOREIGN * near, near)

    @cached_property
    def first(self) -> Scores:
        """How well each memory matches by words and the first model; 0 for what may not be returned."""
        weights = self.profile.weights
        total = np.float32(weights.get("sparse", 0.0)) * self.sparse
        total += np.float32(weights.get("semantic", 0.0)) * self.semantic
        return self.mask(total)

    @cached_property
    def own(self) -> Scores:
        """How well each memory matches by itself; 0 for what may not be returned."""
        if self.second is None:
            return self.first
        weight = np.float32(self.profile.weights.get("multilingual", 0.0))
        return self.first + self.mask(weight * self.multilingual)

    def mask(self, scores: Scores) -> Scores:
        """Return the scores with 0 for what may not be returned."""
        return scores if self.size == self.snapshot.n else scores * self.usable

    @cached_property
    def around(self) -> Scores:
        """The better match of the previous and the next turn, which are often on the same topic."""
        place = self.snapshot.neighbors
        padded = np.append(self.own, _NOTHING)
        before = padded.take(place.before)
        after = padded.take(place.after)
        return np.maximum(before, after)

    @cached_property
    def session(self) -> Scores:
        """The best match in the session of each position."""
        place = self.snapshot.neighbors
        best = np.zeros(len(place.starts) + 1, np.float32)
        if len(place.starts):
            ordered = self.own.take(place.order)
            best[:-1] = np.maximum.reduceat(ordered, place.starts)
        return best.take(place.group)

    @cached_property
    def answers(self) -> Scores:
        """The match of the previous turn, if that ended in a question.

        A reply of the assistant says nothing about the user, so it counts only if the question is
        about the assistant.
        """
        snapshot = self.snapshot
        asking = np.append(snapshot.marked[ENDS_ASKING], False)
        replies = np.flatnonzero(asking[snapshot.neighbors.before])
        if not self.question.asks_assistant:
            is_assistant = snapshot.marked[FROM_ASSISTANT]
            replies = replies[~is_assistant[replies]]
        questions = snapshot.neighbors.before[replies]
        found = np.zeros(snapshot.n, np.float32)
        found[replies] = self.own[questions]
        return found


def flagged(search: SnapshotSearch, flag: int, at: Places) -> Bools | None:
    """Mark what has a flag, if anything in the scope has it."""
    marked = search.snapshot.marked[flag]
    return marked[at] if marked.any() else None


def role(search: SnapshotSearch, at: Places) -> Scores | None:
    """Return how little the side that spoke is asked about.

    A long message of the assistant is mostly general advice, a short one a decision or a record.
    """
    replies = flagged(search, FROM_ASSISTANT, at)
    if replies is None:
        return None
    if search.question.asks_assistant:
        users = flagged(search, FROM_USER, at)
        return None if users is None else users * np.float32(OTHER_SIDE)
    share = search.snapshot.message_length[at] / np.float32(LONG)
    return np.asarray(replies * np.minimum(share, np.float32(1.0)))


def question(search: SnapshotSearch, at: Places) -> Scores:
    """Return the share that asks; a short question loses half of its own match, too.

    It repeats what is asked and does not answer it.
    """
    share = search.snapshot.flags[at] >> ASKING & MOST_ASKING
    asking = share.astype(np.float32) / np.float32(MOST_ASKING)
    only_asks = flagged(search, ONLY_ASKS, at)
    if only_asks is None:
        return asking
    return asking + only_asks * (np.float32(REPEATS) * search.own[at])


def kind(search: SnapshotSearch, at: Places) -> Scores | None:
    """Return how many of the things that the question asks for a text has: a number, a time, …"""
    asked = [flag for flag in cues.KINDS.values() if search.question.kinds & flag]
    found = [search.snapshot.marked[flag][at] for flag in asked]
    return np.asarray(sum(found, _NOTHING)) if found else None


def summary(search: SnapshotSearch, at: Places) -> Scores | None:
    """Return the match of each summary again."""
    marked = flagged(search, IS_SUMMARY, at)
    return None if marked is None else search.own[at] * marked


def speaker(search: SnapshotSearch, at: Places) -> Bools | None:
    """Mark what was said by the person that the question names, if it names exactly one."""
    named = search.question.speakers
    return np.asarray(search.snapshot.speaker[at] == named[0]) if len(named) == 1 else None


def time(search: SnapshotSearch, at: Places) -> Scores | None:
    """Return 1 for what was said in a period that the question names, 0.5 in the month after."""
    if search.in_period is not None:
        return search.in_period[at].astype(np.float32)
    intervals = search.question.intervals
    if not intervals:
        return None
    occurred = search.snapshot.occurred
    known = occurred[occurred != clock.NO_TIME]
    if not len(known):
        return None
    first = timedelta(microseconds=int(known.min()))
    last = timedelta(microseconds=int(known.max()))
    wanted = occurred[at]
    found = np.zeros(len(wanted), np.float32)
    periods = []
    for interval in intervals:
        periods += interval.within(_EPOCH + first - TOLD_WITHIN, _EPOCH + last)
    later = [(end, end + TOLD_WITHIN) for _, end in periods]
    for value, spans in ((0.5, later), (1.0, periods)):
        for start, end in spans:
            has_begun = wanted >= clock.micros(start)
            is_over = wanted >= clock.micros(end)
            found[has_begun & ~is_over] = value
    return found


def recency(search: SnapshotSearch, at: Places) -> NDArray[Any] | None:
    """Return how recent each memory is, from 1 for now towards 0; a future date counts as now."""
    fading = search.profile.recency
    if fading is None:
        return None
    now = (search.now - _EPOCH) // _MICROSECOND
    if fading.shape == "half_life":
        said = search.snapshot.occurred[at]
        said_on = said / _DAY
        said_on[said == clock.NO_TIME] = -np.inf
        passed = np.float32(now / _DAY) - said_on.astype(np.float32)
        days = np.maximum(passed, _NOTHING)
        half_life = np.float32(fading.scale / 86_400)
        return np.asarray(np.exp2(-days / half_life))
    micros = np.maximum(now - search.snapshot.created[at], 0)
    age = micros / 1e6 / fading.scale
    if fading.shape == "hyperbolic":
        return np.asarray(1.0 / (1.0 + age))
    return np.asarray(np.exp(-age))


def channel(search: SnapshotSearch, at: Places) -> Column | None:
    """Return 1 in the channel of the question, 0.25 without a channel, 0 in other channels."""
    if search.channel == -1:
        return None
    there = search.snapshot.channel[at]
    elsewhere = np.where(there == -1, 0.25, 0.0)
    return np.where(there == search.channel, 1.0, elsewhere)


def level(search: SnapshotSearch, at: Places) -> Column:
    """Return the importance as one of five levels, from 0.2 to 1."""
    importance = search.snapshot.importance[at].astype(np.float64)
    levels = np.ceil(np.round(5 * importance, 6))
    return np.asarray(np.clip(levels, 1, 5) / 5)


def unembedded(search: SnapshotSearch, at: Places) -> Scores | None:
    """Return the sparse match of each memory that has no vector yet, in place of the dense legs.

    Otherwise it would be ranked below all that have one. Where the second model is not used, only
    the share of the first counts.
    """
    if search.vector is None or not search.snapshot.unembedded:
        return None
    words = np.minimum(search.sparse[at], np.float32(1.0))
    if search.second is None:
        weights = search.profile.weights
        words = words * np.float32(weights["semantic"] / weights["unembedded"])
    return np.where(search.snapshot.embedded[at], _NOTHING, words)


def relevance(search: SnapshotSearch, at: Places) -> Scores:
    """Return the semantic score where a memory has a vector and any matches, else the sparse."""
    by_meaning = search.snapshot.embedded[at] & search.semantic.any()
    return np.where(by_meaning, search.semantic[at], search.sparse[at])


# One number per position, or None if the feature does not apply to the question.
Feature = Callable[[SnapshotSearch, Places], NDArray[Any] | None]
COMPUTED: dict[str, Feature] = {
    "sparse": lambda search, at: search.sparse[at],
    "semantic": lambda search, at: search.semantic[at],
    "multilingual": lambda search, at: None if search.second is None else search.multilingual[at],
    "unembedded": unembedded,
    "neighbors": lambda search, at: search.around[at],
    "answers": lambda search, at: search.answers[at],
    "session": lambda search, at: search.session[at],
    "summary": summary,
    "question": question,
    "role": role,
    "insight": lambda search, at: search.snapshot.kind[at] == _INSIGHT,
    "speaker": speaker,
    "other": lambda search, at: np.isin(search.snapshot.speaker[at], search.question.others),
    "time": time,
    "kind": kind,
    "brief": lambda search, at: flagged(search, IS_BRIEF, at),
    "recency": recency,
    "relevance": relevance,
    "importance": lambda search, at: search.snapshot.importance[at],
    "level": level,
    "confidence": lambda search, at: search.snapshot.confidence[at],
    "channel": channel,
    "pinned": lambda search, at: search.snapshot.pinned[at],
}


def compute(search: SnapshotSearch, positions: Positions) -> dict[str, Column]:
    """Return the features that the profile uses, at some positions, in double precision."""
    found = {}
    for name, feature in COMPUTED.items():
        if name not in search.profile.features:
            continue
        column = feature(search, positions)
        found[name] = np.zeros(len(positions)) if column is None else column.astype(np.float64)
    return found
