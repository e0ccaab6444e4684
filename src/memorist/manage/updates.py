"""What changed in a thread: the header that comes before a context.

Each change of a thread has its own revision, so a header that stops after three lines continues
with the next change: nothing is reported twice or left out. Only the messages of the thread itself
may be left out of a context, whose reader knows them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ..context import Context, Place
from ..errors import InvalidInput, StoreUnavailable
from ..ingest import validation
from ..retrieve import render
from ..retrieve.render import Caps
from ..settings import allowlists
from ..storage.history import ThreadChange, Updates, shown_revision, thread_changes
from ..storage.queries import Reader
from ..types import REPLACES, Memory, Query, Recall, Scope, frozen
from . import privacy

BULLETS = 3  # lines of a header
_CHANGED = {"created": "+created", "updated": "↑updated", "restored": "↺restored"}


async def read_updates(
    place: Place,
    since: int | None = None,
    *,
    thread: str | None = None,
) -> Updates:
    """Return what changed in a thread after a revision, in at most three lines.

    Without a revision it continues after the last change it returned. Raises InvalidInput.
    """
    validation.fields({"thread": thread})
    asked = Thread(place=place, name=_check(place, since, thread))
    if await privacy.find_disabled_reason(place, thread or None):
        return asked.report_nothing(since)
    return await asked.load(since)


async def read_header(
    place: Place,
    since: int | None,
    caps: Caps,
    categories: Collection[str] | None = None,
    *,
    agent: str | None = None,
    messages_last: bool = False,
) -> Updates:
    """Return what changed in the thread of the caller, as far as it fits and is in the categories.

    What does not fit is reported the next time, to each agent on its own. With `messages_last`, new
    messages are reported only in lines that are left, and only the latest. While the store is
    unavailable nothing is reported. Raises InvalidInput.
    """
    asked = Thread(
        place=place,
        name=_check(place, since),
        caps=caps,
        categories=categories,
        agent=agent,
        messages_last=messages_last,
    )
    try:
        return await asked.load(since)
    except StoreUnavailable:
        return asked.report_nothing(since)


def _check(place: Place, since: int | None, thread: str | None = None) -> str:
    """Return the name of the thread. Raises InvalidInput."""
    name = thread or place.labels.thread or place.labels.session
    if name is None or isinstance(since, bool) or not isinstance(since, int | None):
        raise InvalidInput(
            "Name the thread, here or with `scope(…, thread=…)`,"
            " and pass the revision as an integer"
        )
    return name


@frozen
class Thread:
    """A thread, and what its reader may be told."""

    place: Place
    name: str
    caps: Caps = Caps()
    categories: Collection[str] | None = None  # None: all but workflows
    agent: str | None = None
    messages_last: bool = False

    def report_nothing(self, since: int | None) -> Updates:
        """Return that nothing changed."""
        at = since or 0
        return Updates(thread=self.name, since=at, revision=at, changes=(), text="")

    async def load(self, since: int | None) -> Updates:
        """Return the changes after a revision, or those that were not returned before."""
        ctx, scope, _ = self.place.parts
        if since is not None:
            return await self.collect(ctx.store, since)
        reader = self.name if self.agent is None else f"{self.name}\x1f{self.agent}"
        shown = await shown_revision(ctx.store, scope, reader)
        if not await thread_changes(ctx.store, scope, self.name, shown):
            return self.report_nothing(shown)
        async with ctx.store.transaction(scope) as tx:
            shown = await shown_revision(tx, scope, reader)
            updates = await self.collect(tx, shown)
            await tx.mark_shown(reader, updates.revision)
        return updates

    async def collect(self, reading: Reader, since: int) -> Updates:
        """Return the first changes after a revision, one line each, and the revision of the last;
        none if they do not fit.

        Of several changes of one kind to a memory only the last counts; what is new is not reported
        as changed.
        """
        ctx, scope, _ = self.place.parts
        log = await thread_changes(reading, scope, self.name, since)
        current = await _find_current(reading, scope, [change.memory_id for change in log])
        last: dict[tuple[str, str], ThreadChange] = {}
        for change in log:
            now = current.get(change.memory_id)
            id = change.memory_id if now is None else now.id
            key = (id, change.event)
            last.pop(key, None)  # so that it is in the order of the last ones
            last[key] = change
        lines = {}
        news: list[ThreadChange] = []
        messages: list[ThreadChange] = []
        for (id, event), change in last.items():
            is_known = event in ("updated", "merged") and (id, "created") in last
            now = current.get(change.memory_id)
            line = render_change(event, now)
            is_shown = True  # an erased memory: the line says nothing of it
            is_message = False  # what somebody said, neither derived nor edited
            if now is not None:
                is_shown = now.procedural_form != "workflow"  # only for agents that ask for them
                if self.categories is not None:
                    is_shown = allowlists.canonical(now.category or now.kind) in self.categories
                is_message = (
                    now.labels.role is not None and now.revision == 1 and not now.evidence_ids
                )
            if is_known or line is None or not is_shown:
                continue
            lines[change.revision] = line
            is_last = self.messages_last and event == "created" and is_message
            (messages if is_last else news).append(change)
        shown = news[:BULLETS]
        end = shown if len(shown) == BULLETS else log
        revision = end[-1].revision if end else since
        if len(shown) < BULLETS:
            shown += messages[len(shown) - BULLETS :]
            shown.sort(key=lambda change: change.revision)
        text = ""
        if shown:
            title = f"Memory updates since rev {since}:"
            text = "\n".join([title, *(lines[change.revision] for change in shown)])
        updates = Updates(
            thread=self.name,
            since=since,
            revision=revision,
            changes=tuple(shown),
            text=text,
            more=sum(change.revision > revision for change in log),
        )
        room = self.caps.beside(text, ctx.count_tokens)
        if text and (room.tokens == 0 or room.chars == 0):
            return replace(updates, text="", revision=since, changes=())
        return updates


async def _find_current(reading: Reader, scope: Scope, ids: Sequence[str]) -> dict[str, Memory]:
    """Return the memories by id, or instead of each the one that replaced it last."""
    known = {}
    newer: dict[str, str] = {}
    wanted = set(ids)
    while wanted:
        found = await reading.get(scope, sorted(wanted))
        outdated = [memory.id for memory in found if memory.is_active and memory.valid_to]
        pairs = await reading.links(scope, outdated, REPLACES) if outdated else []
        step = {pair.to_id: pair.from_id for pair in reversed(pairs)}  # the most probable one
        for memory in found:
            known[memory.id] = memory
            if memory.state == "superseded" and memory.superseded_by:
                step[memory.id] = memory.superseded_by
        newer |= step
        wanted = set(step.values()).difference(known)
    current: dict[str, Memory] = {}
    for id in known.keys() & set(ids):
        passed = {id}
        last = id
        while newer.get(last) in known and newer[last] not in passed:
            last = newer[last]
            passed.add(last)
        current[id] = known[last]
    return current


async def reserve_header(ctx: Context, query: Query, since: int) -> tuple[Updates, Query]:
    """Return what changed in the thread after a revision, and the query with the room it leaves."""
    place = Place(ctx, query.scope, query.labels)
    caps = Caps(tokens=query.budget, chars=query.max_chars)
    updates = await read_header(place, since, caps)
    if updates.text:
        room = caps.beside(updates.text, ctx.count_tokens)
        query = replace(query, budget=room.tokens, max_chars=room.chars)
    return updates, query


def add_header(ctx: Context, query: Query, updates: Updates, answer: Recall) -> Recall:
    """Return the answer with the changes of the thread before its text."""
    text = "\n".join(filter(None, (updates.text, answer.text)))
    tokens = ctx.count_tokens(text) if updates.text else answer.tokens
    return replace(answer, query=query, text=text, tokens=tokens, revision=updates.revision)


def render_change(event: str, memory: Memory | None) -> str | None:
    """Render a change as one line, without hidden texts; None if there is nothing to show."""
    if event == "deleted":
        return "- −deleted: 1 memory"
    if memory is None:
        return None
    name = render.safe(memory.category or memory.item_type or memory.kind)
    about = " ".join(name.replace("_", " ").translate(render.IN_NAMES).split())
    label = f"[{about[:1].upper()}{about[1:]}]"
    if event == "soft_deleted":
        return f"- ↓soft_deleted: {label} 1 memory, restorable"
    if not memory.is_active:
        return None
    text = render.prefix(render.credit(memory), render.concise(memory))
    if len(text) > render.LONG:
        text = text[: render.LONG - 1] + "…"
    if event == "merged":
        return f"- ↔merged: Combined {memory.repeat_count + 1} notes about {text}"
    if event == "created":
        text += f" (imp={memory.importance_level})"
    return f"- {_CHANGED[event]}: {label} {text}"
