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
from ..text import cues
from ..text.clock import NO_TIME
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
            await tasks.add(tx, _continue(ctx, NO_TIME, 0))
    return scopes


async def run(ctx: Context, task: Task) -> int:
    """Process the next turns of a scope. Return how many memories were created or changed."""
    scope = task.scope
    snapshot = await ctx.index.current(scope, ctx.store)
    most = ASKED if ctx.settings.extract == "model" else TURNS
    payload = task.payload
    rows = _find_rows(snapshot, payload.get("said", NO_TIME), payload.get("after", 0))
    loaded = await ctx.store.at_rows(scope, rows[:most])
    read = {row: loaded[row] for row in rows[:most] if row in loaded}
    messages = groupby(read, key=lambda row: read[row].source_message_id or read[row].id)
    turns = [list(chunks) for _, chunks in messages]
    if len(rows) > most and len(turns) > 1:
        turns.pop()  # the next run may read more chunks of it
    said = []
    known = set(snapshot.source.tolist())
    for chunks in turns:
        unread = [read[row] for row in chunks if row not in known]
        if unread and cues.is_own_role(unread[0].labels.role):
            said.append([memory.id for memory in unread])
    stated = {row: read[row] for chunks in turns for row in chunks}
    async with ctx.store.transaction(scope) as tx:
        await relate.relate_stored(tx, ctx, scope, stated, ctx.clock())
    rest = None
    if len(rows) > most:
        last = turns[-1][-1]
        rest = _continue(ctx, int(snapshot.said[snapshot.positions([last])][0]), last)
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


def _continue(ctx: Context, said: int, after: int) -> NewTask:
    """Return the task to process the turns after one that was said then and is in this row."""
    payload = {"said": said, "after": after}
    return NewTask(name=NAME, key="turns", due_at=ctx.clock(), payload=payload)


def _find_rows(snapshot: Snapshot, said: int, after: int) -> list[int]:
    """Return the rows of the turns after one, in the order in which they were said."""
    is_turn = snapshot.alive & (snapshot.kind == _EPISODIC) & (snapshot.session >= 0)
    is_same = (snapshot.said == said) & (snapshot.row > after)
    found = np.flatnonzero(is_turn & ((snapshot.said > said) | is_same))
    order = np.lexsort((snapshot.row[found], snapshot.said[found]))
    rows: list[int] = snapshot.row[found[order]].tolist()
    return rows
