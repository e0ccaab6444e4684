"""Who tends: once, or until told to stop, beside any number of others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from time import monotonic

from ..errors import InvalidInput, ProviderFailed, StoreUnavailable
from ..types import Scope
from .context import Care
from .embed import backfill
from .schedule import LEASE_SECONDS, Did, Duty, Tended, backoff, done, log, turn

EMBED = "embed"
LOOK_SECONDS = 30.0  # between two looks if nobody tells of anything new
SEED_SECONDS = 600.0  # between two looks for scopes that have no duties yet
DRAIN_SECONDS = 20.0  # for what is under way when it is told to stop
_PATIENCE = (1.0, 30.0)  # seconds after a first and after many failures


class Worker:
    """Embeds what has no vector and does what is due. What it did is in `tended`."""

    def __init__(
        self,
        care: Care,
        duties: Mapping[str, Duty],
        *,
        is_off: Callable[[Scope], Awaitable[bool]],
        only: Sequence[str] = (),
        batch_size: int = 32,
        lease_seconds: float = LEASE_SECONDS,
        drain_seconds: float = DRAIN_SECONDS,
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> None:
        known = (EMBED, *duties)
        if unknown := [name for name in only if name not in known]:
            raise InvalidInput(
                f"There is no duty {unknown[0]!r} here: choose from {', '.join(known)}"
            )
        self._care, self._is_off, self._progress = care, is_off, progress
        self._duties = {name: duty for name, duty in duties.items() if name in only or not only}
        self._embeds = care.embedder is not None and (EMBED in only or not only)
        self._batch_size, self._lease, self._drain = batch_size, lease_seconds, drain_seconds
        self._did: dict[str, Did] = {}
        self._steps, self._of = 0, 0
        self._whole = True  # the first look is for all that this model has not embedded, later ones for what is new
        self._seeded = -SEED_SECONDS
        self._stop = asyncio.Event()
        self._task: asyncio.Task[Tended] | None = None

    @property
    def tended(self) -> Tended:
        return Tended(duties=dict(self._did))

    async def once(self, *, retry: bool = False) -> Tended:
        """Do what is due now, and with `retry` also what was set aside. Raises StoreUnavailable."""
        now = self._care.now()
        await self._seed(lambda *_, **__: now)
        if retry:
            await self._care.store.tasks.retry(list(self._duties), now=now)
        self._of = sum(
            each.waiting
            for each in await self._care.store.tasks.backlog(now)
            if self._is_ours(each.name)
        )
        with suppress(ProviderFailed):  # counted; what does not need the model is done all the same
            await self._embed()
        while await self._next():
            pass
        with suppress(ProviderFailed):  # what the duties made
            await self._embed()
        return self.tended

    async def stay(self) -> Tended:
        """Do what is due until `stop`; then what is under way is finished, or given back if it takes too long."""
        news = asyncio.Event(), asyncio.Event()
        with suppress(ProviderFailed):
            await self._care.store.wait_for_change(0)  # from here on nothing new goes unnoticed
        lanes = [
            asyncio.create_task(self._lane(*each))
            for each in zip((self._embed, self._due), news, strict=True)
        ]
        watch = asyncio.create_task(self._watch(news))
        try:
            await self._stop.wait()
            await asyncio.wait(lanes, timeout=self._drain)
        finally:
            for each in (*lanes, watch):
                each.cancel()
            await asyncio.gather(*lanes, watch, return_exceptions=True)
        return self.tended

    def stop(self) -> None:
        self._stop.set()

    def begin(self) -> None:
        """Stay in the background; whoever began it ends it."""
        self._task = asyncio.create_task(self.stay(), name="memorist-tend")

    async def end(self) -> None:
        self.stop()
        if self._task is not None:
            await self._task

    def _is_ours(self, name: str) -> bool:
        return name in self._duties or (name == EMBED and self._embeds)

    def _note(self, name: str, did: Did, steps: int = 1) -> None:
        self._did[name] = self._did.get(name, Did()) + did
        self._steps += steps
        self._of = max(self._of, self._steps)
        self._progress(self._steps, self._of)

    async def _seed(self, due: Callable[..., datetime]) -> None:
        for name, duty in self._duties.items():
            if duty.every is not None:
                when = partial(due, name=name, every=duty.every)
                latest = self._care.now() + 2 * duty.every
                await self._care.store.tasks.seed(name, due=when, latest=latest, whole=duty.whole)

    async def _embed(self) -> bool:
        """Embed all that waits. Raises ProviderFailed if some of it could not be."""
        embedder = self._care.embedder
        if not self._embeds or embedder is None:
            return False
        seen = 0

        def progress(total: int) -> None:
            nonlocal seen
            seen, new = total, total - seen
            self._note(EMBED, Did(changed=new), new)

        try:
            await backfill(
                self._care.store,
                embedder,
                batch_size=self._batch_size,
                waiting=not self._whole,
                now=self._care.now,
                lease_seconds=self._lease,
                stop=self._stop.is_set,
                progress=progress,
            )
        except ProviderFailed as error:
            if not isinstance(error, StoreUnavailable):
                self._note(EMBED, Did(failed=1), 0)
            raise
        self._whole = False
        if seen:
            self._note(EMBED, Did(runs=1), 0)
        return False

    async def _due(self) -> bool:
        if monotonic() - self._seeded > SEED_SECONDS:
            await self._seed(partial(turn, after=self._care.now()))
            self._seeded = monotonic()
        return await self._next()

    async def _next(self) -> bool:
        """Do the piece of work that is longest due, one at a time: what nobody has begun is free for others."""
        if not self._duties:
            return False
        found = await self._care.store.tasks.claim(
            list(self._duties), now=self._care.now(), limit=1, lease_seconds=self._lease
        )
        for task in found:
            did = await done(
                task,
                self._duties[task.name],
                self._care,
                is_off=self._is_off,
                lease_seconds=self._lease,
            )
            self._note(task.name, did)
        return bool(found)

    async def _lane(self, step: Callable[[], Awaitable[bool]], news: asyncio.Event) -> None:
        """Step after step; when nothing is left, until there is news. Whatever fails is tried again."""
        tries = 0
        while not self._stop.is_set():
            news.clear()
            try:
                is_busy, tries = await step(), 0
                if not is_busy:
                    await _first(news.wait(), asyncio.sleep(LOOK_SECONDS), self._stop.wait())
            except Exception as error:
                tries += 1
                if not isinstance(error, ProviderFailed):
                    log.warning("Tending stumbled (%s) and goes on", type(error).__name__)
                await _first(asyncio.sleep(backoff(tries, *_PATIENCE)), self._stop.wait())

    async def _watch(self, news: Sequence[asyncio.Event]) -> None:
        while True:
            try:
                await self._care.store.wait_for_change(LOOK_SECONDS)
            except ProviderFailed:
                await asyncio.sleep(_PATIENCE[0])
            for each in news:
                each.set()


async def _first(*works: Awaitable[object]) -> None:
    """Wait for whichever is done first, and end the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
