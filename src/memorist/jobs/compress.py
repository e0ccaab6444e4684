"""Compression: the oldest sessions of a scope are replaced by one summary each; their turns stay,
compressed.
"""

from __future__ import annotations

import numpy as np

from ..context import Context
from ..index import Snapshot
from ..results import Task
from ..storage.paging import matching
from ..types import KINDS, STATES, Filter, Labels, Scope
from .schedule import DAILY, finish
from .summarize import SummaryReport, replace_by_summary


async def run(ctx: Context, task: Task) -> int:
    """Compress the sessions that are due in a scope; return the number of changed memories."""
    done = await compress(ctx, task.scope, threshold=ctx.settings.compression_threshold)
    await finish(ctx, task, DAILY)
    return len(done.memories) + len(done.summaries)


async def compress(
    ctx: Context,
    scope: Scope,
    *,
    threshold: int,
    sessions: int | None = None,
    dry_run: bool = False,
) -> SummaryReport:
    """Summarize the oldest sessions if there are more than the threshold: half as many, or
    `sessions` of them.

    Pinned and manually saved memories stay as they are. Each session is one transaction.
    """
    candidates = oldest_sessions(await ctx.index.current(scope, ctx.store))
    most = max(1, threshold // 2) if sessions is None else sessions
    done = SummaryReport(dry_run=dry_run)
    if len(candidates) <= threshold:
        return done
    for session in candidates:
        if done.groups == most:
            break
        where = Filter(
            kinds=("episodic",), pinned=False, manually_saved=False, labels=Labels(session=session)
        )
        turns = await matching(ctx.store, scope, where)
        if turns:
            summary: str | None = ""
            if not dry_run:
                summary = await replace_by_summary(ctx, turns, state="compressed", session=session)
            done = done.with_group(turns, summary)
    return done


def oldest_sessions(snapshot: Snapshot) -> list[str]:
    """Return the sessions with uncompressed turns, in the order in which they began."""
    is_open = snapshot.present & (snapshot.state == STATES.index("active"))
    is_open &= snapshot.kind == KINDS.index("episodic")
    is_open &= (snapshot.session >= 0) & ~snapshot.pinned
    codes = snapshot.session[is_open]
    order = np.lexsort((codes, snapshot.occurred[is_open], snapshot.created[is_open]))
    names = {code: name for name, code in snapshot.codes["session"].items()}
    return [names[code] for code in dict.fromkeys(codes[order].tolist())]
