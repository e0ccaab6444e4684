"""The verbs, for one scope, async."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from . import inputs, revisions, transfer
from .errors import InvalidInput, NotFound, ProviderFailed, StoreFull
from .ids import new_id
from .ingest import drafts
from .ingest import pipeline as ingest
from .lifecycle import capacity
from .model import (
    Draft,
    Entry,
    Event,
    Evidence,
    Filter,
    Forget,
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
    Scope,
    Used,
)
from .policy import profiles, writing
from .ports import Forgetful
from .retrieve import explain
from .retrieve import pipeline as retrieve
from .text import normalise

if TYPE_CHECKING:
    from .engine import Engine

BATCH = 256  # drafts in one transaction


class Scoped:
    """The verbs, for one scope."""

    def __init__(self, engine: Engine, scope: Scope, labels: Labels) -> None:
        self._engine, self.scope, self.labels = engine, scope, labels

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

        The same message id again changes nothing and gives the same outcome. Raises InvalidInput, StoreUnavailable.
        """
        common = inputs.draft_fields(
            kind=kind, category=category, item_type=item_type, tags=tags, source_ids=source_ids, evidence=evidence,
            importance=importance, confidence=confidence, pinned=pinned, manually_saved=manually_saved,
        )  # fmt: skip
        made = self._drafts(what, drafts.moment(at), common)
        return await self.remember_drafts(made, policy=policy)

    async def remember_drafts(self, made: Sequence[Draft], *, policy: str | None = None) -> Receipt:
        """Take in drafts that are already made, as dialects and importers do."""
        engine = self._engine
        parts = ingest.Ingest(
            store=engine.store,
            corpora=engine.corpora,
            embedder=engine.embedder,
            policy=writing.named(policy or engine.settings.policy),
            new_id=new_id,
        )
        outcomes: builtins.list[Outcome] = []
        for start in range(0, len(made), BATCH):
            outcomes += await ingest.remember(made[start : start + BATCH], self.scope, parts, engine.clock())
        return Receipt(tuple(outcomes))

    def _drafts(self, what: Any, at: datetime | None, common: dict[str, Any]) -> builtins.list[Draft]:
        most = self._engine.settings.max_text_chars
        if isinstance(what, str):
            inputs.text(what, most)
            return [Draft(text=normalise.storable(what), labels=self.labels, at=at, **common)]
        given = [what] if isinstance(what, (Message, Mapping)) else what
        if not isinstance(given, Sequence) or isinstance(given, (bytes, bytearray)):
            raise InvalidInput(f"remember takes a text or a list of messages, not {type(what).__name__}")
        said = drafts.conversation([drafts.message(each, self.labels) for each in given])
        for each in said:
            inputs.size(each.content, most)
        return [drafts.draft(each, self.labels, common) for each in said]

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
    ) -> Recall:
        """What is remembered that answers the question: at most `limit` memories within `budget` tokens.

        Weak evidence gives an empty answer. If a part is away, the rest answers and `legs` says so.
        Raises InvalidInput.
        """
        asked, by = self._query(query, limit, budget, max_chars, profile, where, as_of, include_compressed, rerank)
        now = self._engine.clock()
        answer = await retrieve.recall(asked, by, self._retrieve(), now)
        uses = [
            Used(memory_id=hit.memory.id, at=now, scores=capacity.scores(hit.memory, hit.relevance, now))
            for hit in answer.hits
        ]
        if uses and by.scores_first:
            with suppress(ProviderFailed):  # an answer does not fail because its statistics cannot be written
                async with self._engine.store.transaction(self.scope) as tx:
                    await tx.apply(uses)
        elif uses:
            self._engine.usage.note(self.scope, uses)
        return answer

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
        asked, by = self._query(query, limit, budget, None, profile, where, as_of, include_compressed, None)
        memory = await self.get(id)
        return await explain.stands(asked, memory, by, self._retrieve(), self._engine.clock())

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
                inputs.number(name, value)
        settings = self._engine.settings
        by = profile if isinstance(profile, profiles.Profile) else profiles.named(profile or settings.profile)
        if rerank is not None:
            by = replace(by, rerank=rerank)
        return Query(
            text=normalise.storable(text[: settings.max_query_chars]),
            scope=self.scope,
            limit=limit or (by.limit if budget is None else by.most),
            budget=budget or by.budget,
            max_chars=max_chars,
            where=inputs.where(where),
            as_of=drafts.moment(as_of),
            labels=self.labels,
            include_compressed=include_compressed,
        ), by

    def _retrieve(self) -> retrieve.Retrieve:
        engine = self._engine
        return retrieve.Retrieve(
            store=engine.store,
            corpora=engine.corpora,
            embedder=engine.embedder,
            reranker=engine.reranker,
            count=engine.count_tokens,
            language=engine.settings.language,
        )

    async def get(self, id: str) -> Memory:
        """One memory, in whatever state. Raises NotFound."""
        found = await self._engine.store.get(self.scope, [str(id)])
        if not found:
            raise NotFound(f"No memory with id {id!r} in this scope")
        return found[0]

    async def list(self, where: Filter | None = None, *, limit: int = 50, cursor: str | None = None) -> Page:
        """A page of memories, newest first; pass its `cursor` for the next one. Raises InvalidInput."""
        inputs.number("limit", limit)
        return await self._engine.store.page(self.scope, inputs.where(where), limit=min(limit, 1000), cursor=cursor)

    async def edit(
        self,
        id: str,
        text: str | None = None,
        *,
        summary: str | None = None,
        category: str | None = None,
        tags: Sequence[str] | None = None,
        importance: float | None = None,
        actor: str | None = None,
    ) -> Memory:
        """Change a memory. The id stays; the version before is kept and can still be read.

        Raises NotFound; InvalidInput if it is not the current version.
        """
        if text is not None:
            inputs.text(text, self._engine.settings.max_text_chars)
        given = {"summary": summary, "category": category, "importance": importance, "tags": tags}
        fields: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        inputs.fields(fields)
        if summary is not None and len(summary) > 280:
            raise InvalidInput(f"A summary has at most 280 characters, not {len(summary)}")
        if tags is not None:
            fields["tags"] = tuple(dict.fromkeys(tag.lower() for tag in tags))
        return await revisions.edited(self._engine, self.scope, id, text, fields, actor)

    async def why(self, id: str) -> Evidence:
        """What a memory rests on: the messages and memories it came from. Raises NotFound."""
        return await revisions.evidence(self._engine.store, await self.get(id))

    async def history(self, id: str | None = None, *, limit: int = 100) -> builtins.list[Entry]:
        """What happened to one memory, or in the whole scope, newest first. It outlives the memory."""
        inputs.number("limit", limit)
        return await self._engine.store.history(self.scope, id, limit=limit)

    async def pin(self, id: str, *, actor: str | None = None) -> Memory:
        """Keep a memory from being trimmed, expired, or left out for its low importance. Raises NotFound."""
        return await self._changed(id, "updated", {"pinned": True}, actor)

    async def unpin(self, id: str, *, actor: str | None = None) -> Memory:
        """Take the pin off again. Raises NotFound."""
        return await self._changed(id, "updated", {"pinned": False}, actor)

    async def forget(self, id: str, *, reason: str = "", keep_days: float = 0, actor: str | None = None) -> None:
        """Remove a memory everywhere, at once; automatic writes do not bring it back for a while.

        With `keep_days` it only disappears, and can be restored for so long. Raises NotFound.
        """
        inputs.days(keep_days)
        inputs.fields({"reason": reason, "actor": actor})
        now = self._engine.clock()
        if keep_days:
            gone = {"state": "soft_deleted", "purge_at": now + timedelta(days=keep_days)}
            await self._changed(id, "soft_deleted", gone, actor, reason)
            return
        until = now + timedelta(hours=self._engine.settings.tombstone_hours)
        erase = Forget(memory_id=str(id), at=now, until=until, reason=reason, actor=actor)
        try:
            words = await self._erased(erase)
        except StoreFull:  # erasing needs room too: a little was kept aside for it
            self._engine.store.make_room()
            words = await self._erased(erase)
        self._engine.corpora.drop(self.scope)
        if isinstance(self._engine.embedder, Forgetful):
            await self._engine.embedder.forget(words)

    async def restore(self, id: str, *, actor: str | None = None) -> Memory:
        """Bring back a memory that was trimmed, expired, archived or softly forgotten.

        Raises NotFound; InvalidInput if there is nothing to restore.
        """
        memory = await self.get(id)
        if memory.state in ("active", "superseded"):
            raise InvalidInput(f"Memory {id!r} is {memory.state}: there is nothing to restore")
        return await self._changed(id, "restored", {"state": "active", "purge_at": None}, actor)

    async def stats(self) -> dict[str, Any]:
        """Counts of this scope."""
        return await self._engine.store.stats(self.scope, self._engine.corpora.model)

    def export(self) -> AsyncIterator[dict[str, Any]]:
        """Everything kept in this scope, record by record, as `import_` takes it."""
        return transfer.exported(self._engine.store, self.scope)

    async def import_(self, records: Iterable[Mapping[str, Any]]) -> Receipt:
        """Take in exported records or messages (`content`, `role`, …) into this scope. Raises InvalidInput."""
        return await transfer.imported(records, self, self._engine)

    async def _changed(
        self, id: str, event: Event, fields: Mapping[str, Any], actor: str | None, reason: str = ""
    ) -> Memory:
        return await revisions.changed(self._engine, self.scope, id, event, fields, actor, reason)

    async def _erased(self, change: Forget) -> builtins.list[str]:
        """Erase a memory, and return the words that are gone."""
        async with self._engine.store.transaction(self.scope) as tx:
            words = await tx.wordings(self.scope, change.memory_id)
            if not words:
                raise NotFound(f"No memory with id {change.memory_id!r} in this scope")
            await tx.apply([change])
        return words
