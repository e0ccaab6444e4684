"""Clanker's durable facts in its own words: facts and lore of a guild, the slice for a prompt, search.

A guild is one scope, so nothing crosses from one to another; whom a fact is about is its subject, and a channel only
counts a little in the ranking. Messages are kept beside the facts, for the slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ..client import Client
from ..errors import InvalidInput, ProviderFailed, StoreUnavailable
from ..extraction import job
from ..ingest import guard, transitions, validation
from ..jobs import embed
from ..manage import edit
from ..manage.journal import LORE
from ..retrieve import profiles
from ..scoped import ScopedClient
from ..storage.changes import Happened, Put
from ..text import compare, normalize
from ..types import GUILD, Draft, Filter, Labels, Memory, Message, Outcome, Recall

UNSUPPORTED = "its words are not those of its source"
POLICY, MESSAGES = "clanker.guild", "clanker.messages"
KEEP_FACTS, KEEP_LORE = 80, 120  # of one subject; older ones are archived
LORE_CONFIDENCE = 0.72
RECENT = 35  # messages of a chat window, unless a bot says otherwise
USER_FACTS, RELEVANT_FACTS, RELEVANT_MESSAGES, MOST_FOUND = 8, 10, 8, 24
_FACTS = ("semantic", "procedural")
_STORED = ("create", "update", "merge")
BACKFILLED = 8  # facts at most that a question waits for
_READ = 1000  # messages of a channel that a search looks back


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What goes before the model."""

    user_facts: tuple[Memory, ...]
    relevant_facts: tuple[Memory, ...]
    relevant_messages: tuple[Memory, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """What a model's reply asked of the memory, and got."""

    kept: Outcome | None = None  # what became of its `memoryLine`
    found: tuple[Memory, ...] = ()  # what answers its `memoryLookup`


class Clanker:
    """Clanker's API over an engine."""

    def __init__(self, engine: Client) -> None:
        self._engine = engine

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
        """Keep a fact about somebody, or renew the one that says the same; the oldest of more than 80 are archived.

        With `source_text`, the fact has to rest on it, and evidence that does not is left out. Raises InvalidInput.
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
            labels=Labels(subject=_subject(subject), channel=channel_id),
            evidence_text=proof or None,
            source_ids=(source_message_id,) if source_message_id else (),
            confidence=confidence,
        )
        return await self._added(guild_id, draft, source_message_id, KEEP_FACTS)

    async def remember_line(
        self,
        guild_id: str,
        line: str,
        *,
        source_text: str | None = None,
        source_message_id: str | None = None,
        channel_id: str | None = None,
    ) -> Outcome:
        """Keep a line of lore, which belongs to the whole guild; the latest 120 stay. Raises InvalidInput."""
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
        return await self._added(guild_id, draft, source_message_id, KEEP_LORE)

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

        `memoryLine` is kept as lore, `memoryLookup` is answered by `search_durable_facts`; what is no text, or blank,
        asks for nothing. Raises InvalidInput.
        """
        line, lookup = (_said(reply.get(name)) for name in ("memoryLine", "memoryLookup"))
        about = {
            "source_text": source_text,
            "source_message_id": source_message_id,
            "channel_id": channel_id,
        }
        kept = await self.remember_line(guild_id, line, **about) if line else None
        found = (
            await self.search_durable_facts(guild_id, lookup, channel_id=channel_id)
            if lookup
            else ()
        )
        return Handled(kept=kept, found=tuple(found))

    async def actions(self, guild_id: str, *, limit: int = 100) -> list[dict[str, Any]]:
        """What was done for a guild, newest first, as Clanker logs it: its kind, and what it is about."""
        lines = await self._guild(guild_id).events(limit=limit)
        return [
            {"kind": kind, "memory_id": each.memory_id, "created_at": each.at.isoformat()}
            for each in lines
            if (kind := _kind(each))
        ]

    def failed(self, guild_id: str, source: str) -> None:
        """Note that a message could not be taken in; nothing of it is kept."""
        of = "voice" if source.startswith("voice") else "bot"
        line = Happened(
            node="hotpath",
            op="create",
            at=self._engine.ctx.clock(),
            status="error",
            category=f"{of}_error",
        )
        self._engine.ctx.access_log.note(self._guild(guild_id).scope, [line])

    async def add_message(
        self,
        guild_id: str,
        channel_id: str,
        message: Message,
        *,
        author_id: str | None = None,
        source: str = "text",
    ) -> Outcome:
        """Keep a message of a channel for the slices to come; facts that are drawn from it are about its author.

        `source` says where it came from, for instance which voice pipeline. Raises InvalidInput.
        """
        guild = self._guild(guild_id, channel_id, subject=author_id, run=source)
        return (await guild.remember(message, policy=MESSAGES)).outcomes[0]

    async def build_prompt_memory_slice(
        self, guild_id: str, user_id: str, query_text: str, *, channel_id: str | None = None
    ) -> Slice:
        """Facts about the user, facts and lore that fit, and messages of the channel that share a word.

        Where memory is off, nothing.
        """
        guild = self._guild(guild_id, channel_id)
        if await guild.privacy.disabled_reason():
            return Slice(user_facts=(), relevant_facts=(), relevant_messages=())
        await self._embedded(guild)
        own = await _facts(guild, query_text, (_subject(user_id),), USER_FACTS)
        all_ = await _facts(guild, query_text, (_subject(user_id), LORE), RELEVANT_FACTS)
        said = await _messages(guild, query_text, channel_id) if channel_id is not None else []
        return Slice(
            user_facts=own.memories, relevant_facts=all_.memories, relevant_messages=tuple(said)
        )

    async def search_durable_facts(
        self, guild_id: str, query_text: str, *, channel_id: str | None = None, limit: int = 10
    ) -> list[Memory]:
        """The facts of a guild that answer, whomever they are about: 1 to 24, or none if none is near enough."""
        guild, most = self._guild(guild_id, channel_id), min(MOST_FOUND, max(1, limit))
        await self._embedded(guild)
        return list((await _facts(guild, query_text, (), most, strict=True)).memories)

    async def recent_messages(
        self, guild_id: str, channel_id: str, *, limit: int = RECENT
    ) -> list[Memory]:
        """The newest messages of a channel, oldest first: the window of a chat, of 10 to 120 of them."""
        where = Filter(kinds=("episodic",), labels=Labels(channel=channel_id))
        page = await self._guild(guild_id).list(where, limit=min(120, max(10, limit)))
        return list(page.memories)[::-1]

    async def _embedded(self, guild: ScopedClient) -> None:
        """Give vectors to a few facts that have none; a model that is away is no reason not to answer."""
        embedder = self._engine.ctx.embedder
        with suppress(ProviderFailed):
            if embedder is not None and not await guild.privacy.disabled_reason():
                bare = await guild.list(
                    Filter(kinds=_FACTS, needs_embedding=True), limit=BACKFILLED
                )
                if bare.memories:
                    await embed.some(
                        self._engine.ctx.store, embedder, bare.memories, self._engine.ctx.clock()
                    )

    def _guild(
        self, guild_id: str, channel_id: str | None = None, **labels: str | None
    ) -> ScopedClient:
        return self._engine.scope(
            user=GUILD, space=validation.name("guild", guild_id), channel=channel_id, **labels
        )

    async def _added(
        self, guild_id: str, draft: Draft, message_id: str | None, keep: int
    ) -> Outcome:
        guild = self._guild(guild_id)
        if not draft.text:
            return Outcome(status="refused", reason="it is too short for a fact")
        archived = (
            None if await guild.privacy.disabled_reason() else await self._archived(guild, draft)
        )
        if archived is not None:
            await guild.restore(archived.id)
        outcome = (await guild.remember_drafts([draft], policy=POLICY)).outcomes[0]
        if archived is not None and not outcome.ids:
            await self._changed(guild, archived.id, {"state": "archived"})
        elif outcome.status in ("created", "merged"):
            await self._renew(guild, outcome.ids[0], draft, message_id)
            outcome = replace(
                outcome, status="created" if outcome.status == "created" else "updated"
            )
        if outcome.status in ("created", "updated"):
            await self.archive(guild_id, draft.labels.subject, keep)
        return outcome

    async def _archived(self, guild: ScopedClient, draft: Draft) -> Memory | None:
        """The same fact, archived a while ago."""
        same = normalize.content_hash(draft.text)
        where = Filter(
            content_hash=same,
            subjects=(draft.labels.subject or "",),
            kinds=_FACTS,
            states=("archived",),
        )
        with suppress(StoreUnavailable):  # then it waits, and becomes a row of its own
            return next(iter(await guild.list(where, limit=1)), None)
        return None

    async def _renew(
        self, guild: ScopedClient, id: str, draft: Draft, message_id: str | None
    ) -> None:
        """A fact, known or not, takes over what came with it this time; one message may hold several."""
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
        await self._changed(
            guild, id, {name: new for name, new in given.items() if new != getattr(old, name)}
        )

    async def _changed(self, guild: ScopedClient, id: str, fields: Mapping[str, Any]) -> None:
        if fields:
            await edit.changed(self._engine.ctx, guild.scope, id, "updated", fields, None)

    async def archive(self, guild_id: str, subject: str | None, keep: int = KEEP_FACTS) -> None:
        """Archive all but the newest facts of a subject; what is pinned stays. Nothing is deleted."""
        guild = self._guild(guild_id)
        where = Filter(subjects=(subject or "",), kinds=_FACTS)
        if len(await self._engine.ctx.store.rows_where(guild.scope, where)) <= keep:
            return
        async with self._engine.ctx.store.transaction(guild.scope) as tx:
            known = (await tx.page(guild.scope, where, limit=1000)).memories
            newest = sorted(known, key=lambda memory: (memory.updated_at, memory.id), reverse=True)
            now = self._engine.ctx.clock()
            old = [
                transitions.archive(memory, now) for memory in newest[keep:] if not memory.pinned
            ]
            await tx.apply(
                [Put(memory=each, event="updated", meta={"reason": f"keep {keep}"}) for each in old]
            )


def _kind(line: Happened) -> str:
    """What Clanker calls it; empty for what it does not log."""
    if line.status == "error" and line.category in ("bot_error", "voice_error"):
        return line.category
    call = "error" if line.status == "error" else "call"
    if line.op == "embed":
        return f"memory_embedding_{call}"
    if line.node == "worker" and (line.category or "").startswith(job.NAME):
        return f"memory_extract_{call}"
    return "memory_fact" if line.node == "hotpath" and line.op in _STORED else ""


def _said(given: object) -> str:
    return given.strip() if isinstance(given, str) else ""


def _subject(given: str) -> str:
    if not isinstance(given, str) or not given.strip():
        raise InvalidInput("A fact needs a subject: the id of a user, or __lore__")
    return given


async def _facts(
    guild: ScopedClient, question: str, subjects: Sequence[str], limit: int, *, strict: bool = False
) -> Recall:
    by = profiles.CLANKER_STRICT if strict else profiles.CLANKER
    return await guild.recall(
        question, limit=limit, profile=by, where=Filter(kinds=_FACTS, subjects=tuple(subjects))
    )


async def _messages(guild: ScopedClient, question: str, channel: str) -> list[Memory]:
    """The newest messages of a channel that hold one of the question's longer words; without any, the newest."""
    wanted = list(
        dict.fromkeys(word for word in normalize.compact(question).split() if len(word) >= 4)
    )[:5]
    page = await guild.list(
        Filter(kinds=("episodic",), labels=Labels(channel=channel, role="user")), limit=_READ
    )
    said = (memory for memory in page.memories if not wanted or _holds(memory, wanted))
    return [memory for memory, _ in zip(said, range(RELEVANT_MESSAGES), strict=False)]


def _holds(memory: Memory, words: Sequence[str]) -> bool:
    text = normalize.compact(memory.text)
    return any(word in text for word in words)
