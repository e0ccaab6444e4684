"""An open memory, async. `scope` returns the part of it that belongs to one user in one space."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from .context import Context, Place
from .errors import InvalidInput, KeyRefused, NotFound
from .ingest import validation
from .jobs import backfill, expire, vectors
from .jobs.backfill import Backfilled
from .jobs.expire import Purged
from .jobs.worker import JobReport, Worker
from .manage import journal
from .manage.import_export import import_records
from .manage.record_reader import Import
from .manage.whole_user import ErasedUser, erase_user, export_user
from .offline import Offline
from .offline.replay import Replayed
from .ports import LlmUsage
from .scoped import ScopedClient
from .settings import Settings
from .storage.accounts import RIGHTS, Key
from .storage.scan import check, export
from .storage.tasks import Backlog
from .types import Labels, Receipt, Scope

TOKEN_PREFIX = "rk"  # of a token: rk_<id>_<secret>, of which the secret is shown once


class Client:
    """An open memory. The caller that opened it closes it."""

    def __init__(self, ctx: Context, offline: Offline | None = None) -> None:
        self.ctx = ctx
        self.offline = offline
        self.background: Worker | None = None  # runs jobs in this process

    @property
    def settings(self) -> Settings:
        return self.ctx.settings

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def scope(
        self,
        user: str,
        space: str | None = None,
        tenant: str | None = None,
        **labels: str | None,
    ) -> ScopedClient:
        """Return the memory of one user in one space.

        Labels such as `session` or `agent` apply to everything done through it.
        Raises InvalidInput if a name is missing or not text.
        """
        usual = self.settings
        scope = Scope(
            user=validation.name("user", user),
            space=validation.name("space", usual.space if space is None else space),
            tenant=validation.name("tenant", usual.tenant if tenant is None else tenant),
        )
        return ScopedClient(self.ctx, scope, validation.labels(labels), self.offline)

    async def scopes(self, *, user: str | None = None, tenant: str | None = None) -> list[Scope]:
        """Return every scope that has memories, or those of one user."""
        return await self.ctx.store.scopes(tenant or self.settings.tenant, user)

    async def stats(self) -> dict[str, Any]:
        """Return counts and sizes of the whole store, and how many writes are spooled."""
        counts = await self.ctx.store.stats(None, self.ctx.index.model)
        if self.offline is not None:
            counts |= await self.offline.counts()
        return counts

    async def llm_usage(self, *, days: float = 30) -> list[LlmUsage]:
        """Return the tokens used by the language model, by scope, day, task and model."""
        since = validation.day(self.ctx.clock(), days)
        return await self.ctx.store.llm_usage.list(None, since)

    async def replay(self) -> Replayed | None:
        """Store the spooled writes now; None if another process is doing it.

        This happens automatically soon after the store is available again. Raises StoreUnavailable.
        """
        return Replayed() if self.offline is None else await self.offline.replay()

    async def purge(self, *, dry_run: bool = False) -> Purged:
        """Expire and erase what is due in every scope; see `ScopedClient.purge`."""
        done = Purged()
        for scope in await self.scopes():
            done += await expire.purge(Place(self.ctx, scope, Labels()), dry_run=dry_run)
        return done

    async def run_jobs(
        self,
        *,
        only: Sequence[str] = (),
        retry: bool = False,
        batch_size: int = 32,
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> JobReport:
        """Run all due jobs once: embed, extract, expire, purge and the others.

        A job that fails is counted and retried later; one that failed too often is not retried
        until `retry` asks for it. Any number of processes share the work.
        Raises InvalidInput, StoreUnavailable.
        """
        validation.number("batch_size", batch_size)
        worker = Worker(self.ctx, only=only, batch_size=batch_size, progress=progress)
        return await worker.run_once(retry=retry)

    async def backfill(
        self,
        *,
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> Backfilled:
        """Extract facts from the turns of all scopes that were stored before extraction was on.

        If it is interrupted, the next call or a worker continues where it stopped. Turns are also
        compared with what was said before them. Statements that were replaced, or may be, are
        returned; they await a decision in `conflicts`.
        Raises InvalidInput if extraction is off, StoreUnavailable.
        """
        since = self.ctx.clock()
        scopes = await backfill.queue(self.ctx)
        report = await self.run_jobs(only=[backfill.NAME], progress=progress)
        replaced = await backfill.list_replaced(self.ctx, scopes, since)
        return Backfilled(facts=report[backfill.NAME].changed, conflicts=replaced)

    async def backlog(self) -> list[Backlog]:
        """Return, by job, how much work waits, since when, and what fails."""
        return await self.ctx.store.tasks.backlog(self.ctx.clock())

    async def index(
        self,
        *,
        batch_size: int = 32,
        force: bool = False,
        dry_run: bool = False,
        progress: Callable[[int], None] = lambda done: None,
    ) -> vectors.IndexReport:
        """Embed memories that have no vector of the current model, or all of them with `force`.

        Raises EmbedderUnavailable, InvalidInput.
        """
        validation.number("batch_size", batch_size)
        report = await vectors.backfill(
            self.ctx, batch_size=batch_size, force=force, dry_run=dry_run, progress=progress
        )
        if self.ctx.multilingual is not None and not dry_run:
            await vectors.backfill(self.ctx, second=True, batch_size=batch_size, force=force)
        return report

    async def rebuild_index(self, *, progress: Callable[[int], None] = lambda done: None) -> int:
        """Refill the external vector index from the store; return how many vectors it holds.

        Raises InvalidInput if none is configured, IndexUnavailable.
        """
        if not isinstance(self.ctx.external_index, vectors.IndexSync):
            raise InvalidInput(
                "No vector index is configured: set `vector_index` to chroma:… or weaviate:…"
            )
        return await self.ctx.external_index.rebuild(progress)

    async def drop_vectors(self) -> int:
        """Delete the vectors of all models except the current one; return how many there were."""
        return await self.ctx.store.embeddings.drop_vectors(*self.ctx.index.models)

    async def snapshot(self, *, refresh: bool = True) -> str:
        """Write what is known to MEMORY.md; without `refresh` only if the file does not exist.

        Returns its text. Without a `journal_dir` nothing is written.
        """
        return await journal.snapshot(self.ctx, refresh=refresh)

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
        until: datetime | None = None,
        made_by: str | None = None,
    ) -> tuple[Key, str]:
        """Create an API key and return it with its token, which cannot be shown again.

        The key acts for that user: in every space or the named one, as any agent or the named one.
        With the right `service` it acts for any user of the tenant that a request names.
        It expires after `days` or at `until`, whichever is earlier, or never. Revoking the key
        `made_by` also revokes it. Raises InvalidInput.
        """
        named = {"name": name, "user": user, "tenant": tenant, "space": space, "agent": agent}
        for what, value in named.items():
            if value is not None or what in ("name", "user"):
                validation.name(what, value)
        if not rights or isinstance(rights, str) or not set(rights) <= set(RIGHTS):
            known = ", ".join(RIGHTS)
            raise InvalidInput(f"Rights of a key are some of {known}, not {rights!r:.60}")
        if agent is not None and "owner" in rights:
            raise InvalidInput(
                "A key of an agent cannot have the right 'owner': create one without an agent"
            )
        now = self.ctx.clock()
        ends = [] if until is None else [until]
        if days is not None:
            validation.days(days)
            ends.append(now + timedelta(days=days))
        key = Key(
            id=secrets.token_hex(8),
            name=name,
            user=user,
            rights=tuple(right for right in RIGHTS if right in rights),
            created_at=now,
            expires_at=min(ends, default=None),
            tenant=self.settings.tenant if tenant is None else tenant,
            space=space,
            agent=agent,
            made_by=made_by,
        )
        secret = secrets.token_urlsafe(32)
        await self.ctx.store.keys.add(key, secret)
        return key, f"{TOKEN_PREFIX}_{key.id}_{secret}"

    async def keys(self) -> list[Key]:
        """Return all API keys, revoked and expired ones included, oldest first."""
        return await self.ctx.store.keys.list()

    async def revoke_key(self, id: str) -> None:
        """Revoke an API key, and the keys that were created with it. Raises NotFound."""
        if not await self.ctx.store.keys.revoke(id, self.ctx.clock()):
            raise NotFound(f"No valid key with id {id!r:.60}: see `memorist keys list`")

    async def authenticate(self, token: str) -> Key:
        """Return the key of a token. Raises KeyRefused if it is unknown, revoked or expired."""
        prefix, _, rest = token.partition("_")
        id, _, secret = rest.partition("_")
        if prefix == TOKEN_PREFIX and id.isalnum() and secret.isascii():
            key = await self.ctx.store.keys.get(id, secret)
            if key is not None and key.is_good(self.ctx.clock()):
                return key
        raise KeyRefused

    def export(self) -> AsyncIterator[dict[str, Any]]:
        """Yield everything that is stored, record by record, as `import_` reads it."""
        return export(self.ctx.store)

    async def erase_user(self, user: str, tenant: str | None = None) -> ErasedUser:
        """Erase all data of a user for good: all spaces with their memories, messages, history,
        settings and checkpoints, the API keys, spooled writes, and lines of the journal.

        Backups and exports are your own files: delete them yourself. If the call is interrupted,
        repeat it. Raises InvalidInput, StoreUnavailable.
        """
        owner = self.scope(user, tenant=tenant).scope
        spooled = 0
        if self.offline is not None:
            spooled = await self.offline.erase_user(owner.tenant, user)
        done = await erase_user(self.ctx, owner.tenant, user)
        return replace(done, spooled=spooled)

    async def export_user(
        self, user: str, tenant: str | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield all data of a user: the records of all spaces, as `import_` reads them, then
        checkpoints, settings, API keys without their secrets, spooled writes, and lines of the
        journal. Raises InvalidInput.
        """
        owner = self.scope(user, tenant=tenant).scope
        async for record in export_user(self.ctx, owner.tenant, user):
            yield record
        if self.offline is not None:
            for record in await self.offline.export_user(owner.tenant, user):
                yield record

    async def import_(
        self,
        records: Iterable[Mapping[str, Any]],
        *,
        restore: bool = False,
    ) -> Receipt:
        """Import exported records, each into its original scope. Importing twice changes nothing.

        Records pass the guard and the person's privacy settings like any other write. With
        `restore`, for your own export, they are stored as they were. Raises InvalidInput at the
        first record that cannot be read; the records before it have been imported.
        """
        how = Import(ctx=self.ctx, restore=restore)
        return await import_records(records, how)

    async def backup(self, path: str | Path) -> None:
        """Write a complete copy of the database while others write."""
        await self.ctx.store.database.backup(Path(path))

    async def vacuum(self) -> None:
        """Return unused space to the file system."""
        await self.ctx.store.database.vacuum()

    async def check(self) -> list[str]:
        """Return the problems found in the stored data; empty if there are none."""
        return await check(self.ctx.store)

    async def close(self) -> None:
        """Finish what is running and close everything."""
        ctx = self.ctx
        async with AsyncExitStack() as stack:  # each part is closed even if another one fails
            for part in (
                ctx.store,
                ctx.reranker,
                ctx.verifier,
                ctx.embedder,
                ctx.multilingual,
                ctx.llm,
                ctx.entities,
                ctx.external_index,
                ctx.access_log,
                ctx.filler,
                self.offline,
            ):
                if part is not None:
                    stack.push_async_callback(part.close)
            for work in (self.background, ctx.extractor):
                if work is not None:
                    await work.close()
