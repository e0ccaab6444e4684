"""The verbs for one scope, async. Each is a few lines over one feature function."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from .context import Context
from .errors import InvalidInput, NotFound
from .extraction import job
from .extraction.job import Extracted
from .ingest import links, policies, validation
from .ingest import pipeline as ingest
from .jobs import expire, summarize
from .jobs.expire import Purged
from .jobs.summarize import SummaryReport
from .manage import (
    access,
    chat_commands,
    edit,
    forget,
    import_export,
    journal,
    privacy,
    recall,
    undo,
)
from .manage.checkpoints import Checkpoints
from .manage.forget import Forgotten, Manner
from .manage.privacy import Consent, Privacy
from .manage.undo import Undone
from .offline.outage import Offline
from .retrieve import explain
from .retrieve import pipeline as retrieve
from .retrieve.profiles import Profile
from .storage.changes import Event
from .storage.history import EventCount, HistoryEntry, Updates
from .storage.llm_usage import LlmUsage
from .telemetry import observed
from .text.clock import new_id
from .types import (
    Conflict,
    Draft,
    Evidence,
    Filter,
    Labels,
    Memory,
    Message,
    Messages,
    Outcome,
    Page,
    Query,
    Reason,
    Recall,
    Receipt,
    Related,
    Scope,
)

BATCH = 256  # drafts in one transaction


def _count_forgotten(done: Forgotten) -> int:
    return 0 if done.dry_run else len(done.ids) + len(done.derived)


class ScopedClient:
    """The memory of one user in one space."""

    def __init__(
        self, ctx: Context, scope: Scope, labels: Labels, offline: Offline | None = None
    ) -> None:
        self.ctx, self.scope, self.labels, self.offline = ctx, scope, labels, offline

    @property
    def checkpoints(self) -> Checkpoints:
        """Save, load, list and delete the state of threads."""
        return Checkpoints(self.ctx, self.scope, self.labels)

    @property
    def privacy(self) -> Privacy:
        """Turn memory on and off in this space, and incognito on and off for a session."""
        return Privacy(self.ctx, self.scope, self.labels)

    @property
    def consent(self) -> Consent:
        """What is known of the person, and what waits for their consent."""
        return Consent(self.ctx, self.scope, self.labels)

    async def remember(
        self,
        what: str | Message | Mapping[str, Any] | Messages,
        *,
        policy: str | None = None,
        at: datetime | str | None = None,
        kind: str | None = None,
        category: str | None = None,
        item_type: str | None = None,
        tags: Sequence[str] = (),
        source_ids: Sequence[str] = (),
        evidence: Sequence[str] = (),
        importance: float | None = None,
        confidence: float = 1.0,
        pinned: bool = False,
        manually_saved: bool = False,
    ) -> Receipt:
        """Store a text or a list of messages.

        When this returns, everything reported as `created` is durable and can be recalled. The same
        message id again changes nothing and gives the same outcome. What is reported as `pending`
        is spooled on disk and stored when the database is available again.
        Raises InvalidInput, StoreUnavailable.
        """
        common = validation.draft_fields(
            kind=kind,
            category=category,
            item_type=item_type,
            tags=tags,
            source_ids=source_ids,
            evidence=evidence,
            importance=importance,
            confidence=confidence,
            pinned=pinned,
            manually_saved=manually_saved,
        )
        longest = self.ctx.settings.max_text_chars
        drafts = validation.drafts(what, self.labels, validation.moment(at), common, longest)
        return await self.remember_drafts(drafts, policy=policy)

    @observed("remember", lambda receipt: len(receipt.ids))
    async def remember_drafts(
        self, drafts: Sequence[Draft], *, policy: str | None = None
    ) -> Receipt:
        """Store drafts, as dialects and importers make them."""
        ctx = self.ctx
        by = policies.find(ctx.policies, policy or ctx.settings.policy, ctx.settings.capacity)
        remember = ingest.remember if self.offline is None else self.offline.remember
        outcomes: builtins.list[Outcome] = []
        for start in range(0, len(drafts), BATCH):
            now = ctx.clock()
            batch = [replace(d, id=new_id(), told_at=now) for d in drafts[start : start + BATCH]]
            done = await remember(ctx, self.scope, batch, by, now)
            if ctx.settings.journal_dir is not None:
                pairs = zip(batch, done, strict=True)
                new = [draft for draft, outcome in pairs if draft.id in outcome.ids]
                await journal.append(ctx, self.scope, new, now)
            outcomes += done
        if ctx.external_index is not None:
            ctx.external_index.notify(self.scope)
        return Receipt(tuple(outcomes))

    @observed("recall", len)
    async def recall(
        self,
        query: str,
        *,
        limit: int | None = None,
        budget: int | None = None,
        max_chars: int | None = None,
        profile: str | Profile | None = None,
        where: Filter | None = None,
        as_of: datetime | str | None = None,
        include_compressed: bool = False,
        rerank: bool | None = None,
        since: int | None = None,
    ) -> Recall:
        """Return the memories that answer a question: at most `limit`, within `budget` tokens.

        Weak evidence gives an empty answer. If a part is unavailable, the rest answers and `legs`
        says so. With `since`, the text begins with what changed in this thread after that revision,
        as `delta` returns it. Raises InvalidInput.
        """
        asked, by = self._query(
            query,
            limit=limit,
            budget=budget,
            max_chars=max_chars,
            profile=profile,
            where=where,
            as_of=as_of,
            include_compressed=include_compressed,
            rerank=rerank,
        )
        why, revision = await privacy.check_recall(self.ctx, self.scope, self.labels.session)
        if why:
            return Recall(
                query=asked, profile=by.name, hits=(), text="", tokens=0, legs={"memory": why}
            )
        ctx, updates, fitted = self.ctx, None, asked
        if since is not None:
            updates, fitted = await recall.reserve_header(ctx, asked, since)
        find = retrieve.recall if self.offline is None else self.offline.recall
        answer = await find(ctx, fitted, by, ctx.clock(), revision=revision)
        await recall.write_back(ctx, fitted, by, answer)
        recall.log_search(ctx, asked, answer)
        return answer if updates is None else recall.add_header(ctx, asked, updates, answer)

    async def feedback(
        self,
        recalled: Recall | Sequence[str],
        *,
        used: Sequence[str] | None = None,
        reply: str | None = None,
    ) -> dict[str, str]:
        """Count a turn, and whether the reply used what was recalled for it.

        Pass the ids that were `used`, or the `reply`, in which ids and echoed words are found.
        Returns the used ids and how that is known: `told`, `cited` or `echoed`. An echo is an
        estimate, made without a language model; no text is stored. Raises InvalidInput.
        """
        return await recall.record_feedback(
            self.ctx, self.scope, self.labels, recalled, used, reply
        )

    async def recall_shared(
        self, query: str, *, limit: int | None = None, budget: int | None = None
    ) -> builtins.list[Recall]:
        """Return what the same person's other spaces share with this one: one answer per space.

        Only spaces in which the person turned sharing on, and only memories with the tag `share:`
        and the name of this space. Raises InvalidInput.
        """
        self._query(query, limit=limit, budget=budget)
        if await self.privacy.disabled_reason():
            return []
        where = Filter(tags=(f"{privacy.SHARED}{self.scope.space}",))
        answers = []
        for scope in await privacy.list_sharing(self.ctx, self.scope):
            other = ScopedClient(self.ctx, scope, Labels(), self.offline)
            answer = await other.recall(query, limit=limit, budget=budget, where=where)
            if answer.hits:
                answers.append(answer)
        return answers

    async def delta(self, since: int | None = None, *, thread: str | None = None) -> Updates:
        """Return what changed in a thread after a revision: at most three lines.

        Without a revision it continues where it stopped the last time. Raises InvalidInput.
        """
        return await recall.read_updates(self.ctx, self.scope, self.labels, since, thread)

    async def query(
        self,
        query: str,
        *,
        agent: str,
        categories: Sequence[str] | None = None,
        filters: Mapping[str, Any] | None = None,
        top_k: int = 3,
        return_: str = "bullets",
        budget_tokens: int = 512,
        threshold: float | None = None,
    ) -> builtins.list[dict[str, Any]]:
        """Return what an agent may read of the answer: `{"id", "category", "text"}` each.

        `return_="full"` adds more fields. Without categories, all that the agent's allowlist names
        are searched, except workflows. `threshold` is the minimum similarity. Raises NotAllowed for
        a category that the agent may not read, InvalidInput.
        """

        async def find(where: Filter, by: Profile) -> Recall:
            return await self.recall(
                query, limit=top_k, budget=budget_tokens, profile=by, where=where
            )

        return await access.query(
            self.ctx,
            self.scope,
            find,
            agent=agent,
            categories=categories,
            filters=filters,
            top_k=top_k,
            shape=return_,
            budget_tokens=budget_tokens,
            threshold=threshold,
        )

    async def why_not(
        self,
        query: str,
        id: str,
        *,
        limit: int | None = None,
        budget: int | None = None,
        profile: str | Profile | None = None,
        where: Filter | None = None,
        as_of: datetime | str | None = None,
        include_compressed: bool = False,
    ) -> Reason:
        """Return the rank of one memory for a question, and why it was returned or left out.

        Raises NotFound.
        """
        asked, by = self._query(
            query,
            limit=limit,
            budget=budget,
            profile=profile,
            where=where,
            as_of=as_of,
            include_compressed=include_compressed,
        )
        await privacy.refuse_incognito(self.ctx, self.scope, self.labels.session)
        memory = await self.get(id)
        return await explain.explain(self.ctx, asked, memory, by, self.ctx.clock())

    def _query(self, text: str, **options: Any) -> tuple[Query, Profile]:
        return recall.build_query(self.ctx, self.scope, self.labels, text, **options)

    async def get(self, id: str) -> Memory:
        """Return one memory, in any state. Raises NotFound."""
        if self.offline is None:
            found = await self.ctx.store.get(self.scope, [str(id)])
        else:
            found = await self.offline.get(self.scope, str(id))
        if not found:
            raise NotFound(f"No memory with id {id!r} in this scope")
        return found[0]

    async def list(
        self, where: Filter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page:
        """Return a page of memories, newest first; pass its `cursor` for the next one.

        Raises InvalidInput.
        """
        validation.number("limit", limit)
        where, limit = validation.where(where), min(limit, 1000)
        return await self.ctx.store.page(self.scope, where, limit=limit, cursor=cursor)

    @observed("edit", lambda _: 1)
    async def edit(
        self,
        id: str,
        text: str | None = None,
        *,
        summary: str | None = None,
        category: str | None = None,
        tags: Sequence[str] | None = None,
        importance: float | None = None,
        revision: int | None = None,
        actor: str | None = None,
    ) -> Memory:
        """Change a memory. The id stays; the version before is kept and can still be read.

        Raises NotFound; InvalidInput if it is not the current version; RevisionConflict if `revision` is
        not its revision.
        """
        await privacy.refuse_incognito(self.ctx, self.scope, self.labels.session)
        fields = {"summary": summary, "category": category, "importance": importance, "tags": tags}
        session = self.labels.session
        return await edit.edit(self.ctx, self.scope, id, text, fields, actor, session, revision)

    async def why(self, id: str) -> Evidence:
        """Return the messages and memories that a memory is based on. Raises NotFound."""
        return await edit.find_evidence(self.ctx.store, await self.get(id))

    async def related(self, id: str, *, limit: int = 10) -> builtins.list[Related]:
        """Return memories about the same thing as a memory, most similar first. Raises NotFound."""
        validation.number("limit", limit)
        return await links.related(self.ctx.store, await self.get(id), limit=limit)

    async def history(
        self, id: str | None = None, *, limit: int = 100
    ) -> builtins.list[HistoryEntry]:
        """Return the history of one memory, or of the scope, newest first. It outlives the memory."""
        validation.number("limit", limit)
        return await self.ctx.store.history.entries(self.scope, id, limit=limit)

    async def events(
        self, *, node: str | None = None, op: str | None = None, limit: int = 100
    ) -> builtins.list[Event]:
        """Return the events of this scope, newest first: what happened when, without any text."""
        validation.number("limit", limit)
        validation.fields({"node": node, "op": op})
        return await self.ctx.store.history.events(self.scope, node=node, op=op, limit=limit)

    async def event_counts(self, *, days: float = 30) -> builtins.list[EventCount]:
        """Return the number of events by day, in the last days."""
        validation.days(days)
        since = self.ctx.clock() - timedelta(days=days)
        return await self.ctx.store.history.event_counts(self.scope, since)

    async def llm_usage(self, *, days: float = 30) -> builtins.list[LlmUsage]:
        """Return the tokens that the language model used here, by day, task and model."""
        since = validation.day(self.ctx.clock(), days)
        return await self.ctx.store.llm_usage.list(self.scope, since)

    async def purge(self, *, dry_run: bool = False) -> Purged:
        """Hide what was not used for long, and erase what was hidden for long enough.

        See the settings `ttl_days` and `purge_days`. What is pinned or manually saved stays.
        With `dry_run` nothing is changed.
        """
        return await expire.purge(self.ctx, self.scope, dry_run=dry_run)

    async def extract(self, id: str) -> Extracted:
        """Extract facts from a turn of a conversation now.

        By a language model if the setting `extract` says so, otherwise by rules. Each fact names
        that memory as its source and is forgotten with it. What cannot be stored is returned with
        the reason. Raises NotFound, RevisionConflict if it was changed meanwhile.
        """
        memory, ctx = await self.get(id), self.ctx
        if why := await self.privacy.disabled_reason(memory.labels.session):
            return Extracted(by="nobody", why=why)
        settings = ctx.settings
        policy = policies.find(ctx.policies, settings.policy, settings.capacity)
        return await job.draw([id], self.scope, ctx, policy=policy)

    async def compress(
        self, *, threshold: int | None = None, sessions: int | None = None, dry_run: bool = False
    ) -> SummaryReport:
        """Summarize the oldest sessions, each in one memory, if there are more than the threshold.

        The originals are kept behind the summary and come back with `include_compressed`, or by
        `restore`. With `dry_run` nothing is changed. Raises InvalidInput.
        """
        least = self.ctx.settings.compression_threshold if threshold is None else threshold
        validation.number("threshold", least)
        if sessions is not None:
            validation.number("sessions", sessions)
        return await summarize.compress(
            self.ctx, self.scope, threshold=least, sessions=sessions, dry_run=dry_run
        )

    async def roll_up(
        self, *, days: float = summarize.DAYS, dry_run: bool = False
    ) -> SummaryReport:
        """Merge each topic among what was not used for so many days into one memory.

        The originals are archived behind it and can be restored. With `dry_run` nothing is changed.
        Raises InvalidInput.
        """
        validation.days(days)
        return await summarize.roll_up(self.ctx, self.scope, days=days, dry_run=dry_run)

    async def pin(self, id: str, *, actor: str | None = None) -> Memory:
        """Protect a memory from being trimmed, expired or left out. Raises NotFound."""
        return await edit.set_pinned(self.ctx, self.scope, self.labels, id, True, actor)

    async def unpin(self, id: str, *, actor: str | None = None) -> Memory:
        """Remove the pin. Raises NotFound."""
        return await edit.set_pinned(self.ctx, self.scope, self.labels, id, False, actor)

    @observed("forget", _count_forgotten)
    async def forget(
        self,
        id: str,
        *,
        reason: str = "",
        keep_days: float = 0,
        never_again: bool = False,
        actor: str | None = None,
    ) -> Forgotten:
        """Erase a memory everywhere, with what is based on it alone; what has other sources is marked.

        Automatic writes do not bring it back for a while, or never. With `keep_days` it is only
        hidden, and can be restored for that long. A spooled write is removed from its file.
        Raises NotFound; StoreUnavailable, because no file can keep this promise.
        """
        manner = Manner(
            reason=reason,
            actor=actor,
            keep_days=keep_days,
            never_again=never_again,
            session=self.labels.session,
        ).check()
        return await self._forget([str(id)], manner)

    @observed("forget", _count_forgotten)
    async def forget_where(
        self,
        query: str | None = None,
        *,
        where: Filter | None = None,
        dry_run: bool = True,
        reason: str = "",
        keep_days: float = 0,
        never_again: bool = False,
        actor: str | None = None,
    ) -> Forgotten:
        """Forget all that a query finds or a filter matches; by default only list it.

        `where=Filter(ids=…)` with the ids of a dry run forgets exactly those.
        Raises InvalidInput if neither is given.
        """
        manner = Manner(
            reason=reason,
            actor=actor,
            keep_days=keep_days,
            never_again=never_again,
            session=self.labels.session,
        ).check()
        ids = await forget.find(self.ctx, self.scope, self.labels, query, where)
        if dry_run:
            return await forget.preview(self.ctx, self.scope, ids)
        return await self._forget(ids, manner)

    async def _forget(self, ids: Sequence[str], manner: Manner) -> Forgotten:
        """Forget memories; what is only spooled is removed from its file."""
        rest = [*ids]
        if self.offline is not None:
            rest = await self.offline.forget(self.scope, ids)
            if not rest:
                return Forgotten(ids=tuple(ids))
        done = await forget.forget(self.ctx, self.scope, rest, manner)
        return replace(done, ids=tuple(ids))

    async def undo(
        self,
        operation: str | None = None,
        *,
        session: str | None = None,
        dry_run: bool = False,
        actor: str | None = None,
    ) -> Undone:
        """Undo one operation of the history (`meta` names it), or everything a session did.

        New memories are hidden and can be restored for 30 days; changed ones are as before. It is
        in the history and can itself be undone; an erasure cannot. Raises NotFound; RevisionConflict if
        something was changed later.
        """
        return await undo.undo(
            self.ctx, self.scope, self.labels, operation, session, dry_run=dry_run, actor=actor
        )

    async def restore(self, id: str, *, actor: str | None = None) -> Memory:
        """Restore a memory that was trimmed, expired, archived or hidden.

        Raises NotFound; InvalidInput if there is nothing to restore.
        """
        memory = await self.get(id)
        if memory.state in ("active", "superseded"):
            raise InvalidInput(f"Memory {id!r} is {memory.state}: there is nothing to restore")
        return await edit.restore(self.ctx, self.scope, self.labels, id, actor)

    async def conflicts(self, *, limit: int = 100) -> builtins.list[Conflict]:
        """Return newer statements that replaced older ones and wait for a decision, newest first."""
        validation.number("limit", limit)
        return await edit.list_conflicts(self.ctx.store, self.scope, limit=limit)

    async def confirm(self, id: str, *, actor: str | None = None) -> Memory:
        """Keep the newer memory of a conflict; the older one stays readable. Raises NotFound."""
        return await edit.confirm(self.ctx, self.scope, id, actor)

    async def reject(self, id: str, *, actor: str | None = None) -> Memory:
        """Put the older memory of a conflict back in place of the newer one. Raises NotFound."""
        return await edit.reject(self.ctx, self.scope, id, actor)

    async def command(
        self,
        text: str,
        *,
        role: str | None = "user",
        name: str | None = None,
        about: Sequence[str] = (),
    ) -> chat_commands.Reply | None:
        """Carry out what a person tells the memory in a chat; None if the text is no command.

        "What do you remember about …?", "forget that", "pin this", "turn memory off", "start
        incognito for this chat" and the like, if they are the whole message. `about` names the
        memories or proposals that were mentioned last; if "that" is ambiguous, the reply asks.
        Commands of anyone but the person are ignored.
        """
        return await chat_commands.act(
            self.ctx, self.scope, self.labels, text, role=role, name=name, about=about
        )

    async def overview(self) -> str:
        """Return what is stored here for people to read: counts, pinned, and newest by topic."""
        return await recall.overview(self.ctx, self.scope)

    async def stats(self) -> dict[str, Any]:
        """Return counts of this scope."""
        return await self.ctx.store.stats(self.scope, self.ctx.index.model)

    def export(self) -> AsyncIterator[dict[str, Any]]:
        """Yield everything stored in this scope, record by record, as `import_` reads it."""
        return import_export.export_records(self.ctx.store, self.scope)

    async def import_(
        self, records: Iterable[Mapping[str, Any]], *, restore: bool = False
    ) -> Receipt:
        """Import exported records or messages (`content`, `role`, …) into this scope.

        Records pass the guard and the person's privacy settings like any other write, and have no
        more authority than their speaker. With `restore`, for an export of your own, they are
        stored as they were. Raises InvalidInput.
        """
        how = import_export.Import(
            ctx=self.ctx,
            scope=self.scope,
            labels=self.labels,
            remember=self.remember,
            restore=restore,
        )
        return await import_export.import_records(records, how)
