"""What the person decides: whether memory is on, and what is known about them.

Memory is off if the environment, the settings, the space or an incognito session says so. Where it
is off, nothing is stored automatically and nothing is recalled; reading, correcting, forgetting and
explicit saving still work. Nothing at all is stored of an incognito session.

What is inferred about the person is a proposal whose value never changes, so what is approved is
what was shown. A proposal that is denied, withdrawn or lapsed is erased; the history says what was
decided and by whom, but not the value.
"""

from __future__ import annotations

import builtins
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from ..context import INCOGNITO as INCOGNITO
from ..context import Context, Place
from ..errors import ConsentMissing, InvalidInput, NotAllowed, NotFound, Refused
from ..ingest import validation
from ..ingest.transitions import union
from ..storage import SpaceSettings, person
from ..storage.person import Proposal
from ..text import cues, normalize
from ..text.clock import new_id
from ..text.contradictions import contradicts
from ..text.statements import parse
from ..text.tokens import analyze
from ..text.values import read_values
from ..types import Labels, Memory, Scope

SENSITIVE = ("preferred_name", "pronouns", "city", "language")  # only the person decides
BENIGN = ("tone", "goals_add")  # two signals are enough, or one confident insight
FIELDS = (*SENSITIVE, *BENIGN)
WAITS = timedelta(days=7)  # how long a proposal waits for a decision
ENOUGH = 2  # signals for a benign field
SURE = 0.8  # confidence of an insight that is enough alone
LONGEST = 200  # characters
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")  # categories of characters that are not visible
_JOINERS = "\u200c\u200d"  # not visible either, but part of how some languages are written


async def find_disabled_reason(place: Place, session: str | None = None) -> str:
    """Return why memory is off in this or another session; empty if it is on."""
    asked = place.labels.session if session is None else session
    disabled, _ = await place.ctx.load_disabled(place.ctx.store, place.scope, [asked])
    return disabled.get(asked, "")


class Privacy(Place):
    """The privacy settings of one scope."""

    async def settings(self) -> SpaceSettings:
        """Return the settings of this space."""
        return (await self.ctx.store.checks(self.scope)).settings

    async def set(
        self,
        *,
        memory_enabled: bool | None = None,
        incognito_default: bool | None = None,
        sharing: bool | None = None,
        actor: str | None = None,
    ) -> SpaceSettings:
        """Turn memory, incognito by default, and sharing on or off in this space.

        With `incognito_default`, sessions begin incognito. From a space that shares, the person's
        other spaces may recall what is tagged `share:` and their name. Raises InvalidInput.
        """
        given = {
            "memory_enabled": memory_enabled,
            "incognito_default": incognito_default,
            "sharing": sharing,
        }
        for name, value in given.items():
            if not isinstance(value, bool | None):
                raise InvalidInput(f"{name} must be True or False, not {value!r:.60}")
        validation.fields({"actor": actor})
        now = self.ctx.clock()
        async with self.ctx.store.transaction(self.scope) as tx:
            for name, value in given.items():
                if value is not None:
                    await person.save_setting(tx, name, value, at=now, actor=actor)
        return await self.settings()

    disabled_reason = find_disabled_reason

    async def start_incognito(self, session: str | None = None) -> None:
        """Store nothing of this or another session, and recall nothing in it.

        Raises InvalidInput.
        """
        await self._set_incognito(session, is_on=True)

    async def end_incognito(self, session: str | None = None) -> None:
        """Remember and recall in this or another session as usual. Raises InvalidInput."""
        await self._set_incognito(session, is_on=False)

    async def _set_incognito(self, given: str | None, *, is_on: bool) -> None:
        named = self.labels.session if given is None else given
        if named is None:
            raise InvalidInput("No session: pass its name, or open the scope with `session`")
        session = validation.name("session", named)
        if is_on:  # from this moment on, whether the store is available or not
            self.ctx.note_disabled(self.scope, session, INCOGNITO)
        async with self.ctx.store.transaction(self.scope) as tx:
            await person.set_incognito(tx, session, is_on, at=self.ctx.clock())
        if not is_on:
            self.ctx.note_disabled(self.scope, session, "")


async def is_incognito(place: Place) -> bool:
    """Return whether nothing of this session is kept."""
    return await find_disabled_reason(place) == INCOGNITO


async def trace(place: Place) -> dict[str, str]:
    """Return the session for the history; empty if it is incognito."""
    session = place.labels.session
    return {} if session is None or await is_incognito(place) else {"session": session}


async def refuse_incognito(place: Place) -> None:
    """Raise Refused in an incognito session."""
    if await is_incognito(place):
        raise Refused(f"Not done: {INCOGNITO}")


async def is_space_off(ctx: Context, scope: Scope) -> bool:
    """Return whether memory is off in a space, and not only incognito in its sessions."""
    place = Place(ctx, scope, Labels())
    return await find_disabled_reason(place) not in ("", INCOGNITO)


async def list_sharing(ctx: Context, scope: Scope) -> list[Scope]:
    """Return the other spaces of the same person that share something."""
    found = []
    for other in await ctx.store.scopes(scope.tenant, scope.user):
        if other != scope:
            checks = await ctx.store.checks(other)
            if checks.settings.sharing:
                found.append(other)
    return found


class Consent(Place):
    """What is known about a person; nothing sensitive changes without their consent."""

    async def about(self) -> dict[str, str | builtins.list[str]]:
        """Return what is in effect, by field; `goals` is a list."""
        known: dict[str, str | builtins.list[str]] = {}
        goals = []
        for each in _find_in_force(await person.load_proposals(self.ctx.store, self.scope)):
            if each.field == "goals_add":
                goals.append(each.value)
            else:
                known[each.field] = each.value
        return {**known, "goals": goals} if goals else known

    async def list(self) -> builtins.list[Proposal]:
        """Return what awaits a decision, oldest first; it lapses after seven days."""
        now = self.ctx.clock()
        found = await person.load_proposals(self.ctx.store, self.scope)
        return [each for each in found if each.decided is None and now < each.lapses_at]

    async def propose(
        self,
        field: str,
        value: str,
        *,
        evidence: Sequence[str],
        actor: str | None = None,
    ) -> Proposal:
        """Propose what was inferred about the person from these memories.

        A sensitive field waits for `approve`. A benign one takes effect (it is `decided`) if two
        statements of the person that agree support it, or a confident insight. Raises InvalidInput;
        NotAllowed if the evidence is not the person's own words; ConsentMissing if they denied it
        before; Refused while memory is off.
        """
        text = _check_value(field, value)
        scope = self.scope
        if why := await find_disabled_reason(self):
            raise Refused(f"Not proposed: {why}")
        validation.texts("evidence", evidence)
        if not evidence:
            raise InvalidInput(
                "A proposal needs evidence: name the ids of the memories it was inferred from"
            )
        async with self.ctx.store.transaction(scope) as tx:
            now = self.ctx.clock()
            found = await person.erase_lapsed(tx, now)
            given = await tx.get(scope, evidence)
            signals = {each.id: each for each in given if each.is_active}
            if missing := set(evidence).difference(signals):
                raise InvalidInput(
                    f"No memory {min(missing)!r} in this scope to infer anything from"
                )
            if not all(map(cues.is_persons, signals.values())):
                raise NotAllowed(
                    "Only the person's own words are evidence about them, not what others said"
                )
            denied = f"{field}: {text}"
            if denied in await tx.tombstones(scope, [denied], now):
                raise ConsentMissing(f"The person denied this {field}: it is not proposed again")
            # Stricter than what merges memories, because this is about the person.
            key = _key(field, text)
            for each in _find_in_force(found):
                if _key(each.field, each.value) == key:
                    return each
            new = Proposal(
                id=new_id(),
                field=field,
                value=text,
                at=now,
                lapses_at=now + WAITS,
            )
            same = [each for each in found if _key(each.field, each.value) == key]
            known = next((each for each in same if each.decided is None), new)
            made = replace(known, evidence=union(known.evidence, tuple(evidence)))
            if made == known:
                return made
            decision = "proposed" if known is new else "supported"
            supporting = await tx.get(scope, made.evidence)
            if field in BENIGN and _is_corroborated(text, supporting):
                decision = "corroborated"
                made = replace(made, decided=decision, decided_at=now)
            await person.decide_proposal(tx, made, decision, at=now, actor=actor)
        return made

    async def approve(
        self,
        id: str,
        *,
        shown: str | None = None,
        actor: str | None = None,
    ) -> Proposal:
        """Approve a proposal as it was shown. Raises NotFound if it does not await a decision.

        With `shown`, raises InvalidInput unless that is its value.
        """
        return await self._decide(id, "approved", shown, actor)

    async def deny(self, id: str, *, actor: str | None = None) -> Proposal:
        """Erase a proposal; the same value is not proposed again. Raises NotFound."""
        return await self._decide(id, "denied", None, actor)

    async def set(
        self,
        field: str,
        value: str,
        *,
        actor: str | None = None,
    ) -> Proposal:
        """Store what the person says about themselves, in effect at once. Raises InvalidInput."""
        text = _check_value(field, value)
        now = self.ctx.clock()
        await refuse_incognito(self)
        made = Proposal(
            id=new_id(),
            field=field,
            value=text,
            at=now,
            lapses_at=now,
            decided="told",
            decided_at=now,
        )
        async with self.ctx.store.transaction(self.scope) as tx:
            await person.decide_proposal(tx, made, "told", at=now, actor=actor)
        return made

    async def withdraw(self, field: str, *, actor: str | None = None) -> int:
        """Erase all values of a field, also former and proposed ones; return how many."""
        _check_field(field)
        async with self.ctx.store.transaction(self.scope) as tx:
            found = await person.load_proposals(tx, self.scope)
            gone = [each for each in found if each.field == field]
            for each in gone:
                await person.decide_proposal(
                    tx, each, "withdrawn", at=self.ctx.clock(), actor=actor
                )
        return len(gone)

    async def _decide(
        self,
        id: str,
        decision: str,
        shown: str | None,
        actor: str | None,
    ) -> Proposal:
        validation.fields({"actor": actor})
        async with self.ctx.store.transaction(self.scope) as tx:
            now = self.ctx.clock()
            found = {each.id: each for each in await person.erase_lapsed(tx, now)}
            made = found.get(str(id))
            if made is not None and made.decided is None:
                if shown not in (None, made.value):
                    raise InvalidInput(
                        f"The proposal is {made.value!r}, not {shown!r:.220}: show it again"
                    )
                made = replace(made, decided=decision, decided_at=now)
                await person.decide_proposal(tx, made, decision, at=now, actor=actor)
                return made
        state = "it was decided" if made else "it was decided, has lapsed, or never existed"
        raise NotFound(
            f"No proposal {id!r} awaits a decision: {state}. See `memorist consent list`"
        )


def _is_corroborated(value: str, evidence: Sequence[Memory]) -> bool:
    """Return whether two statements of the person support a value, or a confident insight, and none
    denies it or contradicts another.
    """
    if any(_denies(memory.text, value) for memory in evidence):
        return False
    statements = [parse(memory.text) for memory in evidence]
    for i, one in enumerate(statements):
        if any(contradicts(one, other) or contradicts(other, one) for other in statements[:i]):
            return False
    counts: dict[str, int] = {}  # how often each message was said
    for memory in evidence:
        if memory.kind != "insight":
            counts[memory.source_message_id or memory.id] = 1 + memory.repeat_count
        elif memory.confidence >= SURE:
            return True
    return sum(counts.values()) >= ENOUGH


def _denies(text: str, value: str) -> bool:
    """Return whether a text says that the value is not wanted.

    >>> _denies("Never brief answers!", "brief"), _denies("No need to say more, be brief.", "brief")
    (True, False)
    """
    values = read_values(text)
    about = set(analyze(value))
    is_negated = not about.isdisjoint(analyze(" ".join(values.negations)))
    is_disliked = "-" in values.leanings and not about.isdisjoint(analyze(text))
    return is_negated or is_disliked


def _find_in_force(proposals: Iterable[Proposal]) -> list[Proposal]:
    """Return the last decided value of each field, and each goal once."""
    decided = [(each.decided_at, each.id, each) for each in proposals if each.decided_at]
    last = {}
    for _, _, each in sorted(decided):
        is_goal = each.field == "goals_add"
        last[_key(each.field, each.value) if is_goal else each.field] = each
    return list(last.values())


def _key(field: str, value: str) -> str:
    return f"{field}: {normalize.one_line(value).casefold()}"


def _check_field(field: object) -> None:
    if field not in FIELDS:
        known = ", ".join(FIELDS)
        raise InvalidInput(f"Unknown field {field!r:.60} of a person: use one of {known}")


def _check_value(field: object, value: object) -> str:
    """Return a value on one line that hides nothing from the person who is asked."""
    _check_field(field)
    text = normalize.compose(value).strip() if isinstance(value, str) else ""
    if not 1 <= len(text) <= LONGEST:
        raise InvalidInput(
            f"{field} must be a text of 1 to {LONGEST} characters, not {value!r:.60}"
        )
    for each in text:
        if unicodedata.category(each) in _HIDDEN and each not in _JOINERS:
            raise InvalidInput(
                f"{field} contains invisible characters: the person could not see what they approve"
            )
    return text
