"""Give long memories a short summary, which lists of memories show instead of the text.

The summary consists of sentences of the text. It is derived from the text like a vector, so it is
not a change of the memory: its revision, its history and the time of its last change stay.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ..context import Context
from ..retrieve.render import LONG
from ..storage import Change, Save
from ..storage.tasks import Task
from ..text.grounding import Turn
from ..text.summarize import extract
from . import DAILY, finish

PAGE = 100  # memories in one transaction


async def run(ctx: Context, task: Task) -> int:
    """Summarize the long memories of a scope that have no summary; return how many."""
    scope = task.scope
    last = ""
    count = 0
    while ids := await ctx.store.find_long(scope, LONG, after=last, limit=PAGE):
        last = ids[-1]
        summaries: dict[str, str] = {}  # by text
        for memory in await ctx.store.get(scope, ids):
            turn = Turn(memory.text)
            summaries[memory.text] = await asyncio.to_thread(extract, [turn], longest=LONG)
        changes: list[Change] = []
        async with ctx.store.transaction(scope) as tx:
            for memory in await tx.get(scope, ids):
                summary = summaries.get(memory.text)  # None: it was changed meanwhile
                if summary and memory.summary is None:
                    changes.append(Save(memory=replace(memory, summary=summary), event=None))
            await tx.apply(changes)
        count += len(changes)
    await finish(ctx, task, DAILY)
    return count
