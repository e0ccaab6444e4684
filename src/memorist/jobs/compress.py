"""Compressing: the oldest sessions of a conversation partner become one summary each; what was said stays behind it."""

from __future__ import annotations

from datetime import timedelta

import numpy as np

from ..index import Snapshot
from ..ports import Reading
from ..results import Task
from ..storage.changes import Done
from ..storage.paging import matching
from ..types import KINDS, STATES, Filter, Labels, Memory, Scope
from .context import Care
from .schedule import again
from .summarize import SummedUp, put_behind

THRESHOLD = 10  # sessions
EVERY = timedelta(days=1)


async def run(task: Task, care: Care, *, threshold: int = THRESHOLD) -> int:
    """Compress what is due in a scope. Each session is one transaction: nothing is done by half or twice."""
    done = await compress(care, task.scope, threshold=threshold)
    async with care.store.transaction(task.scope) as tx:
        await tx.apply([Done(task=task, again_at=again(task, EVERY, care.now()))])
    return len(done.memories) + len(done.summaries)


async def compress(
    care: Care,
    scope: Scope,
    *,
    threshold: int = THRESHOLD,
    sessions: int | None = None,
    dry_run: bool = False,
) -> SummedUp:
    """Sum up the oldest sessions, if there are more than the threshold: half as many, or as many as are asked for.

    What is pinned or was saved on purpose stays as it is.
    """
    open_ones = oldest(await care.index.current(scope, care.store))
    most = max(1, threshold // 2) if sessions is None else sessions
    done = SummedUp(dry_run=dry_run)
    for session in open_ones if len(open_ones) > threshold else ():
        if done.groups == most:
            break
        said = await _said(care.store, scope, session)
        if said:
            made = (
                "" if dry_run else await put_behind(said, care, state="compressed", session=session)
            )
            done = done.with_group(said, made)
    return done


def oldest(snapshot: Snapshot) -> list[str]:
    """The sessions with episodes that are not compressed yet, by when the first of them was made."""
    is_open = (
        snapshot.present
        & (snapshot.state == STATES.index("active"))
        & (snapshot.kind == KINDS.index("episodic"))
    )
    is_open &= (snapshot.session >= 0) & ~snapshot.pinned
    codes = snapshot.session[is_open]
    order = np.lexsort((codes, snapshot.occurred[is_open], snapshot.created[is_open]))
    names = {code: name for name, code in snapshot.codes["session"].items()}
    return [names[code] for code in dict.fromkeys(codes[order].tolist())]


async def _said(reading: Reading, scope: Scope, session: str) -> list[Memory]:
    where = Filter(
        kinds=("episodic",), pinned=False, manually_saved=False, labels=Labels(session=session)
    )
    return await matching(reading, scope, where)
