"""What becomes outdated with a statement: replies of the assistant that repeat it, its facts, and
other turns that say the same.
"""

from __future__ import annotations

import numpy as np

from ..storage.transaction import Transaction
from ..text.cues import FROM_ASSISTANT, ComparedText, read
from ..text.endings import ends_fact
from ..text.entities import is_common
from ..text.parts import find_changed
from ..text.passing import leave_out_questions
from ..text.statements import says_more
from ..types import Filter, Memory
from .candidates import Batch

JUST_BEFORE = 3  # turns
LONGEST = 40  # words of a statement that can be superseded as a whole


async def find_echoes(tx: Transaction, batch: Batch, old: Memory, new: str) -> list[Memory]:
    """Return what the assistant said right after a statement that only repeats what changed of it."""
    session = old.labels.session
    if session is None:
        return []
    snapshot = batch.snapshot
    first = old.sequence or 0
    is_reply = snapshot.marked[FROM_ASSISTANT] & (snapshot.sequence > first)
    is_reply &= snapshot.session == snapshot.code("session", session)
    is_reply &= snapshot.sequence <= first + JUST_BEFORE
    positions = np.flatnonzero(is_reply & snapshot.alive)
    replies: list[Memory] = []
    if len(positions):
        rows = snapshot.row[positions].tolist()
        replies += (await tx.at_rows(batch.scope, rows)).values()
    for put in batch.puts.values():
        memory = put.memory
        is_near = 0 < (memory.sequence or 0) - first <= JUST_BEFORE
        if is_near and memory.labels.session == session and memory.labels.role == "assistant":
            replies.append(memory)
    return [reply for reply in replies if is_echo(reply.text, old.text, new)]


def is_echo(reply: str, old: str, new: str) -> bool:
    """Return whether a short reply repeats a name, a number or a rare word of what changed.

    What a reply asks does not count, and neither does what holds as before.

    >>> is_echo("Noted, 50 mg. Anything else?", "I take 50 mg of sertraline", "75 mg now")
    True
    >>> is_echo("A full Friday!", "I row on Fridays and study on Mondays", "I study on Sundays now")
    False
    """
    here = read(leave_out_questions(reply))
    if here.length > LONGEST or here.asks >= 1:
        return False
    changed, parts = find_changed(old, new)
    said = read(". ".join(parts[place] for place in sorted(changed)) or old)
    kept = read(new)
    repeated: set[object] = {*share_rare_words(said, here)}
    repeated |= (said.names | said.numbers) & (here.names | here.numbers)
    if kept.cues.isdisjoint(("ended", "corrected")):
        repeated -= kept.names | kept.numbers | kept.words
    return bool(repeated)


def share_rare_words(a: ComparedText, b: ComparedText) -> list[str]:
    """Return the rare words that two texts have in common, without numbers."""
    shared = [word for word in a.words & b.words if len(word) > 2 and not word[0].isdigit()]
    return [word for word in shared if not is_common(word)]


async def find_restated(tx: Transaction, old: Memory, new: str) -> list[Memory]:
    """Return the facts of a statement that a newer text ends, and other turns that say just that."""
    derived = await tx.find_all(old.scope, Filter(derived_from=(old.id,)))
    extracted = [memory for memory in derived if memory.evidence_text]
    facts = [fact for fact in extracted if ends_fact(new, old.text, fact.text)]
    others = {id for fact in facts for id in fact.evidence_ids if id != old.id}
    turns = await tx.get(old.scope, sorted(others)) if others else []
    return [*facts, *(turn for turn in turns if turn.is_active and not says_more(turn.text))]
