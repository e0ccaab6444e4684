"""The list that a chat command last showed: "yes" and "the second one" refer to it.

It is kept in the database for each session, as ids without words, and expires; calls without a
session count as one. Nothing is kept of an incognito session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from ..context import Place
from ..ingest import transitions
from ..retrieve import render
from ..storage import person
from ..storage.person import Shown
from ..text import commands, cues, normalize, tokens
from ..text.commands import Command
from ..text.cues import asking_share
from ..types import REPLACES, Filter, Hit, Labels, Memory, Receipt, frozen
from . import edit, recall
from .privacy import is_incognito

RECENT = 50  # memories of a chat that are looked at
KNOWN = 1000  # memories that are counted
SHOWN = 10
NO_SESSION = ""  # calls without a session count as one
CHOICES = 4
MENTIONED = 200  # memories about a topic
# The confidence from which a memory without a word of the topic is about it.
ALIKE = 0.35
ALIKE_IF_SHOWN = 0.15
# Stems of words that say what somebody thinks of a thing, not which thing.
_ATTITUDES = tokens.word_set("""
    like love hate enjoy prefer want need use have get go old
    mag hass lieb aim déteste odi gust gost amo adoro mi piac
    """)
_TURNED = {"my": "your", "our": "your", "mine": "yours", "me": "you", "myself": "yourself"}
_CLAUSE = tokens.word_set("i im i'm i’m ive i've i’ve id i'd we we're")  # "you" needs another verb
_LASTING = ("semantic", "procedural", "insight")
_GROUPS = ("forget", "show", "memory", "incognito", "confirm")
ONE = 'Reply "yes" to forget it, or "no" to keep it.'
SEVERAL = 'Reply with a number, "all" or "no".'
Remember = Callable[..., Awaitable[Receipt]]


@frozen
class Reply:
    """The result of a command, and what to say to the person."""

    # show · forget · undo · pin · unpin · save · dont_save · correct · confirm · memory · incognito
    # · consent
    command: str
    say: str
    done: bool  # False: nothing was changed; if there are ids, the reply is a question
    # what was changed or shown, or what to choose from: pass them as `about` next time
    ids: tuple[str, ...] = ()
    intent: str = ""  # more precise than `command`, such as forget_topic or memory_off


@frozen
class Mentions:
    """The memories that a search for a topic found, by what they have of it."""

    exact: Sequence[Memory]  # its names, or all its words
    partly: Sequence[Memory]  # half of its words
    others: Sequence[Hit]  # none of its words

    def alike(self, least: float) -> list[Memory]:
        """Return the few others of which recall is so sure that they are about it."""
        sure = [hit.memory for hit in self.others if (hit.confidence or 0.0) >= least]
        return sure[:CHOICES]


class ChatList(Place):
    """A chat, and the list that it last showed."""

    intent = ""  # what is being carried out

    is_incognito = is_incognito

    async def load_shown(self) -> Shown:
        """Return the list that was last shown in this session."""
        session = self.labels.session or NO_SESSION
        return await person.load_shown(self.ctx.store, self.scope, session, self.ctx.clock())

    async def save_shown(self, ids: Sequence[str], *, asks: str = "", new: str = "") -> None:
        """Keep a list for the answer of the person."""
        session = self.labels.session or NO_SESSION
        if await self.is_incognito():
            return
        shown = Shown(ids=tuple(ids), asks=asks, new=new)
        async with self.ctx.store.transaction(self.scope) as tx:
            await person.save_shown(tx, session, shown, self.ctx.clock())

    def reply(self, say: str, ids: Sequence[str] = (), *, done: bool = False) -> Reply:
        """Return a reply to the command."""
        intent = self.intent
        group = intent.split("_")[0]
        command = group if group in _GROUPS else intent
        if intent in ("approve", "deny"):
            command = "consent"
        return Reply(command=command, say=say, done=done, ids=tuple(ids), intent=intent)

    async def ask(self, found: Sequence[Memory]) -> Reply:
        """Show memories and ask which of them is meant."""
        ids = ids_of(found)
        await self.save_shown(ids, asks=self.intent)
        if len(found) == 1:
            return self.reply(f"Do you mean this?\n{number(found)}\n{ONE}", ids)
        listed = number(found[:SHOWN])
        if (more := len(found) - SHOWN) > 0:
            listed += f'\n… and {more} more. "all" means all {len(found)}.'
        return self.reply(f"Which one do you mean?\n{listed}\n{SEVERAL}", ids)

    async def end(self, say: str, ids: Sequence[str], *, done: bool = True) -> Reply:
        """Reply, and keep the list: the next command may refer to it."""
        await self.save_shown(ids)
        return self.reply(say, ids, done=done)

    async def list_done(self, say: str, found: Sequence[Memory]) -> Reply:
        """Reply with a list of the memories that this is about."""
        return await self.end(f"{say}\n{number(found)}", ids_of(found))

    async def load(self, ids: Sequence[str]) -> list[Memory]:
        """Return the memories that are still there, in this order."""
        found = await self.ctx.store.get(self.scope, list(ids))
        by_id = {memory.id: memory for memory in found if memory.state != "soft_deleted"}
        return [by_id[id] for id in ids if id in by_id]

    async def list_session(self) -> list[Memory]:
        """Return what was stored in this session, newest first."""
        session = self.labels.session
        if session is None:
            return []
        where = Filter(labels=Labels(session=session))
        return [*await self.ctx.store.page(self.scope, where, limit=RECENT)]

    async def find_last_said(self) -> list[Memory]:
        """Return the last words of the person in this session, if there are any."""
        found = await self.list_session()
        return [*filter(cues.is_persons, found)][:1]

    async def find(self, topic: str, where: Filter | None = None) -> list[Memory]:
        """Return what is stored about a topic, also while memory is off: the person asks for it."""
        if not topic:
            page = await self.ctx.store.page(self.scope, where or Filter(), limit=SHOWN)
            return list(page)
        return list(await recall.look_up(self, topic, SHOWN, where))

    async def find_about(self, topic: str, where: Filter | None = None) -> list[Memory]:
        """Return the memories that a topic may mean; none if nothing is about it."""
        found = await self.find_mentions(topic, where)
        return list(found.exact or found.partly) or found.alike(ALIKE)

    async def find_mentions(self, topic: str, where: Filter | None = None) -> Mentions:
        """Return the memories that mention a topic, also while memory is off."""
        answer = await recall.search(self, topic, MENTIONED, where, min_confidence=0)
        return select_mentions(answer.hits, topic)

    async def find_outdated(self, topic: str, found: Sequence[Memory]) -> list[Memory]:
        """Return what the best of the found memories replaced, the latest first."""
        outdated: dict[str, Memory] = {}
        newer = list(found[:1])
        while newer and len(outdated) < CHOICES:
            before = transitions.held_since(newer[0]) - timedelta(microseconds=1)
            then = await recall.look_up(self, topic, SHOWN, as_of=before)
            ended = [each for each in share_words(then, topic) if each.valid_to is not None]
            newer = [each for each in ended if each.id not in outdated]
            outdated |= {each.id: each for each in newer}
        return list(outdated.values())[:CHOICES]

    async def find_replaced(self, topic: str) -> list[Memory]:
        """Return what was replaced by the memories that a topic may mean: "my old address"."""
        replaced: dict[str, Memory] = {}
        store = self.ctx.store
        about = await self.find_mentions(commands.leave_out_old(topic))
        newer = ids_of([*about.exact, *about.partly] or about.alike(ALIKE_IF_SHOWN))
        while newer and len(replaced) < CHOICES:
            ids = await store.earlier_versions(self.scope, newer)
            for id in newer:
                pairs = await store.relations(self.scope, REPLACES, limit=CHOICES, from_id=id)
                ids += [pair.to_id for pair in pairs]
            found = [each for each in await self.load(ids) if each.id not in replaced]
            replaced |= {each.id: each for each in found}
            newer = ids_of(found)
        return list(replaced.values())[:CHOICES]

    async def list_known(self) -> list[Memory]:
        """Return what is known, newest first: facts and notes, and then what the person said.

        Left out are questions, statements with a newer value, and turns whose facts are listed.
        """
        facts = await self.ctx.store.page(self.scope, Filter(kinds=_LASTING), limit=KNOWN)
        said = await self.ctx.store.page(self.scope, Filter(kinds=("episodic",)), limit=KNOWN)
        conflicts = await edit.list_conflicts(self.ctx.store, self.scope, limit=KNOWN)
        older = {each.old.id for each in conflicts if not each.old.pinned}
        stored = [each for each in (*facts, *said) if each.id not in older]
        found = [memory for memory in stored if memory.valid_to is None]
        sources = {id for memory in found for id in memory.evidence_ids}
        known = []
        for memory in found:
            is_stated = memory.kind != "episodic" or cues.is_persons(memory)
            if is_stated and memory.id not in sources and asking_share(memory.text) < 1:
                known.append(memory)
        return known


def choose(ids: Sequence[str], command: Command) -> tuple[str, ...]:
    """Return those of a list that a command names by their places, or all of them.

    >>> choose(["a", "b", "c"], Command(intent="forget_listed", which="listed", places=(0, -1)))
    ('a', 'c')
    """
    if not command.places:
        return tuple(ids)
    return tuple(ids[place] for place in command.places if -len(ids) <= place < len(ids))


def ids_of(memories: Sequence[Memory]) -> tuple[str, ...]:
    """Return the ids of memories."""
    return tuple(memory.id for memory in memories)


def describe_topic(command: Command) -> str:
    """Return the topic for a reply in English; empty if that would not be a sentence.

    >>> describe_topic(Command(intent="forget_topic", topic="my car"))
    ' about your car'
    >>> describe_topic(Command(intent="forget_topic", topic="I hate tea"))
    ''
    """
    spoken = command.topic.split()
    if command.language != "en" or not _CLAUSE.isdisjoint(word.lower() for word in spoken):
        return ""
    turned = [_TURNED.get(word.lower(), word) for word in spoken]
    return f" about {' '.join(turned)}" if turned else ""


def number(memories: Sequence[Memory]) -> str:
    """Return memories as numbered lines, with the speaker where that is not the person."""
    lines = []
    for place, memory in enumerate(memories, 1):
        who = render.credit(memory)
        words = normalize.one_line(memory.text)
        short = words if len(words) <= 200 else f"{words[:199]}…"
        notes = "".join(f" ({note})" for note in (who, "pinned" if memory.pinned else "") if note)
        lines.append(f"{place}. {short}{notes}")
    return "\n".join(lines)


def select_mentions(hits: Sequence[Hit], topic: str) -> Mentions:
    """Return those of the found memories that are about a topic."""
    language = tokens.detect_language(tokens.words(topic))
    wanted = set(tokens.analyze(topic, language))
    telling = wanted - _ATTITUDES or wanted
    capitalized = [word for word in topic.split() if word[0].isupper()]
    names = telling.intersection(tokens.analyze(" ".join(capitalized), language))
    exact: list[Memory] = []
    partly: list[Memory] = []
    others: list[Hit] = []
    for hit in hits:
        terms = set(tokens.analyze(hit.memory.text, language))
        shared = terms & telling
        if shared and (shared == telling or (names and names <= terms)):
            exact.append(hit.memory)
        elif shared and 2 * len(shared) >= len(telling):
            partly.append(hit.memory)
        elif not terms & wanted:
            others.append(hit)
    return Mentions(exact=exact, partly=partly, others=others)


def share_words(memories: Sequence[Memory], text: str) -> list[Memory]:
    """Return the memories that have a word of a text that says something."""
    wanted = set(tokens.analyze(text))
    return [each for each in memories if not wanted.isdisjoint(tokens.analyze(each.text))]
