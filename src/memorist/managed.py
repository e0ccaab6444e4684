"""The verbs that inspect, correct and maintain what is stored in one scope, async."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Unpack

from .context import Context, Place, observed
from .errors import InvalidInput
from .extraction import Extracted, draw
from .ingest import links, validation
from .ingest.links import Related
from .ingest.validation import Where
from .jobs.expire import purge
from .jobs.rollup import roll_up
from .jobs.summarize import compress
from .manage import edit, forget, topics
from .manage.checkpoints import Checkpoints
from .manage.edit import edit_memory
from .manage.forget import ForgetOptions, Forgotten, Manner, make_plan
from .manage.privacy import Consent, Privacy
from .manage.undo import undo_changes
from .offline import Offline
from .ports import LlmUsage
from .retrieve import render
from .storage import Event, HistoryEntry
from .storage.history import EventCount
from .storage.scan import export, find_evidence
from .types import Conflict, Evidence, Filter, Labels, Memory, Page, Scope

OVERVIEW = 40  # memories that an overview shows


def _count_forgotten(done: Forgotten) -> int:
    return 0 if done.dry_run else len(done.ids) + len(done.derived)


class ManagedScope(Place):
    """What is stored for one user in one space."""

    def __init__(
        self,
        ctx: Context,
        scope: Scope,
        labels: Labels,
        offline: Offline | None = None,
    ) -> None:
        super().__init__(ctx, scope, labels)
        self.offline = offline
        self.recall_offline = None if offline is None else offline.recall

    @property
    def checkpoints(self) -> Checkpoints:
        """Save, load, list and delete the state of threads."""
        return Checkpoints(*self.parts)

    @property
    def privacy(self) -> Privacy:
        """Turn memory on and off in this space, and incognito on and off for a session."""
        return Privacy(*self.parts)

    @property
    def consent(self) -> Consent:
        """What is known of the person, and what waits for their consent."""
        return Consent(*self.parts)

    async def get(self, id: str) -> Memory:
        """Return one memory, in any state. Raises NotFound."""
        if self.offline is None:
            return await edit.load(self.ctx.store, self.scope, id)
        return await self.offline.get(self.scope, str(id))

    async def why(self, id: str) -> Evidence:
        """Return the messages and memories that a memory is based on. Raises NotFound."""
        return await find_evidence(self.ctx.store, await self.get(id))

    async def related(self, id: str, *, limit: int = 10) -> list[Related]:
        """Return memories about the same thing as a memory, most similar first. Raises NotFound."""
        validation.number("limit", limit)
        return await links.related(self.ctx.store, await self.get(id), limit=limit)

    async def history(
        self,
        id: str | None = None,
        *,
        limit: int = 100,
    ) -> list[HistoryEntry]:
        """Return the history of one memory, or of the scope, newest first.

        The history of a memory remains when the memory is gone.
        """
        validation.number("limit", limit)
        return await self.ctx.store.history.entries(self.scope, id, limit=limit)

    async def events(
        self,
        *,
        node: str | None = None,
        op: str | None = None,
        limit: int = 100,
    ) -> list[Event]:
        """Return the events of this scope, newest first: what happened and when, without text."""
        validation.number("limit", limit)
        validation.fields({"node": node, "op": op})
        history = self.ctx.store.history
        return await history.events(self.scope, node=node, op=op, limit=limit)

    async def event_counts(self, *, days: float = 30) -> list[EventCount]:
        """Return the number of events of each of the last days."""
        validation.days(days)
        since = self.ctx.clock() - timedelta(days=days)
        return await self.ctx.store.history.event_counts(self.scope, since)

    async def llm_usage(self, *, days: float = 30) -> list[LlmUsage]:
        """Return the tokens that the language model used here, by day, task and model."""
        since = validation.day(self.ctx.clock(), days)
        return await self.ctx.store.llm_usage.list(self.scope, since)

    async def conflicts(self, *, limit: int = 100) -> list[Conflict]:
        """Return statements that replaced older ones and await a decision, newest first."""
        validation.number("limit", limit)
        return await edit.list_conflicts(self.ctx.store, self.scope, limit=limit)

    async def confirm(
        self,
        id: str,
        *,
        actor: str | None = None,
    ) -> Memory:
        """Keep the newer memory of a conflict; the older one stays readable. Raises NotFound."""
        return await edit.decide(self, id, actor, decision="confirmed")

    async def reject(
        self,
        id: str,
        *,
        actor: str | None = None,
    ) -> Memory:
        """Restore the older memory of a conflict and drop the newer one. Raises NotFound."""
        return await edit.decide(self, id, actor, decision="rejected")

    async def keep_both(
        self,
        id: str,
        *,
        actor: str | None = None,
    ) -> Memory:
        """Keep both memories of a conflict: neither replaces the other. Raises NotFound."""
        return await edit.decide(self, id, actor, decision="both")

    edit = edit_memory

    async def pin(
        self,
        id: str,
        *,
        actor: str | None = None,
    ) -> Memory:
        """Protect a memory from being trimmed, expired or left out. Raises NotFound, NotAllowed."""
        self.voice.require_owner("Pinning")
        return await edit.change(self, id, "updated", {"pinned": True}, actor)

    async def unpin(
        self,
        id: str,
        *,
        actor: str | None = None,
    ) -> Memory:
        """Remove the pin. Raises NotFound, NotAllowed."""
        self.voice.require_owner("Unpinning")
        return await edit.change(self, id, "updated", {"pinned": False}, actor)

    async def restore(
        self,
        id: str,
        *,
        actor: str | None = None,
    ) -> Memory:
        """Restore a memory that was trimmed, expired, archived or hidden.

        Raises NotFound; InvalidInput if there is nothing to restore, or if it is an earlier version,
        which is restored with its memory.
        """
        memory = await self.get(id)
        if memory.state in ("active", "superseded"):
            raise InvalidInput(f"Memory {id!r} is {memory.state}: there is nothing to restore")
        fields = {"state": "active", "purge_at": None}
        newer = memory.superseded_by
        for current in await self.ctx.store.get(self.scope, [newer] if newer else []):
            if current.state == "soft_deleted":
                raise InvalidInput(
                    f"Memory {id!r} is an earlier version of {newer!r}: restore that instead"
                )
            fields["state"] = "superseded"
        return await edit.change(self, id, "restored", fields, actor)

    @observed("forget", _count_forgotten)
    async def forget(
        self,
        id: str,
        **options: Unpack[ForgetOptions],
    ) -> Forgotten:
        """Erase a memory everywhere, and memories based on it alone; flag those with other sources.

        Automatic writes cannot bring it back for a while; with `never_again`, they never can. With
        `keep_days` it is only hidden, and can be restored for that long. A spooled write is removed
        from its file. Raises NotFound; StoreUnavailable, because a forget is never spooled.
        """
        validation.options("forget", options, ForgetOptions)
        manner = Manner(**options)
        return await self._forget([str(id)], manner)

    @observed("forget", _count_forgotten)
    async def forget_where(
        self,
        query: str | None = None,
        *,
        where: Where | None = None,
        dry_run: bool = True,
        **options: Unpack[ForgetOptions],
    ) -> Forgotten:
        """Forget what a query means or all that a filter matches; by default only list it.

        A query may mean something else, so it is forgotten only if it is one memory that has the
        words of the query next to each other, or a replaced one for "my old address".
        `where=Filter(ids=…)` with the ids of a dry run forgets exactly those.
        Raises InvalidInput if neither is given, or if it is not certain what a query means.
        """
        validation.options("forget_where", options, ForgetOptions)
        manner = Manner(**options)
        ids = await topics.select(self, query, where)
        if dry_run:
            plan = await make_plan(self.ctx.store, self.scope, ids)
            return replace(plan.report, dry_run=True)
        if query:
            await forget.require_one(self, query, ids)
            if self.offline is not None:
                ids += await self.offline.find_aside(self.scope, query)
        return await self._forget(ids, manner)

    @observed("forget", _count_forgotten)
    async def forget_all(
        self,
        *,
        dry_run: bool = True,
        **options: Unpack[ForgetOptions],
    ) -> Forgotten:
        """Forget all memories of this scope, in any state; by default only list them.

        If the scope has labels, such as a session, only memories with these labels are forgotten.
        What was approved for the profile stays until it is withdrawn. Raises NotAllowed.
        """
        validation.options("forget_all", options, ForgetOptions)
        self.voice.require_owner("Forgetting everything")
        where = Filter(states=(), labels=self.labels)
        ids = await self.ctx.store.rows_where(self.scope, where, "id")
        if self.offline is not None and self.labels == Labels():
            ids += await self.offline.find_aside(self.scope, None)
        if dry_run:
            return Forgotten(ids=tuple(ids), dry_run=True)
        return await self._forget(ids, Manner(**options))

    async def _forget(self, ids: Sequence[str], manner: Manner) -> Forgotten:
        """Forget memories; what is only spooled is removed from its file."""
        stored = ids
        if self.offline is not None:
            until = manner.tombstone_end(self.ctx, self.ctx.clock())
            stored = await self.offline.forget(self.scope, ids, until)
        done = Forgotten()
        if stored:
            done = await forget.forget(self, stored, manner)
        return replace(done, ids=tuple(ids))

    undo = undo_changes

    async def extract(self, id: str) -> Extracted:
        """Extract facts from a turn of a conversation now.

        The setting `extract` decides whether a language model or rules do it. Each fact names that
        memory as its source and is forgotten with it. What cannot be stored is returned with the
        reason. Raises NotFound; RevisionConflict if the memory was changed at the same time.
        """
        memory = await self.get(id)
        ctx = self.ctx
        if why := await self.privacy.disabled_reason(memory.labels.session):
            return Extracted(by="none", why=why)
        with ctx.storing():  # otherwise a model could be asked twice
            return await draw([[id]], self.scope, ctx, policy=ctx.policy)

    compress = compress
    roll_up = roll_up
    purge = purge

    async def overview(self) -> str:
        """Return an overview for people: counts, pinned memories, and the newest by topic."""
        pinned = await self.list(Filter(pinned=True), limit=OVERVIEW)
        rest = await self.list(Filter(pinned=False), limit=OVERVIEW)
        shown = (*pinned, *rest)[:OVERVIEW]
        stats = await self.stats()
        states = sorted(stats["states"].items())
        counts = [f"{count} {state.replace('_', ' ')}" for state, count in states]
        summary = ", ".join(counts) or "nothing is remembered here"
        title = f"# {render.safe(self.scope.space)}: {summary}"
        return f"{title}\n{render.grouped(shown)}".strip()

    async def stats(self) -> dict[str, Any]:
        """Return counts of this scope."""
        return await self.ctx.store.stats(self.scope, self.ctx.index.model)

    def export(self) -> AsyncIterator[dict[str, Any]]:
        """Yield everything stored in this scope, record by record, as `import_` reads it."""
        return export(self.ctx.store, [self.scope])

    # Keep this verb last: below it, `list` in an annotation would mean the method.
    async def list(
        self,
        where: Where | None = None,
        *,
        tags: Sequence[str] = (),
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """Return a page of memories, newest first; pass its `cursor` for the next one.

        `where` is a Filter or a dict of its fields; `tags` selects memories with one of these tags.
        Raises InvalidInput.
        """
        validation.number("limit", limit)
        validation.texts("tags", tags)
        where = validation.where(where)
        where = replace(where, unexpired_at=self.ctx.clock(), tags=tuple(tags) or where.tags)
        limit = min(limit, 1000)
        store = self.ctx.store
        # Versions that were hidden with their memory are listed only together with all versions.
        is_current = bool(where.states) and "superseded" not in where.states
        return await store.page(self.scope, where, limit=limit, cursor=cursor, current=is_current)
