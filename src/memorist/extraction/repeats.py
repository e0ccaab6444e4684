"""What a turn says again: a statement of the same person in an earlier session.

It is stored once, in the words of the fact that is known, and every turn that says it is its
evidence. In a language that the rules cannot read, only the same words are a repetition.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from ..context import Context, compute
from ..index import Snapshot
from ..ingest.candidates import Similar, compare_all, find_statements, pick
from ..storage.queries import Reader
from ..text import clock, cues, prompts
from ..text.cues import read
from ..text.normalize import one_line, wording
from ..text.repeats import LEAST, LEAST_SHARED, Said, count_shared, has_same_words, measure, weigh
from ..types import Draft, Filter, Memory, Scope
from . import durable, grammars, rules
from .rules import Fact

LEAST_SIMILAR = 0.4
LEAST_SAID = 6  # letters of sentences that say something
_SENTENCE = re.compile(r"[.!?…。！？।؟\n]+")
_CONFIDENCE = 0.7  # of a statement that was made twice
_IMPORTANCE = 0.6


async def find_repeated(
    ctx: Context,
    scope: Scope,
    turns: Sequence[Memory],
) -> dict[str, list[Memory]]:
    """Return by the id of each turn that repeats earlier statements these, the likeliest first."""
    likely: dict[str, list[tuple[float, Memory]]] = {}
    for turn, older, measures in await compare(ctx, scope, turns):
        probability = weigh(measures)
        if not (_is_read(turn.text) and _is_read(older.text)):
            if _has_same_sentences(turn.text, older.text):
                probability = 1.0
            elif not has_same_words(Said(turn.text), Said(older.text)):
                probability = 0.0
        if probability >= LEAST:
            likely.setdefault(turn.id, []).append((probability, older))
    found = {}
    for id, pairs in likely.items():
        pairs.sort(key=lambda pair: -pair[0])
        found[id] = [older for _, older in pairs]
    return found


def _is_read(text: str) -> bool:
    """Return whether the rules can read the language of a text."""
    return grammars.choose_language(text) in ("english", *grammars.LANGUAGES)


def _has_same_sentences(text: str, other: str) -> bool:
    """Return whether one text has all sentences of the other, in the same words.

    >>> _has_same_sentences("Hej! Mieszkam w Łodzi.", "mieszkam w Łodzi")
    True
    >>> _has_same_sentences("Mieszkam w Łodzi", "Mieszkam w Gdyni")
    False
    """
    one, two = (set(filter(None, map(wording, _SENTENCE.split(each)))) for each in (text, other))
    is_long = len("".join(one & two)) >= LEAST_SAID
    return is_long and (one <= two or two <= one)


async def compare(
    ctx: Context,
    scope: Scope,
    turns: Sequence[Memory],
) -> list[tuple[Memory, Memory, dict[str, float]]]:
    """Compare turns with the most similar statements that their speakers made in other sessions
    before, if these still hold. Return each pair with its measures.
    """
    snapshot = await ctx.index.current(scope, ctx.store)
    if snapshot.matrix is None:
        return []
    now = clock.micros(ctx.clock())
    near = await compute(snapshot.n, _find_near, snapshot, turns, now)
    rows = {row for _, found in near for row, _ in found}
    memories = await ctx.store.at_rows(scope, sorted(rows)) if rows else {}
    texts = {memory.text for memory in (*(turn for turn, _ in near), *memories.values())}
    read_once = {text: Said(text) for text in texts}
    pairs = []
    for turn, found in near:
        partners = [name for name in snapshot.codes["speaker"] if name != turn.speaker]
        for row, cosine in found:
            if older := memories.get(row):
                new = read_once[turn.text]
                measures = measure(new, read_once[older.text], cosine, partners)
                pairs.append((turn, older, measures))
    return pairs


def _find_near(
    snapshot: Snapshot, turns: Sequence[Memory], now: int
) -> list[tuple[Memory, Similar]]:
    """Return the turns that state something, each with the rows of what it may repeat."""
    positions = []
    asked = []
    for turn in turns:
        place = _find_position(snapshot, turn)
        if place is not None and read(turn.text).asks < 1:
            positions.append(place)
            asked.append(turn)
    second = snapshot.second
    said = []
    for turn, place in zip(asked, positions, strict=True):
        other = second.rows[place] if second is not None and snapshot.has_second[place] else None
        vector = snapshot.vectors(np.array([place]))[0]
        said.append((read(turn.text).is_english, vector, other))
    usable = find_statements(snapshot) & (snapshot.session >= 0)
    usable &= snapshot.valid_to > now
    near = []
    for place, similar in zip(positions, compare_all(said, snapshot, usable), strict=True):
        is_earlier = usable & (snapshot.row < snapshot.row[place])
        is_earlier &= snapshot.speaker == snapshot.speaker[place]
        is_earlier &= snapshot.session != snapshot.session[place]
        places = np.flatnonzero(is_earlier & (similar >= LEAST_SIMILAR))
        near.append(pick(similar[places], snapshot.row[places]))
    return list(zip(asked, near, strict=True))


def _find_position(snapshot: Snapshot, turn: Memory) -> int | None:
    """Return the position of a turn; None if it is not one, or is not in the snapshot."""
    session = turn.labels.session
    if session is None or turn.sequence is None:
        return None
    is_here = snapshot.alive & (snapshot.session == snapshot.code("session", session))
    found = np.flatnonzero(is_here & (snapshot.sequence == turn.sequence))
    return int(found[-1]) if len(found) else None


async def restate(
    reading: Reader,
    turn: Memory,
    older: Sequence[Memory],
    drafts: Iterable[Draft],
) -> tuple[Fact, list[Fact]]:
    """Return the fact of older turns that a turn repeats: a stored one, or one of the drafts.

    If there is none, the likeliest of them is stated as a fact, which is returned as well.
    """
    ids = {memory.id for memory in older}
    where = Filter(derived_from=tuple(ids), kinds=("semantic", "procedural"))
    known = [fact.text for fact in await reading.find_all(turn.scope, where) if fact.is_active]
    known += [draft.text for draft in drafts if not ids.isdisjoint(draft.evidence_ids)]
    best = max(known, key=lambda text: count_shared(text, turn.text), default="")
    if best and count_shared(best, turn.text) >= LEAST_SHARED:
        return _to_fact(best, turn), []
    stated = _state(older[0], turn)
    return _to_fact(stated, turn), [_to_fact(stated, older[0])]


def _state(turn: Memory, again: Memory) -> str:
    """Return as a fact what a turn says and another one repeats.

    If no part of it can be put into the third person, it is quoted.
    """
    who = rules.name_speaker(turn.speaker, is_own=cues.is_persons(turn))
    at = turn.occurred_at or turn.created_at
    stated = [proposal.text for proposal in durable.propose(turn.text, who, at)]
    best = max(stated, key=lambda text: count_shared(text, again.text), default="")
    if count_shared(best, again.text) >= LEAST_SHARED:
        return best
    return prompts.trim(f"{who} said: {one_line(turn.text)}")


def _to_fact(text: str, turn: Memory) -> Fact:
    """Return a fact that is known from another turn as one of this turn."""
    return Fact(
        text=text,
        type=durable.classify(text),
        confidence=_CONFIDENCE,
        evidence=one_line(turn.text),
        importance=_IMPORTANCE,
    )
