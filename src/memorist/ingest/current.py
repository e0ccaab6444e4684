"""What a turn of a conversation replaces: an earlier statement that is no longer true.

People rarely name what they change: "We live in Lyon" becomes outdated by "the new flat in Porto is
finally unpacked". So each statement of a person is compared with the most similar earlier ones. A
logistic model over readable measures gives the probability that it replaces one of them;
`bench/changes.py` fits its weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..index import Snapshot
from ..index.arrays import Bools, Floats, products
from ..ports import Vectors
from ..storage import Relation, Save
from ..text import authority, cues, repeats
from ..text.changes import read
from ..text.contradictions import contradicts_clause
from ..text.cues import FROM_ASSISTANT, IS_EXTRACTED, IS_SUMMARY, ONLY_ASKS
from ..text.offload import compute
from ..types import CONTRADICTS, KINDS, REPLACES, Memory, Outcome
from . import transitions
from .analyze import Chunk
from .batch import Batch

LIKELY = 0.15  # from here on the newer statement is recalled first, and the pair is listed
SURE = 0.47  # from here on a turn supersedes the older statement
UNSURE = SURE - 0.01
NOTE_SURE = 0.55  # … and a note, which has no session around it
CERTAIN = 0.95  # if a rule says that the attribute has another value
COMPARED = 4  # earlier statements, the most similar ones
LEAST_SIMILAR = 0.1
PARTITIONED = 1000  # from this number on, sorting all would take longer
CLOSE = 0.2  # similarity from which on the rules are asked
LONGEST = 40  # words of a statement that can be superseded as a whole
SHORT = 22  # words
JUST_BEFORE = 3  # turns
CHANGING = frozenset("ended moved new now corrected".split())
CUES = "ended moved new now corrected added past hypothetical".split()
_INSIGHT = KINDS.index("insight")
# Of the measures; most of them are 1 if something holds, and 0 otherwise.
WEIGHTS = {
    "always": -9.37,
    "ended": 1.36,  # the new statement says that something ended
    "moved": 0.72,  # … that it became another one
    "new": 0.96,  # … that something began
    "now": 1.12,  # … since when
    "corrected": 0.78,  # … that something was wrong
    "added": -0.89,  # … that it is one more
    "past": -1.54,  # … what was so once
    "hypothetical": -1.18,  # … what is hypothetical
    "asks": -0.82,  # share of it that asks
    "answers": 0.75,  # it follows a question of the other side
    "similar": 1.78,  # mean cosine by the two models, never below 0
    "nearest": 2.36,  # the older statement is the most similar one
    "changed_similar": 1.33,  # the cosine again, if something ended, moved or was corrected
    "other_number": 1.51,  # both have numbers, times or days, but none in common
    "same_number": -0.29,  # they have one in common
    "other_name": 1.01,  # both have names, and the new one has another
    "relative": -1.08,  # it is about a relative or friend whom the older one does not name
    "same_speaker": 2.28,  # the same person said both
    "same_session": -1.66,  # in one session
    "just_before": -0.75,  # a few turns before
    "corrected_before": 2.48,  # a few turns before, and it is corrected
    "length": -0.76,  # words of the older statement, at most 40, divided by 10
    "new_length": 0.54,  # words of the new statement, likewise
    "short": 2.06,  # the new statement is short
    "older_asks": -0.29,  # share of the older statement that asks
    "size": -0.83,  # logarithm of the number of earlier memories, to base 10
}
_OF_VALUES = ("other_number", "same_number", "other_name")
_HIGHEST = {name: float(WEIGHTS[name] > 0) for name in _OF_VALUES}


def may_change(chunk: Chunk) -> bool:
    """Return whether a statement can replace something: a person makes it.

    A note stands alone: it has to say that something changed.
    """
    if chunk.vector is None or not authority.is_own_role(chunk.draft.labels.role):
        return False
    parts = read(chunk.text)
    is_note = not chunk.is_turn
    if is_note and CHANGING.isdisjoint(parts.cues):
        return False
    return parts.asks < 1 and len(chunk.text.split()) >= 2


class Compared(NamedTuple):
    """Statements of a batch, and the stored ones that they may replace."""

    said: list[Chunk]
    asked: list[int]  # places of those that can replace something
    near: list[
        list[tuple[int, float]]
    ]  # rows of the most similar ones of each, with the similarity

    @property
    def rows(self) -> set[int]:
        return {row for near in self.near for row, _ in near}


async def compare_older(batch: Batch) -> Compared:
    """Compare each turn or note with the earlier statements that it may replace."""
    said = [chunk for chunk in batch.chunks if chunk.is_turn or _is_note(chunk)]
    if not said or batch.snapshot.is_lean or not batch.policy.conflicts:
        return Compared([], [], [])
    _find_answers(said, batch.snapshot)
    asked = [i for i, chunk in enumerate(said) if may_change(chunk)]
    changing = [said[i] for i in asked]
    near = await compute(batch.size, lambda: list(_compare_stored(changing, batch)))
    return Compared(said, asked, near)


async def set_older(batch: Batch, compared: Compared, at_rows: Mapping[int, Memory]) -> None:
    """Give each statement the most similar ones before it, stored or in the same batch."""
    said, asked, stored = compared
    in_batch = await compute(batch.size, lambda: list(_compare_said(said, asked, batch)))
    for i, near, here in zip(asked, stored, in_batch, strict=True):
        found: list[tuple[Memory | Chunk, float]] = []
        found += [(at_rows[row], similar) for row, similar in near if row in at_rows]
        found += [(said[place], similar) for place, similar in here]
        found.sort(key=lambda each: -each[1])
        said[i].older = found[:COMPARED]
        said[i].earlier = batch.snapshot.count + i


def _is_note(chunk: Chunk) -> bool:
    """Return whether a chunk is a whole text that was written down, and not a fact or a how-to."""
    draft = chunk.draft
    is_derived = bool(draft.evidence_ids) or draft.steps_text is not None
    return not is_derived and chunk.text == draft.text.strip()


def _find_answers(turns: Sequence[Chunk], snapshot: Snapshot) -> None:
    """Mark the turns that follow a question of the other side."""
    last: dict[str | None, tuple[bool, str | None]] = {}
    for chunk in turns:
        session = chunk.session
        speaker = chunk.draft.speaker
        if session not in last:
            last[session] = _read_last(snapshot, session)
        asks, other = last[session]
        chunk.answers = asks and speaker != other
        last[session] = (cues.ends_asking(chunk.text), speaker)


def _read_last(snapshot: Snapshot, session: str | None) -> tuple[bool, str | None]:
    """Return whether the last turn of a session asks, and who said it."""
    is_here = snapshot.alive & (snapshot.session == snapshot.code("session", session))
    positions = np.flatnonzero(is_here)
    if not len(positions):
        return False, None
    latest = positions[np.argmax(snapshot.sequence[positions])]
    asks = bool(snapshot.flags[latest] & cues.ENDS_ASKING)
    code = int(snapshot.speaker[latest])
    names = {number: name for name, number in snapshot.codes["speaker"].items()}
    return asks, names.get(code)


def _compare_stored(turns: Sequence[Chunk], batch: Batch) -> Iterator[list[tuple[int, float]]]:
    """Yield for each turn the rows of the most similar statements, with their similarity."""
    snapshot = batch.snapshot
    usable = find_statements(snapshot)
    positions = np.flatnonzero(usable)
    said = []
    for chunk in turns:
        _, second = batch.second.get(chunk.text, ("", None))
        said.append((chunk.text, chunk.vector, second))
    for similar in compare_all(said, snapshot, usable):
        yield pick(similar[positions], snapshot.row[positions])


def find_statements(snapshot: Snapshot) -> Bools:
    """Mark what people said themselves, apart from questions."""
    unwanted = FROM_ASSISTANT | ONLY_ASKS | IS_SUMMARY | IS_EXTRACTED
    usable: Bools = snapshot.flags & unwanted == 0
    usable &= snapshot.alive & (snapshot.kind != _INSIGHT)
    return usable


def compare_all(
    said: Sequence[tuple[str, Vectors | None, Vectors | None]],
    snapshot: Snapshot,
    usable: Bools,
) -> Iterator[Floats]:
    """Yield the similarity of the usable positions to each text, given its vectors by both models.

    It is the mean of both cosines; only the second model knows other languages than English.
    """
    firsts = snapshot.similarities([first for _, first, _ in said], usable)
    for (text, _, second), cosines in zip(said, firsts, strict=True):
        others = cosines
        if second is not None:
            others = snapshot.second_similarity(second, usable & snapshot.has_second, cosines)
        yield _mean(text, cosines, others)


def _compare_said(
    turns: Sequence[Chunk],
    asked: Sequence[int],
    batch: Batch,
) -> Iterator[list[tuple[int, float]]]:
    """Yield for each turn asked about the places of the most similar turns before it."""
    second = batch.second
    places = []
    for i, chunk in enumerate(turns):
        is_own = authority.is_own_role(chunk.draft.labels.role)
        if is_own and chunk.vector is not None and read(chunk.text).asks < 1:
            places.append(i)
    firsts = np.array([turns[i].vector for i in places])
    others = np.array([second[turns[i].text][1] for i in places if turns[i].text in second])
    numbers = np.array(places, np.int64)
    for i in asked:
        before = int(np.searchsorted(numbers, i))
        if not before:
            yield []
            continue
        text = turns[i].text
        similar = products(firsts[:before], np.asarray(turns[i].vector))
        if len(others) == len(places) and text in second:
            similar = _mean(text, similar, products(others[:before], second[text][1]))
        yield pick(similar, numbers[:before])


def _mean(text: str, first: Floats, second: Floats) -> Floats:
    weight = np.float32(0.5 if read(text).is_english else 0.0)
    return weight * first + (1 - weight) * second


def pick(similar: Floats, names: NDArray[np.int64]) -> list[tuple[int, float]]:
    """Return the names of the most similar ones, with their similarity."""
    if len(similar) > PARTITIONED:
        best = np.argpartition(-similar, COMPARED)[:COMPARED]
    else:
        best = np.argsort(-similar, kind="stable")[:COMPARED]
    found = zip(names[best].tolist(), similar[best].tolist(), strict=True)
    return [(name, cosine) for name, cosine in found if cosine >= LEAST_SIMILAR]


def measure(
    chunk: Chunk,
    older: Memory,
    *,
    similar: float,
    nearest: bool,
    last: int,
) -> dict[str, float]:
    """Return the measures of a turn and an earlier statement, apart from their values.

    `last` is the sequence number of the turn before it in its session.
    """
    new = read(chunk.text)
    old = read(older.text)
    speaker = chunk.draft.speaker
    is_here = chunk.session is not None and chunk.session == older.labels.session
    is_before = is_here and last - (older.sequence or 0) < JUST_BEFORE
    similar = max(0.0, similar)
    has_changed = not new.cues.isdisjoint(("ended", "moved", "corrected"))
    measures = {cue: float(cue in new.cues) for cue in CUES}
    return measures | {
        "always": 1.0,
        "asks": new.asks,
        "answers": float(chunk.answers),
        "similar": similar,
        "nearest": float(nearest),
        "changed_similar": has_changed * similar,
        "relative": float(bool(new.relatives - old.relatives)),
        "same_speaker": float(speaker == older.speaker),
        "same_session": float(is_here),
        "just_before": float(is_before),
        "corrected_before": float(is_before and "corrected" in new.cues),
        "length": min(old.length, LONGEST) / 10,
        "new_length": min(new.length, LONGEST) / 10,
        "short": float(new.length <= SHORT),
        "older_asks": old.asks,
        "size": math.log10(max(1, chunk.earlier)),
    }


def measure_values(chunk: Chunk, older: Memory) -> dict[str, float]:
    """Return the measures of the numbers and names, which take the longest to read."""
    new = read(chunk.text)
    old = read(older.text)
    is_same = not new.numbers.isdisjoint(old.numbers)
    return {
        "other_number": float(bool(new.numbers and old.numbers) and not is_same),
        "same_number": float(is_same),
        "other_name": float(new.is_english and bool(old.names and new.names - old.names)),
    }


def weigh(measures: dict[str, float]) -> float:
    """Return the probability that the turn replaces the older statement."""
    odds = sum(weight * measures[name] for name, weight in WEIGHTS.items())
    return 1.0 / (1.0 + math.exp(-odds))


def measure_all(chunk: Chunk, batch: Batch) -> Iterator[tuple[Memory, dict[str, float]]]:
    """Yield the earlier statements that a turn may replace, as they are now, with their measures."""
    last = batch.places.get(chunk.session or "", 0) - 1
    for place, (source, similar) in enumerate(chunk.older):
        memory = batch.memories.get(source.id or "")
        if memory is None or not memory.is_active or memory.content_hash == chunk.content_hash:
            continue
        is_nearest = place == 0
        yield memory, measure(chunk, memory, similar=similar, nearest=is_nearest, last=last)


def find_replaced(chunk: Chunk, batch: Batch) -> tuple[Memory, float] | None:
    """Return the statement that a turn most probably replaces, and how probable that is.

    What is valid only since later is not replaced. What was pinned is never replaced for sure, and
    what was saved on purpose only by the user's own words.
    """
    since = transitions.valid_since(chunk.draft, batch.now)
    found: list[tuple[Memory, float]] = []
    for memory, measures in measure_all(chunk, batch):
        if not may_replace(memory, chunk, batch):
            continue
        if memory.valid_to is not None or since < transitions.held_since(memory):
            continue
        if not chunk.is_turn and not chunk.has_same_source(memory):
            continue
        likely = weigh(measures | _HIGHEST)
        if likely >= LIKELY:  # seldom: only then the values are read
            likely = weigh(measures | measure_values(chunk, memory))
        if likely >= LIKELY and _says_same(chunk, memory, measures["similar"], batch):
            continue
        is_close = measures["similar"] >= CLOSE and chunk.has_same_source(memory)
        if is_close and contradicts_clause(chunk.text, memory.text):
            likely = CERTAIN
        if likely >= LIKELY:
            says_more = read(memory.text).length > LONGEST  # than what changed
            if says_more or memory.pinned:
                likely = min(likely, UNSURE)
            found.append((memory, likely))
    return max(found, key=lambda each: each[1], default=None)


def _says_same(chunk: Chunk, memory: Memory, similar: float, batch: Batch) -> bool:
    """Return whether a turn only says again what an earlier statement says."""
    partners = [name for name in batch.snapshot.codes["speaker"] if name != chunk.draft.speaker]
    new = repeats.Said(chunk.text)
    old = repeats.Said(memory.text)
    is_same = repeats.estimate(new, old, similar, partners) >= repeats.LEAST
    return is_same and chunk.has_same_source(memory)


def may_replace(memory: Memory, chunk: Chunk, batch: Batch) -> bool:
    """Return whether a chunk may replace a memory: one saved on purpose only in the user's words."""
    draft = chunk.draft
    is_own = authority.is_own(draft.labels.role, draft.speaker, batch.scope.user)
    return is_own or not memory.on_purpose


def replace_older(
    chunk: Chunk,
    batch: Batch,
    id: str,
    contradicted: Memory | None = None,
) -> Outcome:
    """Relate a new memory to the statement that it probably replaces, and list both for a decision.

    If it is certain, the older statement is no longer valid. One that it contradicts, but must not
    supersede, stays valid.
    """
    outcome = Outcome(status="created", ids=(id,))
    found = find_replaced(chunk, batch) if contradicted is None else (contradicted, UNSURE)
    if found is None:
        return outcome
    old, likely = found
    likely = float(np.float32(likely))  # as PostgreSQL stores it
    pair = Relation(from_id=id, to_id=old.id, type=CONTRADICTS, at=batch.now, strength=likely)
    batch.others += [pair, replace(pair, type=REPLACES)]
    if likely < (SURE if chunk.is_turn else NOTE_SURE):
        return replace(outcome, reason=f"it may replace {old.id}: confirm or reject it")
    outdate(old, chunk, batch, id)
    batch.replaced.append((chunk, old))
    return replace(outcome, reason=f"it replaces {old.id}: confirm or reject it", supersedes=old.id)


def outdate(old: Memory, chunk: Chunk, batch: Batch, id: str) -> None:
    """End the validity of a statement that the memory `id` of a turn replaces."""
    since = transitions.valid_since(chunk.draft, batch.now)
    meta = {"reason": REPLACES, "superseded_by": id, **chunk.during}
    put = batch.puts.get(old.id) or Save(memory=old, event="superseded", meta=meta)
    batch.save(replace(put, memory=transitions.revise(old, batch.now, valid_to=since)))
