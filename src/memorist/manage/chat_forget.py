"""What a person asks to forget in a chat.

What was found by a search is shown first. What is forgotten is hidden for a day, so that it can be
brought back, unless the person asks for more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from ..storage.person import Shown
from ..text.commands import Command
from ..types import Filter, Memory
from . import forget, topics
from .chat_list import (
    KNOWN,
    ONE,
    SEVERAL,
    UNCLEAR,
    ChatList,
    Reply,
    choose,
    describe_topic,
    ids_of,
    leave_out_questions,
    number,
)
from .privacy import Consent
from .topics import CHOICES

FOR_GOOD = " for good"  # added to what was asked
KEPT = timedelta(days=1)  # how long what a command forgot can be brought back
_NO_RULE = (
    'I cannot leave out a topic by myself from now on. Say "don\'t save this" in a message, or '
    '"turn memory off".'
)


class ForgettingChat(ChatList):
    """A chat in which a person asks to forget."""

    command: Command
    shown: Shown
    about: tuple[str, ...]
    actor: str

    async def save_shown(self, ids: Sequence[str], *, asks: str = "", new: str = "") -> None:
        """Keep a list for the answer of the person, and whether it is to be erased at once."""
        if asks and self.command.for_good:
            asks += FOR_GOOD
        await super().save_shown(ids, asks=asks, new=new)

    async def forget(self) -> Reply:
        """Forget what the command refers to; ask where a search found it or it is ambiguous."""
        topic = self.command.topic
        if self.intent == "forget_all":
            return await self.ask_about_everything()
        if topic:
            found = await topics.find_meant(self, topic)
            found = await topics.prefer_facts(self, topic, found)
            on = describe_topic(self.command) or " about that"
            note = f"{_NO_RULE}\n" if self.command.from_now_on else ""
            if not found:
                return self.reply(f"{note}I remember nothing{on}.")
            asked = await self.ask(found)  # a search may find something else
            return replace(asked, say=f"{note}{asked.say}")
        if self.intent == "forget_listed":
            ids = choose(self.about or self.shown.ids, self.command)
        elif self.command.which == "that":
            found = await self.load(self.about) or await self.list_session()
            if len(found) > 1:
                return await self.ask(leave_out_questions(found)[:CHOICES])
            ids = ids_of(found)
        else:
            ids = ids_of(await self.find_last_said())
        return await self.hide(ids)

    async def ask_about_everything(self) -> Reply:
        """Ask before everything is forgotten."""
        states = (await self.ctx.store.stats(self.scope, ""))["states"]
        count = sum(states.values()) - states.get("soft_deleted", 0)
        if not count and not await Consent(*self.parts).about():
            return self.reply("I remember nothing.")
        await self.save_shown((), asks="forget_all")
        stored = "1 memory" if count == 1 else f"{count} memories"
        pinned = len(await self.ctx.store.page(self.scope, Filter(pinned=True), limit=KNOWN))
        stored += f" ({pinned} pinned)" if pinned else ""
        return self.reply(
            f"This forgets everything that is stored in this space: {stored}, and what is "
            f"known about you. {ONE}"
        )

    async def forget_everything(self) -> Reply:
        """Forget all memories of the space, and what is known about the person."""
        consent = Consent(*self.parts)
        for field in {each.field for each in await consent.list()} | set(await consent.about()):
            name = "goals_add" if field == "goals" else field
            await consent.withdraw(name, actor=self.actor)
        states = ("active", "compressed", "archived")
        found = await self.ctx.store.find_all(self.scope, Filter(states=states))
        return await self.hide(ids_of(found))

    async def hide(self, ids: Sequence[str]) -> Reply:
        """Hide memories for a day, or erase them at once if that was asked for."""
        found = await self.load(ids)
        if not found:
            return self.reply(UNCLEAR)
        for_good = self.command.for_good
        manner = forget.Manner(
            reason="asked for in the chat",
            actor=self.actor,
            keep_days=0 if for_good else KEPT / timedelta(days=1),
        )
        summarized = await self.list_summarized(found)
        every = ids_of([*found, *summarized])
        plan = await forget.make_plan(self.ctx.store, self.scope, every)
        derived = [each for each in await self.load(plan.derived) if each.state in forget.VISIBLE]
        others = len(derived) + len(summarized)
        gone = await forget.forget(self, every, manner)
        is_one = len(found) == 1 and not others
        say = "Forgotten" if len(found) == 1 else f"Forgotten: {len(found)} memories"
        if others:
            say += f", and {others} more based on the same words"
        say += "."
        # Without a session, and in an incognito one, "undo" would not find what was done.
        if not for_good and (self.labels.session is None or await self.is_incognito()):
            say += f" {'It stays' if is_one else 'They stay'} in the trash for a day."
        elif not for_good:
            say += f' Say "undo" within a day to bring {"it" if is_one else "them"} back.'
        sources = await self.load(gone.sources)
        await self.save_shown(ids_of(sources), asks="forget_topic" if sources else "")
        if sources:
            offer = ONE if len(sources) == 1 else SEVERAL
            say += f"\nYou also said it here, among other things:\n{number(sources)}\n{offer}"
        return self.reply(say, ids_of(found), done=True)

    async def list_summarized(self, found: Sequence[Memory]) -> list[Memory]:
        """Return what the summaries among some memories stand for: it says the same at length."""
        known = set(ids_of(found))
        sources = {id for each in found if each.compression_source for id in each.evidence_ids}
        stored = await self.load(sorted(sources - known))
        return [each for each in stored if not each.is_active]
