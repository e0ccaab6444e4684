"""Clanker: durable facts and lore of a guild, the slice of them for a prompt, search.

A guild is one scope, so guilds are isolated from each other. A fact's subject is whom it is about;
a channel has little weight in the ranking. Messages are stored with the facts, for the slice.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from ... import extraction
from ...client import Client
from ...embedders.openai import MODEL, VARIABLE
from ...errors import InvalidInput, ProviderFailed, StoreUnavailable
from ...ingest import guard, transitions, validation
from ...jobs import vectors
from ...manage import edit
from ...manage.journal import LORE
from ...retrieve.profiles import Profile
from ...scoped import ScopedClient
from ...storage import Change, Event, Save
from ...text import compare, normalize
from ...types import GUILD, Draft, Filter, Labels, Memory, Message, Outcome, Recall, frozen
from .. import CLANKER, CLANKER_STRICT

UNSUPPORTED = "its words are not those of its source"
POLICY = "clanker.guild"
MESSAGES = "clanker.messages"
KEEP_FACTS = 80  # of one subject; older ones are archived
KEEP_LORE = 120  # likewise
LORE_CONFIDENCE = 0.72
RECENT = 35  # messages of a chat window, unless a bot asks for another number
USER_FACTS = 8
RELEVANT_FACTS = 10
RELEVANT_MESSAGES = 8
MAX_FOUND = 24
BACKFILLED = 8  # facts that are embedded, at most, before a question is answered
_FACTS = ("semantic", "procedural")
_STORED = ("create", "update", "merge")
_SEARCHED = 1000  # latest messages of a channel that are searched


@frozen
class Slice:
    """The memories for a prompt."""

    user_facts: tuple[Memory, ...] = ()
    relevant_facts: tuple[Memory, ...] = ()
    relevant_messages: tuple[Memory, ...] = ()


@frozen
class Handled:
    """The results of what a model's reply asked for."""

    kept: Outcome | None = None  # of its `memoryLine`
    found: tuple[Memory, ...] = ()  # for its `memoryLookup`


def embedding_model(
    settings: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> str:
    """Return the embedding model of a bot: from its settings, else the environment, else the
    default.

    It belongs after `openai:` in the setting `embedder`. A blank setting is ignored.

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
        self._client = client
        self._ctx = client.ctx

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
        """Store a fact about a subject, or renew the one that says the same. Only the newest 80
        stay, older ones are archived.

        With `source_text`, the fact has to be grounded in it, and evidence that is not is left out.
        Raises InvalidInput.
        """
        line = guard.to_line(fact, "fact")
        proof = guard.to_line(evidence_text, "evidence") if evidence_text else ""
        if source_text is not None and not compare.is_supported(proof, source_text):
            proof = ""
        kind = guard.to_fact_type(fact_type)
        draft = Draft(
            text=line,
            kind="procedural" if kind == "preference" else "semantic",
            fact_type=kind,
            category=kind,
            labels=Labels(subject=_check_subject(subject), channel=channel_id),
            evidence_text=proof or None,
            confidence=confidence,
        )
        return await self._add(guild_id, draft, line, source_text, source_message_id, KEEP_FACTS)

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
        draft = Draft(
            text=f"Memory line: {said}.",
            kind="semantic",
            fact_type="lore",
            category="lore",
            labels=Labels(subject=LORE, channel=channel_id),
            confidence=LORE_CONFIDENCE,
        )
        return await self._add(guild_id, draft, said, source_text, source_message_id, KEEP_LORE)

    async def handle_reply(
        self,
        guild_id: str,
        reply: Mapping[str, Any],
        *,
        source_text: str | None = None,
        source_message_id: str | None = None,
        channel_id: str | None = None,
    ) -> Handled:
        """Do what the output of a model asks for, in a text reply or a voice turn.

        `memoryLine` is stored as lore, `memoryLookup` is answered by `search_durable_facts`; blank
        text and other values are ignored. Raises InvalidInput.
        """
        line = reply.get("memoryLine")
        lookup = reply.get("memoryLookup")
        kept = None
        found: list[Memory] = []
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
        """Return the actions for a guild, newest first, under the names of Clanker's log."""
        actions: list[dict[str, Any]] = []
        for event in await self._guild(guild_id).events(limit=limit):
            category = event.category or ""
            call = "error" if event.status == "error" else "call"
            if call == "error" and category in ("bot_error", "voice_error"):
                kind = category
            elif event.op == "embed":
                kind = f"memory_embedding_{call}"
            elif event.node == "worker" and category.startswith(extraction.NAME):
                kind = f"memory_extract_{call}"
            elif event.node == "hotpath" and event.op in _STORED:
                kind = "memory_fact"
            else:
                continue  # what Clanker does not log
            at = event.at.isoformat()
            actions.append({"kind": kind, "memory_id": event.memory_id, "created_at": at})
        return actions

    def note_failure(self, guild_id: str, source: str) -> None:
        """Record that a message could not be stored, without its text."""
        category = "voice_error" if source.startswith("voice") else "bot_error"
        now = self._ctx.clock()
        event = Event(node="hotpath", op="create", at=now, status="error", category=category)
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
        self,
        guild_id: str,
        user_id: str,
        query_text: str,
        *,
        channel_id: str | None = None,
    ) -> Slice:
        """Return facts about the user, relevant facts and lore, and messages of the channel.

        The messages are the newest that contain one of the question's longer words; if it has none,
        the newest. Empty if memory is off.
        """
        guild = self._guild(guild_id, channel_id)
        if await guild.privacy.disabled_reason():
            return Slice()
        await self._backfill(guild)
        user = _check_subject(user_id)
        own = (await _recall(guild, CLANKER, query_text, USER_FACTS, user)).memories
        about = await _recall(guild, CLANKER, query_text, RELEVANT_FACTS, user, LORE)
        messages: tuple[Memory, ...] = ()
        if channel_id is not None:
            words = [word for word in normalize.compact(query_text).split() if len(word) >= 4]
            wanted = list(dict.fromkeys(words))[:5]
            where = Filter(kinds=("episodic",), labels=Labels(channel=channel_id, role="user"))

            def is_wanted(memory: Memory) -> bool:
                text = normalize.compact(memory.text)
                return not wanted or any(word in text for word in wanted)

            found = filter(is_wanted, await guild.list(where, limit=_SEARCHED))
            messages = tuple(islice(found, RELEVANT_MESSAGES))
        return Slice(user_facts=own, relevant_facts=about.memories, relevant_messages=messages)

    async def search_durable_facts(
        self,
        guild_id: str,
        query_text: str,
        *,
        channel_id: str | None = None,
        limit: int = 10,
    ) -> list[Memory]:
        """Return up to 24 relevant facts of a guild, about any subject."""
        found = await self.rank_durable_facts(guild_id, query_text, channel_id, limit)
        return list(found.memories)

    async def rank_durable_facts(
        self, guild_id: str, query_text: str, channel_id: str | None, limit: int
    ) -> Recall:
        """Return what `search_durable_facts` finds, with the scores."""
        guild = self._guild(guild_id, channel_id)
        await self._backfill(guild)
        most = min(MAX_FOUND, max(1, limit))
        return await _recall(guild, CLANKER_STRICT, query_text, most)

    async def recent_messages(
        self,
        guild_id: str,
        channel_id: str,
        *,
        limit: int = RECENT,
    ) -> list[Memory]:
        """Return the newest 10 to 120 messages of a channel, oldest first."""
        where = Filter(kinds=("episodic",), labels=Labels(channel=channel_id))
        page = await self._guild(guild_id).list(where, limit=min(120, max(10, limit)))
        return list(page.memories)[::-1]

    async def archive(
        self,
        guild_id: str,
        subject: str,
        keep: int = KEEP_FACTS,
    ) -> None:
        """Archive all but the newest facts of a subject, except pinned ones. Nothing is deleted."""
        scope = self._guild(guild_id).scope
        store = self._ctx.store
        where = Filter(subjects=(subject,), kinds=_FACTS)
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
        """Embed a few facts that have no vector; without the model, keyword search is used."""
        with suppress(ProviderFailed):
            if not await guild.privacy.disabled_reason():
                where = Filter(kinds=_FACTS, needs_embedding=True)
                found = await guild.list(where, limit=BACKFILLED)
                await vectors.embed_now(self._ctx, found.memories)

    def _guild(
        self, guild_id: str, channel_id: str | None = None, **labels: str | None
    ) -> ScopedClient:
        space = validation.name("guild", guild_id)
        return self._client.scope(user=GUILD, space=space, channel=channel_id, **labels)

    async def _add(
        self,
        guild_id: str,
        draft: Draft,
        line: str,
        source_text: str | None,
        message_id: str | None,
        keep: int,
    ) -> Outcome:
        """Store a fact, or renew the one that says the same, and archive the oldest."""
        guild = self._guild(guild_id)
        subject = draft.labels.subject or ""
        if not line:
            return Outcome(status="refused", reason="it is too short for a fact")
        if source_text is not None and not compare.is_supported(line, source_text):
            return Outcome(status="refused", reason=UNSUPPORTED)
        draft = replace(draft, source_ids=(message_id,) if message_id else ())
        same = normalize.content_hash(draft.text)
        where = Filter(content_hash=same, subjects=(subject,), kinds=_FACTS, states=("archived",))
        archived: list[Memory] = []
        with suppress(StoreUnavailable):  # then the fact is spooled and becomes a new row
            if not await guild.privacy.disabled_reason():
                archived = list(await guild.list(where, limit=1))
        if archived:
            await guild.restore(archived[0].id)
        outcome = (await guild.remember_drafts([draft], policy=POLICY)).outcomes[0]
        if outcome.status in ("created", "merged"):
            old = await guild.get(outcome.ids[0])
            given = {
                "fact_type": draft.fact_type,
                "category": draft.category,
                "kind": draft.kind,
                "procedural_form": "preference" if draft.kind == "procedural" else None,
                "labels": replace(old.labels, channel=draft.labels.channel),
                "evidence_text": draft.evidence_text,
                "source_message_id": message_id,  # one message may have several facts
            }
            new = {name: value for name, value in given.items() if value != getattr(old, name)}
            if new:
                await edit.change(guild, old.id, "updated", new, None)
        elif archived and not outcome.ids:
            await edit.change(guild, archived[0].id, "updated", {"state": "archived"}, None)
        if outcome.status == "merged":
            outcome = replace(outcome, status="updated")
        if outcome.status in ("created", "updated"):
            await self.archive(guild_id, subject, keep)
        return outcome


def _check_subject(given: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise InvalidInput("A fact needs a subject: the id of a user, or __lore__")
    return given


async def _recall(
    guild: ScopedClient, profile: Profile, question: str, limit: int, *subjects: str
) -> Recall:
    where = Filter(kinds=_FACTS, subjects=subjects)
    return await guild.recall(question, limit=limit, profile=profile, where=where)
