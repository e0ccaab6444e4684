"""Corrections and decisions in a chat: a person says what is right.

A correction asks which memory it replaces, unless that is clear.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..storage.person import Shown
from ..text import contradictions, cues, normalize
from ..text.commands import Command
from ..text.corrections import is_about_another_attribute, restate
from ..text.statements import says_more
from ..types import Memory
from . import edit, recall
from .chat_list import SHOWN, ChatList, Remember, Reply, ids_of, number
from .privacy import Consent
from .topics import CHOICES, MENTIONED, find_mentions, select_mentions, share_words

RESTATE = "restate"  # what is asked for: the whole sentence
ALIKE_IF_REPLACED = 0.3  # the confidence from which a memory without a word of it may be replaced
_DECISIONS: dict[str, edit.Decision] = {
    "confirm_new": "confirmed",
    "confirm_old": "rejected",
    "confirm_both": "both",
}


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
        if not statement:
            about = about or await self.load(self.shown.ids)
            if len(about) != 1 or not about[0].is_active:
                return await self.ask_for_statement(about)
            statement = restate(about[0].text, self.command.content)
        if not statement:
            return await self.ask_for_statement(about)
        found = about or await self.find(f"{topic} {statement}".strip())
        alike = await self.find_replaceable(topic, statement)
        outcome = (await self.remember(statement, manually_saved=True)).outcomes[0]
        if not outcome.ids:
            return self.reply(f"Not saved: {outcome.reason}.")
        new = outcome.ids[0]
        say = f"Saved: {statement}"
        if outcome.supersedes:
            return await self.end(f"Corrected. {say}", (new,))
        near = about or share_words(found, f"{statement} {wrong}") or alike
        near = [each for each in near if each.is_active and cues.is_persons(each)]
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

    async def ask_for_statement(self, about: Sequence[Memory]) -> Reply:
        """Ask for the whole sentence, and show the memories that it may be about."""
        found = list(about) or await self.find(self.command.topic or self.command.content)
        listed = found[:CHOICES]
        say = "What should it say? For example: my car is a Skoda."
        if len(about) > 1:
            say = f"{number(listed)}\nWhich one is wrong? {say}"
        await self.save_shown(ids_of(listed), asks=RESTATE)
        return self.reply(say, ids_of(listed))

    async def read_statement(self, text: str, shown: Shown) -> Command | None:
        """Return the correction that answers "What should it say?"; None if it is something else."""
        if shown.asks != RESTATE or "?" in text:
            return None
        found = await self.load(shown.ids)
        is_meant = share_words(found, text) or any(restate(each.text, text) for each in found)
        return Command(intent="correct", content=text) if is_meant else None

    async def find_replaceable(self, topic: str, statement: str) -> list[Memory]:
        """Return the memories without a word of a statement that it may replace."""
        others = (await find_mentions(self, statement)).others
        told = select_mentions(others, topic).exact
        told = [each for each in told if not says_more(each.text)]
        sure = [each.memory for each in others if (each.confidence or 0) >= ALIKE_IF_REPLACED]
        alike = [each for each in sure if not is_about_another_attribute(each.text, topic)]
        return (told or alike)[:CHOICES]

    async def find_misspelled(self) -> list[Memory]:
        """Return the memories that have another spelling of a word than a correction."""
        content = self.command.content
        found = await self.load(self.about)
        if not found:
            answer = await recall.search(self, content, MENTIONED, min_confidence=0)
            found = list(answer.memories)
        own = [each for each in found if each.is_active and cues.is_persons(each)]
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
        asked = self.shown.ids if self.shown.asks == "confirm" else ()
        named = [each for each in conflicts if each.new.id in (self.about or asked)]
        chosen = named or conflicts
        if not conflicts:
            return self.reply("No conflict awaits a decision.")
        new = chosen[0].new
        old = chosen[0].old
        if len(chosen) > 1 or (asked and not named):  # the one that was asked about is decided
            await self.save_shown((new.id,), asks="confirm")
            say = "Which one is right: the new one, the old one, or both?"
            say += f"\nNew: {normalize.one_line(new.text)}\nOld: {normalize.one_line(old.text)}"
            return self.reply(say, (new.id, old.id))
        decision = _DECISIONS[self.intent]
        await edit.decide(self, new.id, self.actor, decision=decision)
        kept = {"confirmed": (new.id,), "rejected": (old.id,)}.get(decision, (new.id, old.id))
        return await self.list_done("I will keep this:", await self.load(kept))

    async def decide_proposal(self) -> Reply | None:
        """Decide a proposal that the person has seen; show one that they have not."""
        consent = Consent(*self.parts)
        field = self.command.field.lower()
        field = "preferred_name" if field.endswith("name") else field
        waiting = [each for each in await consent.list() if each.field == field]
        if not waiting:
            return None
        seen = [each for each in waiting if each.id in self.about]
        is_clear = len(seen) == 1
        shown = seen if is_clear else waiting
        lines = [f"{field.replace('_', ' ')}: {each.value}" for each in shown]
        if not is_clear:
            say = "I would like to keep this, if you allow it:\n" + "\n".join(lines)
        elif self.intent == "deny":
            await consent.deny(seen[0].id, actor=self.actor)
            say = "It was not stored, and I will not propose it again."
        else:
            await consent.approve(seen[0].id, actor=self.actor)
            say = f"Stored: {lines[0]}"
        ids = [each.id for each in shown]
        return self.reply(say, ids, done=is_clear)
