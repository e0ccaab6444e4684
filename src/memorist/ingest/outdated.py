"""What becomes outdated with a statement that was replaced: replies that repeat it, and facts that
were extracted from it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..index.arrays import Bools
from ..storage import Relation
from ..storage.transaction import Transaction
from ..text import entities
from ..text.changes import read, says_more
from ..text.contradictions import contradicts_clause
from ..text.cues import FROM_ASSISTANT
from ..types import REPLACES, Memory
from .batch import Batch
from .current import JUST_BEFORE, LONGEST, outdate


async def end_repeats(tx: Transaction, batch: Batch) -> None:
    """End the validity of what repeats the statements that were replaced in a batch."""
    for chunk, old in batch.replaced:
        repeats = [reply for reply in await _find_replies(tx, batch, old) if _is_echo(old, reply)]
        facts = batch.snapshot.source == batch.rows.get(old.id, -2)
        for fact in await _load(tx, batch, facts):
            is_outdated = not says_more(old.text) or contradicts_clause(chunk.text, fact.text)
            if is_outdated and fact.evidence_ids == (old.id,):
                repeats.append(fact)
        for memory in repeats:
            if chunk.id is not None and memory.valid_to is None and not memory.on_purpose:
                pair = Relation(from_id=chunk.id, to_id=memory.id, type=REPLACES, at=batch.now)
                batch.others.append(pair)
                outdate(batch.memories.get(memory.id, memory), chunk, batch, chunk.id)
    read.cache_clear()


async def _load(tx: Transaction, batch: Batch, wanted: Bools) -> Iterable[Memory]:
    """Return the memories alive at the wanted positions."""
    positions = np.flatnonzero(wanted & batch.snapshot.alive)
    if not len(positions):
        return ()
    rows = batch.snapshot.row[positions].tolist()
    return (await tx.at_rows(batch.scope, rows)).values()


async def _find_replies(tx: Transaction, batch: Batch, old: Memory) -> list[Memory]:
    """Return what the assistant said right after a statement."""
    session = old.labels.session
    if session is None:
        return []
    snapshot = batch.snapshot
    first = old.sequence or 0
    is_reply = snapshot.marked[FROM_ASSISTANT] & (snapshot.sequence > first)
    is_reply &= snapshot.session == snapshot.code("session", session)
    is_reply &= snapshot.sequence <= first + JUST_BEFORE
    replies = [*await _load(tx, batch, is_reply)]
    for put in batch.puts.values():
        memory = put.memory
        is_near = 0 < (memory.sequence or 0) - first <= JUST_BEFORE
        if is_near and memory.labels.session == session and memory.labels.role == "assistant":
            replies.append(memory)
    return replies


def _is_echo(old: Memory, reply: Memory) -> bool:
    """Return whether a short reply repeats a name, a number or a rare word of a statement."""
    said = read(old.text)
    here = read(reply.text)
    if here.length > LONGEST:
        return False
    shared = said.words & here.words
    is_rare = any(not entities.is_common(word) for word in shared)
    return is_rare or not (said.names | said.numbers).isdisjoint(here.names | here.numbers)
