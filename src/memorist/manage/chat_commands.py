"""What a person says in a chat to the memory itself: "forget that", "turn memory off", "what do you remember about …?"

The whole message has to be the command, so what is quoted, reported, negated or said in passing does nothing; and it
has to be the person's own. No model is asked. An answer about forgetting does not repeat what was forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from ..context import Context
from ..errors import InvalidInput
from ..retrieve import render
from ..storage.proposals import Proposal
from ..text import authority, normalize
from ..types import Filter, Labels, Memory, Scope
from . import edit, forget, recall
from .privacy import INCOGNITO, Consent, Privacy

LONGEST = 300  # characters; what is longer is talk
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
_PATTERNS = {
    "show": (
        rf"what (?:do|can) you remember about {_TOPIC}",
        rf"what have you remembered about {_TOPIC}",
        rf"(?:show|tell) me what you(?: can)? remember about {_TOPIC}",
        rf"do you remember anything about {_TOPIC}",
        rf"(?:show|list)(?: me)? (?:my|your|the) memories about {_TOPIC}",
        r"what do you know about (?P<topic>me)",
        r"what do you remember|(?:show|list)(?: me)? (?:my|your) memories",
    ),
    "forget": (
        rf"forget {_WHICH}",
        r"(?:delete|erase|remove) (?P<which>(?:that|this) memory)",
        r"(?:delete|erase|remove) (?P<which>that|this) from (?:your|my|the) memory",
        rf"forget (?:what|everything|all)(?: that)? {_ABOUT}",
    ),
    "pin": (rf"pin {_WHICH}",),
    "unpin": (rf"unpin {_WHICH}",),
    "memory off": (rf"{_OFF}|disable {_MEMORY}",),
    "memory on": (rf"{_ON}|enable {_MEMORY}",),
    "incognito on": (
        rf"(?:start|begin|enter|enable|activate|go|use|(?:turn|switch) on|switch to) {_SECRET}",
        rf"turn incognito(?: mode)? on{_HERE}?|{_OFF}{_HERE}",
    ),
    "incognito off": (
        rf"(?:stop|end|leave|exit|disable|deactivate|(?:turn|switch) off) {_SECRET}",
        rf"turn incognito(?: mode)? off{_HERE}?|{_ON}{_HERE}",
    ),
    "approve": (rf"(?:yes,? )?(?:you (?:may|can) )?(?:keep|remember|save|use) my {_FIELD}",),
    "deny": (rf"(?:no,? )?(?:do not|don't|never) (?:keep|remember|save|use) my {_FIELD}",),
}
_BEFORE = (
    r"(?:(?:hey|hi|hello|ok|okay|so|now|actually|alright|well)[,!.]? ){0,3}(?:please,? )?"
    r"(?:(?:can|could|would|will) you (?:please |kindly )?|i(?:'d| would) like (?:you )?to |i want (?:you )?to )?"
)
_AFTER = r"(?:,? (?:please|thanks|thank you|for me|for now|now|again)){0,3}[.!?… ]{0,5}"
_REPORTED = re.compile(
    r"\b(?:asked|said|says|saying|wrote|replied|told (?:me|us|him|her|them))\W*$", re.IGNORECASE
)
_PLACES = {"first": 0, "second": 1, "third": 2, "fourth": 3, "1": 0, "2": 1, "3": 2, "4": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came of a command, and what to say to the person."""

    command: str  # show · forget · pin · unpin · memory · incognito · consent
    say: str
    done: bool  # False: it asks back, and nothing was changed
    ids: tuple[
        str, ...
    ] = ()  # what it was done to, or what there is to choose from: pass them as `about` next time


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command as it was said, before anything is done."""

    command: str
    which: str = ""  # that · said · all · a place, from 0
    topic: str = ""
    field: str = ""


def parse(text: str) -> Command | None:
    """The command that a message is, or None if it is anything else.

    >>> parse("Hey, could you please forget that?")
    Command(command='forget', which='that', topic='', field='')
    >>> parse("She told me to forget that."), parse('"Forget that."'), parse("Don't forget that!"), parse("Forget it.")
    (None, None, None, None)
    """
    line = text.strip().replace("’", "'") if len(text) <= LONGEST else ""
    for command, pattern in _commands():
        if found := pattern.fullmatch(re.sub(r"[ \t]+", " ", line)):
            named = {name: value for name, value in found.groupdict().items() if value}
            if _REPORTED.search(named.get("topic", "")):
                return None
            if "which" in named:
                named["which"] = _which(named["which"].lower())
            return Command(command=command, **named)
    return None


@cache
def _commands() -> list[tuple[str, re.Pattern[str]]]:
    """Compiled when somebody first speaks to the memory: most programs never do."""
    return [
        (command, re.compile(rf"{_BEFORE}(?:{pattern}){_AFTER}", re.IGNORECASE))
        for command, patterns in _PATTERNS.items()
        for pattern in patterns
    ]


def _which(words: str) -> str:
    if words.startswith(("what i", "the last")):
        return "said"
    if re.fullmatch(_ALL, words):
        return "all"
    return next((str(place) for word, place in _PLACES.items() if word in words.split()), "that")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a command is carried out."""

    ctx: Context
    scope: Scope
    labels: Labels

    @property
    def privacy(self) -> Privacy:
        return Privacy(self.ctx, self.scope, self.labels)

    @property
    def consent(self) -> Consent:
        return Consent(self.ctx, self.scope, self.labels)


async def act(
    ctx: Context,
    scope: Scope,
    labels: Labels,
    text: str,
    *,
    role: str | None,
    name: str | None,
    about: Sequence[str],
) -> Reply | None:
    """Do what the person says; None if it is no command or not theirs."""
    if not isinstance(text, str) or isinstance(about, str):
        raise InvalidInput("A command is a text, and `about` a list of ids")
    is_own = authority.is_own(role, authority.speaker_of(role, name), scope.user)
    to = Target(ctx, scope, labels)
    said = parse(text) if is_own else None
    if said is None:
        return None
    if said.command == "show":
        return await _shown(to, said.topic)
    if said.command in ("forget", "pin", "unpin"):
        return await _done(to, said, about)
    if said.field:
        return await _consented(to, said, about)
    return await _switched(to, said.command)


async def _shown(to: Target, topic: str) -> Reply:
    if await to.privacy.disabled_reason() == INCOGNITO:
        return Reply(command="show", say=f"I look nothing up: {INCOGNITO}.", done=False)
    found, on = await _known(to, topic), f" about {topic}" if topic else ""
    say = (
        f"I remember nothing{on}."
        if not found
        else f"This is what I remember{on}:\n{_numbered(found)}"
    )
    return Reply(command="show", say=say, done=True, ids=tuple(memory.id for memory in found))


async def _known(to: Target, topic: str) -> list[Memory]:
    """What is remembered of something, also while memory is off: the person asks for it."""
    if topic.lower() in ("", "me", "myself"):
        return [*(await to.ctx.store.page(to.scope, Filter(), limit=SHOWN)).memories]
    return [*await recall.look_up(to.ctx, to.scope, to.labels, topic, SHOWN)]


async def _done(to: Target, said: Command, about: Sequence[str]) -> Reply:
    found = await _meant(to, said, about)
    is_sure = len(found) == 1 or (found and said.which == "all")
    if (
        said.topic or not is_sure
    ):  # what a search finds may be about something else: the person looks first
        return _asked(said, found)
    for memory in found:
        if said.command == "forget":
            manner = forget.Manner(reason="asked for in the chat", actor=to.scope.user)
            await forget.forget(to.ctx, to.scope, [memory.id], manner)
        else:
            is_pinned = said.command == "pin"
            await edit.set_pinned(to.ctx, to.scope, to.labels, memory.id, is_pinned, to.scope.user)
    say = {
        "forget": "Forgotten." if len(found) == 1 else f"Forgotten: {len(found)} memories.",
        "pin": f"Pinned:\n{_numbered(found)}",
        "unpin": f"No longer pinned:\n{_numbered(found)}",
    }[said.command]
    return Reply(command=said.command, say=say, done=True, ids=tuple(memory.id for memory in found))


async def _meant(to: Target, said: Command, about: Sequence[str]) -> list[Memory]:
    """The memories that the words may point to: more than one, if it cannot be told."""
    if said.topic:
        return (await _known(to, said.topic))[:CHOICES]
    if said.which == "said":
        return (await _of_session(to, own=True))[:1]
    there = await to.ctx.store.get(to.scope, list(about)) if about else await _of_session(to)
    if said.which.isdecimal():
        return there[int(said.which) :][:1]
    return there if about else there[:CHOICES]


async def _of_session(to: Target, *, own: bool = False) -> list[Memory]:
    """What was remembered of this session, newest first; without a session nobody can tell."""
    if to.labels.session is None:
        return []
    where = Filter(labels=Labels(session=to.labels.session))
    page = await to.ctx.store.page(to.scope, where, limit=50)
    return [memory for memory in page if authority.is_persons(memory) or not own]


def _asked(said: Command, found: Sequence[Memory]) -> Reply:
    ids = tuple(memory.id for memory in found)
    if not found:
        none = (
            f"I remember nothing about {said.topic}."
            if said.topic
            else "I cannot tell which memory you mean."
        )
        return Reply(command=said.command, say=none, done=False)
    say = f"Which one do you mean?\n{_numbered(found)}"
    say += f'\nSay "{said.command} the first one", or "{said.command} all of them".'
    return Reply(command=said.command, say=say, done=False, ids=ids)


async def _switched(to: Target, command: str) -> Reply:
    what, state = command.split()
    if what == "memory":
        await to.privacy.set(memory_enabled=state == "on", actor=to.scope.user)
        off = "Memory is off here: nothing is taken in or recalled by itself until you turn it on again."
        why = await to.privacy.disabled_reason()
        on = f"Memory is on in this space, but {why}." if why else "Memory is on."
        return Reply(command=what, say=on if state == "on" else off, done=True)
    if to.labels.session is None:
        return Reply(
            command=what,
            say="I cannot tell which chat this is, so nothing was changed.",
            done=False,
        )
    await (to.privacy.start_incognito if state == "on" else to.privacy.end_incognito)()
    on = "This chat is incognito: nothing of it is kept, and nothing is recalled in it."
    return Reply(
        command=what, say=on if state == "on" else "This chat is not incognito any more.", done=True
    )


async def _consented(to: Target, said: Command, about: Sequence[str]) -> Reply | None:
    """Decide a proposal that the person has seen; one that they have not is shown first."""
    field = "preferred_name" if said.field.lower().endswith("name") else said.field.lower()
    waiting = [each for each in await to.consent.list() if each.field == field]
    if not waiting:
        return None
    seen = [each for each in waiting if each.id in about]
    if len(seen) != 1:
        return _consent(
            waiting,
            "I would keep this, if you allow it:\n" + "\n".join(map(_line, waiting)),
            done=False,
        )
    if said.command == "deny":
        await to.consent.deny(seen[0].id, actor=to.scope.user)
        return _consent(seen, "It is not kept, and I will not propose it again.", done=True)
    made = await to.consent.approve(seen[0].id, actor=to.scope.user)
    return _consent(seen, f"Kept: {_line(made)}", done=True)


def _consent(proposals: Sequence[Proposal], say: str, *, done: bool) -> Reply:
    return Reply(command="consent", say=say, done=done, ids=tuple(each.id for each in proposals))


def _line(proposal: Proposal) -> str:
    return f"{proposal.field.replace('_', ' ')}: {proposal.value}"


def _numbered(memories: Sequence[Memory]) -> str:
    return "\n".join(f"{number}. {_told(memory)}" for number, memory in enumerate(memories, 1))


def _told(memory: Memory) -> str:
    who, words = render.credit(memory), normalize.one_line(memory.text)
    short = words if len(words) <= 200 else f"{words[:199]}…"
    return f"{short} ({who})" if who else short
