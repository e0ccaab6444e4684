"""Changes that are known: between two turns, or because a person decided about them.

A change is listed and decided once, between the turns that state it. The facts that were extracted
from these turns follow it, and are not listed for a decision of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import product

from ..storage.history import History
from ..storage.queries import Reader
from ..types import REPLACES, Memory, Scope
from .analyze import Chunk
from .candidates import Batch

# By the ids of a newer and an older memory: whether the facts of the older one end.
Changes = Mapping[tuple[str, str], bool]


async def load(reading: Reader, scope: Scope, ids: Collection[str]) -> Changes:
    """Return the known changes of these memories.

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
    pairs = await reading.links(scope, wanted, REPLACES, either_end=True)
    ends = [pair.to_id for pair in pairs]
    older = {memory.id: memory for memory in await reading.get(scope, ends)} if ends else {}
    for pair in pairs:
        memory = older.get(pair.to_id)
        is_kept = memory is not None and memory.pinned and memory.valid_to is None
        found[pair.from_id, pair.to_id] = not is_kept
        found[pair.to_id, pair.from_id] = False
    return found


def find_change(
    changes: Changes, new: Sequence[str], old: Sequence[str]
) -> tuple[str, bool] | None:
    """Return which of the newer memories changes one of the older ones, and whether that ends.

    >>> find_change({("b", "a"): True}, ["b"], ["a", "c"]), find_change({}, ["b"], ["a"])
    (('b', True), None)
    """
    known = {pair: changes[pair] for pair in product(new, old) if pair in changes}
    return next(((pair[0], ends) for pair, ends in known.items()), None)


def find_source(chunk: Chunk, contradicted: Memory, batch: Batch) -> tuple[str, bool] | None:
    """Return which source of a new fact changes a source of the one that it contradicts, and whether
    that one ends; None if no change between them is known.
    """
    older = (contradicted.id, *contradicted.evidence_ids)
    change = find_change(batch.changes, chunk.draft.evidence_ids, older)
    if change is None or not contradicted.on_purpose:
        return change
    turn, _ = change
    return turn, False
