"""What speaks for a memory beside its own words: where it stands, who said it and when.

Each function returns one number per position of the corpus, usually between 0 and 1; the profile weighs them.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from ..index import NO_TIME, Corpus, Places
from ..text import clock
from ..text.dates import Interval
from ..text.derived import ENDS_ASKING, FROM_ASSISTANT, FROM_USER, HAS_TIME, IS_QUESTION, IS_SUMMARY
from ..types import KINDS

Scores = NDArray[np.float32]
TOLD_WITHIN = timedelta(days=31)  # people tell what happened some weeks later
HALF_LIFE = 30  # days
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROS_A_DAY = 86_400_000_000


def neighbours(scores: Scores, place: Places) -> Scores:
    """The better score of the two turns around each: who speaks of a thing goes on speaking of it.

    >>> place = Places.of(np.array([0, 1, 2], np.int32), np.array([5, 5, 6], np.int32))
    >>> neighbours(np.array([0.5, 0.0, 0.25], dtype=np.float32), place).tolist()
    [0.0, 0.5, 0.0]
    """
    ordered = scores[place.order]
    found = _before(ordered, place)
    np.maximum(found[:-1], ordered[1:] * place.joined, out=found[:-1])
    return _scattered(found, place, len(scores))


def answers(corpus: Corpus, scores: Scores, place: Places, *, asks_assistant: bool) -> Scores:
    """The score of the turn before where that ended in a question, for the reply tells what was asked.

    What an assistant replies tells nothing about the person, so it counts only where the assistant is asked about.
    """
    asked = np.where(corpus.flags & ENDS_ASKING, scores, np.float32(0.0))
    found = _scattered(_before(asked[place.order], place), place, len(scores))
    return (
        found if asks_assistant else np.where(corpus.flags & FROM_ASSISTANT, np.float32(0.0), found)
    )


def session(scores: Scores, place: Places) -> Scores:
    """The best score in the session of each.

    >>> place = Places.of(np.array([1, 0, 2], np.int32), np.array([5, 5, 6], np.int32))
    >>> session(np.array([0.5, 0.0, 0.25], dtype=np.float32), place).tolist()
    [0.5, 0.5, 0.25]
    """
    if not len(place.order):
        return np.zeros_like(scores)
    best = np.maximum.reduceat(scores[place.order], place.starts)
    sizes = np.diff(place.starts, append=len(place.order))
    return _scattered(np.repeat(best, sizes), place, len(scores))


def _before(ordered: Scores, place: Places) -> Scores:
    found = np.zeros_like(ordered)
    found[1:] = ordered[:-1] * place.joined
    return found


def _scattered(ordered: Scores, place: Places, n: int) -> Scores:
    found = np.zeros(n, dtype=np.float32)
    found[place.order] = ordered
    return found


def speaker(corpus: Corpus, number: int) -> Scores:
    """1 for what one of the speakers said."""
    said: NDArray[np.bool_] = corpus.speaker == number
    return said.astype(np.float32)


def role(corpus: Corpus, *, asks_assistant: bool) -> Scores:
    """1 for the voice not asked about in a chat with an assistant, which is nearly always the assistant's."""
    assistant = _marked(corpus, FROM_ASSISTANT)
    return _marked(corpus, FROM_USER) if asks_assistant and assistant.any() else assistant


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


def tells_when(corpus: Corpus) -> Scores:
    """1 for a turn that names a time."""
    return _marked(corpus, HAS_TIME)


def question(corpus: Corpus) -> Scores:
    """1 for a turn that only asks."""
    return _marked(corpus, IS_QUESTION)


def insight(corpus: Corpus) -> Scores:
    """1 for what was only inferred."""
    return np.asarray(corpus.kind == KINDS.index("insight"), np.float32)


def summary(corpus: Corpus, scores: Scores) -> Scores:
    """Its own score again for what stands for several others, which cannot support it any more."""
    return scores * _marked(corpus, IS_SUMMARY)


def recency(corpus: Corpus, now: datetime) -> Scores:
    """1 for now, halved every thirty days back; 0 where the time is unknown."""
    today = np.float32(clock.micros(now) / _MICROS_A_DAY)
    halvings = np.maximum(today - corpus.days, np.float32(0.0)) / np.float32(HALF_LIFE)
    return np.asarray(np.exp2(-halvings), dtype=np.float32)


def _marked(corpus: Corpus, mark: int) -> Scores:
    has_it: NDArray[np.bool_] = corpus.flags & mark != 0
    return has_it.astype(np.float32)


def _between(corpus: Corpus, start: datetime, end: datetime) -> NDArray[np.bool_]:
    return (corpus.occurred >= clock.micros(start)) & (corpus.occurred < clock.micros(end))


def _moment(micros: np.int64) -> datetime:
    return _EPOCH + timedelta(microseconds=int(micros))
