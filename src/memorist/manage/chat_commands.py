"""Commands to the memory in a chat: "forget my old address", "undo that", "what do you remember?"

`text/commands.py` recognizes them; this module carries them out, if they are the person's own
words. What a search found is shown before it is forgotten, and the answer ("yes", "no", "the
second one") refers to the list that was last shown in the session. That list is kept in the
database, as ids without words. What a command forgets is hidden at once and can be brought back
for a day, unless the person asks for more. A reply about forgetting does not repeat what was
forgotten. No model is used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from ..context import Place
from ..errors import InvalidInput, MemoristError, StoreUnavailable
from ..storage.person import Shown
from ..text import authority, commands, contradictions, normalize
from ..text.commands import Command, parse
from ..types import Conflict, Filter, Memory, Receipt
from . import edit, forget
from .chat_list import CHOICES, SHOWN, ChatList, Reply, choose, ids_of, number, reply, share_words
from .privacy import INCOGNITO, Consent, Privacy
from .undo import find_last_change, undo_changes

Remember = Callable[..., Awaitable[Receipt]]
KEPT = timedelta(days=1)  # how long what a command forgot can be brought back
_UNDO = 'Say "undo" within a day to bring it back.'
_IN_TRASH = "It stays in the trash for a day."
_UNCLEAR = "I cannot tell which memory you mean."
_SWITCHED = {
    "memory_off": "Memory is off here: nothing is stored or recalled automatically until you turn "
    "it on again.",
    "memory_on": "Memory is on.",
    "incognito_on": (
        "This chat is incognito: nothing of it is stored and nothing is recalled in it."
    ),
    "incognito_off": "This chat is not incognito any more.",
}
_DECISIONS: dict[str, edit.Decision] = {
    "confirm_new": "confirmed",
    "confirm_old": "rejected",
    "confirm_both": "both",
}


async def obey(
    place: Place,
    text: str,
    *,
    remember: Remember,
    role: str | None = "user",
    name: str | None = None,
    about: Sequence[str] = (),
) -> Reply | None:
    """Carry out a command of a person in a chat; None if the text is not a command."""
    if not isinstance(text, str) or isinstance(about, str):
        raise InvalidInput("A command is a text, and `about` a list of ids")
    speaker = authority.speaker_of(role, name)
    if not authority.is_own(role, speaker, place.scope.user):
        return None
    chat = Chat(place, remember, about)
    command = parse(text)
    try:
        shown = await chat.load_shown()
    except StoreUnavailable:
        if command is None:
            return None
        raise
    if shown.asks:
        command = parse(text, answers=True)
    if command is None:
        if shown.asks:  # a later "yes" answers something else
            await chat.save_shown(shown.ids)
        return None
    return await chat.carry_out(command, shown)


class Chat(ChatList):
    """Carries out the commands of one chat."""

    def __init__(self, place: Place, remember: Remember, about: Sequence[str]) -> None:
        super().__init__(*place.parts)
        self.remember = remember
        self.about = tuple(about)
        self.actor = self.scope.user

    async def carry_out(self, command: Command, shown: Shown) -> Reply | None:
        """Carry out a command, or the one that an answer completes."""
        intent = command.intent
        if intent in commands.ANSWERS:
            return await self.answer(command, shown)
        if intent in ("approve", "deny"):
            return await self.decide_proposal(command)
        if intent in _SWITCHED:
            return await self.switch(intent)
        if intent in _DECISIONS:
            return await self.decide_conflict(intent, shown)
        if intent.startswith("forget"):
            return await self.forget(command, shown)
        if intent.startswith("show"):
            return await self.show(command)
        if intent in ("pin", "unpin"):
            return await self.pin(command, shown)
        verbs = {"undo": self.undo, "save": self.save, "correct": self.correct}
        return await verbs.get(intent, self.dont_save)(command, shown)

    async def answer(self, command: Command, shown: Shown) -> Reply:
        """Do what was asked about with all that was listed, with what was chosen, or not at all."""
        ids = choose(shown.ids, command)
        if command.intent.startswith("pick_"):
            intent = command.intent.replace("pick", "confirm")
            return await self.decide_conflict(intent, shown)
        if shown.asks == "confirm":
            intent = "confirm_old" if command.intent == "no" else "confirm_new"
            return await self.decide_conflict(intent, shown)
        if command.intent == "no" or (not ids and shown.asks != "forget_all"):
            await self.save_shown(shown.ids)
            return reply(shown.asks, "Nothing was changed.", done=True)
        if shown.asks == "forget_all":
            return await self.forget_everything()
        if shown.asks == "correct":
            for id in ids:
                await edit.supersede(self, id, by=shown.new, actor=self.actor)
            return await self.end(shown.asks, "Corrected.", (shown.new,))
        if shown.asks in ("pin", "unpin"):
            return await self.set_pin(shown.asks, ids)
        return await self.hide(shown.asks, ids, for_good=command.for_good)

    async def show(self, command: Command) -> Reply:
        """Show what is stored about a topic."""
        if await self.is_incognito():
            return reply(command.intent, f"I look nothing up: {INCOGNITO}.")
        topic = command.topic
        found = await (self.find(topic) if topic else self.list_known(SHOWN))
        on = f" about {topic}" if topic else ""
        say = f"This is what I remember{on}:\n{number(found)}"
        if not found:
            say = f"I remember nothing{on}."
        return await self.end(command.intent, say, ids_of(found))

    async def forget(self, command: Command, shown: Shown) -> Reply:
        """Forget what the command refers to; ask where a search found it or it is ambiguous."""
        intent = command.intent
        if intent == "forget_all":
            return await self.ask_about_everything()
        if command.topic:
            found = await self.find_about(command.topic)
            if commands.names_old(command.topic):
                found = await self.find_outdated(command.topic, found) or found
            if not found:
                return reply(intent, f"I remember nothing about {command.topic}.")
            return await self.ask(intent, found)  # a search may find something else
        if intent == "forget_listed":
            ids = choose(self.about or shown.ids, command)
        elif command.which == "that":
            ids = self.about or ids_of(await self.list_session())
            if len(ids) > 1:
                return await self.ask(intent, await self.load(ids[:CHOICES]))
        else:
            ids = ids_of((await self.list_session(own=True))[:1])
        return await self.hide(intent, ids, for_good=command.for_good)

    async def ask_about_everything(self) -> Reply:
        """Ask before everything is forgotten."""
        count = sum((await self.ctx.store.stats(self.scope, ""))["states"].values())
        if not count and not await Consent(*self.parts).about():
            return reply("forget_all", "I remember nothing.")
        await self.save_shown((), asks="forget_all")
        say = (
            f"This forgets everything that is stored in this space: {count} memories, and what is "
            'known about you. Say "yes" to forget it, or "no" to keep it.'
        )
        return reply("forget_all", say)

    async def forget_everything(self) -> Reply:
        """Forget all memories of the space, and what is known about the person."""
        consent = Consent(*self.parts)
        for field in {each.field for each in await consent.list()} | set(await consent.about()):
            name = "goals_add" if field == "goals" else field
            await consent.withdraw(name, actor=self.actor)
        states = ("active", "compressed", "archived")
        found = await self.ctx.store.find_all(self.scope, Filter(states=states))
        return await self.hide("forget_all", ids_of(found))

    async def hide(self, intent: str, ids: Sequence[str], *, for_good: bool = False) -> Reply:
        """Hide memories for a day, or erase them at once if that was asked for."""
        found = await self.load(ids)
        if not found:
            return reply(intent, _UNCLEAR)
        manner = forget.Manner(
            reason="asked for in the chat",
            actor=self.actor,
            keep_days=0 if for_good else KEPT / timedelta(days=1),
        )
        await forget.forget(self, ids_of(found), manner)
        say = "Forgotten." if len(found) == 1 else f"Forgotten: {len(found)} memories."
        if not for_good and self.labels.session is not None:
            say = f"{say} {_IN_TRASH if await self.is_incognito() else _UNDO}"
        await self.save_shown(())
        return reply(intent, say, ids_of(found), done=True)

    async def undo(self, command: Command, shown: Shown) -> Reply:
        """Undo the last change that this chat made to the memory."""
        # "Undo that" may be meant for something else, unless the memory is named or did something.
        if await self.is_incognito():  # what this chat did is not traced
            say = "This chat is incognito, so I cannot tell what it changed. Look into the trash."
            return reply("undo", say)
        operation = await find_last_change(
            self,
            actor=self.actor,
            with_words=command.names_memory,
        )
        if operation is None:
            return reply("undo", "There is nothing that I could undo in this chat.")
        try:
            done = await undo_changes(self, operation, actor=self.actor)
        except MemoristError as error:
            return reply("undo", f"It cannot be undone: {error}")
        back = [memory for memory in done.memories if memory.is_active]
        say = f"Undone. I remember again:\n{number(back)}" if back else "Undone."
        return await self.end("undo", say, ids_of(done.memories))

    async def pin(self, command: Command, shown: Shown) -> Reply:
        """Pin or unpin what the command refers to; ask if that is ambiguous."""
        intent = command.intent
        pinned = Filter(pinned=True) if intent == "unpin" else None
        found: list[Memory] = []
        if command.topic:
            found = await self.find_about(command.topic, pinned)
        elif command.which in ("listed", "all"):
            found = await self.load(choose(self.about or shown.ids, command))
            return await self.set_pin(intent, ids_of(found))
        elif self.about:
            found = await self.load(self.about)
        elif pinned:
            found = (await self.find("", pinned))[:CHOICES]
        else:
            found = (await self.list_session(own=True))[:1]
        if len(found) > 1:
            return await self.ask(intent, found)
        return await self.set_pin(intent, ids_of(found))

    async def set_pin(self, intent: str, ids: Sequence[str]) -> Reply:
        """Pin or unpin memories."""
        if not ids:
            return reply(intent, _UNCLEAR)
        fields = {"pinned": intent == "pin"}
        found = [await edit.change(self, id, "updated", fields, self.actor) for id in ids]
        say = f"{'Pinned' if intent == 'pin' else 'No longer pinned'}:\n{number(found)}"
        return await self.end(intent, say, tuple(ids))

    async def save(self, command: Command, shown: Shown) -> Reply:
        """Save a text, or what was said last, as the person asked."""
        if command.content:
            return await self.store("save", command.content)
        found = await self.load(self.about) or (await self.list_session(own=True))[:1]
        if len(found) != 1:
            return reply("save", _UNCLEAR)
        fields = {"manually_saved": True}
        saved = await edit.change(self, found[0].id, "updated", fields, self.actor)
        return await self.end("save", f"Saved:\n{number([saved])}", (saved.id,))

    async def store(self, intent: str, text: str) -> Reply:
        """Store a text as the person asked, and say what came of it."""
        receipt = await self.remember(text, manually_saved=True)
        outcome = receipt.outcomes[0]
        if not outcome.ids:
            return reply(intent, f"It is not saved: {outcome.reason}.")
        return await self.end(intent, f"Saved: {normalize.one_line(text)}", outcome.ids)

    async def dont_save(self, command: Command, shown: Shown) -> Reply:
        """Leave something out: this message, the next ones, or what was said before."""
        if command.which == "next":
            started = await self.switch("incognito_on")
            say = f'{started.say} Say "stop incognito" to go on as usual.'
            return reply("dont_save", say if started.done else started.say, done=started.done)
        before = (await self.list_session(own=True))[:1]
        if command.which != "that" or not before:
            return reply("dont_save", "This message is not stored.", done=True)
        return await self.ask("dont_save", before)

    async def correct(self, command: Command, shown: Shown) -> Reply:
        """Store how it really is, in place of the memory that is wrong; ask which one that is."""
        statement, wrong = contradictions.read_correction(command.content, command.topic)
        about = await self.load(self.about)
        found = about or await self.find(command.topic or statement or wrong)
        if not statement:
            say = "Please say it in one sentence, such as: correct that: my dog is called Rex."
            return await self.end("correct", say, ids_of(found[:CHOICES]), done=False)
        receipt = await self.remember(statement, manually_saved=True)
        outcome = receipt.outcomes[0]
        if not outcome.ids:
            return reply("correct", f"It is not saved: {outcome.reason}.")
        new = outcome.ids[0]
        say = f"Saved: {statement}"
        if outcome.supersedes:
            return await self.end("correct", f"Corrected. {say}", (new,))
        near = about or share_words(found, f"{statement} {wrong}")
        near = [each for each in near if each.is_active and authority.is_persons(each)]
        others = [each for each in near if each.id not in outcome.ids]
        named = [each for each in others if contradictions.corrects(each.text, statement, wrong)]
        if len(named) == 1 or len(about) == len(others) == 1:
            old = (named or others)[0]
            await edit.supersede(self, old.id, by=new, actor=self.actor)
            return await self.end("correct", f"Corrected. {say}", (new,))
        if not others:
            return await self.end("correct", say, (new,))
        listed = (named or others)[:CHOICES]
        await self.save_shown(ids_of(listed), asks="correct", new=new)
        say += f'\nWhich one does it replace?\n{number(listed)}\nSay a number, or "none".'
        return reply("correct", say, ids_of(listed))

    async def decide_conflict(self, intent: str, shown: Shown) -> Reply:
        """Keep the new statement, the old one or both; if there are several conflicts, ask."""
        conflicts = await edit.list_conflicts(self.ctx.store, self.scope, limit=SHOWN)
        named = self.about or (shown.ids if shown.asks == "confirm" else ())
        chosen = [each for each in conflicts if each.new.id in named] or conflicts
        if not conflicts:
            return reply(intent, "There is no conflict that awaits a decision.")
        if len(chosen) > 1:
            return await self.ask_about_conflict(intent, chosen[0])
        conflict = chosen[0]
        decision = _DECISIONS[intent]
        await edit.decide(self, conflict.new.id, self.actor, decision=decision)
        kept = {"confirmed": [conflict.new], "rejected": [conflict.old]}
        memories = kept.get(decision, [conflict.new, conflict.old])
        return await self.end(intent, f"I keep this:\n{number(memories)}", ids_of(memories))

    async def ask_about_conflict(self, intent: str, conflict: Conflict) -> Reply:
        """Show one conflict and ask which statement holds."""
        await self.save_shown((conflict.new.id,), asks="confirm")
        new, old = normalize.one_line(conflict.new.text), normalize.one_line(conflict.old.text)
        say = f"Which one is right: the new one, the old one, or both?\nNew: {new}\nOld: {old}"
        return reply(intent, say, (conflict.new.id, conflict.old.id))

    async def switch(self, intent: str) -> Reply:
        """Turn memory or incognito on or off."""
        privacy = Privacy(*self.parts)
        what, _, state = intent.partition("_")
        say = _SWITCHED[intent]
        if what == "memory":
            await privacy.set(memory_enabled=state == "on", actor=self.actor)
            if state == "on" and (why := await privacy.disabled_reason()):
                say = f"Memory is on in this space, but {why}."
        elif self.labels.session is None:
            say = "I cannot tell which chat this is, so nothing was changed."
            return reply(intent, say)
        elif state == "on":
            await privacy.start_incognito()
        else:
            await privacy.end_incognito()
        return reply(intent, say, done=True)

    async def decide_proposal(self, command: Command) -> Reply | None:
        """Decide a proposal that the person has seen; show one that they have not."""
        consent = Consent(*self.parts)
        field = command.field.lower()
        field = "preferred_name" if field.endswith("name") else field
        waiting = [each for each in await consent.list() if each.field == field]
        if not waiting:
            return None
        seen = [each for each in waiting if each.id in self.about]
        is_clear = len(seen) == 1
        shown = seen if is_clear else waiting
        lines = [f"{field.replace('_', ' ')}: {each.value}" for each in shown]
        if not is_clear:
            say = "I would keep this, if you allow it:\n" + "\n".join(lines)
        elif command.intent == "deny":
            await consent.deny(seen[0].id, actor=self.actor)
            say = "It is not stored, and I will not propose it again."
        else:
            await consent.approve(seen[0].id, actor=self.actor)
            say = f"Stored: {lines[0]}"
        ids = tuple(each.id for each in shown)
        return reply(command.intent, say, ids, done=is_clear)
