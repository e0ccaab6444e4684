"""A database that may be down, and storing what was spooled: in memory, to answer while the store is
down, and in the store when it is back. The ordinary pipelines do it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Literal, TypeAlias

from ..context import Context
from ..errors import Busy, InvalidInput, RevisionConflict, StoreFull, StoreUnavailable
from ..index import SnapshotCache
from ..ingest import pipeline, validation
from ..ingest.guard import Item
from ..manage import records
from ..ports import Vectors
from ..storage import Change, Forget, Save, Tombstone
from ..storage.database import Connection, Database, Dialect, Query, Rows, read_one
from ..storage.person import Summary
from ..storage.queries import portions
from ..storage.sqlite import SqliteDatabase
from ..storage.store import Store
from ..types import Draft, Memory, Outcome, Scope, frozen
from .spool import Pending, Spool

FIRST_LOOK = 0.5  # seconds between two attempts to reach the store
LONGEST = 2.0
BATCH = 64  # spooled drafts stored in one transaction: others get their turn in between
CACHE_BYTES = 64 << 20  # of the stand-in's index
log = logging.getLogger("memorist")

Way: TypeAlias = Literal["reading", "writing"]
Down: TypeAlias = dict[Way, str]  # what does not work, and why; a file may still be readable
Made: TypeAlias = dict[str, tuple[str, ...]]  # ids of memories, by that of the spooled draft


@dataclass(eq=False, repr=False)
class Switch:
    """A database that may be down. Implements `Database`.

    The call that finds it down is the last one that waits: from then on calls fail at once.
    """

    inner: Database | None  # None: it was down when the client was opened
    down: Down
    on_loss: Callable[[], object] = lambda: None

    rows = read_one

    @contextmanager
    def _use(self, way: Way = "reading") -> Iterator[Database]:
        if self.inner is None or way in self.down:
            raise StoreUnavailable(self.down.get(way))
        try:
            yield self.inner
        except (StoreFull, Busy):  # not an outage
            raise
        except StoreUnavailable as error:
            self.down["writing"] = self.down[way] = str(error)
            self.on_loss()
            raise

    @property
    def dialect(self) -> Dialect:
        with self._use() as inner:
            return inner.dialect

    @property
    def secret(self) -> bytes:
        with self._use() as inner:
            return inner.secret

    async def read(self, queries: Sequence[Query], *, scope: int | None = None) -> list[Rows]:
        with self._use() as inner:
            return await inner.read(queries, scope=scope)

    @asynccontextmanager
    async def transaction(
        self,
        scope: Scope | None = None,
        *,
        number: int | None = None,
    ) -> AsyncIterator[Connection]:
        with self._use("writing") as inner:
            async with inner.transaction(scope, number=number) as connection:
                yield connection

    @asynccontextmanager
    async def try_lock(self, name: str) -> AsyncIterator[bool]:
        with self._use("writing") as inner:
            async with inner.try_lock(name) as is_mine:
                yield is_mine

    async def nearest(
        self,
        scope: int,
        vector: Vectors,
        *,
        model: str,
        limit: int,
    ) -> list[tuple[int, float]]:
        with self._use() as inner:
            return await inner.nearest(scope, vector, model=model, limit=limit)

    async def ping(self) -> None:
        with self._use("writing") as inner:
            await inner.ping()

    async def wait_for_change(self, seconds: float) -> None:
        with self._use() as inner:
            await inner.wait_for_change(seconds)

    async def backup(self, path: Path) -> None:
        if self.inner is None:
            raise StoreUnavailable(self.down.get("reading"))
        await self.inner.backup(path)  # a target that cannot be written is not an outage

    async def vacuum(self) -> None:
        with self._use("writing") as inner:
            await inner.vacuum()

    def make_room(self) -> bool:
        with self._use() as inner:
            return inner.make_room()

    async def close(self) -> None:
        if self.inner is not None:
            await self.inner.close()


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


@frozen
class Replayed:
    """What became of the spooled writes."""

    taken_in: int = 0
    set_aside: int = 0
    waiting: int = 0  # still, or again


@dataclass(eq=False, repr=False)
class Replay:
    """Looks for a store that is down, and stores what was spooled, once and in order."""

    ctx: Context
    spool: Spool
    down: Down
    reopen: Callable[[], Awaitable[Store]]
    on_empty: Callable[[], Awaitable[None]]
    behind: set[Scope] = field(default_factory=set)  # scopes that were busy in the last run
    _task: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """Stop looking. What was not replayed stays in the spool."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def watch(self, first: float = FIRST_LOOK) -> asyncio.Task[None]:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._until_back(first))
        return self._task

    async def _until_back(self, wait: float) -> None:
        """Try to reach the store until it is back and nothing is spooled any more."""
        while True:
            await asyncio.sleep(wait)
            wait = min(max(2 * wait, FIRST_LOOK), LONGEST)
            try:
                store = await self._reach()
                await store.number(Scope(user="nobody"))
                self.down.pop("reading", None)
                if await self.run() is None:  # another process is doing it
                    continue
                self.down.pop("writing", None)
                await self.run()  # what was spooled meanwhile
                if self.spool.is_empty:
                    await self.on_empty()
                    return
            except StoreUnavailable:
                continue
            except Exception as error:  # the spool is safe, and the next attempt may work
                log.warning("the writes in %s cannot be stored: %s", self.spool.folder, error)

    async def _reach(self) -> Store:
        """Return the store, even if it is marked as down. Raises StoreUnavailable."""
        database = self.ctx.store.database
        if not isinstance(database, Switch):
            return self.ctx.store
        if database.inner is None:
            database.inner = (await self.reopen()).database
        return Store(database.inner, language=self.ctx.settings.language)

    async def run(self) -> Replayed | None:
        """Store the spooled writes, scope by scope and in order; None if another process does.

        What belongs to a scope that is busy stays in the spool. Raises StoreUnavailable.
        """
        if self.spool.is_empty:
            return Replayed()
        ctx = replace(self.ctx, store=await self._reach())
        folder = self.spool.folder
        rejected = 0
        with self.spool.alone() as mine:
            if not mine:
                return None
            spooled = await asyncio.to_thread(self.spool.waiting)
            before = len(self.spool.set_aside())
            self.behind = set()
            for batch in batches(spooled):
                scope = batch[0].scope
                if scope in self.behind:
                    continue
                try:
                    outcomes = await hand_over(ctx, batch)
                except Busy:
                    self.behind.add(scope)
                    continue
                problems = []
                for id, outcome in outcomes.items():
                    if outcome.status == "conflict":
                        problems.append(id)
                        log.warning("set aside in %s: %s: %s", folder, id, outcome.reason)
                rejected += len(problems)
                ids = [each.id for each in batch]
                await asyncio.to_thread(self.spool.remove, ids, problems)
            if spooled:
                self.down.clear()
            await asyncio.to_thread(self.spool.remove, [])  # lines that cannot be read
        if len(self.spool.set_aside()) > before:
            message = "some lines could not be used and were set aside: see *.corrupt-* in %s"
            log.warning(message, folder)
        left = await asyncio.to_thread(self.spool.waiting)
        busy = sum(each.scope in self.behind for each in spooled)
        taken_in = len(spooled) - rejected - busy
        return Replayed(taken_in=taken_in, set_aside=rejected, waiting=len(left))
