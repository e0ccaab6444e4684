"""The list that a chat command last showed: "yes" and "the second one" refer to it.

It is kept in the database for each session, as ids without words, and expires; calls without a
session count as one. Nothing is kept of an incognito session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ..context import Place
from ..retrieve import render
from ..storage import person
from ..storage.person import Shown
from ..text import cues, normalize, tokens
from ..text.commands import Command
from ..text.cues import asking_share
from ..types import Filter, Labels, Memory, Receipt, frozen
from . import edit, recall
from .privacy import is_incognito
from .topics import load

RECENT = 50  # memories of a chat that are looked at
KNOWN = 1000  # memories that are counted
SHOWN = 10
NO_SESSION = ""  # calls without a session count as one
_TURNED = {"my": "your", "our": "your", "mine": "yours", "me": "you", "myself": "yourself"}
_CLAUSE = tokens.word_set("i im i'm i’m ive i've i’ve id i'd we we're")  # "you" needs another verb
_LASTING = ("semantic", "procedural", "insight")
_GROUPS = ("forget", "show", "memory", "incognito", "confirm")
UNCLEAR = "I cannot tell which memory you mean."
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


class ChatList(Place):
    """A chat, and the list that it last showed."""

    intent = ""  # what is being carried out
    asked = ""  # the intent that waits for an answer

    is_incognito = is_incognito
    load = load

    async def load_shown(self) -> Shown:
        """Return the list that was last shown in this session."""
        session = self.labels.session or NO_SESSION
        return await person.load_shown(self.ctx.store, self.scope, session, self.ctx.clock())

    async def save_shown(self, ids: Sequence[str], *, asks: str = "", new: str = "") -> None:
        """Keep a list for the answer of the person."""
        self.asked = asks
        session = self.labels.session or NO_SESSION
        if await self.is_incognito():
            return
        shown = Shown(ids=tuple(ids), asks=asks, new=new)
        async with self.ctx.store.transaction(self.scope) as tx:
            await person.save_shown(tx, session, shown, self.ctx.clock())

    async def note_obeyed(self, text: str) -> None:
        """Note that a message was carried out: the same message is not stored as a memory."""
        session = self.labels.session or NO_SESSION
        if await self.is_incognito():
            return
        async with self.ctx.store.transaction(self.scope) as tx:
            await person.note_obeyed(tx, session, text, self.ctx.clock())

    async def drop_obeyed(self, text: str) -> None:
        """Let a message be stored that was carried out before and is not a command this time."""
        session = self.labels.session or NO_SESSION
        if await person.is_obeyed(self.ctx.store, self.scope, session, text):
            async with self.ctx.store.transaction(self.scope) as tx:
                await person.drop_obeyed(tx, session, text)

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
        return leave_out_questions([*filter(cues.is_persons, found)])[:1]

    async def find(self, topic: str, where: Filter | None = None) -> list[Memory]:
        """Return what is stored about a topic, also while memory is off: the person asks for it."""
        if not topic:
            page = await self.ctx.store.page(self.scope, where or Filter(), limit=SHOWN)
            return list(page)
        return list(await recall.look_up(self, topic, SHOWN, where))

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


def leave_out_questions(memories: list[Memory]) -> list[Memory]:
    """Return the memories that state something; all of them if none does."""
    return [each for each in memories if asking_share(each.text) < 1] or memories


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
    """Return memories as numbered lines, with the speaker where that is not the person.

    What was replaced or has ended is marked as outdated.
    """
    lines = []
    for place, memory in enumerate(memories, 1):
        who = render.credit(memory)
        words = normalize.one_line(memory.text)
        short = words if len(words) <= 200 else f"{words[:199]}…"
        pinned = "pinned" if memory.pinned else ""
        outdated = "" if memory.valid_to is None else "outdated"
        notes = "".join(f" ({note})" for note in (who, pinned, outdated) if note)
        lines.append(f"{place}. {short}{notes}")
    return "\n".join(lines)
