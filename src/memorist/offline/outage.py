"""What happens while the store is away, and when it is back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any, cast

from ..context import Context
from ..embedders import checked
from ..errors import InvalidInput, ProviderFailed, RevisionConflict, StoreFull, StoreUnavailable
from ..index import SnapshotCache
from ..ingest import guard, privacy
from ..ingest import pipeline as ingest
from ..ingest.analyze import Item, analyze
from ..ingest.policies import Policy
from ..manage import records
from ..ports import IndexRow, Vectors
from ..retrieve import pipeline as retrieve
from ..retrieve.profiles import Profile
from ..storage.store import Store
from ..storage.summaries import Summary
from ..text.clock import new_id
from ..types import Draft, Memory, Outcome, Query, Recall, Scope
from . import standby
from .proxy import StoreProxy
from .spool import Files, Pending

FIRST_LOOK, LONGEST = 0.5, 2.0  # seconds between two looks whether the store is back
OPENING = 5.0  # seconds that opening waits for what an earlier outage left behind
BATCH = 256  # drafts handed over in one transaction
EMBEDDED_AT_ONCE = 64  # waiting drafts that one recall embeds; the others are found by their words
log = logging.getLogger("memorist")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What became of what waited."""

    taken_in: int = 0
    set_aside: int = 0
    waiting: int = 0  # still, or again


class Offline:
    """Keeps what is told while the store is away and hands it over, once and in order. Closed by the engine."""

    def __init__(self, ctx: Context, store: StoreProxy, spool: Files) -> None:
        self._ctx, self._store, self._spool = ctx, store, spool
        self._made: dict[str, list[tuple[Memory, IndexRow]]] = {}  # of what waits, by id
        self._vectors: dict[str, Vectors] = {}
        self._laid: dict[Scope, standby.Laid] = {}
        self._task: asyncio.Task[None] | None = None
        store.proxy.on_loss = self._watch

    async def opened(self) -> None:
        """Begin to hand over what an earlier outage left behind, or to look for a store that is not there yet."""
        if self._store.away or not self._spool.is_empty:
            self._watch(0 if not self._store.away else FIRST_LOOK)
        if self._task is not None and not self._store.away:
            await asyncio.wait([self._task], timeout=OPENING)

    async def close(self) -> None:
        """Stop looking. What was handed over is safe, what was not waits for the next time."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._spool.close()

    async def remember(
        self, ctx: Context, scope: Scope, drafts: Sequence[Draft], policy: Policy, now: datetime
    ) -> list[Outcome]:
        """Store drafts; while the store is unavailable, spool them and say so.

        Raises StoreUnavailable.
        """
        try:
            if why := self._store.away.get("writing"):
                raise StoreUnavailable(why)
            return await ingest.remember(ctx, scope, drafts, policy, now)
        except StoreFull:
            raise
        except StoreUnavailable as error:
            items = [Item(draft, draft) for draft in drafts]
            sessions = {draft.labels.session for draft in drafts}
            privacy.refuse(items, await privacy.load(ctx, ctx.store, scope, sessions))
            ctx.access_log.note(scope, guard.refuse(items, policy, scope.user))
            admitted = [item for item in items if item.outcome is None]
            for item in admitted:
                analyze(item.draft, policy)  # raises InvalidInput for what could never be stored
            pending = [
                Pending(scope=scope, what=item.draft, policy=policy.name) for item in admitted
            ]
            kept = await self._kept(pending, error) if pending else []
            for item, each in zip(admitted, kept, strict=True):
                item.outcome = self._outcome(item.draft, each.what)
            return ingest.outcomes(items, scope.user)

    async def add_record(self, scope: Scope, patch: Summary) -> Summary | None:
        """Add to a long-term record; None if that waits in a file. Raises InvalidInput, StoreUnavailable."""
        try:
            return await records.add(self._ctx.store, scope, patch)
        except StoreFull:
            raise
        except StoreUnavailable as error:
            await self._kept([Pending(scope=scope, what=patch)], error)
            return None

    async def _kept(self, told: Sequence[Pending], why: StoreUnavailable) -> list[Pending]:
        try:
            kept = await asyncio.to_thread(self._spool.add, told)
        except OSError as error:
            raise StoreUnavailable(
                f"{why} And {self._spool.folder} cannot be written: {error}"
            ) from error
        self._watch()
        return kept

    def _outcome(self, draft: Draft, kept: Any) -> Outcome:
        if kept.text != draft.text:
            why = f"message {draft.message_id!r} waits with another text: edit the memory when the store is back"
            return Outcome(
                status="conflict", ids=(kept.id,), reason=why, message_id=draft.message_id
            )
        why = f"the store is away: kept in {self._spool.folder}, taken in when it is back"
        return Outcome(status="pending", ids=(kept.id,), reason=why, message_id=draft.message_id)

    async def forget(self, scope: Scope, id: str) -> bool:
        """Take a draft that only waits out of its file. Raises StoreUnavailable if it is just being handed over."""
        if all(each.id != id or each.scope != scope for each in await self._waiting()):
            return False
        with self._spool.alone() as mine:
            if not mine:
                raise StoreUnavailable(
                    "This is just being handed over to the store: retry in a moment"
                )
            gone = await asyncio.to_thread(self._spool.remove, [id])
        there = not self._store.away and await self._store.get(scope, [id])
        return bool(gone) and not there

    async def recall(
        self,
        ctx: Context,
        query: Query,
        profile: Profile,
        now: datetime,
        *,
        revision: int | None = None,
    ) -> Recall:
        """Answer; with what waits, and without the store if it is away, which the answer says."""
        waiting = await self._waiting(query.scope)
        if "reading" not in self._store.away:
            with suppress(StoreUnavailable):
                beside = await self._beside(query.scope, waiting) if waiting else None
                found = _reading(ctx, beside)
                return await retrieve.recall(found, query, profile, now, revision=revision)
        left = await self._left(waiting, without=query.scope)
        answer = await retrieve.recall(_reading(ctx, left), query, profile, now)
        why = self._store.away.get("reading", "it was away for a moment")
        return replace(answer, legs={**answer.legs, "store": why})

    async def get(self, scope: Scope, ids: Sequence[str]) -> list[Memory]:
        """Memories by id, and what those that wait would become."""
        waiting = [each for each in await self._waiting(scope) if each.id in ids]
        rest = [id for id in ids if id not in {each.id for each in waiting}]
        found = [memory for memory, _ in await asyncio.to_thread(self._prepared, waiting)]
        return found + (await self._store.get(scope, rest) if rest else [])

    async def counts(self) -> dict[str, Any]:
        """How much waits, and the files with what could not be handed over."""
        waiting = await self._waiting()
        return {
            "pending": len(waiting),
            "set_aside": [str(path) for path in self._spool.set_aside()],
        }

    async def _waiting(self, scope: Scope | None = None) -> list[Pending]:
        if self._spool.is_empty:
            self._made, self._vectors = {}, {}
            if not self._store.away:
                self._laid = {}
            return []
        self._watch()
        return [
            each
            for each in await asyncio.to_thread(self._spool.waiting)
            if scope in (None, each.scope)
        ]

    async def _beside(self, scope: Scope, waiting: Sequence[Pending]) -> standby.Standby:
        """The store, and what waits and has not been handed over a moment ago."""
        names = dict.fromkeys((_message_id(each) for each in waiting), "")
        told = await self._store.seen(scope, names)
        return await self._left([each for each in waiting if _message_id(each) not in told])

    async def _left(
        self, waiting: Sequence[Pending], *, without: Scope | None = None
    ) -> standby.Standby:
        """What can be read: the store and what waits, or without the store for a scope, what was lately seen of it."""
        prepared = await asyncio.to_thread(self._prepared, waiting)
        if without is not None:
            language, fresh = self._ctx.settings.language, self._store.texts.fresh(without)
            prepared = [
                *((memory, standby.index_row(memory, language)) for memory in fresh),
                *prepared,
            ]
        await self._embed([memory for memory, _ in prepared])
        return standby.Standby(
            store=self._store,
            index=self._ctx.index,
            waiting=prepared,
            embedded=self._vectors,
            is_away=without is not None,
            laid=self._laid,
        )

    def _prepared(self, waiting: Sequence[Pending]) -> list[tuple[Memory, IndexRow]]:
        made, language = self._made, self._ctx.settings.language
        for each in waiting:
            if each.id not in made:
                made[each.id] = standby.prepared(each, len(made), language, self._ctx.policies)
        return [pair for each in waiting for pair in made[each.id]]

    async def _embed(self, memories: Sequence[Memory]) -> None:
        new = [memory for memory in memories if memory.id not in self._vectors][-EMBEDDED_AT_ONCE:]
        if new and self._ctx.embedder is not None:
            with suppress(ProviderFailed):
                made = await checked.encode(self._ctx.embedder, [memory.text for memory in new])
                self._vectors |= {
                    memory.id: vector for memory, vector in zip(new, made, strict=True)
                }

    def _watch(self, first: float = FIRST_LOOK) -> None:
        """Look for the store until it is back and nothing waits any more."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._until_back(first))

    async def _until_back(self, wait: float) -> None:
        while True:
            await asyncio.sleep(wait)
            wait = min(max(2 * wait, FIRST_LOOK), LONGEST)
            try:
                if await self._is_back() and self._spool.is_empty:
                    return
            except StoreUnavailable:
                continue
            except (
                Exception
            ) as error:  # whatever it is, what waits is safe, and the next look may find it mended
                log.warning("what waits in %s cannot be handed over: %s", self._spool.folder, error)

    async def _is_back(self) -> bool:
        """Whether the store is there, can be written, and has been given what waited."""
        store = await self._store.reached()
        await store.revision(Scope(user="nobody"))
        self._store.found("reading")
        if await self.replay() is None:  # another process is at it
            return False
        self._store.found("writing")
        return await self.replay() is not None  # what was told meanwhile

    async def replay(self) -> Replayed | None:
        """Hand over what waits, in order; None if another process does. Raises StoreUnavailable."""
        if self._spool.is_empty:
            return Replayed()
        store = await self._store.reached()
        with self._spool.alone() as mine:
            if not mine:
                return None
            waiting, wrong = await asyncio.to_thread(self._spool.waiting), list[str]()
            before = len(self._spool.set_aside())
            for batch in _batches(waiting):
                problems = await self._handed_over(batch, store)
                for id, problem in problems.items():
                    log.warning("set aside in %s: %s: %s", self._spool.folder, id, problem)
                wrong += problems
                await asyncio.to_thread(self._spool.remove, [each.id for each in batch], problems)
            if not waiting:  # lines that nobody can read
                await asyncio.to_thread(self._spool.remove, [])
            elif self._store.away:
                self._store.away.clear()  # what took all this can be used
        if len(self._spool.set_aside()) > before:
            log.warning(
                "some lines could not be used and were set aside: see *.corrupt-* in %s",
                self._spool.folder,
            )
        left = len(await asyncio.to_thread(self._spool.waiting))
        return Replayed(taken_in=len(waiting) - len(wrong), set_aside=len(wrong), waiting=left)

    async def _handed_over(self, batch: Sequence[Pending], store: Store) -> dict[str, str]:
        """Give some of what waits to the store, and tell what is wrong with which; doing it twice changes nothing."""
        scope, first = batch[0].scope, batch[0].what
        try:
            if isinstance(first, Summary):
                await records.add(store, scope, first)
                return {}
            there = {memory.id for memory in await store.get(scope, [each.id for each in batch])}
            new = [
                _message(each.what)
                for each in batch
                if each.id not in there and isinstance(each.what, Draft)
            ]
            policy = standby.policy(
                self._ctx.policies, batch[0].policy, self._ctx.settings.capacity
            )
            items = [Item(draft, draft) for draft in new]
            ctx = replace(self._ctx, store=store)
            drafts = await ingest.prepare(ctx, scope, items, policy, ctx.clock())
            async with store.transaction(scope) as tx:
                await ingest.write(tx, drafts)
        except (InvalidInput, RevisionConflict) as error:
            if len(batch) == 1:
                return {first.id or "": str(error)}
            return {
                id: why
                for one in batch
                for id, why in (await self._handed_over([one], store)).items()
            }
        return {
            item.draft.id or "": item.outcome.reason
            for item in items
            if item.outcome is not None and item.outcome.status == "conflict"
        }


def _batches(waiting: Sequence[Pending]) -> Iterator[list[Pending]]:
    """What can be handed over together: drafts of one scope and policy that follow each other."""
    for (_, _, alone), group in groupby(
        waiting, lambda p: (p.scope, p.policy, isinstance(p.what, Summary) and p.id)
    ):
        run = list(group)
        size = 1 if alone else BATCH
        yield from (run[start : start + size] for start in range(0, len(run), size))


def _message_id(pending: Pending) -> str:
    return getattr(pending.what, "message_id", None) or pending.id


def _message(draft: Draft) -> Draft:
    """A draft as a message, so that handing it over twice counts once."""
    if draft.message_id is not None:
        return draft
    return replace(draft, message_id=draft.id, source_ids=(draft.id or new_id(), *draft.source_ids))


def _reading(ctx: Context, reading: standby.Standby | None) -> Context:
    if reading is None:
        return ctx
    return replace(ctx, store=cast(Store, reading), index=cast(SnapshotCache, reading))
