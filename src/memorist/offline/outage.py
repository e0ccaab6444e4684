"""What happens while the store is down, and when it is back.

`Offline` wraps remembering, recalling, reading and forgetting. While the store is down, writes go to
the spool, and questions are answered by the ordinary pipeline on a stand-in: a store in memory with
what was recently read or written here, and what is spooled.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any

import numpy as np

from ..context import Context
from ..errors import InvalidInput, RevisionConflict, StoreFull, StoreUnavailable
from ..index import SnapshotCache
from ..ingest import guard, policies, privacy
from ..ingest import pipeline as ingest
from ..ingest.analyze import analyze, to_items
from ..ingest.policies import Policy
from ..manage import records
from ..retrieve import pipeline as retrieve
from ..retrieve.profiles import Profile
from ..storage.changes import Change, Forget, Save
from ..storage.sqlite.database import SqliteDatabase
from ..storage.store import Store
from ..storage.summaries import Summary
from ..text import clock
from ..types import Draft, Memory, Outcome, Query, Recall, Scope
from .spool import Pending, Spool
from .switch import Down, Switch, Way

FIRST_LOOK, LONGEST = 0.5, 2.0  # seconds between two attempts to reach the store
OPENING = 5.0  # seconds that opening waits for the replay of what an earlier outage left behind
BATCH = 256  # drafts replayed in one transaction
MOST_RECENT = 2000  # memories to answer from while the store is down
MOST_EMBEDDED = 64  # spooled drafts that one call embeds; older ones are found by their words
CACHE_BYTES = 64 << 20  # of the stand-in's index
log = logging.getLogger("memorist")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What became of the spooled writes."""

    taken_in: int = 0
    set_aside: int = 0
    waiting: int = 0  # still, or again


class Recent:
    """Memories that were recently read or written by this process."""

    def __init__(self, index: SnapshotCache) -> None:
        self._index = index
        # With the revision of the scope's snapshot when it was written here; -1: it was read.
        self._held: OrderedDict[tuple[Scope, str], tuple[Save, int]] = OrderedDict()

    def note_read(self, memories: Iterable[Memory]) -> None:
        """Hold memories that were just read."""
        for memory in memories:
            self._hold(Save(memory=memory, event=None), -1)

    def note_commit(self, scope: Scope, changes: Iterable[Change]) -> None:
        """Hold what was just written, and drop what was forgotten."""
        snapshot = self._index.peek(scope)
        for change in changes:
            if isinstance(change, Save):
                self._hold(change, snapshot.revision if snapshot else 0)
            elif isinstance(change, Forget):
                for save in self.of(scope):
                    if change.memory_id in (save.memory.id, save.memory.superseded_by):
                        del self._held[scope, save.memory.id]

    def _hold(self, save: Save, revision: int) -> None:
        key = save.memory.scope, save.memory.id
        self._held[key] = save, revision
        self._held.move_to_end(key)
        if len(self._held) > MOST_RECENT:
            self._held.popitem(last=False)

    def of(self, scope: Scope) -> list[Save]:
        """Return everything held of a scope, least recent first."""
        return [save for (whose, _), (save, _) in self._held.items() if whose == scope]

    def current(self, scope: Scope) -> list[Save]:
        """Return what the snapshot has in the same version, with its vector, or cannot have yet."""
        snapshot = self._index.peek(scope)
        versions, found = {}, []
        for save in self.of(scope):
            memory = save.memory
            if (snapshot.revision if snapshot else 0) <= self._held[scope, memory.id][1]:
                found.append(save)
            else:
                at = clock.micros(memory.created_at), clock.micros(memory.updated_at)
                versions[*at, memory.simhash] = memory
        if snapshot is None or not versions:
            return found
        created = np.isin(snapshot.created, [version[0] for version in versions])
        positions = np.flatnonzero(snapshot.present & created)
        columns = (snapshot.created, snapshot.updated, snapshot.simhash)
        there = zip(*(column[positions].tolist() for column in columns), strict=True)
        for version, vector in zip(there, snapshot.vectors(positions), strict=True):
            if version in versions:
                given = vector if vector.any() else None
                found.append(
                    Save(memory=versions[version], event=None, vector=given, model=snapshot.model)
                )
        return found


class StandIn:
    """A store in memory that answers while the real one is down or lacks what is spooled."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._open: Context | None = None
        self._held: dict[tuple[Scope, str], Memory] = {}
        self._spooled: dict[Scope, dict[str, tuple[str, ...]]] = {}  # ids of drafts and memories
        self.turn = asyncio.Lock()

    async def update(
        self, scope: Scope, known: Sequence[Save], spooled: Sequence[Pending]
    ) -> Context:
        """Return a context whose store holds exactly this of a scope."""
        if self._open is None:
            index = SnapshotCache(
                model=self._ctx.index.model,
                dimensions=self._ctx.index.dimensions,
                limit_bytes=CACHE_BYTES,
            )
            database = await SqliteDatabase.open(":memory:")
            store = await Store.open(database, language=self._ctx.settings.language)
            self._open = replace(self._ctx, store=store, index=index, external_index=None)
        wanted = {save.memory.id for save in known}
        changes: list[Change] = []
        for save in known:
            if self._held.get((scope, save.memory.id)) != save.memory:
                self._held[scope, save.memory.id] = save.memory
                changes.append(replace(save, event=None, old_ref=None, meta={}))
        made = self._spooled.setdefault(scope, {})
        gone = {id for whose, id in self._held if whose == scope} - wanted
        for id in made.keys() - {each.id for each in spooled}:
            gone.update(made.pop(id))
        for id in sorted(gone - wanted):
            self._held.pop((scope, id), None)
            now = self._ctx.clock()
            changes.append(Forget(memory_id=id, at=now, until=None, purged=True))
        if changes:
            async with self._open.store.transaction(scope) as tx:
                await tx.apply(changes)
        new = [each for each in spooled if each.id not in made and isinstance(each.what, Draft)]
        parts = (replace(self._open, embedder=None), new[:-MOST_EMBEDDED])
        for ctx, drafts in (parts, (self._open, new[-MOST_EMBEDDED:])):
            for batch in _batches(drafts):
                outcomes = await hand_over(ctx, batch)
                made |= {id: outcome.ids for id, outcome in outcomes.items()}
        return self._open

    async def get(self, scope: Scope, id: str) -> list[Memory]:
        """Return the memory that a spooled draft has become."""
        assert self._open is not None
        return await self._open.store.get(scope, self._spooled[scope].get(id, ())[:1])

    def is_spooled(self, memory: Memory) -> bool:
        """Return whether a memory comes from the spool."""
        made = self._spooled.get(memory.scope, {})
        return any(memory.id in ids for ids in made.values())

    async def close(self) -> None:
        """Release everything; it is opened again when it is needed."""
        async with self.turn:
            if self._open is not None:
                await self._open.store.close()
            self._open, self._held, self._spooled = None, {}, {}


class Offline:
    """Spools writes while the store is down and replays them, once and in order."""

    def __init__(
        self,
        ctx: Context,
        spool: Spool,
        down: Down,
        reopen: Callable[[], Awaitable[Store]],
    ) -> None:
        self._ctx, self._spool, self._reopen = ctx, spool, reopen
        self.down = down
        self._recent = Recent(ctx.index)
        self._stand_in = StandIn(ctx)
        self._task: asyncio.Task[None] | None = None
        ctx.store.on_commit = self._recent.note_commit

    async def start(self) -> None:
        """Begin to replay what an earlier outage left behind, or to look for a store that is down."""
        if self.down:
            self._watch()
        elif not self._spool.is_empty:
            await asyncio.wait([self._watch(0)], timeout=OPENING)

    async def close(self) -> None:
        """Stop looking. What was not replayed stays in the spool."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        await self._stand_in.close()
        self._spool.close()

    async def remember(
        self, ctx: Context, scope: Scope, drafts: Sequence[Draft], policy: Policy, now: datetime
    ) -> list[Outcome]:
        """Store drafts; while the store is down, spool them. Raises StoreUnavailable."""
        try:
            self._check_writing()
            return await ingest.remember(ctx, scope, drafts, policy, now)
        except StoreUnavailable as error:
            self._lose("writing", error)
            return await self._spool_drafts(ctx, scope, drafts, policy, error)

    async def _spool_drafts(
        self,
        ctx: Context,
        scope: Scope,
        drafts: Sequence[Draft],
        policy: Policy,
        error: StoreUnavailable,
    ) -> list[Outcome]:
        items = to_items(drafts)
        sessions = {draft.labels.session for draft in drafts}
        privacy.refuse(items, await privacy.load(ctx, ctx.store, scope, sessions))
        ctx.access_log.note(scope, guard.refuse(items, policy, scope.user))
        admitted = [item for item in items if item.outcome is None]
        for item in admitted:
            analyze(item.draft, policy)  # raises InvalidInput for what could never be stored
        new = [Pending(scope=scope, what=item.draft, policy=policy.name) for item in admitted]
        for item, pending in zip(admitted, await self._add(new, error), strict=True):
            assert isinstance(pending.what, Draft)
            message = item.draft.message_id
            is_same = pending.what.text == item.draft.text
            reason = (
                f"the store is down: spooled in {self._spool.folder}, stored when it is back"
                if is_same
                else f"message {message!r} is spooled with another text: edit the memory when the"
                " store is back"
            )
            item.outcome = Outcome(
                status="pending" if is_same else "conflict",
                ids=(pending.id,),
                reason=reason,
                message_id=message,
            )
        return ingest.outcomes(items, scope.user)

    async def add_record(self, scope: Scope, patch: Summary) -> Summary | None:
        """Add to a long-term record; None if that is spooled. Raises InvalidInput, StoreUnavailable."""
        try:
            self._check_writing()
            return await records.add(self._ctx.store, scope, patch)
        except StoreUnavailable as error:
            self._lose("writing", error)
            await self._add([Pending(scope=scope, what=patch)], error)
            return None

    async def _add(self, new: Sequence[Pending], why: StoreUnavailable) -> list[Pending]:
        if not new:
            return []
        try:
            return await asyncio.to_thread(self._spool.add, new)
        except OSError as error:
            folder = self._spool.folder
            raise StoreUnavailable(f"{why} And {folder} cannot be written: {error}") from error

    async def forget(self, scope: Scope, ids: Sequence[str]) -> list[str]:
        """Remove spooled drafts; return the ids that are left to forget in the store.

        Raises StoreUnavailable if they are being replayed.
        """
        spooled = {each.id for each in await self._waiting(scope)}.intersection(ids)
        if not spooled:
            return [*ids]
        with self._spool.alone() as mine:
            if not mine:
                raise StoreUnavailable("This is being replayed right now: retry in a moment")
            gone = set(await asyncio.to_thread(self._spool.remove, spooled))
        if not self.down:  # a crash may have left it in both
            stored = await self._ctx.store.get(scope, sorted(gone))
            gone -= {memory.id for memory in stored}
        return [id for id in ids if id not in gone]

    async def recall(self, ctx: Context, query: Query, profile: Profile, now: datetime) -> Recall:
        """Answer from the store and the spool; while the store is down, without it.

        The answer then says so in `legs`.
        """
        answer = None
        if "reading" not in self.down:
            try:
                answer = await retrieve.recall(ctx, query, profile, now)
                self._recent.note_read(answer.memories)
            except StoreUnavailable as error:
                self._lose("reading", error)
        spooled = await self._waiting(query.scope)
        if answer is not None and not spooled:
            return answer
        why = self.down.get("reading", "it was down for a moment")
        async with self._stand_in.turn:
            known = self._recent.current(query.scope)
            mine = await self._stand_in.update(query.scope, known, spooled)
            mixed = await retrieve.recall(
                replace(ctx, store=mine.store, index=mine.index, external_index=None),
                query,
                profile,
                now,
            )
        if answer is None:
            return replace(mixed, legs={**mixed.legs, "store": why})
        return mixed if any(map(self._stand_in.is_spooled, mixed.memories)) else answer

    async def get(self, scope: Scope, id: str) -> list[Memory]:
        """Return the memory with this id, or what a spooled draft with it would become."""
        spooled = await self._waiting(scope)
        if any(each.id == id for each in spooled):
            async with self._stand_in.turn:
                await self._stand_in.update(scope, self._recent.current(scope), spooled)
                return await self._stand_in.get(scope, id)
        return await self._ctx.store.get(scope, [id])

    async def counts(self) -> dict[str, Any]:
        """Return how many writes are spooled, and the files with those that cannot be stored."""
        aside = [str(path) for path in self._spool.set_aside()]
        return {"pending": len(await self._waiting()), "set_aside": aside}

    async def _waiting(self, scope: Scope | None = None) -> list[Pending]:
        if not any(path.exists() for path in self._spool.paths):
            return []
        self._watch()
        spooled = await asyncio.to_thread(self._spool.waiting)
        return [each for each in spooled if scope in (None, each.scope)]

    def _check_writing(self) -> None:
        if "writing" in self.down:
            raise StoreUnavailable(self.down["writing"])

    def _lose(self, way: Way, error: StoreUnavailable) -> None:
        """Note that the store is down, so that calls fail at once until it is back."""
        if isinstance(error, StoreFull):  # waiting does not help: somebody has to make room
            raise error
        self.down["writing"] = str(error)
        self.down[way] = str(error)
        self._watch()

    def _watch(self, first: float = FIRST_LOOK) -> asyncio.Task[None]:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._until_back(first))
        return self._task

    async def _until_back(self, wait: float) -> None:
        """Try to reach the store until it is back and nothing is spooled any more."""
        while True:
            await asyncio.sleep(wait)
            wait = min(max(2 * wait, FIRST_LOOK), LONGEST)
            try:
                if await self._is_back() and self._spool.is_empty:
                    await self._stand_in.close()
                    return
            except StoreUnavailable:
                continue
            except Exception as error:  # the spool is safe, and the next attempt may work
                log.warning("the writes in %s cannot be stored: %s", self._spool.folder, error)

    async def _is_back(self) -> bool:
        """Return whether the store can be read and written, and has everything that was spooled."""
        store = await self._reach()
        await store.revision(Scope(user="nobody"))
        self.down.pop("reading", None)
        if await self.replay() is None:  # another process is doing it
            return False
        self.down.pop("writing", None)
        return await self.replay() is not None  # what was spooled meanwhile

    async def _reach(self) -> Store:
        """Return the store, even if it is marked as down. Raises StoreUnavailable."""
        database = self._ctx.store.database
        if not isinstance(database, Switch):
            return self._ctx.store
        if database.inner is None:
            database.inner = (await self._reopen()).database
        return Store(database.inner, language=self._ctx.settings.language)

    async def replay(self) -> Replayed | None:
        """Store the spooled writes in order; None if another process does. Raises StoreUnavailable."""
        if self._spool.is_empty:
            return Replayed()
        ctx, rejected = replace(self._ctx, store=await self._reach()), 0
        with self._spool.alone() as mine:
            if not mine:
                return None
            spooled = await asyncio.to_thread(self._spool.waiting)
            before = len(self._spool.set_aside())
            for batch in _batches(spooled):
                problems = []
                for id, outcome in (await hand_over(ctx, batch)).items():
                    if outcome.status == "conflict":
                        problems.append(id)
                        log.warning(
                            "set aside in %s: %s: %s", self._spool.folder, id, outcome.reason
                        )
                rejected += len(problems)
                await asyncio.to_thread(self._spool.remove, [each.id for each in batch], problems)
            if spooled:
                self.down.clear()
            else:  # lines that cannot be read
                await asyncio.to_thread(self._spool.remove, [])
        if len(self._spool.set_aside()) > before:
            log.warning(
                "some lines could not be used and were set aside: see *.corrupt-* in %s",
                self._spool.folder,
            )
        left = len(await asyncio.to_thread(self._spool.waiting))
        return Replayed(taken_in=len(spooled) - rejected, set_aside=rejected, waiting=left)


async def hand_over(ctx: Context, batch: Sequence[Pending]) -> dict[str, Outcome]:
    """Store spooled writes that belong together; return the outcomes of the drafts by id.

    What cannot be stored has the outcome `conflict`. Doing it twice changes nothing.
    """
    scope, first = batch[0].scope, batch[0].what
    try:
        if isinstance(first, Summary):
            await records.add(ctx.store, scope, first)
            return {}
        there = {memory.id for memory in await ctx.store.get(scope, [each.id for each in batch])}
        drafts = [
            _as_message(each.what)
            for each in batch
            if each.id not in there and isinstance(each.what, Draft)
        ]
        names = (batch[0].policy, batch[0].policy.split(".")[0], "default")
        policy = next(name for name in names if name in ctx.policies)  # the nearest that is known
        by = policies.find(ctx.policies, policy, ctx.settings.capacity)
        ready = await ingest.prepare(ctx, scope, to_items(drafts), by, ctx.clock())
        async with ctx.store.transaction(scope) as tx:
            outcomes = await ingest.write(tx, ready)
    except (InvalidInput, RevisionConflict) as error:
        if len(batch) == 1:
            return {batch[0].id: Outcome(status="conflict", reason=str(error))}
        found: dict[str, Outcome] = {}
        for one in batch:
            found |= await hand_over(ctx, [one])
        return found
    ids = [draft.id or "" for draft in drafts]
    return dict(zip(ids, outcomes, strict=True))


def _as_message(draft: Draft) -> Draft:
    """Make a draft a message, so that storing it twice counts once."""
    if draft.message_id is not None:
        return draft
    return replace(draft, message_id=draft.id, source_ids=(draft.id or "", *draft.source_ids))


def _batches(spooled: Sequence[Pending]) -> Iterator[list[Pending]]:
    """Yield what can be stored together: drafts of one scope and policy that follow each other."""

    def key(pending: Pending) -> tuple[Scope, str, str | bool]:
        return pending.scope, pending.policy, isinstance(pending.what, Summary) and pending.id

    for _, group in groupby(spooled, key):
        run = list(group)
        for start in range(0, len(run), BATCH):
            yield run[start : start + BATCH]
