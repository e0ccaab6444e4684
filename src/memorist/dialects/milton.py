"""Milton's memory in its own words: items of seven types, deterministic and hybrid queries, long-term records.

An item's `source` is kept as the memory's channel and its `request_id` as its run. An `id` that the caller gives is
kept beside the memory's own: storing it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from ..errors import InvalidInput, Refused, RevisionConflict
from ..jobs import long_term
from ..manage import forget, records
from ..retrieve import profiles
from ..scoped import ScopedClient
from ..storage.changes import Summary
from ..text.clock import new_id
from ..types import Filter, Memory, Message

INBOUND = ("ntfy", "iphone")  # what arrives over these is a request
LONGEST_HOURS = 24 * 365 * 900  # as far back as a query looks


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryItem:
    """One item of the short-term memory."""

    content: str
    type: str | None = None  # one of the seven; without one it is found from the content
    id: str | None = None
    ts: datetime | None = None  # without a zone it is UTC; without a time it is now
    agent: str | None = None
    tags: tuple[str, ...] = ()
    importance: float = 0.5
    source: str | None = None
    request_id: str | None = None
    evidence: tuple[str, ...] = ()  # paths and URLs


@dataclass(frozen=True, slots=True, kw_only=True)
class UserProfile:
    """What is known of the person, with the items it was learned from."""

    preferences: tuple[str, ...] = ()
    stable_facts: tuple[str, ...] = ()
    do_not_assume: tuple[str, ...] = ()
    last_updated: datetime | None = None
    evidence_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectMemory:
    """What is known of a project, with the items it was learned from."""

    project_name: str
    goals: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    last_updated: datetime | None = None
    evidence_ids: tuple[str, ...] = ()


class Milton:
    """Milton's API over one scope."""

    def __init__(self, scope: ScopedClient) -> None:
        self._scope, self._ctx = scope, scope.ctx

    async def add(self, **item: Any) -> str:
        """Store an item given by its fields and return its id. Raises InvalidInput, RevisionConflict."""
        return await self.store(item)

    async def store(self, item: MemoryItem | Mapping[str, Any]) -> str:
        """Store an item and return its id.

        Raises InvalidInput, and RevisionConflict if the id stands for another content.
        """
        given = _checked(item if isinstance(item, MemoryItem) else _item(item))
        inbound = (given.source or "").lower() in INBOUND
        marks = replace(
            self._scope.labels, agent=given.agent, channel=given.source, run=given.request_id
        )
        receipt = await ScopedClient(self._ctx, self._scope.scope, marks).remember(
            Message(content=given.content, id=given.id, at=given.ts or self._ctx.clock()),
            policy="milton",
            item_type=given.type or ("request" if inbound else None),
            tags=given.tags,
            importance=given.importance,
            evidence=given.evidence,
        )
        outcome = receipt.outcomes[0]
        if outcome.status == "conflicting":
            raise RevisionConflict(outcome.reason)
        if not outcome.ids:
            raise InvalidInput(f"The item was not stored: {outcome.reason}")
        return given.id or outcome.ids[0]

    async def query_relevant(
        self, text: str, limit: int = 10, recency_bias: float = 0.35
    ) -> list[MemoryItem]:
        """The items that fit best by words, age and importance; no model is needed. Raises InvalidInput."""
        return await self.query_relevant_hybrid(text, limit, recency_bias, mode="deterministic")

    async def query_recent(
        self, hours: float, tags: Sequence[str] | None = None, limit: int = 20
    ) -> list[MemoryItem]:
        """The items of the last hours that have one of the tags, newest first."""
        back = timedelta(hours=min(hours, LONGEST_HOURS))
        where = Filter(created_after=self._ctx.clock() - back, tags=tuple(tags or ()))
        page = await self._scope.list(where, limit=1000)
        found = list(page.memories)
        while page.cursor:
            page = await self._scope.list(where, limit=1000, cursor=page.cursor)
            found += page.memories
        return sorted(map(item_of, found), key=lambda item: (item.ts, item.id), reverse=True)[
            :limit
        ]

    async def query_relevant_hybrid(
        self,
        text: str,
        limit: int = 10,
        recency_bias: float = 0.35,
        semantic_weight: float = 0.5,
        mode: str = "hybrid",
    ) -> list[MemoryItem]:
        """The same, mixed with likeness of meaning; without a model it is `query_relevant`. Raises InvalidInput."""
        ranking = profiles.milton(recency_bias, semantic_weight, mode)
        if not text.strip():
            return []
        return [
            item_of(memory)
            for memory in (await self._scope.recall(text, limit=limit, profile=ranking)).memories
        ]

    async def upsert_user_profile(
        self, patch: Mapping[str, Sequence[str]], evidence_ids: Sequence[str]
    ) -> UserProfile:
        """Add to the profile, as a new version of it. Raises InvalidInput without evidence that is remembered.

        While the store is away, what is added waits in a file, and only that is returned.
        """
        return UserProfile(
            **await self._upsert("user_profile", "user", patch, records.PROFILE, evidence_ids)
        )

    async def upsert_project_memory(
        self, project_name: str, patch: Mapping[str, Sequence[str]], evidence_ids: Sequence[str]
    ) -> ProjectMemory:
        """Add to what is known of a project, as a new version. Raises InvalidInput without evidence."""
        made = await self._upsert(
            "project_memory", project_name, patch, records.PROJECT, evidence_ids
        )
        return ProjectMemory(project_name=project_name, **made)

    async def user_profile(self) -> UserProfile:
        """The newest version of the profile; empty if there is none."""
        return UserProfile(**await self._told(await self._newest("user_profile", "user")))

    async def project_memory(self, project_name: str) -> ProjectMemory:
        """The newest version of what is known of a project; empty if there is none."""
        newest = await self._newest("project_memory", project_name)
        return ProjectMemory(project_name=project_name, **await self._told(newest))

    async def compress_short_to_long(
        self, cutoff_hours: float = 48, *, hard_delete: bool = False
    ) -> dict[str, int]:
        """Write items older than the cutoff into the records they belong to; how many items, projects, profiles.

        The items are archived, so that the evidence can be read, or deleted if that is wanted. Raises InvalidInput.
        """
        if (
            isinstance(cutoff_hours, bool)
            or not isinstance(cutoff_hours, int | float)
            or not cutoff_hours >= 0
        ):
            raise InvalidInput(f"cutoff_hours is a number of at least 0, not {cutoff_hours!r:.60}")
        engine, scope, now = self._ctx, self._scope.scope, self._ctx.clock()
        before = now - timedelta(hours=min(cutoff_hours, LONGEST_HOURS))
        done = await long_term.promote(
            engine.store, scope, before=before, now=now, erase=hard_delete
        )
        if done.words:
            await forget.swept(engine, scope, done.words)
        return {"compressed": done.compressed, "projects": done.projects, "profile": done.profile}

    async def _upsert(
        self,
        kind: Literal["user_profile", "project_memory"],
        name: str,
        patch: Mapping[str, Sequence[str]],
        lists: Sequence[str],
        evidence_ids: Sequence[str],
    ) -> dict[str, Any]:
        _check_patch(patch, lists)
        if isinstance(evidence_ids, str) or not evidence_ids:
            raise InvalidInput(
                "A long-term record needs evidence: name the ids of the items it rests on"
            )
        if why := await self._scope.privacy.disabled_reason():
            raise Refused(f"Not added: {why}")
        ctx, scope, offline = self._ctx, self._scope.scope, self._scope.offline
        added = Summary(
            id=new_id(),
            record_type=kind,
            name=name.casefold(),
            data={each: tuple(patch.get(each, ())) for each in lists},
            evidence_ids=tuple(evidence_ids),
            at=ctx.clock(),
        )
        if offline is None:
            return await self._told(await records.add(ctx.store, scope, added))
        made = await offline.add_record(scope, added)
        waits = {**added.data, "last_updated": added.at, "evidence_ids": added.evidence_ids}
        return waits if made is None else await self._told(made)

    async def _newest(self, kind: str, name: str) -> Summary | None:
        return records.newest(await self._ctx.store.summaries(self._scope.scope, kind), name)

    async def _told(self, record: Summary | None) -> dict[str, Any]:
        """A record's fields, its evidence by the ids that the items are known by."""
        if record is None:
            return {}
        known = {
            m.id: item_of(m).id
            for m in await self._ctx.store.get(self._scope.scope, record.evidence_ids)
        }
        named = records.PROFILE if record.record_type == "user_profile" else records.PROJECT
        lists = {name: tuple(record.data.get(name, ())) for name in named}
        return {
            **lists,
            "last_updated": record.at,
            "evidence_ids": tuple(known.get(i, i) for i in record.evidence_ids),
        }


def item_of(memory: Memory) -> MemoryItem:
    """A memory as Milton knows it."""
    return MemoryItem(
        id=memory.source_message_id or memory.id,
        ts=memory.created_at,
        agent=memory.labels.agent,
        type=memory.item_type,
        content=memory.text,
        tags=memory.tags,
        importance=memory.importance,
        source=memory.labels.channel,
        request_id=memory.labels.run,
        evidence=memory.evidence,
    )


def _item(given: Mapping[str, Any]) -> MemoryItem:
    known = [field.name for field in fields(MemoryItem)]
    unknown = [str(name) for name in given if name not in known]
    if unknown or "content" not in given:
        wrong = f"an unknown field {unknown[0]!r}" if unknown else "no 'content'"
        raise InvalidInput(f"The item has {wrong}: it takes {', '.join(known)}")
    return MemoryItem(**given)


def _checked(item: MemoryItem) -> MemoryItem:
    for name in ("type", "id", "agent", "source", "request_id"):
        if not isinstance(getattr(item, name), str | None):
            raise InvalidInput(f"An item's {name!r} is text")
    for name in ("tags", "evidence"):
        if not isinstance(getattr(item, name), list | tuple):
            raise InvalidInput(f"An item's {name!r} is a list of texts")
    return item


def _check_patch(patch: Mapping[str, Sequence[str]], lists: Sequence[str]) -> None:
    for name, values in patch.items():
        if name not in lists:
            raise InvalidInput(f"A patch cannot hold {name!r}: it takes {', '.join(lists)}")
        if isinstance(values, str) or not all(isinstance(value, str) for value in values):
            raise InvalidInput(f"{name!r} in a patch is a list of texts")
