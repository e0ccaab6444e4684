"""Answering without the store: from what this process knows of a scope and what is spooled, in a
store in memory. The ordinary pipelines fill and ask it."""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import numpy as np

from ..context import Context
from ..errors import InvalidInput, RevisionConflict
from ..index import SnapshotCache
from ..ingest import pipeline, validation
from ..ingest.guard import Item
from ..manage import records
from ..storage import Change, Forget, Save, Tombstone
from ..storage.person import Summary
from ..storage.queries import portions
from ..storage.sqlite import SqliteDatabase
from ..storage.store import Store
from ..text import clock
from ..types import Draft, Memory, Outcome, Scope
from .spool import Pending

BATCH = 64  # spooled drafts stored in one transaction: others get their turn in between
CACHE_BYTES = 64 << 20  # of the stand-in's index
MOST_RECENT = 2000  # memories to answer from while the store is down
ERASED = "erased.ids"  # file in the folder of the spool
MOST_ERASED = 1 << 20  # bytes of it; the older half is dropped

Made: TypeAlias = dict[str, tuple[str, ...]]  # ids of memories, by that of the spooled draft


class Recent:
    """Memories that this process recently read or wrote, as long as that is the current version."""

    def __init__(self, index: SnapshotCache, folder: Path) -> None:
        self._index = index
        self._erased = folder / ERASED  # tells other processes which memories were erased
        # With the revision of the scope's snapshot when it was written here; -1: it was read.
        self._held: OrderedDict[tuple[Scope, str], tuple[Memory, Save | None, int]] = OrderedDict()

    def note_read(self, memories: Iterable[Memory]) -> None:
        """Hold memories that were just read."""
        for memory in memories:
            self._hold(memory, None, -1)

    def note_commit(self, scope: Scope, changes: Sequence[Change]) -> None:
        """Hold what was just written, and drop what was forgotten."""
        snapshot = self._index.peek(scope)
        for change in changes:
            if isinstance(change, Save):
                self._hold(change.memory, change, snapshot.revision if snapshot else 0)
        gone = {change.memory_id for change in changes if isinstance(change, Forget)}
        if gone:
            with suppress(OSError):
                self._note_erased(gone)
        for save in self.of(scope) if gone else ():
            if not gone.isdisjoint((save.memory.id, save.memory.superseded_by)):
                del self._held[scope, save.memory.id]

    def _note_erased(self, ids: Iterable[str]) -> None:
        import fcntl  # Windows has none, and no spool

        self._erased.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self._erased, "a+", opener=partial(os.open, mode=0o600)) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # among processes, until it is closed
            file.writelines(f"{id}\n" for id in ids)
            if file.tell() > MOST_ERASED:
                file.seek(0)
                known = file.read()
                file.truncate(0)
                file.write(known[len(known) // 2 :])

    def _hold(self, memory: Memory, save: Save | None, revision: int) -> None:
        key = memory.scope, memory.id
        self._held[key] = memory, save, revision
        self._held.move_to_end(key)
        if len(self._held) > MOST_RECENT:
            self._held.popitem(last=False)

    def of(self, scope: Scope) -> list[Save]:
        """Return everything held of a scope, least recent first."""
        found = []
        for memory, save, _ in self._held.values():
            if memory.scope == scope:
                found.append(save or Save(memory=memory, event=None))
        return found

    def current(self, scope: Scope) -> list[Save]:
        """Return what the snapshot has in the same version, with its vector, or cannot have yet."""
        snapshot = self._index.peek(scope)
        versions = {}
        found = []
        revision = snapshot.revision if snapshot else 0
        erased: set[str] = set()
        with suppress(OSError):
            erased.update(self._erased.read_text().split())
        for save in self.of(scope):
            memory = save.memory
            if memory.id in erased:
                continue
            *_, written_at = self._held[scope, memory.id]
            if revision <= written_at:
                found.append(save)
            else:
                created = clock.micros(memory.created_at)
                updated = clock.micros(memory.updated_at)
                versions[created, updated, memory.simhash] = save
        if snapshot is None:
            return found
        created_then = np.isin(snapshot.created, [version[0] for version in versions])
        positions = np.flatnonzero(snapshot.present & created_then)
        columns = (snapshot.created, snapshot.updated, snapshot.simhash)
        there = zip(*(column[positions].tolist() for column in columns), strict=True)
        for version, vector in zip(there, snapshot.vectors(positions), strict=True):
            if version in versions:
                given = vector if vector.any() else None
                found.append(replace(versions[version], vector=given, model=snapshot.model))
        return found


class StandIn:
    """A store in memory that answers while the real one is down, or lacks what is spooled."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._open: Context | None = None
        self._held: dict[Scope, dict[str, Memory]] = {}
        self._made: dict[Scope, Made] = {}
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def holding(
        self, scope: Scope, known: Sequence[Save], spooled: Sequence[Pending]
    ) -> AsyncIterator[tuple[Context, Made]]:
        """Yield a context whose store holds exactly what is known and what is spooled of a scope,
        and the ids of what spooled drafts became.
        """
        async with self._turn:
            ctx = self._open or await self._create()
            made = self._made.setdefault(scope, {})
            async with ctx.store.transaction(scope) as tx:
                await tx.apply(self._update(scope, known, {each.id for each in spooled}))
            new = [each for each in spooled if each.id not in made and isinstance(each.what, Draft)]
            for batch in batches(new):
                # Many drafts at once are found by their words: only the last ones are embedded.
                embedder = ctx.embedder if batch[-1] is new[-1] else None
                outcomes = await hand_over(replace(ctx, embedder=embedder), batch)
                made |= {each.id: (each.id,) for each in batch}  # some may be there already
                made |= {id: outcome.ids for id, outcome in outcomes.items()}
            yield ctx, made

    def _update(self, scope: Scope, known: Sequence[Save], spooled: set[str]) -> list[Change]:
        """Return the changes that save what is new in a scope, and forget what is gone."""
        held = self._held.setdefault(scope, {})
        made = self._made[scope]
        changes: list[Change] = []
        for save in known:
            memory = save.memory
            if memory.id in made:  # it was replayed
                held.setdefault(memory.id, memory)
            if held.get(memory.id) != memory:
                held[memory.id] = memory
                changes.append(replace(save, event=None))
        gone = set(held)
        for id in made.keys() - spooled:
            gone.update(made.pop(id))
        for id in sorted(gone - {save.memory.id for save in known}):
            held.pop(id, None)
            now = self._ctx.clock()
            changes.append(Forget(memory_id=id, at=now, until=None, purged=True))
        return changes

    async def _create(self) -> Context:
        real = self._ctx.index
        index = SnapshotCache(model=real.model, dimensions=real.dimensions, limit_bytes=CACHE_BYTES)
        database = await SqliteDatabase.open(":memory:")
        store = await Store.open(database, language=self._ctx.settings.language)
        self._open = replace(
            self._ctx, store=store, index=index, multilingual=None, external_index=None
        )
        return self._open

    async def close(self) -> None:
        """Release everything; it is opened again when it is needed."""
        async with self._turn:
            if self._open is not None:
                await self._open.store.close()
            self._open = None
            self._held = {}
            self._made = {}


async def hand_over(ctx: Context, batch: Sequence[Pending]) -> dict[str, Outcome]:
    """Store spooled writes that belong together; return the outcomes of the drafts by id.

    What cannot be stored has the outcome `conflict`. Doing it twice changes nothing.
    """
    scope = batch[0].scope
    first = batch[0].what
    try:
        if isinstance(first, Summary):
            await records.add(ctx.store, scope, first)
            return {}
        if isinstance(first, Tombstone):
            async with ctx.store.transaction(scope) as tx:
                await tx.add_tombstones((), first.until, [first.digest])
            return {}
        ids = [each.id for each in batch]
        stored = await ctx.store.get(scope, ids)
        there = {memory.id for memory in stored}
        drafts: list[Draft] = []
        for each in batch:
            draft = each.what
            if each.id in there or not isinstance(draft, Draft):
                continue
            if draft.message_id is None:  # as a message, so that storing it twice counts once
                sources = (draft.id or "", *draft.source_ids)
                draft = replace(draft, message_id=draft.id, source_ids=sources)
            drafts.append(draft)
        policy_name = batch[0].policy
        names = (policy_name, policy_name.split(".")[0], "default")
        nearest = next(name for name in names if name in ctx.policies)
        policy = validation.policy(ctx.policies, nearest, ctx.settings.capacity)
        items = [Item(draft) for draft in drafts]
        ready = await pipeline.prepare(ctx, scope, items, policy, ctx.clock())
        async with ctx.store.transaction(scope) as tx:
            outcomes = await pipeline.write(tx, ready)
    except (InvalidInput, RevisionConflict) as error:
        if len(batch) == 1:
            conflict = Outcome(status="conflict", reason=str(error))
            return {batch[0].id: conflict}
        found: dict[str, Outcome] = {}
        for one in batch:
            found |= await hand_over(ctx, [one])
        return found
    return {draft.id or "": outcome for draft, outcome in zip(drafts, outcomes, strict=True)}


def batches(spooled: Sequence[Pending]) -> Iterator[Sequence[Pending]]:
    """Yield what can be stored together, scope by scope: drafts of one scope and policy that
    follow each other."""

    def key(pending: Pending) -> tuple[Scope, str, str]:
        alone = "" if isinstance(pending.what, Draft) else pending.id
        return pending.scope, pending.policy, alone

    places: dict[Scope, int] = {}
    by_scope = sorted(spooled, key=lambda pending: places.setdefault(pending.scope, len(places)))
    for _, group in groupby(by_scope, key):
        yield from portions(list(group), BATCH)
