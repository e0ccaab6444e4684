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

from ..context import OFF, Place
from ..errors import InvalidInput, MemoristError, StoreUnavailable
from ..storage.person import Shown
from ..text import commands, cues, normalize
from ..text.commands import Command, parse, parse_assuming
from ..types import Filter, Memory
from . import edit, topics
from .chat_correct import RESTATE, CorrectingChat
from .chat_forget import FOR_GOOD, ForgettingChat
from .chat_list import (
    SEVERAL,
    SHOWN,
    UNCLEAR,
    Remember,
    Reply,
    choose,
    describe_topic,
    ids_of,
    number,
)
from .chat_undo import describe_changes, find_command, find_last_change, find_last_undo
from .privacy import INCOGNITO, Privacy
from .topics import CHOICES
from .undo import undo_changes

_NOT_STORED = "I won't store this message."
_NEW_AND_OLD = ("confirm_new", "confirm_old")  # in the order in which they are shown
_SWITCHED = {
    "memory_off": "Memory is off here: nothing is stored or recalled automatically until you say "
    '"turn memory on".',
    "memory_on": "Memory is on.",
    "incognito_on": (
        "This chat is incognito: nothing of it is stored and nothing is recalled in it."
    ),
    "incognito_off": "Incognito is off.",
}
_STATES = {  # by the reason why memory is disabled
    "": _SWITCHED["memory_on"],
    OFF: _SWITCHED["memory_off"],
    INCOGNITO: _SWITCHED["incognito_on"],
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
    is_answer = command is not None and command.intent in commands.ANSWERS
    if command is None or (is_answer and command.rest):
        command = await chat.read_statement(text, shown) or command
    if command is None:
        command = await chat.check_assumption(parse_assuming(text))
    if command is None:
        if shown.asks:  # a later "yes" answers something else
            await chat.save_shown(shown.ids)
        await chat.drop_obeyed(text)
        return None
    reply = await chat.carry_out(command, shown)
    if reply is None:
        return None
    is_answer = command.intent in commands.ANSWERS
    saved = commands.read_saved(command.rest)
    if reply.done or is_answer or saved or chat.asked not in ("", RESTATE):
        await chat.note_obeyed(text)
    return await chat.save_beside(reply, saved) if saved else reply


class Chat(CorrectingChat, ForgettingChat):
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
        asks = self.shown.asks.removesuffix(FOR_GOOD)
        self.command = replace(self.command, for_good=asks != self.shown.asks)
        self.shown = shown = replace(self.shown, asks=asks)
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
        if shown.asks == "confirm" and said != "no":
            new_or_old = _NEW_AND_OLD[:1] if said == "yes" else choose(_NEW_AND_OLD, self.command)
            if new_or_old:
                self.intent = new_or_old[0] if len(new_or_old) == 1 else "confirm_both"
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
            return self.reply(UNCLEAR)
        is_pinned = self.intent == "pin"
        found = [await self.change(id, pinned=is_pinned) for id in ids]
        return await self.list_done("Pinned:" if is_pinned else "No longer pinned:", found)

    async def change(self, id: str, **fields: bool) -> Memory:
        """Change a memory as the person asked."""
        return await edit.change(self, id, "updated", fields, self.actor)

    async def save(self) -> Reply:
        """Save a text, or what was said last, as the person asked."""
        if self.command.content:
            text = commands.read_saved(self.text) or self.command.content
            outcome = (await self.remember(text, manually_saved=True)).outcomes[0]
            if not outcome.ids:
                return self.reply(f"Not saved: {outcome.reason}.")
            return await self.end(f"Saved: {normalize.one_line(text)}", outcome.ids)
        found = await self.load(self.about) or await self.find_last_said()
        if len(found) != 1:
            return self.reply(UNCLEAR)
        return await self.list_done("Saved:", [await self.change(found[0].id, manually_saved=True)])

    async def save_beside(self, reply: Reply, text: str) -> Reply:
        """Save what was asked for beside another command, and say so before the reply to that."""
        outcome = (await self.remember(text, manually_saved=True)).outcomes[0]
        saved = f"Saved: {normalize.one_line(text)}"
        say = saved if outcome.ids else f"Not saved: {outcome.reason}."
        return replace(reply, say=f"{say}\n{reply.say}")

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
        """Turn memory or incognito on or off, or say whether memory is on."""
        privacy = Privacy(*self.parts)
        intent = intent or self.intent
        what, _, state = intent.partition("_")
        if state == "state":
            why = await privacy.disabled_reason()
            say = _STATES.get(why) or f"{why[0].upper()}{why[1:]}."
            return self.reply(say, done=True)
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
