"""The verbs, for one scope, async."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from .context import Context
from .errors import InvalidInput, NotFound, ProviderFailed, StoreUnavailable
from .extraction import job
from .extraction.job import Extracted
from .ingest import links, messages, policies, trim
from .ingest import pipeline as ingest
from .jobs import compress, expire
from .jobs import roll_up as rollup
from .jobs.summarize import SummaryReport
from .manage import (
    agent_query,
    chat_commands,
    conflicts,
    delta,
    import_export,
    journal,
    privacy,
    undo,
    validation,
)
from .manage import edit as revisions
from .manage import forget as forgetting
from .manage.checkpoints import Checkpoints
from .manage.consent import Consent
from .manage.privacy import Privacy
from .offline import Offline
from .results import Entry, Forgotten, Page, Purged, Spending, Tally, Undone, Updates
from .retrieve import explain, profiles, render
from .retrieve import pipeline as retrieve
from .storage.changes import Happened, Shown, Used
from .storage.paging import matching
from .telemetry.instrumentation import observed
from .text import compare, normalize
from .text.clock import new_id
from .types import (
    Conflict,
    Draft,
    Event,
    Evidence,
    Filter,
    Labels,
    Memory,
    Message,
    Messages,
    Outcome,
    Query,
    Reason,
    Recall,
    Receipt,
    Related,
    Scope,
)

BATCH = 256  # drafts in one transaction
OVERVIEW = 40  # memories that an overview shows


def _gone(done: Forgotten) -> int:
    return 0 if done.dry_run else len(done.ids) + len(done.derived)


class ScopedClient:
    """The verbs, for one scope."""

    def __init__(
        self, ctx: Context, scope: Scope, labels: Labels, offline: Offline | None = None
    ) -> None:
        self.ctx, self.scope, self.labels, self.offline = ctx, scope, labels, offline

    @property
    def checkpoints(self) -> Checkpoints:
        """Where the threads of this scope stood: save, load, list and delete."""
        ctx = self.ctx
        most = ctx.settings.max_checkpoint_mb << 20
        hidden = partial(privacy.refuse_incognito, ctx, self.scope, self.labels.session)
        return Checkpoints(
            ctx.store.checkpoints(self.scope), clock=ctx.clock, most_bytes=most, admit=hidden
        )

    @property
    def privacy(self) -> Privacy:
        """Whether anything is remembered here: on and off for the space, and sessions that leave no trace."""
        return Privacy(self.ctx, self.scope, self.labels)

    @property
    def consent(self) -> Consent:
        """What is known of the person, and what waits for their word: propose, list, approve and deny."""
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
        """Take in a text, or messages; when it returns, what the receipt calls created is on disk and can be recalled.

        The same message id again changes nothing and gives the same outcome. What the receipt calls pending waits on
        disk for a store that is away, and is taken in when it is back. Raises InvalidInput, StoreUnavailable.
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
        made = self._drafts(what, messages.moment(at), common)
        return await self.remember_drafts(made, policy=policy)

    @observed("remember", lambda receipt: len(receipt.ids))
    async def remember_drafts(self, made: Sequence[Draft], *, policy: str | None = None) -> Receipt:
        """Take in drafts that are already made, as dialects and importers do."""
        ctx = self.ctx
        by = policies.named(policy or ctx.settings.policy, ctx.settings.capacity)
        remember = ingest.remember if self.offline is None else self.offline.remember
        outcomes: builtins.list[Outcome] = []
        for start in range(0, len(made), BATCH):
            now = ctx.clock()
            named = [
                replace(draft, id=new_id(), told_at=now) for draft in made[start : start + BATCH]
            ]
            done = await remember(ctx, self.scope, named, by, now)
            if (written := journal.journal_of(ctx)) is not None:
                new = [
                    draft
                    for draft, outcome in zip(named, done, strict=True)
                    if draft.id in outcome.ids
                ]
                await journal.noted(written, ctx.store, self.scope, new, now)
            outcomes += done
        if ctx.external_index is not None:
            ctx.external_index.notify(self.scope)
        return Receipt(tuple(outcomes))

    def _drafts(
        self, what: Any, at: datetime | None, common: dict[str, Any]
    ) -> builtins.list[Draft]:
        most = self.ctx.settings.max_text_chars
        if isinstance(what, str):
            validation.text(what, most)
            return [
                Draft(
                    text=normalize.storable(what),
                    labels=self.labels,
                    speaker=self.labels.role,
                    at=at,
                    **common,
                )
            ]
        given = [what] if isinstance(what, (Message, Mapping)) else what
        if not isinstance(given, Sequence) or isinstance(given, (bytes, bytearray)):
            raise InvalidInput(
                f"remember takes a text or a list of messages, not {type(what).__name__}"
            )
        said = messages.conversation([messages.message(each, self.labels) for each in given])
        for each in said:
            validation.size(each.content, most)
        return [messages.draft(each, self.labels, common) for each in said]

    @observed("recall", len)
    async def recall(
        self,
        query: str,
        *,
        limit: int | None = None,
        budget: int | None = None,
        max_chars: int | None = None,
        profile: str | profiles.Profile | None = None,
        where: Filter | None = None,
        as_of: datetime | str | None = None,
        include_compressed: bool = False,
        rerank: bool | None = None,
        since: int | None = None,
    ) -> Recall:
        """What is remembered that answers the question: at most `limit` memories within `budget` tokens.

        Weak evidence gives an empty answer. If a part is away, the rest answers and `legs` says so. With `since` the
        text begins with what changed in this thread after that revision, as `delta` tells it. Raises InvalidInput.
        """
        asked, by = self._query(
            query, limit, budget, max_chars, profile, where, as_of, include_compressed, rerank
        )
        if why := await self.privacy.disabled_reason():
            return Recall(
                query=asked, profile=by.name, hits=(), text="", tokens=0, legs={"memory": why}
            )
        count = self.ctx.count_tokens
        news = None if since is None else delta.fitting(await self._news(since), asked, count)
        answer = await self._answer(asked if news is None else delta.beside(news, asked, count), by)
        best = max((hit.relevance for hit in answer.hits), default=None)
        line = Happened(
            node="context",
            op="search",
            at=self.ctx.clock(),
            thread=self._thread(None),
            sim=best,
        )
        self.ctx.access_log.note(self.scope, [line])
        return answer if news is None else delta.before(news, answer, asked, count)

    async def feedback(
        self,
        recalled: Recall | Sequence[str],
        *,
        used: Sequence[str] | None = None,
        reply: str | None = None,
    ) -> dict[str, str]:
        """Count a turn, and whether what was recalled for it, an answer or ids, went into the reply: those `used`, or
        those that the `reply` cites by id or echoes.

        Gives their ids and how each is known: `told`, `cited` or `echoed`. An echo is an estimate, made without a
        language model. No word is kept: `tallies` has `use`, of status `skipped` where none was used. Raises
        InvalidInput.
        """
        if (used is None) == (reply is None):
            raise InvalidInput("Say either which memories were `used` or what the `reply` was")
        ctx, asked = self.ctx, ""
        if isinstance(recalled, Recall):
            memories, asked = [*recalled.memories], recalled.query.text
        else:
            validation.texts("recalled", recalled)
            memories = await ctx.store.get(self.scope, recalled)
        if reply is not None:
            validation.fields({"reply": reply})
            validation.size(reply, ctx.settings.max_text_chars)
            found = compare.find_used(reply, memories, asked=asked, language=ctx.settings.language)
        else:
            validation.texts("used", used)
            found = {memory.id: "told" for memory in memories if memory.id in (used or ())}
        if not await self.privacy.disabled_reason():
            line = Happened(
                node="context", op="use", at=ctx.clock(), status="ok" if found else "skipped"
            )
            ctx.access_log.note(self.scope, [replace(line, thread=self._thread(None))])
        return found

    async def recall_shared(
        self, query: str, *, limit: int | None = None, budget: int | None = None
    ) -> builtins.list[Recall]:
        """What the same person's other spaces share with this one: an answer for each that has one.

        Only where the person turned sharing on there, and only memories with the tag `share:` and the name of this
        space. Each memory's scope names the space it comes from. Raises InvalidInput.
        """
        self._query(query, limit, budget, None, None, None, None, False, None)
        if await self.privacy.disabled_reason():
            return []
        where = Filter(tags=(f"{privacy.SHARED}{self.scope.space}",))
        others = [
            ScopedClient(self.ctx, each, Labels(), self.offline)
            for each in await privacy.sharing(self.ctx, self.scope)
        ]
        found = [
            await each.recall(query, limit=limit, budget=budget, where=where) for each in others
        ]
        return [answer for answer in found if answer.hits]

    async def _news(self, since: int) -> Updates:
        """What changed, or nothing yet while the store is away."""
        try:
            return await self.delta(since)
        except StoreUnavailable:
            return Updates(thread="", since=since, revision=since, changes=(), text="")

    def _thread(self, named: str | None) -> str | None:
        return named or self.labels.thread or self.labels.session

    async def delta(self, since: int | None = None, *, thread: str | None = None) -> Updates:
        """What changed in a thread after a revision, at most three lines, and from where to ask again.

        Without a revision it goes on where it stopped the last time. Raises InvalidInput.
        """
        validation.fields({"thread": thread})
        name = self._thread(thread)
        if name is None or isinstance(since, bool) or not isinstance(since, int | None):
            raise InvalidInput(
                "Say which thread, here or with `scope(…, thread=…)`, and a whole number as revision"
            )
        if await self.privacy.disabled_reason(name if thread else None):
            return Updates(thread=name, since=since or 0, revision=since or 0, changes=(), text="")
        tell = partial(delta.told, scope=self.scope, thread=name, line=render.update)
        if since is not None:
            return await tell(self.ctx.store, since=since)
        async with self.ctx.store.transaction(self.scope) as tx:
            news = await tell(tx, since=await tx.shown(self.scope, name))
            await tx.apply([Shown(thread=name, revision=news.revision)])
        return news

    async def _looked_up(
        self, text: str, limit: int, where: Filter | None = None
    ) -> tuple[Memory, ...]:
        """What answers, also while memory is off, because the person looks; an incognito session leaves no vector."""
        asked, by = self._query(text, limit, 1 << 20, None, None, where, None, True, None)
        is_hidden = await self.privacy.disabled_reason() == privacy.INCOGNITO
        parts = replace(self._retrieve(), embedder=None) if is_hidden else self._retrieve()
        return (await retrieve.recall(asked, by, parts, self.ctx.clock())).memories

    async def _traced(self) -> str | None:
        """The session as the history may name it: not at all, if it is incognito."""
        return (
            None
            if await self.privacy.disabled_reason() == privacy.INCOGNITO
            else self.labels.session
        )

    async def _answer(self, asked: Query, by: profiles.Profile) -> Recall:
        now = self.ctx.clock()
        recall = retrieve.recall if self.offline is None else self.offline.recall
        answer = await recall(asked, by, self._retrieve(), now)
        uses = [
            Used(
                memory_id=hit.memory.id, at=now, scores=trim.scores(hit.memory, hit.relevance, now)
            )
            for hit in answer.hits
        ]
        if uses and by.scores_first:
            with suppress(
                ProviderFailed
            ):  # an answer does not fail because its statistics cannot be written
                async with self.ctx.store.transaction(self.scope) as tx:
                    await tx.apply(uses)
        elif uses:
            self.ctx.access_log.note(self.scope, uses)
        return answer

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
        """What an agent may read of what answers: `{"id", "category", "text"}` each, or with `return_="full"` more.

        Without categories it is asked about all that its allowlist names, but for how-tos. `threshold` is the least
        similarity. Raises NotAllowed for a category the agent may not read, InvalidInput.
        """
        asked = agent_query.Request(
            agent=agent,
            categories=categories,
            filters=filters,
            top_k=top_k,
            shape=return_,
            budget_tokens=budget_tokens,
            threshold=threshold,
        )

        async def recall(where: Filter, by: profiles.Profile) -> Recall:
            return await self.recall(
                query, limit=top_k, budget=budget_tokens, profile=by, where=where
            )

        return await agent_query.answered(
            asked, self.scope, self.ctx.allowlists, recall, self.ctx.count_tokens
        )

    async def why_not(
        self,
        query: str,
        id: str,
        *,
        limit: int | None = None,
        budget: int | None = None,
        profile: str | profiles.Profile | None = None,
        where: Filter | None = None,
        as_of: datetime | str | None = None,
        include_compressed: bool = False,
    ) -> Reason:
        """Where one memory stands for a question, and why it was returned or left out. Raises NotFound."""
        asked, by = self._query(
            query, limit, budget, None, profile, where, as_of, include_compressed, None
        )
        await privacy.refuse_incognito(self.ctx, self.scope, self.labels.session)
        memory = await self.get(id)
        return await explain.stands(asked, memory, by, self._retrieve(), self.ctx.clock())

    def _query(
        self,
        text: str,
        limit: int | None,
        budget: int | None,
        max_chars: int | None,
        profile: str | profiles.Profile | None,
        where: Filter | None,
        as_of: datetime | str | None,
        include_compressed: bool,
        rerank: bool | None,
    ) -> tuple[Query, profiles.Profile]:
        if not isinstance(text, str):
            raise InvalidInput(f"A question is text, not {type(text).__name__}")
        for name, value in (("limit", limit), ("budget", budget), ("max_chars", max_chars)):
            if value is not None:
                validation.number(name, value)
        settings = self.ctx.settings
        by = (
            profile
            if isinstance(profile, profiles.Profile)
            else profiles.named(profile or settings.profile)
        )
        if rerank is not None:
            by = replace(by, rerank=rerank)
        return Query(
            text=normalize.storable(text[: settings.max_query_chars]),
            scope=self.scope,
            limit=limit or (by.limit if budget is None else by.most),
            budget=budget or by.budget,
            max_chars=max_chars,
            where=validation.where(where),
            as_of=messages.moment(as_of),
            labels=self.labels,
            include_compressed=include_compressed,
        ), by

    def _retrieve(self) -> retrieve.Retrieve:
        ctx = self.ctx
        return retrieve.Retrieve(
            store=ctx.store,
            corpora=ctx.index,
            embedder=ctx.embedder,
            reranker=ctx.reranker,
            count=ctx.count_tokens,
            language=ctx.settings.language,
            index=ctx.external_index,
        )

    async def get(self, id: str) -> Memory:
        """One memory, in whatever state. Raises NotFound."""
        ctx = self.ctx
        found = await (ctx.store if self.offline is None else self.offline).get(
            self.scope, [str(id)]
        )
        if not found:
            raise NotFound(f"No memory with id {id!r} in this scope")
        return found[0]

    async def list(
        self, where: Filter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page:
        """A page of memories, newest first; pass its `cursor` for the next one. Raises InvalidInput."""
        validation.number("limit", limit)
        return await self.ctx.store.page(
            self.scope, validation.where(where), limit=min(limit, 1000), cursor=cursor
        )

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

        Raises NotFound; InvalidInput if it is not the current version; Conflict if `revision` is not the one it has.
        """
        if text is not None:
            validation.text(text, self.ctx.settings.max_text_chars)
        await privacy.refuse_incognito(self.ctx, self.scope, self.labels.session)
        given = {"summary": summary, "category": category, "importance": importance, "tags": tags}
        fields: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        validation.fields(fields)
        if summary is not None and len(summary) > 280:
            raise InvalidInput(f"A summary has at most 280 characters, not {len(summary)}")
        if tags is not None:
            fields["tags"] = tuple(dict.fromkeys(tag.lower() for tag in tags))
        return await revisions.edited(
            self.ctx, self.scope, id, text, fields, actor, self.labels.session, revision
        )

    async def why(self, id: str) -> Evidence:
        """What a memory rests on: the messages and memories it came from. Raises NotFound."""
        return await revisions.evidence(self.ctx.store, await self.get(id))

    async def related(self, id: str, *, limit: int = 10) -> builtins.list[Related]:
        """What is remembered about the same as a memory, nearest first. Raises NotFound."""
        validation.number("limit", limit)
        return await links.related(self.ctx.store, await self.get(id), limit=limit)

    async def history(self, id: str | None = None, *, limit: int = 100) -> builtins.list[Entry]:
        """What happened to one memory, or in the whole scope, newest first. It outlives the memory."""
        validation.number("limit", limit)
        return await self.ctx.store.history(self.scope, id, limit=limit)

    async def events(
        self, *, node: str | None = None, op: str | None = None, limit: int = 100
    ) -> builtins.list[Happened]:
        """What the parts did, newest first: how often and when, never what was said."""
        validation.number("limit", limit)
        validation.fields({"node": node, "op": op})
        return await self.ctx.store.events(self.scope, node=node, op=op, limit=limit)

    async def event_counts(self, *, days: float = 30) -> builtins.list[Tally]:
        """How often the parts did what, day by day, in the last days."""
        validation.days(days)
        return await self.ctx.store.tallies(self.scope, self.ctx.clock() - timedelta(days=days))

    async def llm_usage(self, *, days: float = 30) -> builtins.list[Spending]:
        """What the language model cost here in the last days, by day, task and model."""
        return await self.ctx.store.spending(self.scope, validation.day(self.ctx.clock(), days))

    async def purge(self, *, dry_run: bool = False) -> Purged:
        """Put away what nobody used for long, and erase what was put away for long enough; see the settings.

        What is pinned or was saved on purpose stays. With `dry_run` it only says what would go.
        """
        return await expire.purge(self.ctx, self.scope, dry_run=dry_run)

    async def extract(self, id: str) -> Extracted:
        """Draw facts out of what somebody said in a conversation, now: by a language model if the setting `extract`
        says so and one is there, otherwise by rules.

        Each rests on that memory, and goes with it. What cannot be drawn or kept is told with the reason. Raises
        NotFound, Conflict if it was changed meanwhile.
        """
        memory, ctx = await self.get(id), self.ctx
        if why := await self.privacy.disabled_reason(memory.labels.session):
            return Extracted(by="nobody", why=why)
        policy = policies.named(ctx.settings.policy, ctx.settings.capacity)
        return await job.draw([id], self.scope, ctx, policy=policy)

    async def compress(
        self, *, threshold: int | None = None, sessions: int | None = None, dry_run: bool = False
    ) -> SummaryReport:
        """Sum up the oldest sessions, each in one memory, if there are more of them than the threshold.

        What was said is kept behind its summary and comes back with `include_compressed`, or by `restore`. With
        `dry_run` it only says what would be summed up. Raises InvalidInput.
        """
        least = self.ctx.settings.compression_threshold if threshold is None else threshold
        validation.number("threshold", least)
        if sessions is not None:
            validation.number("sessions", sessions)
        return await compress.compress(
            self.ctx, self.scope, threshold=least, sessions=sessions, dry_run=dry_run
        )

    async def roll_up(self, *, days: float = rollup.DAYS, dry_run: bool = False) -> SummaryReport:
        """Make one memory of each topic among what nobody used for so many days; the originals are archived behind it.

        They can be restored. With `dry_run` it only says what would be rolled up. Raises InvalidInput.
        """
        validation.days(days)
        return await rollup.roll_up(self.ctx, self.scope, days=days, dry_run=dry_run)

    async def pin(self, id: str, *, actor: str | None = None) -> Memory:
        """Keep a memory from being trimmed, expired, or left out for its low importance. Raises NotFound."""
        return await self._changed(id, "updated", {"pinned": True}, actor)

    async def unpin(self, id: str, *, actor: str | None = None) -> Memory:
        """Take the pin off again. Raises NotFound."""
        return await self._changed(id, "updated", {"pinned": False}, actor)

    @observed("forget", _gone)
    async def forget(
        self,
        id: str,
        *,
        reason: str = "",
        keep_days: float = 0,
        never_again: bool = False,
        actor: str | None = None,
    ) -> Forgotten:
        """Remove a memory everywhere, at once, with what rests on it alone; what rests on other things too is marked.

        Automatic writes do not bring it back for a while, or never. With `keep_days` it only disappears, and can be
        restored for so long. What only waits for the store is taken out of its file. Raises NotFound;
        StoreUnavailable, because no file can keep this promise.
        """
        manner = await self._manner(reason, keep_days, never_again, actor)
        return await self._forget([str(id)], manner, dry_run=False)

    @observed("forget", _gone)
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
        """Forget all that a question finds or a filter lets through; by default only tell what that would be.

        `where=Filter(ids=…)` with the ids of a dry run forgets exactly those. Raises InvalidInput if neither is given.
        """
        manner = await self._manner(reason, keep_days, never_again, actor)
        if not query and validation.where(where).is_plain:
            raise InvalidInput(
                "Say what to forget: a query, or a filter that names more than states"
            )
        found = await self._matching(query, where)
        return await self._forget(found, manner, dry_run=dry_run)

    async def _forget(
        self, ids: Sequence[str], manner: forgetting.Manner, *, dry_run: bool
    ) -> Forgotten:
        """Forget memories; writes that are only spooled are removed from their file."""
        rest = list(ids)
        if self.offline is not None and not dry_run:
            rest = [id for id in ids if not await self.offline.forget(self.scope, id)]
            if not rest:
                return Forgotten(ids=tuple(ids))
        done = await forgetting.forget(self.ctx, self.scope, rest, manner, dry_run=dry_run)
        return replace(done, ids=tuple(ids))

    async def _manner(
        self, reason: str, keep_days: float, never_again: bool, actor: str | None
    ) -> forgetting.Manner:
        validation.days(keep_days)
        validation.fields({"reason": reason, "actor": actor})
        return forgetting.Manner(
            reason=reason,
            actor=actor,
            keep_days=keep_days,
            never_again=never_again,
            session=await self._traced(),
        )

    async def _matching(self, query: str | None, where: Filter | None) -> builtins.list[str]:
        """The ids of what a question finds, best first, or of all that a filter lets through."""
        if not query:
            return [
                m.id for m in await matching(self.ctx.store, self.scope, validation.where(where))
            ]
        return [memory.id for memory in await self._looked_up(query, forgetting.MOST_FOUND, where)]

    async def undo(
        self,
        operation: str | None = None,
        *,
        session: str | None = None,
        dry_run: bool = False,
        actor: str | None = None,
    ) -> Undone:
        """Take back one operation of the history (its `meta` names it), or everything a session did.

        What was made disappears and can be restored for 30 days, what was changed is as it was before. It is in the
        history and can itself be undone; a forget for good cannot. Raises NotFound; Conflict if something came after.
        """
        given = {
            name: value
            for name, value in (("operation", operation), ("session", session))
            if value is not None
        }
        validation.fields({**given, "actor": actor})
        if len(given) != 1:
            raise InvalidInput("Say what to undo: either an operation or a session")
        return await undo.undone(
            self.ctx,
            self.scope,
            given,
            dry_run=dry_run,
            actor=actor,
            session=await self._traced(),
        )

    async def restore(self, id: str, *, actor: str | None = None) -> Memory:
        """Bring back a memory that was trimmed, expired, archived or softly forgotten.

        Raises NotFound; InvalidInput if there is nothing to restore.
        """
        memory = await self.get(id)
        if memory.state in ("active", "superseded"):
            raise InvalidInput(f"Memory {id!r} is {memory.state}: there is nothing to restore")
        return await self._changed(id, "restored", {"state": "active", "purge_at": None}, actor)

    async def conflicts(self, *, limit: int = 100) -> builtins.list[Conflict]:
        """Newer statements that took the place of older ones and wait for a decision, newest first."""
        validation.number("limit", limit)
        return await conflicts.open_ones(self.ctx.store, self.scope, limit=limit)

    async def confirm(self, id: str, *, actor: str | None = None) -> Memory:
        """Let the newer memory of a conflict stand; the older one stays readable. Raises NotFound."""
        return await conflicts.confirmed(self.ctx, self.scope, id, actor)

    async def reject(self, id: str, *, actor: str | None = None) -> Memory:
        """Bring the older memory of a conflict back in the place of the newer one. Raises NotFound."""
        return await conflicts.rejected(self.ctx, self.scope, id, actor)

    async def command(
        self,
        text: str,
        *,
        role: str | None = "user",
        name: str | None = None,
        about: Sequence[str] = (),
    ) -> chat_commands.Reply | None:
        """Do what a person says in a chat to the memory itself, and what to answer; None if it is no such command.

        "What do you remember about …?", "forget that", "pin this", "turn memory off", "start incognito for this chat"
        and their like, where they are the whole message. `about` names the memories or proposals that were last
        spoken of; where "that" is ambiguous, it asks back. What anybody but the person says does nothing.
        """
        return await chat_commands.act(self, text, role=role, name=name, about=about)

    async def overview(self) -> str:
        """What is remembered here, for people to read: how much, what is pinned, and what was said last, by topic."""
        found = [Filter(pinned=True), Filter(pinned=False)]
        pinned, rest = [(await self.list(where, limit=OVERVIEW)).memories for where in found]
        states = (await self.stats())["states"]
        counts = ", ".join(
            f"{number} {state.replace('_', ' ')}" for state, number in sorted(states.items())
        )
        shown = render.grouped((*pinned, *rest)[:OVERVIEW])
        return f"# {render.safe(self.scope.space)}: {counts or 'nothing is remembered here'}\n{shown}".strip()

    async def stats(self) -> dict[str, Any]:
        """Counts of this scope."""
        return await self.ctx.store.stats(self.scope, self.ctx.index.model)

    def export(self) -> AsyncIterator[dict[str, Any]]:
        """Everything kept in this scope, record by record, as `import_` takes it."""
        return import_export.exported(self.ctx.store, self.scope)

    async def import_(
        self, records: Iterable[Mapping[str, Any]], *, restore: bool = False
    ) -> Receipt:
        """Take in exported records or messages (`content`, `role`, …) into this scope.

        Records pass the guard and the person's settings like any other write, and have no more authority than who said
        them. With `restore`, for an export of your own, they are kept as they were. Raises InvalidInput.
        """
        how = import_export.Import(ctx=self.ctx, into=self, restore=restore)
        return await import_export.imported(records, how)

    async def _changed(
        self, id: str, event: Event, fields: Mapping[str, Any], actor: str | None
    ) -> Memory:
        return await revisions.changed(
            self.ctx, self.scope, id, event, fields, actor, await self._traced()
        )
