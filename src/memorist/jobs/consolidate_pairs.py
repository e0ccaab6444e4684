"""Which memories of a scope may say the same: found in its arrays, nearest first, before a word is read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..index import Snapshot
from ..ports import Reading
from ..text import clock
from ..types import KINDS, Filter, Scope

NEW = timedelta(hours=72)
RECENT = timedelta(days=90)
LEVEL = 3  # importance from which on a memory is looked at however old it is
DECILE = 0.1  # of the memories, those that are recalled most
NEIGHBOURS = 12  # of each memory
MOST_LOOKED_AT = 10_000  # memories in one run, those that changed last
MOST = 20_000  # pairs in one run
_TOGETHER = 256
_WORKING = KINDS.index("working")


class Near(NamedTuple):
    """Two rows of the store, the smaller one first, and how near they are."""

    a: int
    b: int
    cosine: float


async def often_used(reading: Reading, scope: Scope) -> list[str]:
    """The ids of the tenth of the memories that were recalled most often, if they ever were."""
    counts: dict[str, int] = {}
    total, cursor = 0, None
    while True:
        page = await reading.page(scope, Filter(), limit=1000, cursor=cursor)
        counts |= {
            memory.id: memory.access_count for memory in page.memories if memory.access_count
        }
        total, cursor = total + len(page), page.cursor
        if cursor is None:
            break
    ranked = sorted(counts, key=lambda id: (-counts[id], id))
    return ranked[: int(total * DECILE)]


def pool(
    snapshot: Snapshot, used: Iterable[int], now: datetime
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The positions that are looked at, and those that they are compared with.

    Looked at is what changed in the last three days, is important, or is recalled often (the rows that are `used`);
    what it is compared with has changed in the last ninety days. Turns of a conversation stand for themselves.
    """
    is_turn = (snapshot.session >= 0) & (snapshot.speaker >= 0)
    recent = snapshot.alive & snapshot.embedded & ~is_turn & (snapshot.kind != _WORKING)
    recent &= snapshot.updated >= clock.micros(now - RECENT)
    chosen = (snapshot.updated >= clock.micros(now - NEW)) | (
        snapshot.importance > (LEVEL - 1) / 5 + 1e-6
    )
    chosen |= np.isin(snapshot.row, list(used))
    found = np.flatnonzero(recent & chosen)
    newest = np.lexsort((-snapshot.row[found], -snapshot.updated[found]))[:MOST_LOOKED_AT]
    return found[newest], np.flatnonzero(recent)


def near(
    snapshot: Snapshot, looked_at: NDArray[np.intp], others: NDArray[np.intp], low: float
) -> list[Near]:
    """Each pair that is near enough, nearest first; of each memory a few, said by the same speaker."""
    found: dict[tuple[int, int], float] = {}
    theirs = snapshot.vectors(others)
    for start in range(0, len(looked_at), _TOGETHER):
        few = looked_at[start : start + _TOGETHER]
        for at, cosines in zip(few.tolist(), snapshot.vectors(few) @ theirs.T, strict=True):
            fits = (
                (cosines >= low)
                & (snapshot.speaker[others] == snapshot.speaker[at])
                & (others != at)
            )
            near_by = np.flatnonzero(fits)
            best = near_by[np.lexsort((others[near_by], -cosines[near_by]))[:NEIGHBOURS]]
            for other, cosine in zip(others[best].tolist(), cosines[best].tolist(), strict=True):
                a, b = sorted((int(snapshot.row[at]), int(snapshot.row[other])))
                found[a, b] = min(cosine, 1.0)
    ranked = sorted(found.items(), key=lambda each: (-round(each[1], 6), each[0]))
    return [Near(a, b, cosine) for (a, b), cosine in ranked[:MOST]]
