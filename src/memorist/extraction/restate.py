"""What a turn says again, in the words of the fact that is known: it is stored once, and every turn
that says it is its evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..storage.queries import Reader
from ..text import authority, prompts
from ..text.normalize import one_line
from ..text.repeats import LEAST_SHARED, count_shared
from ..types import Draft, Filter, Memory, Scope
from . import durable, rules
from .rules import Fact

_CONFIDENCE = 0.7  # of a statement that was made twice
_IMPORTANCE = 0.6


async def find_known(
    reading: Reader,
    scope: Scope,
    turn: Memory,
    older: Sequence[Memory],
    drafts: Iterable[Draft],
) -> str | None:
    """Return the fact of older turns that a turn repeats: a stored one, or one of the drafts."""
    ids = {memory.id for memory in older}
    where = Filter(derived_from=tuple(ids), kinds=("semantic", "procedural"))
    known = [fact.text for fact in await reading.find_all(scope, where) if fact.is_active]
    known += [draft.text for draft in drafts if not ids.isdisjoint(draft.evidence_ids)]
    best = max(known, key=lambda text: count_shared(text, turn.text), default=None)
    if best is None or count_shared(best, turn.text) < LEAST_SHARED:
        return None
    return best


def state(turn: Memory, again: Memory) -> str:
    """Return as a fact what a turn says and another one repeats.

    If no part of it can be put into the third person, it is quoted.
    """
    who = rules.name_speaker(turn.speaker, is_own=authority.is_persons(turn))
    at = turn.occurred_at or turn.created_at
    stated = [proposal.text for proposal in durable.propose(turn.text, who, at)]
    best = max(stated, key=lambda text: count_shared(text, again.text), default="")
    if count_shared(best, again.text) >= LEAST_SHARED:
        return best
    return prompts.trim(f"{who} said: {one_line(turn.text)}")


def to_fact(text: str, turn: Memory) -> Fact:
    """Return a fact that is known from another turn as one of this turn."""
    return Fact(
        text=text,
        type=durable.classify(text),
        confidence=_CONFIDENCE,
        evidence=one_line(turn.text),
        importance=_IMPORTANCE,
    )
