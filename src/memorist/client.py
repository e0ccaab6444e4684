"""A memory that is open, async. `scope` gives the part of it that belongs to someone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import InvalidInput
from .index import Corpora
from .ingest import guard, policies
from .ingest import pipeline as ingest
from .jobs import embed, expire, registry
from .jobs.context import Also, Care
from .jobs.index_sync import IndexSync
from .jobs.worker import JobReport, Worker
from .manage import allowlists, import_export, journal, keys, validation
from .offline import Guarded, Outage
from .offline.outage import Replayed
from .ports import BudgetedModel, Embedder, Reranker, Spool, Store
from .results import Backlog, Key, Purged, Spending
from .retrieve.external_index import Nearest
from .scoped import Scoped
from .storage.access_log import Usage
from .telemetry.instrumentation import Observer
from .text import tokens
from .text.ids import new_id
from .types import Draft, Labels, Outcome, Receipt, Scope

if TYPE_CHECKING:
    from .settings import Settings


def utcnow() -> datetime:
    return datetime.now(UTC)


class Engine:
    """A memory that is open. Whoever opened it closes it."""

    def __init__(
        self,
        *,
        store: Store,
        embedder: Embedder | None,
        reranker: Reranker | None,
        settings: Settings,
        clock: Callable[[], datetime] = utcnow,
        count_tokens: Callable[[str], int] | None = None,
        spool: Spool | None = None,
        near: Nearest | None = None,
        lean_from: int | None = None,
        adviser: BudgetedModel | None = None,
    ) -> None:
        self.adviser = adviser
        self.store, self.embedder, self.reranker = store, embedder, reranker
        self.settings, self.clock, self.count_tokens = (
            settings,
            clock,
            count_tokens or tokens.count_tokens,
        )
        self.corpora = Corpora(
            model=embedder.model if embedder else "",
            dimensions=embedder.dimensions if embedder else 1,
            limit_bytes=settings.corpus_mb << 20,
            lean_from=lean_from,
        )
        self.near, self.mirror = near, near if isinstance(near, IndexSync) else None
        self.usage = Usage(store)
        self.access = allowlists.load(settings.categories)
        self.off: dict[
            tuple[Scope, str | None], str
        ] = {}  # where memory was last found off, by session, and why
        self.journal = (
            None if settings.journal_dir is None else journal.Journal(settings.journal_dir)
        )
        self.watchers: list[Observer] = []  # of what the verbs and the duties do
        self.background: Worker | None = None  # tends in this process, where that is asked for
        self.outage = (
            Outage(self, store, spool) if spool is not None and isinstance(store, Guarded) else None
        )

    @property
    def ingest(self) -> ingest.Ingest:
        """What remembering needs, under the policy of the settings."""
        policy = policies.named(self.settings.policy, self.settings.capacity)
        return ingest.Ingest(
            store=self.store,
            corpora=self.corpora,
            embedder=self.embedder,
            policy=policy,
            new_id=new_id,
            extract=self.settings.extract != "off",
        )

    @property
    def care(self) -> Care:
        """What the duties of tending work with."""
        return Care(
            store=self.store,
            corpora=self.corpora,
            embedder=self.embedder,
            adviser=self.adviser,
            remember=self._derive,
            now=self.clock,
        )

    async def _derive(
        self, drafts: Sequence[Draft], scope: Scope, *, policy: str, now: datetime, also: Also
    ) -> None:
        parts = replace(self.ingest, policy=policies.named(policy))
        is_done = False

        async def take(kept: Sequence[Draft]) -> list[Outcome]:
            nonlocal is_done
            is_done = True
            return await ingest.remember(kept, scope, parts, now, also)

        named = [
            replace(draft, id=draft.id or new_id(), told_at=draft.told_at or now)
            for draft in drafts
        ]
        outcomes = await guard.admitted(named, scope, parts.policy, take)
        if not is_done:
            async with self.store.transaction(scope) as tx:
                await tx.apply(await also(tx, outcomes))

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def scope(
        self, user: str, space: str | None = None, tenant: str | None = None, **labels: str | None
    ) -> Scoped:
        """The memory of one user in one space. Labels such as `session` or `agent` go with everything done through it.

        Raises InvalidInput if a name is missing or no text.
        """
        names = {
            "user": user,
            "space": self.settings.space if space is None else space,
            "tenant": self.settings.tenant if tenant is None else tenant,
        }
        scope = Scope(**{name: validation.name(name, value) for name, value in names.items()})
        return Scoped(self, scope, validation.labels(labels))

    async def scopes(self) -> list[Scope]:
        """Everybody something is remembered of."""
        return await self.store.scopes()

    async def stats(self) -> dict[str, Any]:
        """Counts and sizes of the whole store, and what waits to be taken in after an outage."""
        counts = await self.store.stats(None, self.corpora.model)
        return counts if self.outage is None else {**counts, **await self.outage.counts()}

    async def spending(self, *, days: float = 30) -> list[Spending]:
        """What the language model cost everybody in the last days, by scope, day, task and model."""
        return await self.store.spending(None, validation.day(self.clock(), days))

    async def replay(self) -> Replayed | None:
        """Take in now what was told while the store was away; None if another process is at it.

        It happens by itself soon after the store is back. Raises StoreUnavailable.
        """
        return Replayed() if self.outage is None else await self.outage.replay()

    @property
    def limits(self) -> expire.Retention:
        """How long things are kept, by the settings."""
        given = self.settings
        return expire.Retention(
            ttl_days=given.ttl_days,
            level=given.ttl_level,
            purge_days=given.purge_days,
            retention_days=given.retention_days,
        )

    async def purge(self, *, dry_run: bool = False) -> Purged:
        """Put away and erase what is due, of everybody; see `Scoped.purge`."""
        done = Purged()
        for scope in await self.scopes():
            done += await Scoped(self, scope, Labels()).purge(dry_run=dry_run)
        return done

    async def tend(
        self,
        *,
        only: Sequence[str] = (),
        retry: bool = False,
        batch_size: int = 32,
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> JobReport:
        """Do what is due, once: embed what has no vector, put away and erase what is over, and the other duties.

        What fails is put off and counted, and is tried again at a later time; what failed too often is set aside until
        it is asked for with `retry`. Any number of processes share the work. Raises InvalidInput, StoreUnavailable.
        """
        validation.number("batch_size", batch_size)
        return await registry.worker(
            self, only=only, batch_size=batch_size, progress=progress
        ).run_once(retry=retry)

    async def backlog(self) -> list[Backlog]:
        """How much work waits, since when, and what fails, by duty; of `embed` also how long a vector takes."""
        return await self.store.backlog(self.clock())

    async def index(
        self,
        *,
        batch_size: int = 32,
        force: bool = False,
        dry_run: bool = False,
        progress: Callable[[int], None] = lambda done: None,
    ) -> embed.IndexReport:
        """Embed what has no vector of the current model, or everything with `force`. Raises EmbedderUnavailable."""
        if self.embedder is None:
            raise InvalidInput(
                "There is no embedding model to index with: set `embedder` to minilm"
            )
        validation.number("batch_size", batch_size)
        return await embed.backfill(
            self.store,
            self.embedder,
            batch_size=batch_size,
            force=force,
            dry_run=dry_run,
            progress=progress,
            now=self.clock,
        )

    async def rebuild_index(self, *, progress: Callable[[int], None] = lambda done: None) -> int:
        """Empty the vector index and fill it from the store; how many vectors it holds then.

        Raises InvalidInput if none is configured, IndexUnavailable.
        """
        if self.mirror is None:
            raise InvalidInput(
                "There is no vector index to fill: set `index` to chroma:… or weaviate:…"
            )
        return await self.mirror.rebuild(progress)

    async def drop_vectors(self) -> int:
        """Delete the vectors of all models but the current one; how many there were."""
        return await self.store.drop_vectors(self.corpora.model)

    async def snapshot(self, *, refresh: bool = True) -> str:
        """Write what is known into MEMORY.md, for people to read; without `refresh` only if it is not there yet.

        Raises InvalidInput if there is no `journal_dir`.
        """
        if self.journal is None:
            raise InvalidInput("There is no folder for it: set `journal_dir`")
        if not refresh and (kept := await asyncio.to_thread(self.journal.kept)) is not None:
            return kept
        people, lore = await journal.known(self.store)
        text = await asyncio.to_thread(self.journal.write, people, lore, self.clock())
        shown = [*lore, *chain.from_iterable(people.values())]
        gone = await journal.gone(
            self.store, [(memory.scope, memory.id, memory.text) for memory in shown]
        )
        return await asyncio.to_thread(self.journal.redact, gone) or text

    async def create_key(
        self,
        name: str,
        *,
        user: str,
        tenant: str | None = None,
        space: str | None = None,
        agent: str | None = None,
        rights: Sequence[str] = ("read", "write"),
        days: float | None = None,
    ) -> tuple[Key, str]:
        """A new key for a door to this memory, and its token, which cannot be shown again; good for so many days.

        Whoever shows it is that user: in every space or the one that is named, as any agent or the one that is named.
        Raises InvalidInput.
        """
        return await keys.made(
            self, name, user=user, tenant=tenant, space=space, agent=agent, rights=rights, days=days
        )

    async def keys(self) -> list[Key]:
        """All keys there ever were, oldest first."""
        return await self.store.keys()

    async def revoke_key(self, id: str) -> None:
        """Let nobody in with this key any more. Raises NotFound."""
        await keys.revoked(self, id)

    async def known(self, token: str) -> Key:
        """The key that somebody shows. Raises KeyRefused if there is none such, or it is over."""
        return await keys.shown(self, token)

    def export(self) -> AsyncIterator[dict[str, Any]]:
        """Everything that is kept, record by record, as `import_` takes it."""
        return import_export.exported(self.store, None)

    async def import_(
        self, records: Iterable[Mapping[str, Any]], *, restore: bool = False
    ) -> Receipt:
        """Take in exported records, each into the scope it came from. Doing it twice changes nothing.

        Records pass the guard and the person's settings like any other write, and have no more authority than who said
        them. With `restore`, for an export of your own, they are kept as they were. Raises InvalidInput at the first
        record that cannot be read; what stood before it has been taken in.
        """
        return await import_export.imported(
            records, import_export.Import(engine=self, restore=restore)
        )

    async def backup(self, path: str | Path) -> None:
        """A complete copy, taken while others write."""
        await self.store.backup(Path(path))

    async def vacuum(self) -> None:
        """Give unused space back to the disk."""
        await self.store.vacuum()

    async def check(self) -> list[str]:
        """What is wrong with the stored data; empty if nothing is."""
        return await self.store.check()

    async def close(self) -> None:
        """Finish what is under way and let go of everything."""
        async with (
            AsyncExitStack() as last
        ):  # from the end of the list, and each although another one failed
            for part in (
                self.store,
                self.reranker,
                self.embedder,
                self.adviser,
                self.mirror,
                self.usage,
                self.outage,
            ):
                if part is not None:
                    last.push_async_callback(part.close)
            if self.background is not None:
                await self.background.close()
