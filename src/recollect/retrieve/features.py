"""What speaks for a memory beside its own words: where it stands, who said it and when.

Each function returns one number per position of the corpus, usually between 0 and 1; the profile weighs them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from ..corpus import FROM_ASSISTANT, FROM_USER, HAS_TIME, IS_QUESTION, NO_TIME, Corpus
from ..text import clock
from ..text.dates import Interval
from ..text.turns import ENDS_ASKING

Scores = NDArray[np.float32]
BEST_OF_SESSION = 3
TOLD_WITHIN = timedelta(days=31)  # people tell what happened some weeks later
HALF_LIFE = timedelta(days=30)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Places:
    """Who stands beside whom: positions in the order of their sessions."""

    order: NDArray[np.int32]
    before: NDArray[np.int32]  # per position, the one said just before it; -1 = none
    after: NDArray[np.int32]
    starts: NDArray[np.intp]  # where in `order` each session begins


def places(corpus: Corpus) -> Places:
    """The neighbours of each position within its session; a memory without a session stands alone."""
    order = corpus.session_order()
    session = corpus.session[order]
    same = (session[1:] == session[:-1]) & (session[1:] >= 0)
    before = np.full(corpus.n, -1, dtype=np.int32)
    after = np.full(corpus.n, -1, dtype=np.int32)
    before[order[1:][same]] = order[:-1][same]
    after[order[:-1][same]] = order[1:][same]
    return Places(order, before, after, np.flatnonzero(np.concatenate(([True], ~same)))[: len(order)])


def neighbours(scores: Scores, place: Places) -> Scores:
    """The better score of the two turns around each: an answer stands next to its question."""
    padded = np.append(scores, np.float32(0.0))  # -1 finds the zero
    return np.maximum(padded[place.before], padded[place.after])


def answers(corpus: Corpus, scores: Scores, place: Places, *, asks_assistant: bool) -> Scores:
    """The score of the turn before where that ended in a question, for who replies tells what was asked.

    What an assistant replies tells nothing about the person, so it counts only where the assistant is asked about.
    """
    padded = np.append(np.where(corpus.flags & ENDS_ASKING, scores, np.float32(0.0)), np.float32(0.0))
    found = padded[place.before]
    return found if asks_assistant else np.where(corpus.flags & FROM_ASSISTANT, np.float32(0.0), found)


def session(scores: Scores, place: Places) -> Scores:
    """The mean of the best scores in the session of each."""
    found = np.zeros_like(scores)
    if not len(place.order):
        return found
    size = np.diff(np.append(place.starts, len(place.order)))
    left, total = scores[place.order], np.zeros(len(size), dtype=np.float32)
    for _ in range(BEST_OF_SESSION):
        best = np.maximum.reduceat(left, place.starts)
        total += np.maximum(best, 0.0)
        left = np.where(left == np.repeat(best, size), -np.inf, left)
    found[place.order] = np.repeat(total / np.minimum(size, BEST_OF_SESSION), size)
    return found


def speaker(corpus: Corpus, named: Sequence[int]) -> Scores:
    """1 for what the one person named in the question said; nothing if it names several."""
    if len(named) != 1:
        return np.zeros(corpus.n, dtype=np.float32)
    said: NDArray[np.bool_] = corpus.speaker == named[0]
    return said.astype(np.float32)


def role(corpus: Corpus, *, asks_assistant: bool) -> Scores:
    """1 for the voice not asked about in a chat with an assistant, which is nearly always the assistant's."""
    return _marked(corpus, FROM_USER if asks_assistant else FROM_ASSISTANT)


def time(corpus: Corpus, intervals: Sequence[Interval]) -> Scores:
    """1 for what was said in the time named, a half within a month after it."""
    found = np.zeros(corpus.n, dtype=np.float32)
    known = corpus.occurred[corpus.occurred != NO_TIME] if intervals else corpus.occurred[:0]
    if not len(known):
        return found
    first, last = _moment(known.min()) - TOLD_WITHIN, _moment(known.max())
    stretches = [stretch for interval in intervals for stretch in interval.within(first, last)]
    for _, end in stretches:
        found[_between(corpus, end, end + TOLD_WITHIN)] = 0.5
    for start, end in stretches:
        found[_between(corpus, start, end)] = 1.0
    return found


def tells_when(corpus: Corpus, *, asked: bool) -> Scores:
    """1 for a turn that names a time, if a time is asked for."""
    return _marked(corpus, HAS_TIME) if asked else np.zeros(corpus.n, dtype=np.float32)


def question(corpus: Corpus) -> Scores:
    """1 for a turn that only asks."""
    return _marked(corpus, IS_QUESTION)


def recency(corpus: Corpus, now: datetime) -> Scores:
    """1 for now, halved every thirty days back; 0 where the time is unknown."""
    age = np.maximum(clock.micros(now) - corpus.occurred.astype(np.float64), 0.0)  # NO_TIME is infinitely long ago
    return np.exp2(-age / (HALF_LIFE // _MICROSECOND)).astype(np.float32)


def _marked(corpus: Corpus, mark: int) -> Scores:
    has_it: NDArray[np.bool_] = corpus.flags & mark != 0
    return has_it.astype(np.float32)


def _between(corpus: Corpus, start: datetime, end: datetime) -> NDArray[np.bool_]:
    return (corpus.occurred >= clock.micros(start)) & (corpus.occurred < clock.micros(end))


def _moment(micros: np.int64) -> datetime:
    return _EPOCH + timedelta(microseconds=int(micros))
