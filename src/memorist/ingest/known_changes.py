"""Changes that are known: between two turns, or because a person decided about them.

A change is listed and decided once, between the turns that state it. The facts that were extracted
from these turns follow it, and are not listed for a decision of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import product

from ..storage import Relation
from ..storage.history import History
from ..storage.queries import Reader
from ..types import REPLACES, Memory, Scope
from . import current
from .analyze import Chunk
from .candidates import Batch

# By the ids of a newer and an older memory: whether the facts of the older one end.
Changes = Mapping[tuple[str, str], bool]


async def load_changes(reading: Reader, scope: Scope, ids: Collection[str]) -> Changes:
    """Return the known changes between memories.

    What was pinned does not end before a person decides, and nothing ends of two that are both true.
    """
    found: dict[tuple[str, str], bool] = {}
    wanted = sorted(ids)
    for entry in await History(reading).decisions(scope, wanted):
        new, old = entry.meta["between"]
        if entry.meta["decision"] == "reopened":
            found.pop((new, old), None)
        else:
            found[new, old] = entry.meta["decision"] == "confirmed"
    pairs = await reading.links(scope, wanted, REPLACES)
    older = {memory.id: memory for memory in await reading.get(scope, [p.to_id for p in pairs])}
    for pair in pairs:
        memory = older.get(pair.to_id)
        is_kept = memory is not None and memory.pinned and memory.valid_to is None
        found[pair.from_id, pair.to_id] = not is_kept
        found[pair.to_id, pair.from_id] = False
    return found


async def load(tx: Reader, batch: Batch) -> None:
    """Read the known changes between the sources of new facts, and of what they may contradict."""
    ids = {id for chunk in batch.chunks for id in chunk.draft.evidence_ids}
    if not ids or not batch.policy.conflicts:
        return
    for memory in batch.memories.values():
        ids.update((memory.id, *memory.evidence_ids))
    batch.changes = await load_changes(tx, batch.scope, ids)


def find_change(
    changes: Changes, new: Sequence[str], old: Sequence[str]
) -> tuple[str, bool] | None:
    """Return which of the newer memories changes one of the older ones, and whether that ends.

    >>> find_change({("b", "a"): True}, ["b"], ["a", "c"]), find_change({}, ["b"], ["a"])
    (('b', True), None)
    """
    known = {pair: changes[pair] for pair in product(new, old) if pair in changes}
    return next(((pair[0], ends) for pair, ends in known.items()), None)


def follow(chunk: Chunk, contradicted: Memory, batch: Batch) -> bool:
    """Return whether the sources of a fact tell what becomes of another one that it contradicts.

    If they do, the older fact ends with its turn, or stays with it.
    """
    older = (contradicted.id, *contradicted.evidence_ids)
    change = find_change(batch.changes, chunk.draft.evidence_ids, older)
    if change is None:
        return False
    turn, ends = change
    if ends and contradicted.valid_to is None and not contradicted.on_purpose:
        pair = Relation(from_id=turn, to_id=contradicted.id, type=REPLACES, at=batch.now)
        batch.others.append(pair)
        current.outdate(contradicted, chunk, batch, turn)
    return True
