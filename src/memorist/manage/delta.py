"""What changed in a thread since it was last looked at: a few lines that stand before the context.

Each change of a thread has a revision of its own, so a header that had to stop after three lines goes on with the next
one the next time: nothing is told twice, and nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..context import Context
from ..errors import InvalidInput, StoreUnavailable
from ..ingest import validation
from ..retrieve import render
from ..retrieve.budget import Caps
from ..storage.history import ThreadChange, Updates, shown_revision, thread_changes
from ..storage.queries import Reader
from ..types import Labels, Memory, Query, Recall, Scope
from . import privacy

BULLETS = 3
Count = Callable[[str], int]  # tokens of a text
Line = Callable[
    [str, Memory | None], str | None
]  # of an event and the memory as it stands; None if there is none


async def read_updates(
    ctx: Context, scope: Scope, labels: Labels, since: int | None, thread: str | None
) -> Updates:
    """Return the updates of a thread after a revision, or after those that were read last."""
    validation.fields({"thread": thread})
    name = thread or labels.thread or labels.session
    if name is None or isinstance(since, bool) or not isinstance(since, int | None):
        raise InvalidInput(
            "Name the thread, here or with `scope(…, thread=…)`, and pass the revision as an integer"
        )
    if await privacy.disabled_reason(ctx, scope, name if thread else labels.session):
        return Updates(thread=name, since=since or 0, revision=since or 0, changes=(), text="")
    if since is not None:
        return await collect(ctx.store, scope, name, since, render.update)
    async with ctx.store.transaction(scope) as tx:
        since = await shown_revision(tx, scope, name)
        updates = await collect(tx, scope, name, since, render.update)
        await tx.mark_shown(name, updates.revision)
    return updates


async def read_updates_if_available(
    ctx: Context, scope: Scope, labels: Labels, since: int
) -> Updates:
    """Return the updates of the current thread, or none while the store is unavailable."""
    try:
        return await read_updates(ctx, scope, labels, since, None)
    except StoreUnavailable:
        return Updates(thread="", since=since, revision=since, changes=(), text="")


async def collect(reading: Reader, scope: Scope, thread: str, since: int, line: Line) -> Updates:
    """The first changes after a revision, one line each, and how far they go."""
    log = await thread_changes(reading, scope, thread, since)
    standing = await _standing(reading, scope, [each.memory_id for each in log])
    plain = _once(log, {id: memory.id for id, memory in standing.items()})
    shown: list[tuple[ThreadChange, str]] = []
    for each in plain:
        text = line(each.event, standing.get(each.memory_id))
        if text is not None and len(shown) < BULLETS:
            shown.append((each, text))
    full = len(shown) == BULLETS
    revision = (
        shown[-1][0].revision if full else max((each.revision for each in log), default=since)
    )
    return Updates(
        thread=thread,
        since=since,
        revision=revision,
        changes=tuple(each for each, _ in shown),
        text=header(since, [text for _, text in shown]),
        more=sum(each.revision > revision for each in log),
    )


def header(since: int, lines: Sequence[str]) -> str:
    """
    >>> print(header(4, ["- +created: [Personal] Preferred name is Ana (imp=2)"]))
    Memory updates since rev 4:
    - +created: [Personal] Preferred name is Ana (imp=2)
    """
    return "\n".join([f"Memory updates since rev {since}:", *lines]) if lines else ""


def fit_header(news: Updates, asked: Query, count: Count) -> Updates:
    """The news, or none yet where there is no room for the header: it is told when there is."""
    room = Caps(tokens=asked.budget, chars=asked.max_chars).beside(news.text, count)
    if room.tokens == 0 or room.chars == 0:
        return replace(news, text="", revision=news.since, changes=())
    return news


def reserve_room(news: Updates, asked: Query, count: Count) -> Query:
    """The query with the room that the header leaves."""
    if not news.text:
        return asked
    room = Caps(tokens=asked.budget, chars=asked.max_chars).beside(news.text, count)
    return replace(asked, budget=room.tokens, max_chars=room.chars)


def prepend(news: Updates, answer: Recall, asked: Query, count: Count) -> Recall:
    """The answer with the header before its block."""
    text = "\n".join(filter(None, (news.text, answer.text)))
    tokens = count(text) if news.text else answer.tokens
    return replace(answer, query=asked, text=text, tokens=tokens, revision=news.revision)


async def _standing(reading: Reader, scope: Scope, ids: Sequence[str]) -> dict[str, Memory]:
    """The memories, or what took the place of those that were superseded."""
    found = await reading.get(scope, ids)
    replaced = [m.superseded_by for m in found if m.state == "superseded" and m.superseded_by]
    newer = {memory.id: memory for memory in await reading.get(scope, replaced)}
    return {memory.id: newer.get(memory.superseded_by or "", memory) for memory in found}


def _once(log: Sequence[ThreadChange], ids: dict[str, str]) -> list[ThreadChange]:
    """The last of several like changes of a memory; one that is new is not told of as changed, too."""
    keys = [(ids.get(each.memory_id, each.memory_id), each.event) for each in log]
    last = {key: each.revision for key, each in zip(keys, log, strict=True)}
    return [
        each
        for (id, event), each in zip(keys, log, strict=True)
        if last[id, event] == each.revision
        and not (event in ("updated", "merged") and (id, "created") in last)
    ]
