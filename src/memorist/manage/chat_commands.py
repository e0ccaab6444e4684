"""Commands to the memory in a chat: "forget my old address", "undo that", "what do you remember?"

`text/commands.py` recognizes them; this module carries them out, if they are the person's own
words. What a search found is shown before it is forgotten, and the answer ("yes", "no", "the
second one") refers to the list that was last shown in the session. That list is kept in the
database, as ids without words. What a command forgets is hidden at once and can be brought back
for a day, unless the person asks for more. A reply about forgetting does not repeat what was
forgotten, unless a turn that says more still says it. No model is used.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta

from ..context import Place
from ..errors import InvalidInput, MemoristError, StoreUnavailable
from ..storage.person import Shown
from ..text import commands, cues, normalize
from ..text.commands import Command, parse, parse_assuming
from ..types import Filter, Memory
from . import edit, forget, topics
from .chat_correct import RESTATE, CorrectingChat
from .chat_list import (
    KNOWN,
    ONE,
    SEVERAL,
    SHOWN,
    Remember,
    Reply,
    choose,
    describe_topic,
    ids_of,
    leave_out_questions,
    number,
)
from .chat_undo import describe_changes, find_command, find_last_change, find_last_undo
from .privacy import INCOGNITO, Consent, Privacy
from .topics import CHOICES
from .undo import undo_changes

KEPT = timedelta(days=1)  # how long what a command forgot can be brought back
_NOT_STORED = "I won't store this message."
_UNCLEAR = "I cannot tell which memory you mean."
_NEW_AND_OLD: dict[tuple[int, ...], str] = {(0,): "yes", (1,): "no"}  # as they are shown
_SWITCHED = {
    "memory_off": "Memory is off here: nothing is stored or recalled automatically until you say "
    '"turn memory on".',
    "memory_on": "Memory is on.",
    "incognito_on": (
        "This chat is incognito: nothing of it is stored and nothing is recalled in it."
    ),
    "incognito_off": "Incognito is off.",
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
    speaker = cues.speaker_of(role, name)
    if not cues.is_own(role, speaker, place.scope.user):
        return None
    chat = Chat(place, text, remember, about)
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
        command = await chat.read_statement(text, shown)
    if command is None:
        command = await chat.check_assumption(parse_assuming(text))
    if command is None:
        if shown.asks:  # a later "yes" answers something else
            await chat.save_shown(shown.ids)
        return None
    return await chat.carry_out(command, shown)


class Chat(CorrectingChat):
    """Carries out one command of a chat."""

    def __init__(self, place: Place, text: str, remember: Remember, about: Sequence[str]) -> None:
        super().__init__(*place.parts)
        self.text = text
        self.remember = remember
        self.about = tuple(about)
        self.actor = self.scope.user
        self.command_id = place.command_id

    async def carry_out(self, command: Command, shown: Shown) -> Reply | None:
        """Carry out a command, or the one that an answer completes."""
        self.command = command
        self.shown = shown
        self.intent = command.intent
        if self.intent in commands.ANSWERS:
            return await self.answer()
        verbs: dict[str, Callable[[], Awaitable[Reply | None]]] = {
            "approve": self.decide_proposal,
            "confirm": self.decide_conflict,
            "correct": self.correct,
            "deny": self.decide_proposal,
            "dont": self.dont_save,
            "forget": self.forget,
            "incognito": self.switch,
            "memory": self.switch,
            "pin": self.pin,
            "save": self.save,
            "show": self.show,
            "undo": self.undo,
            "unpin": self.pin,
        }
        return await verbs[self.intent.split("_")[0]]()

    async def check_assumption(self, command: Command | None) -> Command | None:
        """Return a command that assumes something, if it is so: there is something to do."""
        if command is None:
            return None
        if command.topic:
            return command if (await topics.find_mentions(self, command.topic)).exact else None
        if command.intent == "undo":
            return command if await find_last_undo(self) else None
        if command.intent == "correct":
            self.command = command
            return command if len(await self.find_misspelled()) == 1 else None
        reason = await Privacy(*self.parts).disabled_reason()
        if reason == INCOGNITO:
            return replace(command, intent="incognito_off")
        return command if reason else None

    async def answer(self) -> Reply:
        """Do what was asked about with all that was listed, with what was chosen, or not at all."""
        said = self.intent
        shown = self.shown
        ids = choose(shown.ids, self.command)
        self.intent = shown.asks
        if shown.asks == RESTATE:
            self.intent = "correct"
            if said != "no":
                return await self.ask_for_statement(await self.load(ids))
        if said == "yes" and len(ids) > 1:  # which one was asked
            return self.reply(SEVERAL, ids)
        if said.startswith("pick_"):
            self.intent = said.replace("pick", "confirm")
            return await self.decide_conflict()
        if shown.asks == "confirm":
            named = _NEW_AND_OLD.get(self.command.places, said)
            self.intent = {"no": "confirm_old", "pick": "confirm_both"}.get(named, "confirm_new")
            return await self.decide_conflict()
        if said == "no" or (not ids and shown.asks != "forget_all"):
            await self.save_shown(shown.ids)
            say = "Both are kept." if shown.asks == "correct" else "Nothing was changed."
            return self.reply(say, done=True)
        if shown.asks == "forget_all":
            return await self.forget_everything()
        if shown.asks == "correct":
            self.command_id = await find_command(self, shown.new)  # it is one change
            for id in ids:
                await edit.supersede(self, id, by=shown.new, actor=self.actor)
            return await self.end("Corrected.", (shown.new,))
        if shown.asks in ("pin", "unpin"):
            return await self.set_pin(ids)
        return await self.hide(ids)

    async def show(self) -> Reply:
        """Show what is stored about a topic."""
        if await self.is_incognito():
            return self.reply(f"I cannot look anything up: {INCOGNITO}.")
        topic = self.command.topic
        if topic:
            about = await topics.find_mentions(self, topic, outdated=True)
            found = await topics.add_newer(self, [*about.exact, *about.partly] or about.best())
        else:
            found = await self.list_known()
        on = describe_topic(self.command)
        if not found:
            return await self.end(f"I remember nothing{on}.", ())
        listed = found[:SHOWN]
        say = f"This is what I remember{on}:\n{number(listed)}"
        if len(found) > SHOWN:
            say += f"\n… and {len(found) - SHOWN} more. Ask about one thing to see more of it, "
            say += 'for example "what do you remember about my work?"'
        return await self.end(say, ids_of(listed))

    async def forget(self) -> Reply:
        """Forget what the command refers to; ask where a search found it or it is ambiguous."""
        topic = self.command.topic
        if self.intent == "forget_all":
            return await self.ask_about_everything()
        if topic:
            found = await topics.find_meant(self, topic)
            if not found:
                on = describe_topic(self.command) or " about that"
                return self.reply(f"I remember nothing{on}.")
            return await self.ask(found)  # a search may find something else
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
        count = sum((await self.ctx.store.stats(self.scope, ""))["states"].values())
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
            return self.reply(_UNCLEAR)
        for_good = self.command.for_good
        manner = forget.Manner(
            reason="asked for in the chat",
            actor=self.actor,
            keep_days=0 if for_good else KEPT / timedelta(days=1),
        )
        plan = await forget.make_plan(self.ctx.store, self.scope, ids_of(found))
        others = len(
            [each for each in await self.load(plan.derived) if each.state in forget.VISIBLE]
        )
        gone = await forget.forget(self, ids_of(found), manner)
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

    async def undo(self) -> Reply:
        """Undo the last change that this chat made to the memory."""
        # "Undo that" may be meant for something else, unless the memory is named or did something.
        if await self.is_incognito():  # what this chat did is not traced
            return self.reply(
                "This chat is incognito, so I cannot tell what it changed. Look in the trash."
            )
        is_redo = self.command.which == "undone"
        if is_redo:
            operation = await find_last_undo(self)
        else:
            operation = await find_last_change(self, with_words=self.command.names_memory)
        if operation is None:
            return self.reply("There's nothing to undo.")
        try:
            planned = await undo_changes(self, operation, actor=self.actor, dry_run=True)
            before = await self.ctx.store.get(self.scope, ids_of(planned.memories))
            done = await undo_changes(self, operation, actor=self.actor)
        except MemoristError as error:
            return self.reply(f"It cannot be undone: {error}")
        what = describe_changes(before, done.memories, quotes=not is_redo)
        say = f"{'Redone' if is_redo else 'Undone'}. {what}".rstrip()
        return await self.end(say, ids_of(done.memories))

    async def pin(self) -> Reply:
        """Pin or unpin what the command refers to; ask if that is ambiguous."""
        topic = self.command.topic
        pinned = Filter(pinned=True) if self.intent == "unpin" else None
        if self.command.content:
            return await self.pin_statement(self.command.content)
        if topic:
            found = await topics.find_about(self, topic, pinned)
        elif self.command.which in ("listed", "all"):
            found = await self.load(choose(self.about or self.shown.ids, self.command))
            return await self.set_pin(ids_of(found))
        elif self.about:
            found = await self.load(self.about)
        elif pinned:
            found = (await self.find("", pinned))[:CHOICES]
        else:
            found = await self.find_last_said()
        if len(found) > 1:
            return await self.ask(found)
        return await self.set_pin(ids_of(found))

    async def pin_statement(self, text: str) -> Reply:
        """Pin the one memory that says this; save it if there is none."""
        said = [each for each in (await topics.find_mentions(self, text)).exact if each.is_active]
        if len(said) == 1:
            return await self.set_pin(ids_of(said))
        outcome = (await self.remember(text, pinned=True, manually_saved=True)).outcomes[0]
        if not outcome.ids:
            return self.reply(f"Not saved: {outcome.reason}.")
        return await self.list_done("Saved and pinned:", await self.load(outcome.ids))

    async def set_pin(self, ids: Sequence[str]) -> Reply:
        """Pin or unpin memories."""
        if not ids:
            return self.reply(_UNCLEAR)
        is_pinned = self.intent == "pin"
        found = [await self.change(id, pinned=is_pinned) for id in ids]
        return await self.list_done("Pinned:" if is_pinned else "No longer pinned:", found)

    async def change(self, id: str, **fields: bool) -> Memory:
        """Change a memory as the person asked."""
        return await edit.change(self, id, "updated", fields, self.actor)

    async def save(self) -> Reply:
        """Save a text, or what was said last, as the person asked."""
        text = self.command.content
        if (
            text and f"dass {text}" in self.text
        ):  # without "dass", the order of the words would be wrong
            text = self.text
        if text:
            outcome = (await self.remember(text, manually_saved=True)).outcomes[0]
            if not outcome.ids:
                return self.reply(f"Not saved: {outcome.reason}.")
            return await self.end(f"Saved: {normalize.one_line(text)}", outcome.ids)
        found = await self.load(self.about) or await self.find_last_said()
        if len(found) != 1:
            return self.reply(_UNCLEAR)
        return await self.list_done("Saved:", [await self.change(found[0].id, manually_saved=True)])

    async def dont_save(self) -> Reply:
        """Leave something out: this message, the next ones, or what was said before."""
        which = self.command.which
        if which == "next":
            started = await self.switch("incognito_on")
            say = f'{started.say} Say "stop incognito" to continue as usual.'
            return replace(started, say=say) if started.done else started
        topic = self.command.topic
        before = await self.find_last_said() if which == "that" else []
        before = await topics.find_about(self, topic) if topic else before
        if not before:
            return self.reply(_NOT_STORED, done=True)
        asked = await self.ask(before)
        if not topic:
            return asked
        _, _, offer = asked.say.partition("\n")
        return replace(asked, say=f"{_NOT_STORED} This is already stored:\n{offer}")

    async def switch(self, intent: str = "") -> Reply:
        """Turn memory or incognito on or off."""
        privacy = Privacy(*self.parts)
        intent = intent or self.intent
        what, _, state = intent.partition("_")
        say = _SWITCHED[intent]
        if what == "memory":
            await privacy.set(memory_enabled=state == "on", actor=self.actor)
            if state == "on" and (why := await privacy.disabled_reason()):
                say = f"Memory is on in this space, but {why}."
        elif self.labels.session is None:
            return self.reply("I cannot tell which chat this is, so nothing was changed.")
        elif state == "on":
            await privacy.start_incognito()
        else:
            await privacy.end_incognito()
        return self.reply(say, done=True)
