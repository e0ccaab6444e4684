"""Questions about a period and nothing else: "What happened in April?", "What did I say last week?"

They have no words that a memory could match. The answer is what was said in the period, and what
names a date in it, the most important and most specific first. "What did we decide in April?" asks
for no more than that it is a decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np

from ..context import ROW, compute
from ..errors import StoreDamaged
from ..index.arrays import Bools, Positions
from ..storage.queries import Reader
from ..text import clock, cues, tokens
from ..text.clock import Interval
from ..text.cues import FROM_ASSISTANT, FROM_USER, HAS_DECISION, HAS_TIME
from ..types import Memory, Scope
from .features import SnapshotSearch

WEIGHTS = {
    "time": 0.5,  # the same for all
    "importance": 0.5,
    "kind": 0.1,  # for each of a number, a place, a decision, …
    "summary": 0.2,
    "brief": -0.3,  # a few words seldom tell anything
    "question": -0.2,
    "role": -0.7,  # a long reply of the assistant
    "passage": -0.25,  # a better passage of the same message
    "insight": -0.2,
    "recency": 0.01,
}
MOST_DATED = 200  # memories said at other times whose dates are read
MOST_READ = 500  # characters of each
MOST_MONTHS = 4  # of a period whose months are searched for by name
YEAR = timedelta(days=366)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS = sum(cues.KINDS.values())
Span = tuple[datetime, datetime]


async def restrict(search: SnapshotSearch, scope: Scope, store: Reader) -> SnapshotSearch:
    """Return the search for what the period of the question has."""
    snapshot = search.snapshot
    spans = find_spans(search)
    is_there = mark_said(search, spans)
    others = select_dated(search, spans, search.usable & ~is_there)
    memories: dict[int, Memory] = {}
    with suppress(StoreDamaged):  # what is damaged is reported where it would be returned
        memories = await store.at_rows(scope, snapshot.row[others].tolist())
    dated = await compute(ROW * len(memories), find_dated, memories, spans)
    is_there |= np.isin(snapshot.row, dated)
    usable = search.usable & is_there & mark_side(search)
    if search.question.asks_decisions:
        usable &= snapshot.marked[HAS_DECISION]
    profile = replace(search.profile, weights=WEIGHTS, current_first=False, rerank=False)
    question = replace(search.question, kinds=_KINDS)
    return replace(search, profile=profile, question=question, usable=usable, in_period=usable)


def find_spans(search: SnapshotSearch) -> list[Span]:
    """Return the periods that the question names, such as every June with memories."""
    said = search.snapshot.said[search.usable]
    if not len(said):
        return []
    first = _EPOCH + timedelta(microseconds=int(said.min()))
    spans: list[Span] = []
    for interval in search.question.intervals:
        if interval.yearly:
            spans += interval.within(first, search.now + YEAR)
        else:
            spans.append(interval[:2])
    return spans


def mark_said(search: SnapshotSearch, spans: Iterable[Span]) -> Bools:
    """Mark what was said in one of the periods."""
    said = search.snapshot.said
    found = np.zeros(len(said), np.bool_)
    for start, end in spans:
        found |= (said >= clock.micros(start)) & (said < clock.micros(end))
    return found


def mark_side(search: SnapshotSearch) -> Bools:
    """Mark what was said by the side that the question is about: "you", "I", or anyone."""
    snapshot = search.snapshot
    if search.question.asks_assistant:
        return snapshot.marked[FROM_ASSISTANT]
    is_meant = np.ones(snapshot.n, np.bool_)
    if search.question.is_own and snapshot.marked[FROM_USER].any():
        is_meant = ~snapshot.marked[FROM_ASSISTANT]
        is_meant &= ~np.isin(snapshot.speaker, search.question.others)
    return is_meant


def select_dated(search: SnapshotSearch, spans: Sequence[Span], among: Bools) -> Positions:
    """Select what may name a date in one of the periods: first what has the name of its month."""
    if not spans:
        return np.empty(0, np.intp)
    snapshot = search.snapshot
    has_month = np.zeros(snapshot.n, np.bool_)
    for positions, _ in snapshot.postings(find_terms(spans)):
        has_month[positions] = True
    found = np.flatnonzero(among & (has_month | snapshot.marked[HAS_TIME]))
    middle = clock.micros(spans[-1][0])
    distance = np.abs(snapshot.said[found] - middle)
    order = np.lexsort((snapshot.row[found], distance, ~has_month[found]))
    return found[order[:MOST_DATED]]


def find_terms(spans: Iterable[Span]) -> list[int]:
    """Return the terms for the months of the periods, or for their years if they are longer."""
    names: dict[str, None] = {}
    for start, end in spans:
        last = end - timedelta(microseconds=1)
        months = 12 * (last.year - start.year) + last.month - start.month + 1
        if months > MOST_MONTHS:
            names |= dict.fromkeys(map(str, range(start.year, last.year + 1)))
            continue
        for number in range(start.month - 1, start.month - 1 + months):
            name = clock.MONTHS[number % 12]
            names |= dict.fromkeys((name, name[:3]))
    return [tokens.term_id(term) for term in tokens.analyze(" ".join(names))]


def find_dated(memories: Mapping[int, Memory], spans: Sequence[Span]) -> list[int]:
    """Return the rows of the memories that name a date in one of the periods."""
    found = []
    for row, memory in memories.items():
        said = memory.occurred_at or memory.created_at
        named = clock.intervals(memory.text[:MOST_READ], said)
        dates = [date for each in named if (date := find_date(each, said))]
        if any(start <= date[0] and date[1] <= end for date in dates for start, end in spans):
            found.append(row)
    return found


def find_date(interval: Interval, said: datetime) -> Span | None:
    """Return when an interval is; without a year, that is the next or last time when it was said.

    >>> june = clock.intervals("our trip in June")[0]
    >>> find_date(june, datetime(2026, 3, 1, tzinfo=UTC))[0].date().isoformat()
    '2026-06-01'
    """
    if not interval.yearly:
        return interval[:2]
    with suppress(OverflowError):
        around = interval.within(said - YEAR, said + YEAR)
        return min(around, key=lambda span: abs(span[0] - said), default=None)
    return None
