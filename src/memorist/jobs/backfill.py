"""Extract facts from turns that were stored before extraction was on, and relate what replaces what.

Each run processes some turns of a scope, oldest first, and stores their facts together with the
place where the next run continues. So an interrupted backfill continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby

import numpy as np

from .. import extraction
from ..context import Context
from ..errors import InvalidInput
from ..index import Snapshot
from ..ingest import relate
from ..manage import edit
from ..storage import tasks
from ..storage.tasks import NewTask, Task
from ..text import authority
from ..types import KINDS, Conflict, Scope, frozen

NAME = "backfill"
TURNS = 200  # memories that one run reads
ASKED = 8  # … if a language model is asked about each
MOST_LISTED = 1000  # conflicts of one scope
_EPISODIC = KINDS.index("episodic")


@frozen
class Backfilled:
    """What a backfill did."""

    facts: int  # created or changed
    conflicts: tuple[Conflict, ...] = ()  # what it replaced, or may be replaced, for a decision


async def queue(ctx: Context) -> list[Scope]:
    """Queue the turns of all scopes. A scope that is queued already continues where it is.

    Raises InvalidInput if extraction is off.
    """
    if ctx.settings.extract == "off":
        raise InvalidInput("Extraction is off: set `extract` to rules or model")
    scopes = await ctx.store.scopes()
    for scope in scopes:
        async with ctx.store.transaction(scope) as tx:
            await tasks.add(tx, _continue(ctx, 0))
    return scopes


async def run(ctx: Context, task: Task) -> int:
    """Process the next turns of a scope. Return how many memories were created or changed."""
    scope = task.scope
    snapshot = await ctx.index.current(scope, ctx.store)
    most = ASKED if ctx.settings.extract == "model" else TURNS
    rows = _find_rows(snapshot, int(task.payload.get("after", 0)))
    loaded = await ctx.store.at_rows(scope, rows[:most])
    read = dict(sorted(loaded.items()))
    messages = groupby(read, key=lambda row: read[row].source_message_id or read[row].id)
    turns = [list(chunks) for _, chunks in messages]
    if len(rows) > most and len(turns) > 1:
        turns.pop()  # the next run may read more chunks of it
    said = []
    for chunks in turns:
        memories = [read[row] for row in chunks]
        if authority.is_own_role(memories[0].labels.role):
            said.append([memory.id for memory in memories])
    stated = {row: read[row] for chunks in turns for row in chunks}
    async with ctx.store.transaction(scope) as tx:
        await relate.relate_stored(tx, ctx, scope, stated, ctx.clock())
    rest = _continue(ctx, max(turns[-1])) if len(rows) > most else None
    found = await extraction.draw(said, scope, ctx, policy=ctx.policy, task=task, rest=rest)
    return len(found.ids)


async def list_replaced(
    ctx: Context,
    scopes: Sequence[Scope],
    since: datetime,
) -> tuple[Conflict, ...]:
    """Return the conflicts of some scopes that arose since then and await a decision."""
    found = []
    for scope in scopes:
        listed = await edit.list_conflicts(ctx.store, scope, limit=MOST_LISTED)
        found += [each for each in listed if each.at >= since]
    return tuple(found)


def _continue(ctx: Context, after: int) -> NewTask:
    """Return the task to process the turns after a row."""
    return NewTask(name=NAME, key="turns", due_at=ctx.clock(), payload={"after": after})


def _find_rows(snapshot: Snapshot, after: int) -> list[int]:
    """Return the rows of turns from which no fact was extracted, oldest first."""
    is_turn = snapshot.alive & (snapshot.kind == _EPISODIC) & (snapshot.session >= 0)
    rows = snapshot.row[is_turn & (snapshot.row > after)]
    new = np.setdiff1d(rows, snapshot.source)
    return [int(row) for row in new]
