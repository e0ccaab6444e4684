"""What a turn of a conversation replaces: an earlier statement that is no longer true.

People rarely name what they change: "We live in Lyon" becomes outdated by "the new flat in Porto is
finally unpacked". So each statement of a person is compared with the most similar earlier ones. A
logistic model over readable measures gives the probability that it replaces one of them;
`bench/changes.py` fits its weights. Replies that repeat a replaced statement, and facts that were
extracted from it, become outdated with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import numpy as np

from ..storage import Relation, Save
from ..storage.transaction import Transaction
from ..text import cues, passing, repeats
from ..text.agent_records import is_state
from ..text.attributes import differ_in_area
from ..text.changed import is_of_another_thing
from ..text.contradictions import contradicts_clause
from ..text.corrections import changes_dose, names_replaced, names_wrong
from ..text.cues import CHANGING, TURNING, read
from ..text.endings import continues_ending, ends_another, ends_on_days, has_passed, is_planned
from ..text.kinds import are_of_other_kinds
from ..text.parts import read_aspects
from ..text.subjects import (
    are_parallel,
    changes_another,
    is_of_another_person,
    judges_another,
    read_subject,
    share_only_names,
    share_subject,
)
from ..types import CONTRADICTS, REPLACES, Memory, Outcome
from . import transitions
from .analyze import Chunk
from .candidates import Batch
from .doubt import estimate_doubt
from .echoes import JUST_BEFORE, LONGEST, find_echoes, find_restated, share_rare_words

DECIDE = ": confirm it, reject it, or keep both"  # the ways to decide a conflict
LIKELY = 0.13  # from here on the newer statement is recalled first, and the pair is listed
SURE = 0.32  # from here on a turn supersedes the older statement
UNSURE = SURE - 0.01
NOTE_SURE = 0.44  # … and a note, which has no session around it
CERTAIN = 0.95  # if a rule says that the attribute has another value
CLOSE = 0.2  # similarity from which on the rules are asked
LEAST_SAME = 0.9  # from here on what says that something ended still says the same: "never again"
DOUBTFUL = 0.1  # doubt from which on two statements may be a list
PARALLEL = 0.4  # … from which on two statements may be the same sentence about different things
DISTANT = 0.25  # similarity below which two statements need a word in common
TERSE = 8  # words
CUES = "ended moved new now corrected kept added past hypothetical".split()
# Of the measures; most of them are 1 if something holds, and 0 otherwise.
WEIGHTS = {
    "always": -4.08,
    "ended": 0.88,  # the new statement says that something ended
    "moved": 0.82,  # … that it became another one
    "new": 0.67,  # … that something began
    "now": 0.7,  # … since when
    "corrected": 0.58,  # … that something was wrong, or is to be otherwise
    "changing": 0.15,  # … any of these
    "kept": 1.44,  # … that the rest stays as it is
    "added": 0.0,  # … that it is one more
    "past": -0.3,  # … what was so once
    "hypothetical": -0.8,  # … what is hypothetical
    "unchanged": -0.24,  # … none of that, and it has no other number or name
    "asks": -0.72,  # share of it that asks
    "answers": 0.46,  # it follows a question of the other side
    "similar": 0.47,  # mean cosine by the two models, never below 0
    "other_similar": 0.66,  # the cosine again, if it has another number or name
    "nearest": 0.74,  # the older statement is the most similar one
    "nearest_changing": 0.62,  # … and the new one says that something changed
    "unrelated": -0.95,  # the two are not similar, and have no word in common
    "rare_words": 0.75,  # rare words that both have, at most two
    "other_number": 0.68,  # both have numbers, times or days, but none in common
    "terse": -1.12,  # the new statement has only a few words
    "terse_number": 1.12,  # … and another number
    "relative": -0.56,  # it is about a relative or friend whom the older one does not name
    "same_speaker": 3.25,  # the same person said both
    "same_session": -0.27,  # in one session
    "changed_here": 0.71,  # in one session, and something ended, moved or was corrected
    "corrected_before": 0.76,  # a few turns before, and it is corrected
    "length": -0.37,  # words of the older statement, at most 40, divided by 10
    "new_length": -1.01,  # words of the new statement, likewise
    "older_asks": -0.48,  # share of the older statement that asks
    "doubt": -3.41,  # whether it is about the same; see `estimate_doubt`
    "size": -0.44,  # logarithm of the number of earlier memories, to base 10
}


def measure(
    chunk: Chunk,
    older: Memory,
    *,
    similar: float,
    nearest: bool,
    last: int,
) -> dict[str, float]:
    """Return the measures of a turn and an earlier statement, as if their values differed and there
    were no doubt.

    `last` is the sequence number of the turn before it in its session.
    """
    new = read(chunk.text)
    old = read(older.text)
    speaker = chunk.draft.speaker
    is_here = chunk.session is not None and chunk.session == older.labels.session
    is_before = is_here and last - (older.sequence or 0) < JUST_BEFORE
    similar = max(0.0, similar)
    has_changed = not new.cues.isdisjoint(("ended", "moved", "corrected"))
    is_changing = not new.cues.isdisjoint(CHANGING)
    is_terse = new.length <= TERSE
    measures = {cue: cue in new.cues for cue in CUES} | {
        "always": 1.0,
        "changing": is_changing,
        "unchanged": False,
        "asks": new.asks,
        "answers": chunk.answers,
        "similar": similar,
        "other_similar": similar,
        "nearest": nearest,
        "nearest_changing": nearest and is_changing,
        "unrelated": similar < DISTANT and new.topics.isdisjoint(old.topics),
        "rare_words": min(2, len(share_rare_words(new, old))),
        "other_number": True,
        "terse": is_terse,
        "terse_number": is_terse,
        "relative": bool(new.relatives - old.relatives),
        "same_speaker": speaker == older.speaker,
        "same_session": is_here,
        "changed_here": is_here and has_changed,
        "corrected_before": is_before and "corrected" in new.cues,
        "length": min(old.length, LONGEST) / 10,
        "new_length": min(new.length, LONGEST) / 10,
        "older_asks": old.asks,
        "doubt": 0.0,
        "size": math.log10(max(1, chunk.earlier)),
    }
    return {name: float(value) for name, value in measures.items()}


def measure_values(chunk: Chunk, older: Memory, similar: float) -> dict[str, float]:
    """Return the measures of the numbers and names, which take the longest to read."""
    new = read(chunk.text)
    old = read(older.text)
    is_other = bool(new.numbers and old.numbers) and new.numbers.isdisjoint(old.numbers)
    has_other = is_other or (new.is_english and bool(old.names and new.names - old.names))
    return {
        "other_number": float(is_other),
        "terse_number": float(is_other and new.length <= TERSE),
        "other_similar": has_other * similar,
        "unchanged": float(not has_other and CHANGING.isdisjoint(new.cues)),
    }


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
    """Return the statement that a turn most probably replaces, and how probable that is."""
    return next(iter(find_all_replaced(chunk, batch)), None)


def find_all_replaced(chunk: Chunk, batch: Batch) -> list[tuple[Memory, float]]:
    """Return the statements that a turn may replace, and how probable that is: the most probable
    first, and of those that a rule contradicts the latest.

    What is valid only since later is not replaced. What was pinned is never replaced for sure, and
    what was saved on purpose only by the user's own words. What a turn asks says nothing.
    """
    since = batch.valid_since(chunk)
    stated = replace(chunk, text=passing.leave_out_questions(chunk.text))
    found: list[tuple[Memory, float]] = []
    for memory, measures in measure_all(chunk, batch):
        if not may_replace(memory, chunk, batch):
            continue
        if not is_valid_at(memory, since, chunk, batch) or since < transitions.held_since(memory):
            continue
        if not chunk.is_turn and not chunk.has_same_source(memory):
            continue
        likely = repeats.weigh(measures, WEIGHTS)
        if likely >= LIKELY:
            measures["doubt"] = estimate_doubt(chunk, memory, batch)
            likely = repeats.weigh(measures, WEIGHTS)
        if likely >= LIKELY:  # seldom: only then the values are read
            measures |= measure_values(chunk, memory, measures["similar"])
            likely = repeats.weigh(measures, WEIGHTS)
            new = read(stated.text)
            if new.topics == read(memory.text).topics and CHANGING.isdisjoint(new.cues):
                likely = 0.0  # one of a list, such as "Room 4 has a bath" after "Room 3 has a bath"
            elif is_about_another(stated, memory, measures):
                likely = 0.0
            elif stated.text != chunk.text and not is_connected(stated, memory):
                likely = 0.0  # the question is about it
        is_wrong = chunk.has_same_source(memory) and _is_named(stated.text, memory.text)
        is_repeat = likely >= LIKELY and _says_same(stated, memory, measures["similar"], batch)
        if is_repeat and not is_wrong:
            continue
        is_ruled = measures["similar"] >= CLOSE and contradicts_clause(stated.text, memory.text)
        is_ruled = is_ruled and not is_of_another_thing(stated.text, memory.text)
        if is_wrong or (is_ruled and chunk.has_same_source(memory)):
            likely = CERTAIN
        elif likely > UNSURE and not is_certain(stated, memory, since):
            likely = UNSURE
        if likely >= LIKELY and passing.may_replace(stated.text, memory.text):
            is_long = read(memory.text).length > LONGEST  # it says more than what changed
            if is_long or memory.pinned:
                likely = min(likely, UNSURE)
            found.append((memory, likely))
    certain = [each for each in found if each[1] == CERTAIN]
    certain.sort(key=lambda each: transitions.held_since(each[0]), reverse=True)
    others = [each for each in found if each[1] != CERTAIN]
    return [*certain, *sorted(others, key=lambda each: -each[1])]


def _is_named(new: str, old: str) -> bool:
    """Return whether a text names the value of an older one that is no longer right."""
    return any(names(new, old) for names in (names_wrong, names_replaced, changes_dose))


def is_valid_at(memory: Memory, since: datetime, chunk: Chunk, batch: Batch) -> bool:
    """Return whether a statement had no end yet when a turn was said.

    An end that a later turn gave it, or this one, is known only if turns are related again.
    """
    ended_by = batch.ended_by.get(memory.id)
    if memory.valid_to is None or not ended_by:
        return memory.valid_to is None
    return memory.valid_to > since or (memory.valid_to == since and chunk.id in ended_by)


def is_certain(chunk: Chunk, older: Memory, since: datetime) -> bool:
    """Return whether a turn that is likely to replace a statement may end it for certain.

    It has to refer to the statement. What ended before does not end again. A plan whose time has
    come is replaced only by what says that something is new: whatever ended since, the plan was true.
    """
    if not is_connected(chunk, older) or continues_ending(chunk.text, older.text):
        return False
    if ends_another(chunk.text, older.text) or is_planned(chunk.text, since):
        return False
    if is_of_another_person(chunk.text, older.text) or is_of_another_thing(chunk.text, older.text):
        return False
    said = older.occurred_at or older.created_at
    cues_said = read(chunk.text).cues
    if "added" in cues_said and cues_said.isdisjoint(TURNING):
        return False
    return not cues_said.isdisjoint(("new", "now")) or not has_passed(older.text, said, since)


def is_connected(chunk: Chunk, older: Memory) -> bool:
    """Return whether a turn refers to an earlier statement, and is not only similar to it.

    It has a word in common with it that says what it is about, or says of the same aspect, such as
    the job, that it changed; it answers a question, corrects something or only gives another time in
    the same session, says that the rest stays, or has a pronoun in place of what it is about.
    """
    new = read(chunk.text)
    is_here = chunk.session is not None and chunk.session == older.labels.session
    corrects = "corrected" in new.cues and is_here
    if chunk.answers or corrects or "kept" in new.cues or new.refers_back:
        return True
    old = read(older.text)
    if not read_subject(chunk.text):  # only a value
        has_value = is_here and new.values.are_like(old.values)
        return has_value or not new.topics.isdisjoint(old.topics)
    shares_aspect = read_aspects(chunk.text) & read_aspects(older.text)
    is_own = not changes_another(chunk.text)
    if shares_aspect and is_own and not new.cues.isdisjoint(("ended", "moved", "new")):
        return True
    return share_subject(chunk.text, older.text)


def is_about_another(chunk: Chunk, older: Memory, measures: dict[str, float]) -> bool:
    """Return whether a turn says the like of another thing or person than an earlier statement."""
    new = read(chunk.text)
    if "corrected" in new.cues:
        return False
    if judges_another(chunk.text, older.text) or ends_on_days(chunk.text, older.text):
        return True
    aspects, older_aspects = read_aspects(chunk.text), read_aspects(older.text)
    if aspects and older_aspects and aspects.isdisjoint(older_aspects):
        return True  # a job and a home
    if _has_only_names(chunk, older):
        return True
    is_bare = CHANGING.isdisjoint(new.cues) and not chunk.answers
    is_alike = measures["similar"] >= (PARALLEL if new.is_english else CLOSE)
    is_alike = is_alike and measures["doubt"] >= DOUBTFUL
    if is_bare and is_alike and are_parallel(chunk.text, older.text):
        return True
    return are_of_other_kinds(chunk.text, older.text)


def _has_only_names(chunk: Chunk, older: Memory) -> bool:
    """Return whether a turn has nothing in common with a statement but names, days and labels."""
    new = read(chunk.text)
    old = read(older.text)
    is_other = bool(new.numbers and old.numbers) and new.numbers.isdisjoint(old.numbers)
    if chunk.answers or is_other or new.refers_back or "ended" in new.cues:
        return False
    if read_aspects(chunk.text) & read_aspects(older.text):
        return False
    return share_only_names(chunk.text, older.text)


def _says_same(chunk: Chunk, memory: Memory, similar: float, batch: Batch) -> bool:
    """Return whether a turn only says again what an earlier statement says."""
    partners = [name for name in batch.snapshot.codes["speaker"] if name != chunk.draft.speaker]
    said = repeats.Said(chunk.text), repeats.Said(memory.text)
    if not chunk.has_same_source(memory):
        return False
    likely = repeats.weigh(repeats.measure(*said, similar, partners))
    has_changed = not {"ended", "moved"}.isdisjoint(said[0].cues - said[1].cues)
    least = LEAST_SAME if has_changed else repeats.LEAST
    return likely >= least or repeats.has_same_words(*said)


def may_replace(memory: Memory, chunk: Chunk, batch: Batch) -> bool:
    """Return whether a chunk may replace a memory: one saved on purpose only in the user's words.

    An assistant replaces only what an assistant recorded of the same thing.
    """
    draft = chunk.draft
    if draft.labels.role == "assistant":
        is_known = memory.labels.role == "assistant" and is_state(memory.text)
        return is_known and not memory.on_purpose and share_subject(chunk.text, memory.text)
    is_own = cues.is_own(draft.labels.role, draft.speaker, batch.scope.user)
    return is_own or not memory.on_purpose


def replace_older(
    chunk: Chunk,
    batch: Batch,
    id: str,
    contradicted: Memory | None = None,
) -> Outcome:
    """Relate a new memory to the statement that it probably replaces, and list both for a decision.

    If it is certain, the older statement is no longer valid. Neither are others of which a rule says
    that their attribute has another value: who moved lives in none of the earlier homes. One that it
    contradicts, but must not supersede, stays valid.
    """
    outcome = Outcome(status="created", ids=(id,))
    found = find_all_replaced(chunk, batch) if contradicted is None else [(contradicted, UNSURE)]
    if not found:
        return outcome
    first, *others = found
    certain = [each for each in others if each[1] == CERTAIN]
    also = [each for each in certain if not differ_in_area(chunk.text, each[0].text)]
    for old, likely in (first, *also):
        strength = float(np.float32(likely))  # as PostgreSQL stores it
        pair = Relation(from_id=id, to_id=old.id, type=CONTRADICTS, at=batch.now, strength=strength)
        batch.others.append(replace(pair, type=REPLACES))
        if old is first[0]:  # a change is listed once
            batch.others.append(pair)
        if likely >= (SURE if chunk.is_turn else NOTE_SURE):
            outdate(old, chunk, batch, id)
            batch.replaced.append((chunk, old))
    old, likely = first
    if likely < (SURE if chunk.is_turn else NOTE_SURE):
        return replace(outcome, reason=f"it may replace {old.id}{DECIDE}")
    return replace(outcome, reason=f"it replaces {old.id}{DECIDE}", supersedes=old.id)


def outdate(old: Memory, chunk: Chunk, batch: Batch, id: str) -> None:
    """End the validity of a statement that the memory `id` of a turn replaces."""
    since = batch.valid_since(chunk)
    meta = {"reason": REPLACES, "superseded_by": id, **chunk.during}
    put = batch.puts.get(old.id) or Save(memory=old, event="superseded", meta=meta)
    batch.save(replace(put, memory=transitions.revise(old, batch.now, valid_to=since)))


async def end_repeats(tx: Transaction, batch: Batch) -> None:
    """End the validity of what repeats the statements that were replaced in a batch."""
    for chunk, old in batch.replaced:
        outdated = await find_echoes(tx, batch, old, chunk.text)
        outdated += await find_restated(tx, old, chunk.text)
        for stored in outdated:
            memory = batch.memories.get(stored.id, stored)
            if chunk.id is not None and memory.valid_to is None and not memory.on_purpose:
                pair = Relation(from_id=chunk.id, to_id=memory.id, type=REPLACES, at=batch.now)
                batch.others.append(pair)
                outdate(memory, chunk, batch, chunk.id)
