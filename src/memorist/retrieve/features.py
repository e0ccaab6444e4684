"""Parsing of questions, and features: one number each for how well a memory matches.

`understand` parses the question: its terms, the people and times it names, and the text to embed.
`SnapshotSearch` is one question against one snapshot. It computes the two legs once, and every
feature from them and from the columns of the snapshot. Only `lexical`, `related` and `fused` are
computed elsewhere: they need texts, links or rankings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..index.arrays import Bools, Positions
from ..index.snapshot import K1, Snapshot
from ..ports import Vectors
from ..text import clock, tokens
from ..text.clock import Interval
from ..text.entities import is_common
from ..text.tokens import FROM_ASSISTANT, FROM_USER, HAS_TIME, IS_QUESTION, IS_SUMMARY
from ..types import KINDS, frozen
from .profiles import Profile

Scores = NDArray[np.float32]  # one per position
Column = NDArray[np.float64]  # one per candidate
Places = Positions | slice  # positions for which a feature is wanted
TOLD_WITHIN = timedelta(days=31)  # events are often mentioned some weeks later
_INSIGHT = KINDS.index("insight")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOTHING = np.float32(0.0)
_TOLD = (  # in the past: "can you suggest …" is a request, not a question about what was suggested
    r"(?:said|told|suggested|recommended|mentioned|advised|explained|proposed|gave|wrote|listed|"
    r"provided|described|showed|came up with)"
)
_TELL = (
    r"(?:say|tell|suggest|recommend|mention|advise|explain|propose|give|write|list|provide|"
    r"describe|show)"
)
_ASKS_ASSISTANT = re.compile(
    rf"\b(?:you|(?:the|my) assistant) (?:\w+ )?{_TOLD}\b|"
    rf"\bdid (?:you|(?:the|my) assistant) (?:\w+ )?{_TELL}\b|"
    r"\byour (?:previous|earlier|last) \w+",
    re.IGNORECASE,
)
_TOLD_MYSELF = re.compile(rf"\bI (?:\w+ )?{_TOLD}\b|\bdid I (?:\w+ )?{_TELL}\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_][^\W_]*")

MOST_TERMS = 512
MOST_READ = 2000  # characters searched for names and dates: a pasted document is not a question


@frozen
class ParsedQuestion:
    """A parsed question, as the legs and features use it."""

    text: str
    terms: tuple[int, ...]  # ids of the distinct terms, in the order of the text
    dense_text: str  # what to embed
    speakers: tuple[int, ...] = ()  # of the scope, as indices, in the order they are named
    intervals: tuple[Interval, ...] = ()
    asks_when: bool = False
    asks_assistant: bool = False  # about what the assistant said


def understand(
    text: str,
    speakers: Sequence[str] = (),
    now: datetime | None = None,
    language: str = "english",
) -> ParsedQuestion:
    """Parse a question, given the speakers of its scope.

    >>> question = understand("When did Caroline's dog run away?", ["Melanie", "Caroline"])
    >>> question.dense_text, question.speakers, question.asks_when
    ('When did my dog run away?', (1,), True)
    """
    head = text[:MOST_READ]
    named = named_speakers(head, speakers)
    dense_text = text
    if named:
        dense_text = as_told(text, speakers[named[0]])
    words = tokens.analyze(text, language)
    terms = dict.fromkeys(map(tokens.term_id, words))
    asks_assistant = _ASKS_ASSISTANT.search(head) is not None
    if _TOLD_MYSELF.search(head):
        asks_assistant = False
    return ParsedQuestion(
        text=text,
        terms=tuple(terms)[:MOST_TERMS],
        dense_text=dense_text,
        speakers=named,
        intervals=tuple(clock.intervals(head, now)),
        asks_when=clock.asks_when(head),
        asks_assistant=asks_assistant,
    )


def named_speakers(text: str, speakers: Sequence[str]) -> tuple[int, ...]:
    """Return the speakers that a text names by first name or full name; a role is not a name.

    >>> named_speakers("Will Art come with MELANIE?", ["Melanie Roy", "Art", "Will", "user"])
    (1, 0)
    """
    by_word = _by_first_word(tuple(speakers))
    if not by_word:
        return ()
    folded = text.casefold()
    found: dict[int, None] = {}
    for at, match in enumerate(_WORD.finditer(text)):
        word = match[0]
        numbers = by_word.get(word.casefold())
        if numbers is None:
            continue
        start = match.start()
        before = text[max(start - 2, 0) : start].strip()
        is_inside = at > 0 and before not in (".", "!", "?")
        is_marked = is_inside and word[0].isupper()
        if is_marked or not is_common(word.casefold()):  # "will" needs a capital in a sentence
            in_full = [n for n in numbers if speakers[n].casefold() in folded]
            found |= dict.fromkeys(in_full or numbers)
    return tuple(found)


def as_told(text: str, speaker: str) -> str:
    """Return the question in the first person of the speaker it is about.

    >>> as_told("What did Caroline say about Melanie's book?", "Caroline")
    "What did I say about Melanie's book?"
    """
    name = speaker
    if speaker.casefold() not in text.casefold():
        name = speaker.split()[0]
    word = rf"(?i)\b{re.escape(name)}"
    mine = re.sub(rf"{word}['’]s?(?!\w)", "my", text)
    return re.sub(rf"{word}\b", "I", mine)


@lru_cache(maxsize=64)
def _by_first_word(speakers: tuple[str, ...]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, speaker in enumerate(map(str.casefold, speakers)):
        first, *_ = speaker.split() or [""]
        if len(first) > 1 and speaker not in tokens.ROLES:
            found.setdefault(first, []).append(number)
    return found


@dataclass(frozen=True, kw_only=True)
class SnapshotSearch:
    """One question against one snapshot."""

    profile: Profile
    snapshot: Snapshot
    question: ParsedQuestion
    usable: Bools  # what may be returned
    now: datetime
    vector: Vectors | None = None  # of the question
    channel: int = -1  # code of the channel of the question; -1 if it has none

    @cached_property
    def used(self) -> set[str]:
        """Features that the profile names, and the two legs."""
        return {*self.profile.feature_names, "sparse", "semantic"}

    @cached_property
    def bm25(self) -> tuple[Scores, float]:
        """BM25 of each position, and roughly the maximum for the terms of the question."""
        return bm25(self.snapshot, self.question.terms)

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
        """The dense leg, never below 0."""
        return np.maximum(self.cosine, _NOTHING)

    @cached_property
    def own(self) -> Scores:
        """How well each memory matches by itself; 0 for what may not be returned."""
        weights = self.profile.weights
        total = np.float32(weights.get("sparse", 0.0)) * self.sparse
        total += np.float32(weights.get("semantic", 0.0)) * self.semantic
        return total * self.usable

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
        replies = snapshot.replies
        if not self.question.asks_assistant:
            is_assistant = snapshot.marked[FROM_ASSISTANT]
            replies = replies[~is_assistant[replies]]
        questions = snapshot.neighbors.before[replies]
        found = np.zeros(snapshot.n, np.float32)
        found[replies] = self.own[questions]
        return found


def bm25(snapshot: Snapshot, terms: Sequence[int]) -> tuple[Scores, float]:
    """Return the BM25 score of each position, and roughly the maximum for these terms.

    The bound makes the scores of different questions comparable.
    """
    scores = np.zeros(snapshot.n, np.float32)
    total = 0.0
    for where, counts in snapshot.postings(terms):
        having = len(where) + 0.5
        lacking = snapshot.count - len(where) + 0.5
        weight = math.log1p(lacking / having)
        total += weight
        if len(where):
            norm = snapshot.length_norm[where]
            most = np.float32(weight * (K1 + 1.0))
            scores[where] += most * counts / (counts + norm)
    return scores, 0.6 * (K1 + 1.0) * total


def flagged(search: SnapshotSearch, flag: int, at: Places) -> Bools | None:
    """Mark what has a flag, if anything in the scope has it."""
    marked = search.snapshot.marked[flag]
    return marked[at] if marked.any() else None


def role(search: SnapshotSearch, at: Places) -> Bools | None:
    """Mark what was said by the side that is not asked about, which is mostly the assistant."""
    replies = flagged(search, FROM_ASSISTANT, at)
    if search.question.asks_assistant and replies is not None:
        return flagged(search, FROM_USER, at)
    return replies


def summary(search: SnapshotSearch, at: Places) -> Scores | None:
    """Return the match of each summary again."""
    marked = flagged(search, IS_SUMMARY, at)
    return None if marked is None else search.own[at] * marked


def speaker(search: SnapshotSearch, at: Places) -> Bools | None:
    """Mark what was said by the person that the question names, if it names exactly one."""
    named = search.question.speakers
    if len(named) != 1:
        return None
    is_named: Bools = search.snapshot.speaker[at] == named[0]
    return is_named


def time(search: SnapshotSearch, at: Places) -> Scores | None:
    """Return 1 for what was said in a period that the question names, 0.5 in the month after."""
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
    now = clock.micros(search.now)
    if fading is None:
        return None
    if fading.shape == "half_life":
        today = np.float32(now / 86_400_000_000)
        passed = today - search.snapshot.days[at]
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
    found = np.zeros(len(there))
    found[there == -1] = 0.25
    found[there == search.channel] = 1.0
    return found


def level(search: SnapshotSearch, at: Places) -> Column:
    """Return the importance as one of five levels, from 0.2 to 1."""
    importance = search.snapshot.importance[at].astype(np.float64)
    levels = np.ceil(np.round(5 * importance, 6))
    return np.asarray(np.clip(levels, 1, 5) / 5)


def relevance(search: SnapshotSearch, at: Places) -> Scores:
    """Return the semantic score where a memory has a vector and any matches, else the sparse."""
    by_meaning = search.snapshot.embedded[at] & search.semantic.any()
    return np.where(by_meaning, search.semantic[at], search.sparse[at])


# One number per position, or None if the feature does not apply to the question.
Feature = Callable[[SnapshotSearch, Places], NDArray[Any] | None]
COMPUTED: dict[str, Feature] = {
    "sparse": lambda search, at: search.sparse[at],
    "semantic": lambda search, at: search.semantic[at],
    "neighbours": lambda search, at: search.around[at],
    "answers": lambda search, at: search.answers[at],
    "session": lambda search, at: search.session[at],
    "summary": summary,
    "question": lambda search, at: flagged(search, IS_QUESTION, at),
    "role": role,
    "insight": lambda search, at: search.snapshot.kind[at] == _INSIGHT,
    "speaker": speaker,
    "time": time,
    "tells_when": lambda search, at: (
        flagged(search, HAS_TIME, at) if search.question.asks_when else None
    ),
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
        if name not in search.used:
            continue
        column = feature(search, positions)
        found[name] = np.zeros(len(positions)) if column is None else column.astype(np.float64)
    return found
