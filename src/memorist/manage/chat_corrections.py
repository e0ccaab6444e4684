"""What a person says about what is right: corrections, spellings, and conflicts that they decide."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..storage.person import Shown
from ..text import authority, contradictions, normalize
from ..text.commands import Command
from ..types import Memory, Receipt
from . import edit
from .chat_list import (
    ALIKE_IF_REPLACED,
    CHOICES,
    MENTIONED,
    SHOWN,
    ChatList,
    Reply,
    ids_of,
    number,
    share_words,
)
from .recall import search

Remember = Callable[..., Awaitable[Receipt]]
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
            answer = await search(self, content, MENTIONED, min_confidence=0)
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
