"""The list that a chat command last showed: "yes" and "the second one" refer to it.

It is kept in the database for each session, as ids without words, and expires; calls without a
session count as one. Nothing is kept of an incognito session. A correction asks in the same way
which memory it replaces.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from ..context import Place
from ..ingest import transitions
from ..retrieve import render
from ..storage import person
from ..storage.person import Shown
from ..text import authority, contradictions, normalize, tokens
from ..text.commands import Command
from ..text.cues import asking_share
from ..types import Filter, Hit, Labels, Memory, Receipt, frozen
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
ALIKE_IF_REPLACED = 0.3
ALIKE_IF_SHOWN = 0.15
# Stems of words that say what somebody thinks of a thing, not which thing.
_ATTITUDES = tokens.word_set("""
    like love hate enjoy prefer want need use have get go old
    mag hass lieb aim déteste odi gust gost amo adoro mi piac
    """)
_LASTING = ("semantic", "procedural", "insight")
_GROUPS = ("forget", "show", "memory", "incognito", "confirm")
ONE = 'Reply "yes" to forget it, or "no" to keep it.'
SEVERAL = 'Reply with a number, "all" or "no".'
Remember = Callable[..., Awaitable[Receipt]]
_DECISIONS: dict[str, edit.Decision] = {
    "confirm_new": "confirmed",
    "confirm_old": "rejected",
    "confirm_both": "both",
}


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
        return [*filter(authority.is_persons, found)][:1]

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
            is_stated = memory.kind != "episodic" or authority.is_persons(memory)
            if is_stated and memory.id not in sources and asking_share(memory.text) < 1:
                known.append(memory)
        return known


class CorrectingChat(ChatList):
    """A chat in which a person says what is right."""

    command: Command
    shown: Shown
    remember: Remember
    about: tuple[str, ...]
    actor: str

    async def correct(self) -> Reply:
        """Store the correct statement in place of the wrong memory; ask which one that is."""
        topic = self.command.topic
        if len(misspelled := await self.find_misspelled()) == 1:
            return await self.respell(misspelled[0])
        statement, wrong = contradictions.read_correction(self.command.content, topic)
        about = await self.load(self.about)
        found = about or await self.find(topic or statement or wrong)
        if not statement:
            say = "Please say it in one sentence, such as: correct that: my dog is called Rex."
            return await self.end(say, ids_of(found[:CHOICES]), done=False)
        alike = (await self.find_mentions(statement)).alike(ALIKE_IF_REPLACED)
        outcome = (await self.remember(statement, manually_saved=True)).outcomes[0]
        if not outcome.ids:
            return self.reply(f"Not saved: {outcome.reason}.")
        new = outcome.ids[0]
        say = f"Saved: {statement}"
        if outcome.supersedes:
            return await self.end(f"Corrected. {say}", (new,))
        near = about or share_words(found, f"{statement} {wrong}") or alike
        near = [each for each in near if each.is_active and authority.is_persons(each)]
        others = [each for each in near if each.id not in outcome.ids]
        named = [each for each in others if contradictions.corrects(each.text, statement, wrong)]
        if len(named) == 1 or len(about) == len(others) == 1:
            old = (named or others)[0]
            await edit.supersede(self, old.id, by=new, actor=self.actor)
            return await self.end(f"Corrected. {say}", (new,))
        if not others:
            return await self.end(say, (new,))
        listed = (named or others)[:CHOICES]
        await self.save_shown(ids_of(listed), asks="correct", new=new)
        question, answers = "Which one does it replace?", 'Reply with a number or "none".'
        if len(listed) == 1:
            question, answers = "Does it replace this?", 'Reply "yes" or "no".'
        return self.reply(f"{say}\n{question}\n{number(listed)}\n{answers}", ids_of(listed))

    async def find_misspelled(self) -> list[Memory]:
        """Return the memories that have another spelling of a word than a correction."""
        content = self.command.content
        found = await self.load(self.about)
        if not found:
            answer = await recall.search(self, content, MENTIONED, min_confidence=0)
            found = list(answer.memories)
        own = [each for each in found if each.is_active and authority.is_persons(each)]
        return [each for each in own if contradictions.respell(each.text, content)]

    async def respell(self, old: Memory) -> Reply:
        """Correct a spelling, and keep what else the memory says."""
        statement = contradictions.respell(old.text, self.command.content)
        outcome = (await self.remember(statement, manually_saved=True)).outcomes[0]
        if not outcome.ids:
            return self.reply(f"Not saved: {outcome.reason}.")
        if old.id != outcome.supersedes:
            await edit.supersede(self, old.id, by=outcome.ids[0], actor=self.actor)
        return await self.end(f"Corrected. Saved: {statement}", outcome.ids[:1])

    async def decide_conflict(self) -> Reply:
        """Keep the new statement, the old one or both; if there are several conflicts, ask."""
        conflicts = await edit.list_conflicts(self.ctx.store, self.scope, limit=SHOWN)
        named = self.about or (self.shown.ids if self.shown.asks == "confirm" else ())
        chosen = [each for each in conflicts if each.new.id in named] or conflicts
        if not conflicts:
            return self.reply("No conflict awaits a decision.")
        new = chosen[0].new
        old = chosen[0].old
        if len(chosen) > 1:
            await self.save_shown((new.id,), asks="confirm")
            say = "Which one is right: the new one, the old one, or both?"
            say += f"\nNew: {normalize.one_line(new.text)}\nOld: {normalize.one_line(old.text)}"
            return self.reply(say, (new.id, old.id))
        decision = _DECISIONS[self.intent]
        await edit.decide(self, new.id, self.actor, decision=decision)
        kept = {"confirmed": [new], "rejected": [old]}.get(decision, [new, old])
        return await self.list_done("I will keep this:", kept)


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
