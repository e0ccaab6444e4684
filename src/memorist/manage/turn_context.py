"""The context of one turn: what an agent reads before it answers a message.

In this order: what changed in the thread, the person's profile, pinned memories, whole categories,
and what was recalled for the message. All share one budget: profile and pinned memories get at most
30 % of it, and recalled ones at most half if there are whole categories, which get what is left. A
memory is shown once: what the changes tell in full is not repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar, get_args

from ..context import Context, Place
from ..errors import StoreDamaged, StoreUnavailable
from ..ingest import validation
from ..retrieve import render
from ..retrieve.profiles import Profile
from ..retrieve.render import Caps, fit
from ..settings import allowlists
from ..storage import person
from ..storage.history import Updates
from ..types import NO_ANSWER, Cut, Filter, Memory, Recall, frozen
from . import agent_query, records, updates
from .newest_first import arrange
from .privacy import Consent

T = TypeVar("T")
Source = Literal["change", "profile", "pinned", "category", "recalled", "related"]
SOURCES: tuple[Source, ...] = get_args(Source)  # in the order of the text
BUDGET = 1000  # tokens
STANDING = 0.3  # share of profile and pinned memories
RECALLED = 0.5  # share of what was recalled, if there are whole categories
RELATED = 2  # memories on the same topics as the recalled ones
MOST_CUT = 100  # lines that were left out and are named
PERSON = "profile"  # the category of what is known about the person
NO_OTHER = "No other stored memory answers this question."


@frozen
class ContextLine:
    """One line of a context, and where it comes from."""

    source: Source
    text: str
    id: str | None = None  # of the memory; None for a field of the profile


@frozen
class TurnContext:
    """What an agent reads before it answers a message."""

    message: str
    text: str  # for the prompt: what changed, and then what is known
    tokens: int  # of that text
    lines: tuple[ContextLine, ...] = ()  # of that text, without the frame of the block
    ids: tuple[str, ...] = ()  # of the shown memories that answer the message, pinned or not
    cut: tuple[Cut, ...] = ()  # found, but there was no room for it
    confidence: float | None = None  # that what was recalled contains the answer
    revision: int | None = None  # of the thread: pass it as `since` the next time
    note: str = ""  # that nothing stored answers the message, if so
    legs: Mapping[str, str] = field(default_factory=dict)  # "ok", or why a part is missing

    def prompt(self) -> str:
        """Return the text, and that nothing stored answers the message; empty if memory is off."""
        return "\n".join(filter(None, (self.text, self.note)))

    def explain(self) -> str:
        """Return where each line comes from, and what was left out and why."""
        sure = "" if self.confidence is None else f", confidence {self.confidence:.2f}"
        lines = [f"{self.message!r}: {len(self.lines)} lines, {self.tokens} tokens{sure}"]
        lines += [f"  {leg}: {state}" for leg, state in self.legs.items() if state != "ok"]
        lines += [f"{line.source:<9} {line.id or '-'}  {line.text}" for line in self.lines]
        lines += [f"left out  {cut.id}: {cut.reason}" for cut in self.cut]
        return "\n".join(lines)


@frozen
class Reading:
    """What the reader of a context may see, and how it is found and rendered."""

    agent: str | None
    profile: Profile
    whole: Filter | None  # categories that are read as a whole
    pinned: Filter
    recalled: Filter | None  # None: nothing is searched
    categories: tuple[str, ...] | None  # that changes may be in; None: any
    has_person: bool  # whether the person's profile is shown

    @property
    def is_block(self) -> bool:
        return self.profile.render in ("block", "plain_block")


def plan(ctx: Context, agent: str | None, profile: str | Profile | None) -> Reading:
    """Return what an agent may read; without one, everything.

    Raises NotAllowed if the agent has no allowlist; InvalidInput.
    """
    access = ctx.allowlists
    usual = ctx.settings.profile if agent is None else agent_query.PROFILE
    if not isinstance(profile, Profile):
        profile = ctx.profiles[profile or usual]
    profile = replace(profile, related=profile.related or RELATED)
    known = tuple(access.categories) if agent is None else access.allowed(agent)
    names = [name for name in known if name != allowlists.PROCEDURAL]
    whole = [name for name in names if access.category(name).context == "all"]
    rest = [name for name in names if name not in whole]
    everything = Filter(categories=allowlists.spellings(whole)) if whole else None
    pinned = Filter(pinned=True)
    recalled: Filter | None = Filter()
    if agent is not None:
        pinned = Filter(pinned=True, categories=allowlists.spellings(names))
        recalled = Filter(categories=allowlists.spellings(rest)) if rest else None
    return Reading(
        agent=agent,
        profile=profile,
        whole=everything,
        pinned=pinned,
        recalled=recalled,
        categories=None if agent is None else tuple(names),
        has_person=agent is None or PERSON in names,
    )


@dataclass
class ContextPage:
    """The lines of a context so far, what was left out, and the room that is left."""

    ctx: Context
    reading: Reading
    room: Caps
    updates: Updates | None = None
    lines: list[ContextLine] = field(default_factory=list)
    cut: dict[str, Cut] = field(default_factory=dict)
    legs: dict[str, str] = field(default_factory=dict)

    async def read(self, work: Awaitable[list[T]]) -> list[T]:
        """Return what a query finds; nothing, with the reason in `legs`, if the store fails."""
        try:
            return await work
        except (StoreUnavailable, StoreDamaged) as error:
            self.legs["store"] = str(error)
            return []

    def add(self, lines: Sequence[ContextLine], most: Caps) -> None:
        """Add the lines that fit and are not there yet."""
        count = self.ctx.count_tokens
        shown = {line.id for line in self.lines if line.source != "change"}
        new = [line for line in lines if line.id is None or line.id not in shown]
        fitted = fit(
            new,
            self.room.at_most(most),
            _join,
            count,
            cost=lambda line: count(line.text + "\n"),
        )
        taken = [new[i] for i in fitted.taken]
        for i, reason in fitted.cut.items():
            line = new[i]
            name = line.id or line.text
            cut = Cut(id=name, reason=f"{line.source}: {reason}", fits=False)
            self.cut.setdefault(name, cut)
        if taken:
            self.lines += taken
            self.room = self.room.beside(fitted.text, count)
            if self.room.limit is not None:
                memories = sum(line.id is not None for line in taken)
                self.room = self.room._replace(limit=max(0, self.room.limit - memories))

    def tells(self, memory: Memory) -> bool:
        """Return whether a change tells the whole text of a memory."""
        text = render.prefix(render.credit(memory), render.concise(memory))
        changes = [line.text for line in self.lines if line.source == "change"]
        return any(line.partition(" (imp=")[0].endswith(f"] {text}") for line in changes)

    def may_show(self, memory: Memory) -> bool:
        """Return whether the reader may see the category of a memory."""
        allowed = self.reading.categories
        category = self.ctx.allowlists.category(memory.category or memory.kind)
        return allowed is None or category.name in allowed

    def line(self, source: Source, memory: Memory) -> ContextLine:
        """Render a memory as one line."""
        if self.reading.is_block:
            text = render.block_line(memory)
        else:
            category = self.ctx.allowlists.category(memory.category or memory.kind)
            text = f"- {render.bullet(memory, category.name)}"
        if source == "related":
            text += render.IS_RELATED
        return ContextLine(source=source, text=text, id=memory.id)

    def person_line(self, name: str, value: str) -> ContextLine:
        """Render a field of the person's profile as one line."""
        text = f"{name.replace('_', ' ')}: {value}"
        if self.reading.is_block:
            return ContextLine(source="profile", text=render.labelled_line(PERSON, text))
        return ContextLine(source="profile", text=f"- [{PERSON}] {render.safe(text)}")


def _join(lines: Sequence[ContextLine]) -> str:
    return "\n".join(line.text for line in lines)


def make_caps(budget: int, limit: int | None, max_chars: int | None) -> Caps:
    """Return the caps of a context. Raises InvalidInput."""
    validation.limits(budget=budget, limit=limit, max_chars=max_chars)
    return Caps(limit=limit, tokens=budget, chars=max_chars)


async def begin(place: Place, reading: Reading, caps: Caps, since: int | None) -> ContextPage:
    """Return a page with what changed in the thread, the person's profile and what is pinned.

    Raises InvalidInput.
    """
    ctx, _, labels = place.parts
    page = ContextPage(ctx, reading, caps)
    if since is not None or labels.thread or labels.session:
        page.updates = await updates.read_header(
            place,
            since,
            caps,
            reading.categories,
            agent=reading.agent,
            messages_last=True,
        )
        texts = page.updates.text.splitlines()[1:]
        for text, change in zip(texts, page.updates.changes, strict=True):
            page.lines.append(ContextLine(source="change", text=text, id=change.memory_id))
        if page.lines:
            page.room = caps.beside(page.updates.text, ctx.count_tokens)
    if reading.is_block:
        page.room = page.room.beside(render.enclose([""]), ctx.count_tokens)
    lines = await page.read(_load_person(place, page)) if reading.has_person else []
    most = caps.share(STANDING)
    if most.limit is not None:  # fields of the profile are not counted
        most = most._replace(limit=most.limit + len(lines))
    pinned = await page.read(_find(place, reading.pinned))
    pinned.sort(key=lambda memory: -memory.importance)
    lines += [page.line("pinned", memory) for memory in pinned if not page.tells(memory)]
    page.add(lines, most)
    return page


async def _load_person(place: Place, page: ContextPage) -> list[ContextLine]:
    """Return what the person approved, and the first lines of their long-term profile."""
    lines = []
    for name, value in (await Consent(*place.parts).about()).items():
        values = [value] if isinstance(value, str) else value
        lines += [page.person_line(name, each) for each in values]
    versions = await person.load_summaries(place.ctx.store, place.scope, "user_profile")
    record = records.newest(versions, "user")
    kept = []
    if record is not None:
        for name in records.PROFILE:
            kept += [page.person_line(name, each) for each in record.data.get(name, ())]
    return lines + kept[: place.ctx.settings.memory_profile_limit]


async def _find(place: Place, where: Filter) -> list[Memory]:
    """Return the memories that pass a filter, newest first, without workflows."""
    where = replace(where, unexpired_at=place.ctx.clock())
    found = await place.ctx.store.find_all(place.scope, where)
    return [memory for memory in found if memory.procedural_form != "workflow"]


async def complete(place: Place, page: ContextPage, caps: Caps, found: Recall) -> TurnContext:
    """Return the context with what was recalled, and with whole categories in the room left."""
    ctx = place.ctx
    whole: list[ContextLine] = []
    answers = {memory.id for memory in found.memories}
    if page.reading.whole is not None:
        facts = 0
        found_whole = await page.read(_find(place, page.reading.whole))
        listed = {memory.id for memory in found_whole}
        for memory in await page.read(arrange(place, found_whole, page.may_show)):
            is_extracted = memory.evidence_text and memory.evidence_ids
            if is_extracted or memory.id not in listed:  # from a turn, or a turn that was added
                is_shown = not answers.isdisjoint(memory.evidence_ids)
                if is_shown or facts >= ctx.settings.memory_profile_limit:
                    continue
                facts += 1
            if not page.tells(memory):
                whole.append(page.line("category", memory))
    in_whole = {line.id for line in whole}
    recalled = []
    told = set()
    for memory in agent_query.limit_categories(found, ctx.allowlists):
        source: Source = "category" if memory.id in in_whole else "recalled"
        if page.tells(memory):
            told.add(memory.id)
        else:
            recalled.append(page.line(source, memory))
    related = [memory for memory in found.related if not page.tells(memory)]
    recalled += [page.line("related", memory) for memory in related]
    page.add(recalled, caps.share(RECALLED) if whole else caps)
    page.add(whole, caps)
    for each in found.cut:
        if not each.fits:
            page.cut.setdefault(each.id, each)
    lines = sorted(page.lines, key=lambda line: SOURCES.index(line.source))
    known = [line for line in lines if line.source != "change"]
    ids = told.union(line.id for line in known if line.id)
    cut = [each for each in page.cut.values() if each.id not in ids]
    text = _join(known)
    if page.reading.is_block:
        text = render.enclose([line.text for line in known])
    if page.updates is not None:
        text = "\n".join(filter(None, (page.updates.text, text)))
    note = ""
    if found.is_unanswered:
        note = NO_OTHER if known else NO_ANSWER
        room = caps.beside(text, ctx.count_tokens)
        note = fit([note], room, "".join, ctx.count_tokens).text
    return TurnContext(
        message=found.query.text,
        text=text,
        tokens=ctx.count_tokens(text) if text else 0,
        lines=tuple(lines),
        ids=tuple(memory.id for memory in found.memories if memory.id in ids),
        cut=tuple(cut[:MOST_CUT]),
        confidence=found.confidence,
        revision=None if page.updates is None else page.updates.revision,
        note=note,
        legs={**page.legs, **found.legs},
    )
