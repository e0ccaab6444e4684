"""Clanker: durable facts and lore of a guild, the slice of them for a prompt, search.

A guild is one scope, so nothing crosses from one to another. A fact's subject is whom it is about;
a channel only counts a little in the ranking. Messages are stored beside the facts, for the slice.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ...client import Client
from ...embedders.openai import MODEL
from ...errors import InvalidInput, ProviderFailed, StoreUnavailable
from ...extraction import job
from ...ingest import guard, transitions, validation
from ...jobs import embed
from ...manage import edit
from ...manage.journal import LORE
from ...scoped import ScopedClient
from ...storage.changes import Change, Event, Save
from ...text import compare, normalize
from ...types import GUILD, Draft, Filter, Labels, Memory, Message, Outcome
from ..catalog import CLANKER, CLANKER_STRICT

UNSUPPORTED = "its words are not those of its source"
POLICY, MESSAGES = "clanker.guild", "clanker.messages"
VARIABLE = "DEFAULT_MEMORY_EMBEDDING_MODEL"
KEEP_FACTS, KEEP_LORE = 80, 120  # of one subject; older ones are archived
UNSUPPORTED = "its words are not those of its source"
LORE_CONFIDENCE = 0.72
RECENT = 35  # messages of a chat window, unless a bot asks for another number
USER_FACTS, RELEVANT_FACTS, RELEVANT_MESSAGES, MAX_FOUND = 8, 10, 8, 24
BACKFILLED = 8  # facts at most that a question waits for
_FACTS = ("semantic", "procedural")
_STORED = ("create", "update", "merge")
_SEARCHED = 1000  # messages of a channel that a search looks back


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The memories for a prompt."""

    user_facts: tuple[Memory, ...] = ()
    relevant_facts: tuple[Memory, ...] = ()
    relevant_messages: tuple[Memory, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """What a model's reply asked of the memory, and got."""

    kept: Outcome | None = None  # of its `memoryLine`
    found: tuple[Memory, ...] = ()  # for its `memoryLookup`


def embedding_model(
    settings: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> str:
    """Return the embedding model of a bot: from its settings, else the environment, else the
    default.

    It belongs after `openai:` in the setting `embedder`. A blank setting counts as none.

    >>> embedding_model({"memory": {"embeddingModel": "other"}}, {})
    'other'
    >>> embedding_model({"memory": {"embeddingModel": ""}}, {VARIABLE: "another"})
    'another'
    """
    memory = settings.get("memory")
    named = memory.get("embeddingModel") if isinstance(memory, Mapping) else None
    for each in (named, environment.get(VARIABLE)):
        if isinstance(each, str) and each.strip():
            return each.strip()
    return MODEL


class Clanker:
    """Clanker's API over a client."""

    def __init__(self, client: Client) -> None:
        self._client, self._ctx = client, client.ctx

    async def add_memory_fact(
        self,
        guild_id: str,
        subject: str,
        fact: str,
        *,
        fact_type: str = "other",
        evidence_text: str | None = None,
        source_message_id: str | None = None,
        source_text: str | None = None,
        channel_id: str | None = None,
        confidence: float = 0.5,
    ) -> Outcome:
        """Store a fact about a subject, or renew the one that says the same; of more than 80 the
        oldest are archived.

        With `source_text`, the fact has to be grounded in it, and evidence that is not is left out.
        Raises InvalidInput.
        """
        line = guard.to_line(fact, "fact")
        if source_text is not None and line and not compare.is_supported(line, source_text):
            return Outcome(status="refused", reason=UNSUPPORTED)
        proof = guard.to_line(evidence_text, "evidence") if evidence_text else None
        if proof and source_text is not None and not compare.is_supported(proof, source_text):
            proof = None
        kind = guard.to_fact_type(fact_type)
        draft = Draft(
            text=line,
            kind="procedural" if kind == "preference" else "semantic",
            fact_type=kind,
            category=kind,
            labels=Labels(subject=_check_subject(subject), channel=channel_id),
            evidence_text=proof or None,
            source_ids=(source_message_id,) if source_message_id else (),
            confidence=confidence,
        )
        return await self._add(guild_id, draft, source_message_id, KEEP_FACTS)

    async def remember_line(
        self,
        guild_id: str,
        line: str,
        *,
        source_text: str | None = None,
        source_message_id: str | None = None,
        channel_id: str | None = None,
    ) -> Outcome:
        """Store a line of lore, which belongs to the whole guild; the latest 120 stay.

        Raises InvalidInput.
        """
        said = guard.to_line(line, "lore")
        if source_text is not None and said and not compare.is_supported(said, source_text):
            return Outcome(status="refused", reason=UNSUPPORTED)
        draft = Draft(
            text=f"Memory line: {said}." if said else "",
            kind="semantic",
            fact_type="lore",
            category="lore",
            labels=Labels(subject=LORE, channel=channel_id),
            confidence=LORE_CONFIDENCE,
            source_ids=(source_message_id,) if source_message_id else (),
        )
        return await self._add(guild_id, draft, source_message_id, KEEP_LORE)

    async def handle_reply(
        self,
        guild_id: str,
        reply: Mapping[str, Any],
        *,
        source_text: str | None = None,
        source_message_id: str | None = None,
        channel_id: str | None = None,
    ) -> Handled:
        """Do what the output of a model asks for, of a text reply and of a voice turn alike.

        `memoryLine` is stored as lore, `memoryLookup` is answered by `search_durable_facts`; blank
        text and other values ask for nothing. Raises InvalidInput.
        """
        line, lookup = reply.get("memoryLine"), reply.get("memoryLookup")
        kept, found = None, list[Memory]()
        if isinstance(line, str) and line.strip():
            kept = await self.remember_line(
                guild_id,
                line.strip(),
                source_text=source_text,
                source_message_id=source_message_id,
                channel_id=channel_id,
            )
        if isinstance(lookup, str) and lookup.strip():
            found = await self.search_durable_facts(guild_id, lookup.strip(), channel_id=channel_id)
        return Handled(kept=kept, found=tuple(found))

    async def actions(self, guild_id: str, *, limit: int = 100) -> list[dict[str, Any]]:
        """Return what was done for a guild, newest first, under the names of Clanker's log."""
        actions: list[dict[str, Any]] = []
        for event in await self._guild(guild_id).events(limit=limit):
            if kind := _action(event):
                at = event.at.isoformat()
                actions.append({"kind": kind, "memory_id": event.memory_id, "created_at": at})
        return actions

    def note_failure(self, guild_id: str, source: str) -> None:
        """Record that a message could not be stored, without its text."""
        category = "voice_error" if source.startswith("voice") else "bot_error"
        event = Event(
            node="hotpath", op="create", at=self._ctx.clock(), status="error", category=category
        )
        self._ctx.access_log.note(self._guild(guild_id).scope, [event])

    async def add_message(
        self,
        guild_id: str,
        channel_id: str,
        message: Message,
        *,
        author_id: str | None = None,
        source: str = "text",
    ) -> Outcome:
        """Store a message of a channel; facts that are extracted from it are about its author.

        `source` says where it came from, for instance which voice pipeline. Raises InvalidInput.
        """
        guild = self._guild(guild_id, channel_id, subject=author_id, run=source)
        return (await guild.remember(message, policy=MESSAGES)).outcomes[0]

    async def build_prompt_memory_slice(
        self, guild_id: str, user_id: str, query_text: str, *, channel_id: str | None = None
    ) -> Slice:
        """Return facts about the user, facts and lore that fit, and messages of the channel that
        share a word.

        Empty where memory is off.
        """
        guild = self._guild(guild_id, channel_id)
        if await guild.privacy.disabled_reason():
            return Slice()
        await self._backfill(guild)
        user = _check_subject(user_id)
        own = await _recall(guild, query_text, (user,), USER_FACTS)
        relevant = await _recall(guild, query_text, (user, LORE), RELEVANT_FACTS)
        messages: list[Memory] = []
        if channel_id is not None:
            messages = await _search_messages(guild, query_text, channel_id)
        return Slice(user_facts=own, relevant_facts=relevant, relevant_messages=tuple(messages))

    async def search_durable_facts(
        self, guild_id: str, query_text: str, *, channel_id: str | None = None, limit: int = 10
    ) -> list[Memory]:
        """Return 1 to 24 facts of a guild that answer, about any subject; none if none is near
        enough.
        """
        guild = self._guild(guild_id, channel_id)
        await self._backfill(guild)
        most = min(MAX_FOUND, max(1, limit))
        return list(await _recall(guild, query_text, (), most, strict=True))

    async def recent_messages(
        self, guild_id: str, channel_id: str, *, limit: int = RECENT
    ) -> list[Memory]:
        """Return the newest 10 to 120 messages of a channel, oldest first."""
        where = Filter(kinds=("episodic",), labels=Labels(channel=channel_id))
        page = await self._guild(guild_id).list(where, limit=min(120, max(10, limit)))
        return list(page.memories)[::-1]

    async def archive(self, guild_id: str, subject: str | None, keep: int = KEEP_FACTS) -> None:
        """Archive all but the newest facts of a subject, except pinned ones. Nothing is deleted."""
        scope, store = self._guild(guild_id).scope, self._ctx.store
        where = Filter(subjects=(subject or "",), kinds=_FACTS)
        if len(await store.rows_where(scope, where)) <= keep:
            return
        async with store.transaction(scope) as tx:
            facts = list((await tx.page(scope, where, limit=1000)).memories)
            facts.sort(key=lambda memory: (memory.updated_at, memory.id), reverse=True)
            changes: list[Change] = []
            for memory in facts[keep:]:
                if not memory.pinned:
                    old = transitions.archive(memory, self._ctx.clock())
                    meta = {"reason": f"keep {keep}"}
                    changes.append(Save(memory=old, event="updated", meta=meta))
            await tx.apply(changes)

    async def _backfill(self, guild: ScopedClient) -> None:
        """Embed a few facts that have no vector; without the model, search goes by words."""
        embedder = self._ctx.embedder
        with suppress(ProviderFailed):
            if embedder is not None and not await guild.privacy.disabled_reason():
                where = Filter(kinds=_FACTS, needs_embedding=True)
                found = (await guild.list(where, limit=BACKFILLED)).memories
                if found:
                    await embed.embed_now(self._ctx.store, embedder, found, self._ctx.clock())

    def _guild(
        self, guild_id: str, channel_id: str | None = None, **labels: str | None
    ) -> ScopedClient:
        space = validation.name("guild", guild_id)
        return self._client.scope(user=GUILD, space=space, channel=channel_id, **labels)

    async def _add(self, guild_id: str, draft: Draft, message_id: str | None, keep: int) -> Outcome:
        guild = self._guild(guild_id)
        if not draft.text:
            return Outcome(status="refused", reason="it is too short for a fact")
        archived = None
        if not await guild.privacy.disabled_reason():
            archived = await _find_archived(guild, draft)
        if archived is not None:
            await guild.restore(archived.id)
        outcome = (await guild.remember_drafts([draft], policy=POLICY)).outcomes[0]
        if archived is not None and not outcome.ids:
            await self._change(guild, archived.id, {"state": "archived"})
        elif outcome.status in ("created", "merged"):
            await self._renew(guild, outcome.ids[0], draft, message_id)
            if outcome.status == "merged":
                outcome = replace(outcome, status="updated")
        if outcome.status in ("created", "updated"):
            await self.archive(guild_id, draft.labels.subject, keep)
        return outcome

    async def _renew(
        self, guild: ScopedClient, id: str, draft: Draft, message_id: str | None
    ) -> None:
        """Give a fact, known or not, what came with it this time; one message may hold several
        facts.
        """
        old = await guild.get(id)
        given = {
            "fact_type": draft.fact_type,
            "category": draft.category,
            "kind": draft.kind,
            "procedural_form": "preference" if draft.kind == "procedural" else None,
            "labels": replace(old.labels, channel=draft.labels.channel),
            "evidence_text": draft.evidence_text,
            "source_message_id": message_id,
        }
        new = {name: value for name, value in given.items() if value != getattr(old, name)}
        await self._change(guild, id, new)

    async def _change(self, guild: ScopedClient, id: str, fields: Mapping[str, Any]) -> None:
        if fields:
            await edit.change(self._ctx, guild.scope, id, "updated", fields, None)


async def _find_archived(guild: ScopedClient, draft: Draft) -> Memory | None:
    """Return the same fact if it was archived before."""
    where = Filter(
        content_hash=normalize.content_hash(draft.text),
        subjects=(draft.labels.subject or "",),
        kinds=_FACTS,
        states=("archived",),
    )
    with suppress(StoreUnavailable):  # then the fact is spooled and becomes a row of its own
        return next(iter(await guild.list(where, limit=1)), None)
    return None


def _action(event: Event) -> str:
    """Return the name of an event in Clanker's log; empty for what it does not log."""
    if event.status == "error" and event.category in ("bot_error", "voice_error"):
        return event.category
    call = "error" if event.status == "error" else "call"
    if event.op == "embed":
        return f"memory_embedding_{call}"
    if event.node == "worker" and (event.category or "").startswith(job.NAME):
        return f"memory_extract_{call}"
    return "memory_fact" if event.node == "hotpath" and event.op in _STORED else ""


def _check_subject(given: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise InvalidInput("A fact needs a subject: the id of a user, or __lore__")
    return given


async def _recall(
    guild: ScopedClient, question: str, subjects: Sequence[str], limit: int, *, strict: bool = False
) -> tuple[Memory, ...]:
    profile = CLANKER_STRICT if strict else CLANKER
    where = Filter(kinds=_FACTS, subjects=tuple(subjects))
    return (await guild.recall(question, limit=limit, profile=profile, where=where)).memories


async def _search_messages(guild: ScopedClient, question: str, channel: str) -> list[Memory]:
    """Return the newest messages that hold one of the question's longer words; without any, the
    newest.
    """
    words = [word for word in normalize.compact(question).split() if len(word) >= 4]
    wanted = list(dict.fromkeys(words))[:5]
    where = Filter(kinds=("episodic",), labels=Labels(channel=channel, role="user"))
    found: list[Memory] = []
    for memory in (await guild.list(where, limit=_SEARCHED)).memories:
        text = normalize.compact(memory.text)
        if not wanted or any(word in text for word in wanted):
            found.append(memory)
        if len(found) == RELEVANT_MESSAGES:
            break
    return found
