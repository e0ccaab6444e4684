"""Links between memories that are about the same, made at writing from the vectors at hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np

from ..index import Snapshot
from ..storage import Change, Event, HistoryEntry, Relation, Save, Unrelated
from ..storage.queries import Reader
from ..storage.transaction import Transaction
from ..text.clock import new_id
from ..types import KINDS, RELATED, Memory, Related
from .analyze import is_turn
from .policies import Links

_LINKED_KINDS = tuple(KINDS.index(kind) for kind in ("episodic", "semantic", "insight"))


async def link(
    tx: Transaction,
    snapshot: Snapshot,
    puts: Sequence[Save],
    limits: Links,
    now: datetime,
) -> None:
    """Relate the facts that were written to what is nearest to them, in the same transaction.

    One relation stands for both directions, so it is stored under the newer id. A memory with a new
    text loses the relations of the old one. `snapshot` is the scope before the write; one without
    vectors links nothing. Turns have their neighbors in the session instead.
    """
    new = []
    gone = set()
    for put in puts:
        memory = put.memory
        is_new = put.event in ("created", "updated") and put.vector is not None
        if not memory.is_active:
            gone.add(memory.id)
        elif is_new and memory.kind == "semantic" and not is_turn(memory):
            new.append(put)
    if not new or snapshot.is_lean:
        return
    made: dict[tuple[str, str], Change] = {}
    events = list[Change]()
    entries = list[HistoryEntry]()
    for put, near in zip(new, await _find_near(tx, snapshot, new, limits), strict=True):
        memory = put.memory
        cosines = {id: round(min(near[id], 1.0), 6) for id in near.keys() - gone - {memory.id}}
        best = sorted(cosines.items(), key=lambda each: (-each[1], each[0]))[: limits.most]
        for id, cosine in best:
            older, newer = sorted((id, memory.id))
            made[newer, older] = Relation(
                from_id=newer,
                to_id=older,
                type=RELATED,
                at=now,
                strength=cosine,
            )
        if best:  # one event and one line of history, however many
            event = Event(
                node="hotpath",
                op="link",
                at=now,
                thread=memory.labels.thread or memory.labels.session,
                memory_id=memory.id,
                category=memory.category,
                sim=best[0][1],
            )
            entry = HistoryEntry(
                id=new_id(),
                memory_id=memory.id,
                event="LINK",
                old_ref=None,
                new_ref=best[0][0],
                actor=None,
                meta={"operation": tx.operation, "links": dict(best)},
                at=now,
            )
            events.append(event)
            entries.append(entry)
    ended: list[Change] = []
    if reworded := [put.memory.id for put in new if put.event == "updated"]:
        stale = {(each.from_id, each.to_id) for each in await tx.links(tx.scope, reworded)}
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
    """Return the ids near each memory with their cosine: in the store, and of this call."""
    found: list[dict[int, float]] = []
    usable = snapshot.alive & np.isin(snapshot.kind, _LINKED_KINDS)
    vectors = np.stack([put.vector for put in new])
    for cosines in snapshot.similarities(vectors):
        near = np.flatnonzero((cosines >= limits.least) & usable)
        order = np.lexsort((-snapshot.row[near], -cosines[near]))
        best = near[order][: 2 * limits.most]  # some may be superseded in this call
        found.append({int(snapshot.row[at]): float(cosines[at]) for at in best})
    rows = sorted({row for each in found for row in each})
    memories = await tx.at_rows(tx.scope, rows) if rows else {}
    near_ids = []
    for each, cosines in zip(found, vectors @ vectors.T, strict=True):
        ids = {memories[row].id: cosine for row, cosine in each.items() if row in memories}
        for at in np.flatnonzero(cosines >= limits.least).tolist():
            ids[new[at].memory.id] = float(cosines[at])
        near_ids.append(ids)
    return near_ids


async def related(reading: Reader, memory: Memory, *, limit: int) -> list[Related]:
    """Return what a memory is linked to, nearest first."""
    strength = {}
    for each in (await reading.links(memory.scope, [memory.id]))[:limit]:
        other = each.to_id if each.from_id == memory.id else each.from_id
        strength[other] = each.strength
    memories = await reading.get(memory.scope, list(strength))
    return [Related(memory=each, strength=strength[each.id]) for each in memories]
