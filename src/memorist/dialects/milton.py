"""Milton: items of seven types, deterministic and hybrid queries, long-term records, hooks for an
agent's loop.

An item's `source` is stored as the memory's channel and its `request_id` as its run. An `id` given
by the caller is stored in addition to the memory's own: storing it again changes nothing.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from datetime import datetime, timedelta
from typing import Any

from .. import storage
from ..errors import InvalidInput, Refused, RevisionConflict, StoreUnavailable
from ..ingest import validation
from ..manage import feedback, forget, records
from ..retrieve import render
from ..retrieve.render import Caps, fit
from ..scoped import ScopedClient
from ..storage import person
from ..storage.person import RecordType, Summary
from ..text.clock import new_id
from ..types import Filter, Memory, Message, Outcome, Receipt, frozen
from . import milton_profile

INBOUND = ("ntfy", "iphone")  # what arrives over these channels is a request
MAX_HOURS = 24 * 365 * 900  # as far back as a query looks
SAID = 0.2  # importance of what the user said
REPLIED = 0.1  # importance of the reply


@frozen
class MemoryItem:
    """One item of the short-term memory."""

    content: str
    type: str | None = None  # one of seven; by default it is derived from the content
    id: str | None = None
    ts: datetime | None = None  # without a time zone it is UTC; without a time it is now
    agent: str | None = None
    tags: tuple[str, ...] = ()
    importance: float = 0.5
    source: str | None = None
    request_id: str | None = None
    evidence: tuple[str, ...] = ()  # paths and URLs


Texts = tuple[str, ...]


@frozen
class UserProfile:
    """What is known about the user, with the items it was learned from."""

    preferences: Texts = ()
    stable_facts: Texts = ()
    do_not_assume: Texts = ()
    last_updated: datetime | None = None
    evidence_ids: Texts = ()


@frozen
class ProjectMemory:
    """What is known about a project, with the items it was learned from."""

    project_name: str
    goals: Texts = ()
    blockers: Texts = ()
    next_steps: Texts = ()
    last_updated: datetime | None = None
    evidence_ids: Texts = ()


class Milton:
    """Milton's API over one scope."""

    def __init__(self, scope: ScopedClient) -> None:
        self._client = scope
        self._ctx = scope.ctx
        self._scope = scope.scope

    async def add(self, **item: Any) -> str:
        """Store an item given by its fields and return its id.

        Raises InvalidInput, RevisionConflict.
        """
        return await self.store(item)

    async def store(self, item: MemoryItem | Mapping[str, Any]) -> str:
        """Store an item and return its id.

        Raises InvalidInput, and RevisionConflict if the id has another content.
        """
        given = asdict(item) if isinstance(item, MemoryItem) else item
        known = [field.name for field in fields(MemoryItem)]
        unknown = [str(name) for name in given if name not in known]
        if unknown or "content" not in given:
            wrong = f"an unknown field {unknown[0]!r}" if unknown else "no 'content'"
            raise InvalidInput(f"The item has {wrong}: it takes {', '.join(known)}")
        storage.load(MemoryItem, {**given, "ts": None})  # only checks the types, except the time's
        item = MemoryItem(**given)
        kind = item.type
        if kind is None and (item.source or "").lower() in INBOUND:
            kind = "request"
        given_labels = {"agent": item.agent, "channel": item.source, "run": item.request_id}
        validation.labels(given_labels)
        labels = replace(self._client.labels, **given_labels)
        scope = ScopedClient(self._ctx, self._scope, labels, self._client.offline)
        message = Message(
            content=item.content,
            id=item.id,
            at=item.ts or self._ctx.clock(),
        )
        receipt = await scope.remember(
            message,
            policy="milton",
            item_type=kind,
            tags=item.tags,
            importance=item.importance,
            evidence=item.evidence,
        )
        outcome = receipt.outcomes[0]
        if outcome.status == "conflict":
            raise RevisionConflict(outcome.reason)
        if not outcome.ids:
            raise InvalidInput(f"The item was not stored: {outcome.reason}")
        return item.id or outcome.ids[0]

    async def query_relevant(
        self,
        text: str,
        limit: int = 10,
        recency_bias: float = 0.35,
    ) -> list[MemoryItem]:
        """Return the best items by keywords, age and importance, without a model.

        Raises InvalidInput.
        """
        return await self.query_relevant_hybrid(text, limit, recency_bias, mode="deterministic")

    async def query_recent(
        self,
        hours: float,
        tags: Sequence[str] | None = None,
        limit: int = 20,
    ) -> list[MemoryItem]:
        """Return the items of the last hours that have one of the tags, newest first.

        Raises InvalidInput.
        """
        validation.number("limit", limit)
        since = self._ctx.clock() - timedelta(hours=min(hours, MAX_HOURS))
        where = Filter(created_after=since, tags=tuple(tags or ()))
        found = await self._ctx.store.find_all(self._scope, where)
        items = list(map(item_of, found))
        items.sort(key=lambda item: (item.ts, item.id), reverse=True)
        return items[:limit]

    async def query_relevant_hybrid(
        self,
        text: str,
        limit: int = 10,
        recency_bias: float = 0.35,
        semantic_weight: float = 0.5,
        mode: str = "hybrid",
    ) -> list[MemoryItem]:
        """Return the best items, also by meaning; without a model like `query_relevant`.

        Raises InvalidInput.
        """
        profile = milton_profile(recency_bias, semantic_weight, mode)
        if not text.strip():
            return []
        answer = await self._client.recall(text, limit=limit, profile=profile)
        return list(map(item_of, answer.memories))

    async def upsert_user_profile(
        self,
        patch: Mapping[str, Sequence[str]],
        evidence_ids: Sequence[str],
    ) -> UserProfile:
        """Add to the profile, as a new version of it.

        While the store is unavailable, the addition is spooled, and only that is returned.
        Raises InvalidInput without evidence that is stored.
        """
        made = await self._add_to("user_profile", "user", patch, evidence_ids)
        return UserProfile(**made)

    async def upsert_project_memory(
        self,
        project_name: str,
        patch: Mapping[str, Sequence[str]],
        evidence_ids: Sequence[str],
    ) -> ProjectMemory:
        """Add to what is known about a project, as a new version.

        Raises InvalidInput without evidence.
        """
        made = await self._add_to("project_memory", project_name, patch, evidence_ids)
        return ProjectMemory(project_name=project_name, **made)

    async def user_profile(self) -> UserProfile:
        """Return the newest version of the profile; empty if there is none."""
        found = await self._load("user_profile", "user")
        return UserProfile(**found)

    async def project_memory(self, project_name: str) -> ProjectMemory:
        """Return the newest version of what is known about a project; empty if there is none."""
        found = await self._load("project_memory", project_name)
        return ProjectMemory(project_name=project_name, **found)

    async def compress_short_to_long(
        self,
        cutoff_hours: float = 48,
        *,
        hard_delete: bool = False,
    ) -> dict[str, int]:
        """Move items older than the cutoff into their records; return the number of items,
        projects and profiles.

        The items are archived, so that the evidence can be read, or deleted with `hard_delete`.
        Raises InvalidInput.
        """
        is_number = isinstance(cutoff_hours, int | float) and not isinstance(cutoff_hours, bool)
        if not is_number or not cutoff_hours >= 0:
            raise InvalidInput(
                f"cutoff_hours must be a number of at least 0, not {cutoff_hours!r:.60}"
            )
        now = self._ctx.clock()
        before = now - timedelta(hours=min(cutoff_hours, MAX_HOURS))
        done = await records.promote(
            self._ctx.store,
            self._scope,
            before=before,
            now=now,
            erase=hard_delete,
        )
        if done.words:
            await forget.sweep(self._ctx, self._scope, done.words)
        return {
            "compressed": done.compressed,
            "projects": done.projects,
            "profile": done.profile,
        }

    async def _add_to(
        self,
        kind: RecordType,
        name: str,
        patch: Mapping[str, Sequence[str]],
        evidence_ids: Sequence[str],
    ) -> dict[str, Any]:
        lists = records.LISTS[kind]
        for field, values in patch.items():
            if field not in lists:
                raise InvalidInput(f"A patch cannot set {field!r}: it takes {', '.join(lists)}")
            validation.texts(field, values)
        if isinstance(evidence_ids, str) or not evidence_ids:
            raise InvalidInput(
                "A long-term record needs evidence: give the ids of the items that support it"
            )
        validation.texts("evidence_ids", evidence_ids)
        if not isinstance(name, str) or not name.strip():
            raise InvalidInput(f"A project needs a name, not {name!r:.60}")
        if why := await self._client.privacy.disabled_reason():
            raise Refused(f"Not added: {why}")
        added = Summary(
            id=new_id(),
            record_type=kind,
            name=name.casefold(),
            data={each: tuple(patch.get(each, ())) for each in lists},
            evidence_ids=tuple(evidence_ids),
            at=self._ctx.clock(),
        )
        made: Summary | None
        if self._client.offline is None:
            made = await records.add(self._ctx.store, self._scope, added)
        else:
            made = await self._client.offline.add_record(self._scope, added)
        return await self._fields_of(made or added, is_stored=made is not None)

    async def _load(self, kind: RecordType, name: str) -> dict[str, Any]:
        versions = await person.load_summaries(self._ctx.store, self._scope, kind)
        record = records.newest(versions, name)
        return {} if record is None else await self._fields_of(record)

    async def _fields_of(self, record: Summary, *, is_stored: bool = True) -> dict[str, Any]:
        """Return the fields of a record; of a stored one with the caller's ids of its evidence."""
        found = await self._ctx.store.get(self._scope, record.evidence_ids) if is_stored else ()
        ids = {memory.id: memory.source_message_id for memory in found}
        fields: dict[str, Any] = {
            "last_updated": record.at,
            "evidence_ids": tuple(ids.get(id) or id for id in record.evidence_ids),
        }
        for name in records.LISTS[record.record_type]:
            fields[name] = tuple(record.data.get(name, ()))
        return fields


class Hooks:
    """Hooks that an agent's loop calls before and after each turn, over one scope.

    The limits are settings, also read from `MILTON_MEMORY_…`: `memory_context_limit`,
    `memory_context_max_chars`, `memory_recency_bias`, `memory_profile_limit`,
    `memory_store_responses`. If memory is off, or the session is incognito, nothing is returned and
    nothing is stored.
    """

    def __init__(self, scope: ScopedClient) -> None:
        self._scope = scope
        self._settings = scope.ctx.settings

    async def before(self, text: str) -> str:
        """Return the context for a turn: the first lines of the profile, then the relevant
        memories, best first.

        Only whole lines, within the limits of the settings; empty if memory is off.
        """
        if await self._scope.privacy.disabled_reason():
            return ""
        settings = self._settings
        lines: list[str] = []
        with suppress(StoreUnavailable):  # the turn continues without the profile
            profile = await Milton(self._scope).user_profile()
            for name in records.PROFILE:
                label = name.replace("_", " ")
                lines += [f"- [{label}] {render.safe(text)}" for text in getattr(profile, name)]
        most = settings.memory_context_limit
        caps = Caps(limit=most, chars=settings.memory_context_max_chars)
        fitted = fit(lines[: settings.memory_profile_limit], caps, "\n".join)
        context = fitted.text
        limit = most - len(fitted.taken)
        left = settings.memory_context_max_chars - len(context) - bool(context)
        if left < 1 or limit < 1 or not text.strip():
            return context
        answer = await self._scope.recall(
            text,
            limit=limit,
            max_chars=left,
            profile=milton_profile(settings.memory_recency_bias),
        )
        feedback.await_reply(self._scope, answer)
        return "\n".join(filter(None, (context, answer.text)))

    async def after(self, text: str, reply: str | None = None) -> Receipt:
        """Store what the user said, and the reply if the settings say so.

        Also count whether the reply used what `before` returned.
        """
        turns = [(text, "user", SAID)]
        if reply is not None:
            await feedback.compare_reply(self._scope, reply)
        if reply is not None and self._settings.memory_store_responses:
            turns.append((reply, "assistant", REPLIED))
        outcomes: list[Outcome] = []
        for content, role, importance in turns:
            message = Message(content=content, role=role, at=self._scope.ctx.clock())
            receipt = await self._scope.remember(
                message,
                policy="milton",
                item_type="crumb",
                importance=importance,
            )
            outcomes += receipt.outcomes
        return Receipt(tuple(outcomes))


def item_of(memory: Memory) -> MemoryItem:
    """Return a memory as an item."""
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
