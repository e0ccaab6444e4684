"""Links between similar memories, created on write from the vectors that are already loaded."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np

from ..index import Snapshot
from ..index.arrays import products
from ..storage import Change, Event, HistoryEntry, Relation, Save, Unrelated
from ..storage.queries import Reader
from ..storage.transaction import Transaction
from ..text.clock import new_id
from ..types import KINDS, RELATED, Memory, frozen
from .analyze import is_turn
from .policies import Links

_LINKED_KINDS = tuple(KINDS.index(kind) for kind in ("episodic", "semantic", "insight"))


@frozen
class Related:
    """A linked memory about the same topic, and how similar the two are."""

    memory: Memory
    strength: float  # their cosine when they were linked


async def link(
    tx: Transaction,
    snapshot: Snapshot,
    puts: Sequence[Save],
    limits: Links,
    now: datetime,
) -> None:
    """Link the written facts to their nearest memories, in the same transaction.

    One relation covers both directions, so it is stored under the newer id. A memory whose text
    changes loses the relations of the old text. `snapshot` is the scope before the write; without
    vectors, nothing is linked. Turns have their neighbors in the session instead, and a turn whose
    fact is linked is not linked as well.
    """
    new: list[Save] = []
    gone: set[str] = set()
    for put in puts:
        memory = put.memory
        is_new = put.event in ("created", "updated") and put.vector is not None
        if not memory.is_active:
            gone.add(memory.id)
        elif is_new and memory.kind == "semantic" and not is_turn(memory):
            new.append(put)
    if not new or snapshot.matrix is None:
        return
    made: dict[tuple[str, str], Change] = {}
    events: list[Change] = []
    entries: list[HistoryEntry] = []
    near_ids = await _find_near(tx, snapshot, new, limits)
    for put, near in zip(new, near_ids, strict=True):
        memory = put.memory
        usable = near.keys() - gone - {memory.id}
        ranked = sorted((-round(min(near[id], 1.0), 6), id) for id in usable)
        best = {id: -negative for negative, id in ranked[: limits.most]}
        for id, cosine in best.items():
            older, newer = sorted((id, memory.id))
            made[newer, older] = Relation(
                from_id=newer,
                to_id=older,
                type=RELATED,
                at=now,
                strength=cosine,
            )
        if best:  # one event and one history entry, regardless of the number of links
            nearest = next(iter(best))
            event = Event(
                node="hotpath",
                op="link",
                at=now,
                thread=memory.labels.thread or memory.labels.session,
                memory_id=memory.id,
                category=memory.category,
                sim=best[nearest],
            )
            entry = HistoryEntry(
                id=new_id(),
                memory_id=memory.id,
                event="LINK",
                old_ref=None,
                new_ref=nearest,
                actor=None,
                meta={"operation": tx.operation, "links": best},
                at=now,
            )
            events.append(event)
            entries.append(entry)
    ended: list[Change] = []
    reworded = [put.memory.id for put in new if put.event == "updated"]
    if reworded:
        links = await tx.links(tx.scope, reworded)
        stale = {(each.from_id, each.to_id) for each in links}
        for newer, older in sorted(stale.difference(made)):
            ended.append(Unrelated(from_id=newer, to_id=older, type=RELATED))
    await tx.apply([*ended, *made.values(), *events])
    if entries:
        await tx.touch(entries=entries)


async def _find_near(
    tx: Transaction,
    snapshot: Snapshot,
    new: Sequence[Save],
    limits: Links,
) -> list[dict[str, float]]:
    """Return the ids near each memory with their cosine, in the store and in this call."""
    found: list[dict[int, float]] = []
    usable = snapshot.alive & np.isin(snapshot.kind, _LINKED_KINDS)
    vectors = np.stack([put.vector for put in new])
    most = 2 * limits.most  # some may be superseded in this call
    for cosines in snapshot.similarities(vectors, usable):
        is_near = cosines >= limits.least
        near = np.flatnonzero(is_near & usable)
        rows = snapshot.row[near]
        order = np.lexsort((-rows, -cosines[near]))[:most]
        best = cosines[near[order]].tolist()
        found.append(dict(zip(rows[order].tolist(), best, strict=True)))
    wanted = set().union(*found)
    memories = {}
    if wanted:
        memories = await tx.at_rows(tx.scope, sorted(wanted))
    near_ids = []
    for stored, cosines in zip(found, products(vectors, vectors.T), strict=True):
        near_memories: list[tuple[Memory, float]] = []
        for row, cosine in stored.items():
            if row in memories:
                near_memories.append((memories[row], cosine))
        here = np.flatnonzero(cosines >= limits.least).tolist()
        near_memories += [(new[at].memory, float(cosines[at])) for at in here]
        evidence: set[str] = set()
        for memory, _ in near_memories:  # the new one is among them
            evidence.update(memory.evidence_ids)
        ids: dict[str, float] = {}
        for memory, cosine in near_memories:
            if memory.id not in evidence or not is_turn(memory):
                ids[memory.id] = cosine
        near_ids.append(ids)
    return near_ids


async def related(
    reading: Reader,
    memory: Memory,
    *,
    limit: int,
) -> list[Related]:
    """Return the memories that a memory is linked to, nearest first."""
    links = await reading.links(memory.scope, [memory.id])
    strength = {}
    for each in links[:limit]:
        other = each.to_id if each.from_id == memory.id else each.from_id
        strength[other] = each.strength
    memories = await reading.get(memory.scope, list(strength))
    return [Related(memory=each, strength=strength[each.id]) for each in memories]
