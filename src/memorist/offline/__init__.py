"""Noticing that the store is down, spooling what is written then, and replaying it later.

`Offline` wraps the verbs. While the store is down, `StandIn` answers from what is `Recent` or spooled.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..context import Context
from ..errors import Busy, StoreFull, StoreUnavailable
from ..index import SnapshotCache
from ..ingest import guard
from ..ingest import pipeline as ingest
from ..ingest.analyze import analyze
from ..ingest.candidates import Batch
from ..ingest.guard import Item
from ..ingest.policies import Policy
from ..manage import edit, records
from ..manage import forget as forgetting
from ..retrieve import pipeline as retrieve
from ..retrieve.profiles import Profile
from ..storage import Change, Forget, Save, Tombstone, dump
from ..storage.person import Summary
from ..storage.queries import Reader
from ..storage.store import Store
from ..text import clock, tokens
from ..text.clock import new_id
from ..types import Draft, Memory, Outcome, Query, Recall, Scope
from .replay import Down, Replay, StandIn, Switch, Way
from .spool import ASIDE, Pending, Spool

T = TypeVar("T")
OPENING = 5.0  # seconds that opening waits for the replay of what an earlier outage left behind
MOST_RECENT = 2000  # memories to answer from while the store is down
ERASED = "erased.ids"  # file in the folder of the spool
MOST_ERASED = 1 << 20  # bytes of it; the older half is dropped
log = logging.getLogger("memorist")


class Recent:
    """Memories that this process recently read or wrote, as long as that is the current version."""

    def __init__(self, index: SnapshotCache, folder: Path) -> None:
        self._index = index
        self._erased = folder / ERASED  # tells other processes which memories were erased
        # With the revision of the scope in which it was written here; -1: it was read.
        self._held: OrderedDict[tuple[Scope, str], tuple[Memory, Save | None, int]] = OrderedDict()

    def note_read(self, memories: Iterable[Memory]) -> None:
        """Hold memories that were just read."""
        for memory in memories:
            self._hold(memory, None, -1)

    def note_commit(self, scope: Scope, changes: Sequence[Change], revision: int) -> None:
        """Hold what was just written in a revision of the scope, and drop what was forgotten."""
        for change in changes:
            if isinstance(change, Save):
                self._hold(change.memory, change, revision)
        if gone := {change.memory_id for change in changes if isinstance(change, Forget)}:
            with suppress(OSError):
                self._note_erased(gone)
            for save in self.of(scope):
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
            if revision < written_at:
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


class Offline:
    """Spools writes while the store is down and replays them, once and in order."""

    def __init__(
        self,
        ctx: Context,
        spool: Spool,
        down: Down,
        reopen: Callable[[], Awaitable[Store]],
    ) -> None:
        self._ctx = ctx
        self._spool = spool
        self.down = down
        self._recent = Recent(ctx.index, spool.folder)
        self._stand_in = StandIn(ctx)
        self._replay = Replay(ctx, spool, down, reopen, self._stand_in.close)
        self.replay = self._replay.run
        ctx.store.on_commit = self._recent.note_commit
        if isinstance(ctx.store.database, Switch):
            ctx.store.database.on_loss = self._replay.watch

    async def start(self) -> None:
        """Begin to replay what an earlier outage left behind, or to look for a store that is
        down."""
        if self.down:
            self._replay.watch()
        elif not self._spool.is_empty:
            await asyncio.wait([self._replay.watch(0)], timeout=OPENING)

    async def close(self) -> None:
        """Stop looking. What was not replayed stays in the spool."""
        await self._replay.stop()
        await self._stand_in.close()
        self._spool.close()

    async def remember(
        self,
        ctx: Context,
        scope: Scope,
        drafts: Sequence[Draft],
        policy: Policy,
        now: datetime,
        *,
        command: str | None = None,
        analyzed: Batch | None = None,
    ) -> list[Outcome]:
        """Store drafts; while the store is down, spool them. Raises StoreUnavailable."""
        remember = partial(
            ingest.remember, ctx, scope, drafts, policy, now, command=command, analyzed=analyzed
        )
        is_behind = scope in self._replay.behind  # what was spooled earlier comes first
        stored = None if is_behind else await self._attempt("writing", remember)
        if stored is not None:
            return stored
        items = [Item(draft) for draft in drafts]
        await guard.refuse_disabled(ctx, ctx.store, scope, items)
        ctx.access_log.note(scope, guard.refuse(items, policy, scope.user))
        for item in items:  # raises InvalidInput for what could never be stored
            if item.outcome is None and not analyze(item.draft, policy):
                item.outcome = ingest.combine([], item.draft.message_id)
        admitted = [item for item in items if item.outcome is None]
        make = partial(Pending, scope=scope, policy=policy.name, shared=policy.shared_spool)
        new = [make(what=item.draft) for item in admitted]
        for item, pending in zip(admitted, await self._add(new), strict=True):
            assert isinstance(pending.what, Draft)
            message = item.draft.message_id
            is_same = pending.what.text == item.draft.text
            folder = self._spool.path_of(pending).parent
            cause = "earlier writes of this scope wait" if is_behind else "the store is down"
            reason = (
                f"{cause}: spooled in {folder}, to be stored later"
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
        return ingest.outcomes(items)

    async def add_record(self, scope: Scope, patch: Summary) -> Summary | None:
        """Add to a long-term record; None if that is spooled. Raises InvalidInput,
        StoreUnavailable."""
        add = partial(records.add, self._ctx.store, scope, patch)
        added = await self._attempt("writing", add)
        if added is None:
            await self._add([Pending(scope=scope, what=patch, shared=True)])
        return added

    async def _add(self, new: Sequence[Pending]) -> list[Pending]:
        why = self.down.get("writing", "The store was down.")
        if not new:
            return []
        try:
            return await asyncio.to_thread(self._spool.add, new)
        except OSError as error:
            folder = self._spool.folder
            raise StoreUnavailable(f"{why} {folder} cannot be written either: {error}") from error

    async def forget(self, scope: Scope, ids: Sequence[str], until: datetime | None) -> list[str]:
        """Remove drafts that are spooled or set aside, leaving tombstones; return the ids that are
        left to forget in the store.

        Raises StoreUnavailable if they are being replayed.
        """
        spooled = [each for each in await self._waiting(scope) if each.id in ids]
        aside = [each for each in await self._aside(scope) if each.id in ids]
        if not spooled and not aside:
            return [*ids]
        with self._spool.alone() as mine:
            if not mine:
                raise StoreUnavailable("This is being replayed right now: retry in a moment")
            words = [text for each in (*spooled, *aside) for text in self._read_words(each)]
            await self._add_tombstones(scope, words, until)
            gone = {each.id for each in aside}
            gone.update(await asyncio.to_thread(self._spool.remove, [each.id for each in spooled]))
            await forgetting.clear_copies(self._ctx, words)
        if not self.down:  # a crash may have left it in both
            stored = await self._ctx.store.get(scope, sorted(gone))
            gone -= {memory.id for memory in stored}
        return [id for id in ids if id not in gone]

    async def erase_user(self, tenant: str, user: str) -> int:
        """Remove all writes of a user that wait or were set aside; return how many.

        Raises StoreUnavailable if they are being replayed.
        """
        found = await asyncio.to_thread(self._spool.of_user, tenant, user)
        if not found:
            return 0
        with self._spool.alone() as mine:
            if not mine:
                raise StoreUnavailable("The spool is being replayed right now: retry in a moment")
            await asyncio.to_thread(self._spool.remove, [each.id for each in found])
            words = [text for each in found for text in self._read_words(each)]
            ids = [each.id for each in found]  # also of records, in the files that were set aside
            await forgetting.clear_copies(self._ctx, [*words, *ids])
        return len(found)

    async def export_user(self, tenant: str, user: str) -> list[dict[str, Any]]:
        """Return all writes of a user that wait or were set aside."""
        found = await asyncio.to_thread(self._spool.of_user, tenant, user)
        return [{"record_type": "pending", "data": dump(each)} for each in found]

    async def find_aside(self, scope: Scope, query: str | None) -> list[str]:
        """Return the ids of drafts that were set aside and have all words of a query, if given."""
        wanted = set(tokens.analyze(query or ""))
        found = []
        for each in await self._aside(scope):
            words = set(tokens.analyze(" ".join(self._read_words(each))))
            if query is None or (wanted and wanted <= words):
                found.append(each.id)
        return found

    async def _aside(self, scope: Scope) -> list[Pending]:
        if not any(self._spool.folder.glob(ASIDE)):
            return []
        found = await asyncio.to_thread(self._spool.aside)
        return [each for each in found if each.scope == scope]

    def _read_words(self, pending: Pending) -> list[str]:
        """Return the text of a spooled draft, and of the memories that it would become."""
        draft = pending.what
        if not isinstance(draft, Draft):
            return []
        policy = self._ctx.policies.get(pending.policy, self._ctx.policies["default"])
        return [draft.text, *(chunk.text for chunk in analyze(draft, policy))]

    async def _add_tombstones(
        self, scope: Scope, texts: Sequence[str], until: datetime | None
    ) -> None:
        """Store tombstones; while the store is down, spool their digests."""
        store = self._ctx.store
        if "writing" not in self.down:
            async with store.transaction(scope) as tx:
                await tx.add_tombstones(texts, until)
            return
        database = store.database
        if isinstance(database, Switch):
            if database.inner is None:
                log.warning("the store was never reached: what is forgotten leaves no tombstone")
                return
            database = database.inner
        reader = Reader(database, {})
        new = []
        for text in dict.fromkeys(texts):
            mark = Tombstone(id=new_id(), digest=reader.tombstone_digests(text)[0], until=until)
            new.append(Pending(scope=scope, what=mark))
        await self._add(new)

    async def recall(
        self,
        ctx: Context,
        query: Query,
        profile: Profile,
        now: datetime,
        *,
        revision: int | None = None,
    ) -> Recall:
        """Answer from the store and the spool; while the store is down, without it.

        The answer then says so in `legs`.
        """
        recall = partial(retrieve.recall, ctx, query, profile, now, revision=revision)
        answer = await self._attempt("reading", recall)
        if answer is not None:
            self._recent.note_read(hit.memory for hit in answer.hits)
        spooled = await self._waiting(query.scope)
        if answer is not None and not spooled:
            return answer
        why = self.down.get("reading", "it was down for a moment")
        known = self._recent.current(query.scope)
        async with self._stand_in.holding(query.scope, known, spooled) as (mine, made):
            mine = replace(ctx, store=mine.store, index=mine.index, external_index=None)
            mixed = await retrieve.recall(mine, query, profile, now)
        if answer is None:
            return replace(mixed, legs={**mixed.legs, "store": why})
        new = {id for ids in made.values() for id in ids}
        return answer if new.isdisjoint(memory.id for memory in mixed.memories) else mixed

    async def get(self, scope: Scope, id: str) -> Memory:
        """Return the memory with this id, or what a spooled draft with it would become.

        Raises NotFound.
        """
        spooled = await self._waiting(scope)
        if any(each.id == id for each in spooled):
            known = self._recent.current(scope)
            async with self._stand_in.holding(scope, known, spooled) as (mine, made):
                stored = [*made.get(id, ()), id]
                return await edit.load(mine.store, scope, stored[0])
        return await edit.load(self._ctx.store, scope, id)

    async def counts(self) -> dict[str, Any]:
        """Return how many writes are spooled, and the files with those that cannot be stored."""
        waiting = await self._waiting()
        return {"pending": len(waiting), "set_aside": list(map(str, self._spool.set_aside()))}

    async def _waiting(self, scope: Scope | None = None) -> list[Pending]:
        if not any(path.exists() for path in self._spool.paths):
            return []
        spooled = await asyncio.to_thread(self._spool.waiting)
        if not self._spool.is_empty:
            self._replay.watch()
        return [each for each in spooled if scope in (None, each.scope)]

    async def _attempt(self, way: Way, work: Callable[[], Awaitable[T]]) -> T | None:
        """Run work on the store; None if it is down, as for all later calls until it is back."""
        if way in self.down:
            return None
        try:
            return await work()
        except (StoreFull, Busy):  # not an outage
            raise
        except StoreUnavailable as error:
            self.down["writing"] = self.down[way] = str(error)
            self._replay.watch()
            return None
