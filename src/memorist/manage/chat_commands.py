"""Commands to the memory in a chat: "forget that", "turn memory off", "what do you remember?"

The whole message has to be the command, so what is quoted, reported, negated or mentioned does
nothing; and it has to come from the person. No model is used. A reply about forgetting does not
repeat what was forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from ..context import Place
from ..errors import InvalidInput
from ..retrieve import render
from ..text import authority, normalize
from ..types import Filter, Labels, Memory, frozen
from . import edit, forget, recall
from .privacy import INCOGNITO, Consent, Privacy

LONGEST = 300  # characters; a longer message is not a command
SHOWN = 10
CHOICES = 4
_HERE = r"(?: (?:for|in) this (?:chat|conversation|session|thread))"
_MEMORY = r"(?:the |my |your )?memory"
_OFF = rf"(?:turn|switch) (?:off {_MEMORY}|{_MEMORY} off)"
_ON = rf"(?:turn|switch) (?:(?:back )?on {_MEMORY}|{_MEMORY} (?:back )?on)"
_SECRET = rf"(?:an? )?incognito(?: mode| session| chat)?{_HERE}?"
_SAID = r"what i(?:'ve| have)? just (?:said|told you)|the last thing i (?:said|told you)"
_NUMBER = r"(?:the |number )?(?:first|second|third|fourth|[1-4])(?: one| memory)?"
_ALL = r"(?:all of )?(?:them|these|those)|both(?: of them)?"
_WHICH = rf"(?P<which>(?:that|this)(?: one| memory)?|{_SAID}|{_NUMBER}|{_ALL})"
_FIELD = r"(?P<field>(?:preferred )?name|pronouns|city|language)"
_TOPIC = r"(?P<topic>(?:[^?!.\n\"“”«»]|\.(?=\S))+?)"
_ABOUT = rf"(?:you (?:know|remember|have) |i(?:'ve| have)? (?:said|told you) )?about {_TOPIC}"
_PATTERNS = rf"""
show: what (?:do|can) you remember about {_TOPIC}
show: what have you remembered about {_TOPIC}
show: (?:show|tell) me what you(?: can)? remember about {_TOPIC}
show: do you remember anything about {_TOPIC}
show: (?:show|list)(?: me)? (?:my|your|the) memories about {_TOPIC}
show: what do you know about (?P<topic>me)
show: what do you remember|(?:show|list)(?: me)? (?:my|your) memories
forget: forget {_WHICH}
forget: (?:delete|erase|remove) (?P<which>(?:that|this) memory)
forget: (?:delete|erase|remove) (?P<which>that|this) from (?:your|my|the) memory
forget: forget (?:what|everything|all)(?: that)? {_ABOUT}
pin: pin {_WHICH}
unpin: unpin {_WHICH}
memory off: {_OFF}|disable {_MEMORY}
memory on: {_ON}|enable {_MEMORY}
incognito on: (?:start|begin|enter|enable|activate|go|use|(?:turn|switch) on|switch to) {_SECRET}
incognito on: turn incognito(?: mode)? on{_HERE}?|{_OFF}{_HERE}
incognito off: (?:stop|end|leave|exit|disable|deactivate|(?:turn|switch) off) {_SECRET}
incognito off: turn incognito(?: mode)? off{_HERE}?|{_ON}{_HERE}
approve: (?:yes,? )?(?:you (?:may|can) )?(?:keep|remember|save|use) my {_FIELD}
deny: (?:no,? )?(?:do not|don't|never) (?:keep|remember|save|use) my {_FIELD}
"""
_BEFORE = (
    r"(?:(?:hey|hi|hello|ok|okay|so|now|actually|alright|well)[,!.]? ){0,3}(?:please,? )?"
    r"(?:(?:can|could|would|will) you (?:please |kindly )?|i(?:'d| would) like (?:you )?to "
    r"|i want (?:you )?to )?"
)
_AFTER = r"(?:,? (?:please|thanks|thank you|for me|for now|now|again)){0,3}[.!?… ]{0,5}"
_REPORTED = re.compile(
    r"\b(?:asked|said|says|saying|wrote|replied|told (?:me|us|him|her|them))\W*$", re.IGNORECASE
)
_PLACES = dict(zip("first second third fourth 1 2 3 4".split(), "01230123", strict=True))
_SWITCHED = {
    "memory off": "Memory is off here: nothing is stored or recalled automatically until you turn "
    "it on again.",
    "memory on": "Memory is on.",
    "incognito on": (
        "This chat is incognito: nothing of it is stored and nothing is recalled in it."
    ),
    "incognito off": "This chat is not incognito any more.",
}


@frozen
class Reply:
    """The result of a command, and what to say to the person."""

    command: str  # show · forget · pin · unpin · memory · incognito · consent
    say: str
    done: bool  # False: the reply is a question, and nothing was changed
    # what was changed or shown, or what to choose from: pass them as `about` next time
    ids: tuple[str, ...] = ()


@frozen
class Command:
    """A command that was recognized."""

    command: str
    which: str = ""  # that · said · all · a place, from 0
    topic: str = ""
    field: str = ""


def parse(text: str) -> Command | None:
    """Parse a message as a command; None if it is not one.

    >>> parse("Hey, could you please forget that?")
    Command(command='forget', which='that', topic='', field='')
    >>> parse("She told me to forget that."), parse('"Forget that."'), parse("Don't forget that!")
    (None, None, None)
    >>> parse("Forget it.") is None
    True
    """
    line = text.strip().replace("’", "'") if len(text) <= LONGEST else ""
    line = re.sub(r"[ \t]+", " ", line)
    for command, pattern in _compile():
        if found := pattern.fullmatch(line):
            named = found.groupdict("")
            if _REPORTED.search(named.get("topic", "")):
                return None
            if which := named.get("which", "").lower():
                places = [_PLACES[word] for word in which.split() if word in _PLACES]
                named["which"] = (places or ["that"])[0]
                if which.startswith(("what i", "the last")):
                    named["which"] = "said"
                elif re.fullmatch(_ALL, which):
                    named["which"] = "all"
            return Command(command=command, **named)
    return None


@cache
def _compile() -> list[tuple[str, re.Pattern[str]]]:
    """Compile the patterns at the first command: most programs never see one."""
    compiled: list[tuple[str, re.Pattern[str]]] = []
    for line in _PATTERNS.strip().splitlines():
        command, _, pattern = line.partition(": ")
        whole = re.compile(rf"{_BEFORE}(?:{pattern}){_AFTER}", re.IGNORECASE)
        compiled.append((command, whole))
    return compiled


async def obey(
    place: Place,
    text: str,
    *,
    role: str | None = "user",
    name: str | None = None,
    about: Sequence[str] = (),
) -> Reply | None:
    """Carry out a command of a person in a chat; None if the text is not a command.

    "What do you remember about …?", "forget that", "pin this", "turn memory off", "start incognito
    for this chat" and the like, if they are the whole message. `about` names the memories or
    proposals that were mentioned last; if "that" is ambiguous, the reply asks. Commands of anyone
    but the person are ignored.
    """
    if not isinstance(text, str) or isinstance(about, str):
        raise InvalidInput("A command is a text, and `about` a list of ids")
    speaker = authority.speaker_of(role, name)
    if not authority.is_own(role, speaker, place.scope.user):
        return None
    command = parse(text)
    if command is None:
        return None
    chat = Chat(*place.parts)
    if command.command == "show":
        return await chat.show(command.topic)
    if command.command in ("forget", "pin", "unpin"):
        return await chat.change(command, about)
    if command.field:
        return await chat.decide(command, about)
    return await chat.switch(command.command)


class Chat(Place):
    """Carries out the commands of one chat."""

    async def show(self, topic: str) -> Reply:
        """Show what is stored about a topic."""
        privacy = Privacy(*self.parts)
        if await privacy.disabled_reason() == INCOGNITO:
            return Reply(command="show", say=f"I look nothing up: {INCOGNITO}.", done=False)
        found = await self.find(topic)
        on = f" about {topic}" if topic else ""
        say = f"This is what I remember{on}:\n{_number(found)}"
        if not found:
            say = f"I remember nothing{on}."
        return Reply(command="show", say=say, done=True, ids=_ids(found))

    async def find(self, topic: str) -> list[Memory]:
        """Return what is stored about a topic, also while memory is off: the person asks for it."""
        if topic.lower() in ("", "me", "myself"):
            page = await self.ctx.store.page(self.scope, Filter(), limit=SHOWN)
            return list(page)
        found = await recall.look_up(self, topic, SHOWN)
        return list(found)

    async def change(self, command: Command, about: Sequence[str]) -> Reply:
        """Forget, pin or unpin what the command refers to; ask if that is ambiguous."""
        user = self.scope.user
        verb = command.command
        found = await self._find_candidates(command, about)
        is_clear = len(found) == 1 or (found and command.which == "all")
        if command.topic or not is_clear:  # a search may find something else: the person looks
            say = "I cannot tell which memory you mean."
            if found:
                say = f"Which one do you mean?\n{_number(found)}"
                say += f'\nSay "{verb} the first one", or "{verb} all of them".'
            elif command.topic:
                say = f"I remember nothing about {command.topic}."
            return Reply(command=verb, say=say, done=False, ids=_ids(found))
        for memory in found:
            if verb == "forget":
                manner = forget.Manner(reason="asked for in the chat", actor=user)
                await forget.forget(self, [memory.id], manner)
            else:
                fields = {"pinned": verb == "pin"}
                await edit.change(self, memory.id, "updated", fields, user)
        say = "Forgotten." if len(found) == 1 else f"Forgotten: {len(found)} memories."
        if verb != "forget":
            say = f"{'Pinned' if verb == 'pin' else 'No longer pinned'}:\n{_number(found)}"
        return Reply(command=verb, say=say, done=True, ids=_ids(found))

    async def _find_candidates(self, command: Command, about: Sequence[str]) -> list[Memory]:
        """Return the memories that a command may refer to: several if it is ambiguous."""
        if command.topic:
            return (await self.find(command.topic))[:CHOICES]
        session = self.labels.session
        which = command.which
        found: list[Memory] = []
        if about and which != "said":
            found = await self.ctx.store.get(self.scope, list(about))
        elif session is not None:
            where = Filter(labels=Labels(session=session))
            page = await self.ctx.store.page(self.scope, where, limit=50)
            found = list(page)
        if which == "said":
            return list(filter(authority.is_persons, found))[:1]
        if which.isdecimal():
            return found[int(which) :][:1]
        return found if about else found[:CHOICES]

    async def switch(self, command: str) -> Reply:
        """Turn memory or incognito on or off."""
        privacy = Privacy(*self.parts)
        what, state = command.split()
        say = _SWITCHED[command]
        if what == "memory":
            await privacy.set(memory_enabled=state == "on", actor=self.scope.user)
            if state == "on" and (why := await privacy.disabled_reason()):
                say = f"Memory is on in this space, but {why}."
        elif self.labels.session is None:
            say = "I cannot tell which chat this is, so nothing was changed."
            return Reply(command=what, say=say, done=False)
        elif state == "on":
            await privacy.start_incognito()
        else:
            await privacy.end_incognito()
        return Reply(command=what, say=say, done=True)

    async def decide(self, command: Command, about: Sequence[str]) -> Reply | None:
        """Decide a proposal that the person has seen; show one that they have not."""
        consent = Consent(*self.parts)
        field = command.field.lower()
        field = "preferred_name" if field.endswith("name") else field
        waiting = [each for each in await consent.list() if each.field == field]
        if not waiting:
            return None
        seen = [each for each in waiting if each.id in about]
        is_clear = len(seen) == 1
        shown = seen if is_clear else waiting
        lines = [f"{field.replace('_', ' ')}: {each.value}" for each in shown]
        if not is_clear:
            say = "I would keep this, if you allow it:\n" + "\n".join(lines)
        elif command.command == "deny":
            await consent.deny(seen[0].id, actor=self.scope.user)
            say = "It is not stored, and I will not propose it again."
        else:
            await consent.approve(seen[0].id, actor=self.scope.user)
            say = f"Stored: {lines[0]}"
        ids = tuple(each.id for each in shown)
        return Reply(command="consent", say=say, done=is_clear, ids=ids)


def _ids(memories: Sequence[Memory]) -> tuple[str, ...]:
    return tuple(memory.id for memory in memories)


def _number(memories: Sequence[Memory]) -> str:
    lines: list[str] = []
    for number, memory in enumerate(memories, 1):
        who = render.credit(memory)
        words = normalize.one_line(memory.text)
        short = words if len(words) <= 200 else f"{words[:199]}…"
        lines.append(f"{number}. {short} ({who})" if who else f"{number}. {short}")
    return "\n".join(lines)
