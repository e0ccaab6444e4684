"""The verbs for one scope, async: remember, recall, forget; `managed.py` has the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from dataclasses import replace
from datetime import datetime
from typing import Any, Unpack

from .context import Context, observed
from .errors import MemoristError
from .ingest import pipeline as ingest
from .ingest import validation
from .ingest.candidates import Batch
from .ingest.guard import save_on_request
from .ingest.policies import Policy
from .ingest.transitions import SHARED
from .manage import (
    agent_query,
    journal,
    privacy,
    recall,
    turn_context,
    updates,
)
from .manage.chat_commands import obey
from .manage.chat_list import Reply
from .manage.feedback import await_reply, compare_replies, record_feedback
from .manage.import_export import import_files, import_records
from .manage.recall import RecallOptions, recall_memories
from .manage.record_reader import Import
from .manage.turn_context import BUDGET, TurnContext
from .manage.updates import read_updates
from .managed import ManagedScope
from .retrieve.profiles import Profile
from .retrieve.render import Caps
from .text.clock import new_id
from .types import (
    Draft,
    Filter,
    Labels,
    Message,
    Messages,
    Outcome,
    Reason,
    Recall,
    Receipt,
    Scope,
    frozen,
)

BATCH = 256  # drafts in one transaction


@frozen
class DraftBatch:
    """Drafts that are stored in one transaction, with their ids."""

    drafts: Sequence[Draft]
    now: datetime
    analyzed: Batch | None = None  # None: not yet


async def split_drafts(
    ctx: Context, scope: Scope, drafts: Sequence[Draft], policy: Policy
) -> AsyncGenerator[DraftBatch]:
    """Yield drafts in batches, in their order.

    If vectors are added later, each batch but the first is analyzed before it is yielded, while the
    caller writes the one before it.
    """
    ahead: asyncio.Task[DraftBatch] | None = None
    try:
        for start in range(0, len(drafts), BATCH):
            some = drafts[start : start + BATCH]
            batch = _assign_ids(ctx, some) if ahead is None else await ahead
            following = drafts[start + BATCH : start + 2 * BATCH]
            if policy.embed == "deferred":
                ahead = asyncio.create_task(_analyze(ctx, scope, following, policy))
            yield batch
    finally:
        if ahead is not None:
            ahead.cancel()


def _assign_ids(ctx: Context, drafts: Sequence[Draft]) -> DraftBatch:
    """Return drafts with ids, as of now."""
    now = ctx.clock()
    return DraftBatch(
        drafts=[replace(draft, id=new_id(), told_at=now) for draft in drafts], now=now
    )


async def _analyze(
    ctx: Context, scope: Scope, drafts: Sequence[Draft], policy: Policy
) -> DraftBatch:
    """Return drafts with ids, analyzed."""
    batch = _assign_ids(ctx, drafts)
    try:
        analyzed = await ingest.check_and_analyze(ctx, scope, batch.drafts, policy, batch.now)
    except MemoristError:  # it is raised again when the batch has its turn
        return batch
    return replace(batch, analyzed=analyzed)


class ScopedClient(ManagedScope):
    """The memory of one user in one space."""

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
        steps: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        expires_at: datetime | str | None = None,
    ) -> Receipt:
        """Store a text or a list of messages; with `steps`, a workflow whose task is the text.

        `metadata` is your own JSON, to filter by. From `expires_at` on the memory is not recalled.

        When this returns, everything reported as `created` is durable and can be recalled. Sending
        the same message id again changes nothing and returns the same outcome. What is reported as
        `pending` is spooled on disk and stored when the database is available again.
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
            metadata=metadata,
        )
        common["expires_at"] = validation.moment(expires_at)
        if steps is not None:
            common |= validation.workflow(what, steps)
        longest = self.ctx.settings.max_text_chars
        given = validation.drafts(what, self.labels, validation.moment(at), common, longest)
        drafts = [each for each in given if isinstance(each, Draft)]
        receipt = await self.remember_drafts(drafts, policy=policy)
        return receipt if len(drafts) == len(given) else validation.add_skipped(receipt, given)

    @observed("remember", lambda receipt: len(receipt.ids))
    async def remember_drafts(
        self,
        drafts: Sequence[Draft],
        *,
        policy: str | None = None,
        defer_vectors: bool = False,
    ) -> Receipt:
        """Store drafts, as dialects and importers make them. Raises NotAllowed."""
        ctx = self.ctx
        by = validation.policy(ctx.policies, policy or ctx.settings.policy, ctx.settings.capacity)
        by = replace(by, embed="deferred") if defer_vectors else by
        outcomes: list[Outcome] = []
        spoken = [self.voice.speak(draft) for draft in drafts]
        if by.saves_on_request and self.voice.is_owner:
            spoken = [save_on_request(draft, self.scope.user) for draft in spoken]
        with ctx.storing():
            async with aclosing(split_drafts(ctx, self.scope, spoken, by)) as batches:
                async for batch in batches:
                    outcomes += await self._store(batch, by)
        if ctx.external_index is not None:
            ctx.external_index.notify(self.scope)
        return Receipt(tuple(outcomes))

    async def _store(self, batch: DraftBatch, policy: Policy) -> list[Outcome]:
        """Store drafts in one transaction; note them in the journal, and what a reply used."""
        ctx = self.ctx
        remember = ingest.remember if self.offline is None else self.offline.remember
        done = await remember(
            ctx,
            self.scope,
            batch.drafts,
            policy,
            batch.now,
            command=self.command_id,
            analyzed=batch.analyzed,
        )
        folder = ctx.settings.journal_dir
        if folder is not None:
            pairs = zip(batch.drafts, done, strict=True)
            new = [draft for draft, outcome in pairs if draft.id in outcome.ids]
            await journal.append(folder, ctx.store, self.scope, new, batch.now, policy.longest)
        if ctx.awaiting_reply:
            compare_replies(ctx, self.scope, batch.drafts, done)
        return done

    recall = recall_memories

    async def context(
        self,
        message: str,
        *,
        since: int | None = None,
        agent: str | None = None,
        budget: int = BUDGET,
        limit: int | None = None,
        max_chars: int | None = None,
        profile: str | Profile | None = None,
        min_confidence: float | None = None,
    ) -> TurnContext:
        """Return what an agent reads before it answers a message, within one token budget.

        It begins with what changed in this thread after the revision `since`, or since the last
        call. Then come the person's profile, pinned memories, whole categories, and what is recalled
        for the message with related memories: at most `limit` memories in all. An `agent` gets only
        what its allowlist names. `lines` says where each line comes from and `cut` what did not
        fit; `revision` is the `since` of the next call. If the reply is stored in the same
        session, it is compared with what was recalled, to count whether recall helped.
        Raises NotAllowed if the agent has no allowlist; InvalidInput.
        """
        ctx = self.ctx
        caps = turn_context.make_caps(budget, limit, max_chars)
        reading = turn_context.plan(ctx, agent, profile)
        by = reading.profile
        options = RecallOptions(
            limit=by.limit if limit is None else min(by.limit, limit),
            budget=budget,
            max_chars=max_chars,
            profile=by,
            where=reading.recalled,
            min_confidence=min_confidence,
        )
        asked, _ = recall.build_query(self, message, options)
        found = Recall(query=asked, profile=by.name, hits=(), text="", tokens=0)
        if why := await privacy.find_disabled_reason(self):
            return TurnContext(message=asked.text, text="", tokens=0, legs={"memory": why})
        page = await turn_context.begin(self, reading, caps, since)
        if reading.recalled is not None:
            found = await self.recall(message, **options)
            await_reply(self, found)
        return await turn_context.complete(self, page, caps, found)

    feedback = record_feedback

    async def recall_shared(
        self,
        query: str,
        *,
        limit: int | None = None,
        budget: int | None = None,
        min_confidence: float | None = None,
    ) -> list[Recall]:
        """Return what the same person's other spaces share with this one: one answer per space.

        This covers only spaces in which the person turned sharing on, and only memories tagged
        `share:` with the name of this space. Raises InvalidInput.
        """
        options = RecallOptions(
            limit=limit,
            budget=budget,
            where=Filter(tags=(f"{SHARED}{self.scope.space}",)),
            min_confidence=min_confidence,
        )
        recall.build_query(self, query, options)
        if await self.privacy.disabled_reason():
            return []
        answers = []
        for scope in await privacy.list_sharing(self.ctx, self.scope):
            other = ScopedClient(self.ctx, scope, Labels(), self.offline)
            answer = await other.recall(query, **options)
            if answer.hits:
                answers.append(answer)
        return answers

    delta = read_updates
    import_files = import_files

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
        since: int | None = None,
    ) -> list[dict[str, Any]]:
        """Return what an agent may read of the answer, as dicts of `id`, `category` and `text`.

        After at most `top_k` hits come up to two memories related to them, unless a `threshold`,
        the minimum similarity, is given. `return_="full"` adds more fields. Without categories, all
        that the agent's allowlist names are searched, except workflows. With `since`, the first
        items say what changed in this thread after that revision, each with its `revision`. Raises
        NotAllowed for a category that the agent may not read, InvalidInput, EmbedderUnavailable.
        """
        agent_query.check_limits(return_, top_k, budget_tokens)
        ctx = self.ctx
        where, by = agent_query.limit(ctx, self.scope, agent, categories, filters, threshold)
        if not where.categories:
            return []
        most = budget_tokens
        found = await self.recall(query, limit=top_k, budget=most, profile=by, where=where)
        if threshold is not None:
            agent_query.require_vectors(found)
        changed = None
        if since is not None and "memory" not in found.legs:
            changed = await updates.read_header(self, since, Caps(), where.categories)
        return agent_query.to_items(ctx, found, return_, most, changed)

    async def why_not(
        self,
        query: str,
        id: str,
        **options: Unpack[RecallOptions],
    ) -> Reason:
        """Return the rank of one memory for a question, and why it was returned or left out.

        The options are those of `recall`. Raises NotFound.
        """
        asked, by = recall.build_query(self, query, options, verb="why_not")
        await privacy.refuse_incognito(self)
        memory = await self.get(id)
        return await recall.explain(self.ctx, asked, memory, by, self.ctx.clock())

    async def command(
        self,
        text: str,
        *,
        role: str | None = "user",
        name: str | None = None,
        about: Sequence[str] = (),
    ) -> Reply | None:
        """Carry out a command of a person in a chat; None if the text is not a command.

        Commands are "what do you remember about …?", "forget my old address", "undo that",
        "remember this: …", "turn memory off" and the like, in several languages. What is to be
        forgotten is shown first; "yes", "no" and numbers then refer to the list that was last shown
        in the session. `about` names the memories or proposals that were mentioned last. Commands
        by anyone but the person are ignored. Raises InvalidInput, NotAllowed.
        """
        self.voice.require_owner("A chat command")
        place = copy(self)
        place.command_id = new_id()
        return await obey(
            place,
            text,
            role=role,
            name=name,
            about=about,
            remember=place.remember,
        )

    async def import_(
        self,
        records: Iterable[Mapping[str, Any]],
        *,
        restore: bool = False,
    ) -> Receipt:
        """Import exported records or messages (`content`, `role`, …) into this scope.

        Records pass the guard and the person's privacy settings like any other write, and have no
        more authority than their speaker. With `restore`, for your own export, they are stored as
        they were. Raises InvalidInput.
        """
        how = Import(
            ctx=self.ctx,
            scope=self.scope,
            remember=self.remember,
            restore=restore,
        )
        return await import_records(records, how)
