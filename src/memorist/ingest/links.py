"""Links between memories that are about the same: made where a memory is written, from vectors that
are at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from ..index import Snapshot
from ..ports import Reading, Transaction
from ..results import Entry
from ..storage.changes import Change, Happened, Put, Relation, Unrelated
from ..text.clock import new_id
from ..types import KINDS, RELATED, Memory, Related, Scope
from .policies import Links

TOGETHER = 32  # memories compared with the scope at a time: bounds the room that it takes
_LINKED_KINDS = tuple(KINDS.index(kind) for kind in ("episodic", "semantic", "insight"))

Near = dict[str, float]  # ids with their cosine


async def link(
    tx: Transaction, scope: Scope, snapshot: Snapshot, puts: Sequence[Put], by: Links, now: datetime
) -> None:
    """Relate the facts that were written to what is nearest to them, in the same transaction.

    One relation stands for both directions, so it is kept under the newer id. A memory with new
    words loses the relations of the old ones. `snapshot` is the scope as it was before the write;
    one without vectors links nothing.
    """
    new = [put for put in puts if _is_fact(put)]
    if not new or snapshot.is_lean:
        return
    gone = {put.memory.id for put in puts if not put.memory.is_active}
    made: dict[tuple[str, str], Change] = {}
    told: list[Change] = []
    for put, near in zip(new, await _near(tx, scope, snapshot, new, by), strict=True):
        best = _best(near, {put.memory.id, *gone}, by.most)
        told += _told(put.memory, best, tx.operation, now)
        for other, cosine in best:
            newer, older = max(put.memory.id, other), min(put.memory.id, other)
            made[newer, older] = Relation(
                from_id=newer, to_id=older, type=RELATED, at=now, strength=cosine
            )
    reworded = [put.memory.id for put in new if put.event == "updated"]
    stale = await tx.links(scope, reworded) if reworded else []
    ended = [each for each in stale if (each.from_id, each.to_id) not in made]
    gone_stale = [Unrelated(from_id=each.from_id, to_id=each.to_id, type=RELATED) for each in ended]
    await tx.apply([*gone_stale, *made.values(), *told])


def _told(
    memory: Memory, best: Sequence[tuple[str, float]], operation: str, now: datetime
) -> list[Change]:
    """That a memory was linked: one line in the history and one event, however many the links
    are.
    """
    if not best:
        return []
    meta = {"operation": operation, "links": dict(best)}
    thread = memory.labels.thread or memory.labels.session
    return [
        Entry(
            id=new_id(),
            memory_id=memory.id,
            event="LINK",
            old_ref=None,
            new_ref=best[0][0],
            actor=None,
            meta=meta,
            at=now,
        ),
        Happened(
            node="hotpath",
            op="link",
            at=now,
            thread=thread,
            memory_id=memory.id,
            category=memory.category,
            sim=best[0][1],
        ),
    ]


async def related(reading: Reading, memory: Memory, *, limit: int) -> list[Related]:
    """What a memory is linked to, nearest first."""
    found = (await reading.links(memory.scope, [memory.id]))[:limit]
    strength = {
        (each.to_id if each.from_id == memory.id else each.from_id): each.strength for each in found
    }
    memories = await reading.get(memory.scope, list(strength))
    return [Related(memory=each, strength=strength[each.id]) for each in memories]


def _is_fact(put: Put) -> bool:
    """A fact that is new, or says something new; a turn of a conversation has its neighbours
    there.
    """
    memory, is_new = put.memory, put.event in ("created", "updated") and put.vector is not None
    is_turn = memory.labels.session is not None and memory.speaker is not None
    return is_new and memory.is_active and memory.kind == "semantic" and not is_turn


async def _near(
    tx: Transaction, scope: Scope, snapshot: Snapshot, new: Sequence[Put], by: Links
) -> list[Near]:
    """What is near to each: in the store, and told in the same call."""
    found = list(_rows(snapshot, new, by))
    rows = sorted({row for each in found for row, _ in each})
    ids = (
        {row: memory.id for row, memory in (await tx.at_rows(scope, rows)).items()} if rows else {}
    )
    near = [{ids[row]: cosine for row, cosine in each if row in ids} for each in found]
    vectors = np.stack([put.vector for put in new])
    for at, cosines in enumerate(vectors @ vectors.T):
        near[at] |= {
            new[i].memory.id: float(cosines[i])
            for i in np.flatnonzero(cosines >= by.least).tolist()
        }
    return near


def _rows(snapshot: Snapshot, new: Sequence[Put], by: Links) -> Iterator[list[tuple[int, float]]]:
    """The rows nearest to each, with their cosine; more than are wanted, for some may be on their
    way out.
    """
    usable = snapshot.alive & np.isin(snapshot.kind, _LINKED_KINDS)
    for start in range(0, len(new), TOGETHER):
        few = np.stack([put.vector for put in new[start : start + TOGETHER]], axis=1)
        for cosines in np.ascontiguousarray(snapshot.similarity(few).T):
            best = _first(snapshot, np.flatnonzero((cosines >= by.least) & usable), cosines)[
                : 2 * by.most
            ]
            yield [(int(snapshot.row[at]), float(cosines[at])) for at in best]


def _first(
    snapshot: Snapshot, found: NDArray[np.intp], cosines: NDArray[np.float32]
) -> NDArray[np.intp]:
    return found[np.lexsort((-snapshot.row[found], -cosines[found]))]


def _best(near: Near, without: set[str], most: int) -> list[tuple[str, float]]:
    others = ((id, round(min(cosine, 1.0), 6)) for id, cosine in near.items() if id not in without)
    return sorted(others, key=lambda each: (-each[1], each[0]))[:most]
