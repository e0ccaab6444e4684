"""Links between memories that are about the same, made at writing from the vectors at hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np

from ..index import Snapshot
from ..storage.changes import Change, Event, HistoryEntry, Relation, Save, Unrelated
from ..storage.queries import Reader
from ..storage.transaction import Transaction
from ..text.clock import new_id
from ..types import KINDS, RELATED, Memory, Related, Scope
from .policies import Links

TOGETHER = 32  # memories compared with the scope at a time: bounds the memory that it needs
_LINKED_KINDS = tuple(KINDS.index(kind) for kind in ("episodic", "semantic", "insight"))


async def link(
    tx: Transaction,
    scope: Scope,
    snapshot: Snapshot,
    puts: Sequence[Save],
    limits: Links,
    now: datetime,
) -> None:
    """Relate the facts that were written to what is nearest to them, in the same transaction.

    One relation stands for both directions, so it is stored under the newer id. A memory with a new
    text loses the relations of the old one. `snapshot` is the scope before the write; one without
    vectors links nothing.
    """
    new = [put for put in puts if _is_new_fact(put)]
    if not new or snapshot.is_lean:
        return
    gone = {put.memory.id for put in puts if not put.memory.is_active}
    made: dict[tuple[str, str], Change] = {}
    events: list[Event] = []
    entries: list[HistoryEntry] = []
    for put, near in zip(new, await _find_near(tx, scope, snapshot, new, limits), strict=True):
        id = put.memory.id
        others = []
        for other, cosine in near.items():
            if other != id and other not in gone:
                others.append((other, round(min(cosine, 1.0), 6)))
        best = sorted(others, key=lambda each: (-each[1], each[0]))[: limits.most]
        if best:
            events.append(_make_event(put.memory, best[0][1], now))
            entries.append(_make_entry(put.memory, best, tx.operation, now))
        for other, cosine in best:
            newer, older = max(id, other), min(id, other)
            made[newer, older] = Relation(
                from_id=newer, to_id=older, type=RELATED, at=now, strength=cosine
            )
    ended: list[Change] = []
    if reworded := [put.memory.id for put in new if put.event == "updated"]:
        stale = [(each.from_id, each.to_id) for each in await tx.links(scope, reworded)]
        for newer, older in sorted(set(stale).difference(made)):
            ended.append(Unrelated(from_id=newer, to_id=older, type=RELATED))
    await tx.apply([*ended, *made.values(), *events])
    if entries:
        await tx.touch(entries=entries)


def _make_entry(
    memory: Memory, best: Sequence[tuple[str, float]], operation: str, now: datetime
) -> HistoryEntry:
    """Return one line of history for the links of a memory, however many."""
    return HistoryEntry(
        id=new_id(),
        memory_id=memory.id,
        event="LINK",
        old_ref=None,
        new_ref=best[0][0],
        actor=None,
        meta={"operation": operation, "links": dict(best)},
        at=now,
    )


def _make_event(memory: Memory, cosine: float, now: datetime) -> Event:
    return Event(
        node="hotpath",
        op="link",
        at=now,
        thread=memory.labels.thread or memory.labels.session,
        memory_id=memory.id,
        category=memory.category,
        sim=cosine,
    )


async def related(reading: Reader, memory: Memory, *, limit: int) -> list[Related]:
    """Return what a memory is linked to, nearest first."""
    strength = {}
    for each in (await reading.links(memory.scope, [memory.id]))[:limit]:
        other = each.to_id if each.from_id == memory.id else each.from_id
        strength[other] = each.strength
    memories = await reading.get(memory.scope, list(strength))
    return [Related(memory=each, strength=strength[each.id]) for each in memories]


def _is_new_fact(put: Save) -> bool:
    """Return whether a fact is new or has a new text; turns have their neighbors in the session."""
    memory = put.memory
    is_new = put.event in ("created", "updated") and put.vector is not None
    is_turn = memory.labels.session is not None and memory.speaker is not None
    return is_new and memory.is_active and memory.kind == "semantic" and not is_turn


async def _find_near(
    tx: Transaction, scope: Scope, snapshot: Snapshot, new: Sequence[Save], limits: Links
) -> list[dict[str, float]]:
    """Return the ids near each memory with their cosine: in the store, and of this call."""
    found: list[list[tuple[int, float]]] = []
    usable = snapshot.alive & np.isin(snapshot.kind, _LINKED_KINDS)
    for start in range(0, len(new), TOGETHER):
        few = np.stack([put.vector for put in new[start : start + TOGETHER]], axis=1)
        for cosines in np.ascontiguousarray(snapshot.similarity(few).T):
            near = np.flatnonzero((cosines >= limits.least) & usable)
            order = np.lexsort((-snapshot.row[near], -cosines[near]))
            best = near[order][: 2 * limits.most]  # some may be superseded in this call
            found.append([(int(snapshot.row[at]), float(cosines[at])) for at in best])
    rows = sorted({row for each in found for row, _ in each})
    memories = await tx.at_rows(scope, rows) if rows else {}
    vectors = np.stack([put.vector for put in new])
    near_ids = []
    for each, cosines in zip(found, vectors @ vectors.T, strict=True):
        ids = {memories[row].id: cosine for row, cosine in each if row in memories}
        for at in np.flatnonzero(cosines >= limits.least).tolist():
            ids[new[at].memory.id] = float(cosines[at])
        near_ids.append(ids)
    return near_ids
