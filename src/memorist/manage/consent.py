"""What is known of the person as a person, and what waits for their word before it is.

The value of a proposal is never changed, so what is approved is what was shown. A field holds the value that came into
force last; those before it can still be read in the order they did. What is denied, withdrawn or lapsed is erased, and
the history says that it was decided and by whom, not what it said.
"""

from __future__ import annotations

import builtins
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from ..context import Context
from ..errors import ConsentMissing, InvalidInput, NotAllowed, NotFound, Refused
from ..ingest import validation
from ..jobs import expire
from ..storage import proposals
from ..storage.proposals import Proposal
from ..storage.queries import Reader
from ..storage.transaction import Transaction
from ..text import authority, normalize
from ..text.clock import new_id
from ..types import Labels, Memory, Scope
from . import privacy

SENSITIVE = ("preferred_name", "pronouns", "city", "language")  # only the person decides
BENIGN = ("tone", "goals_add")  # two signals are enough, or an insight that is sure
FIELDS = (*SENSITIVE, *BENIGN)
WAITS = timedelta(days=7)
ENOUGH = 2
SURE = 0.8
LONGEST = 200  # characters
_JOINERS = "\u200c\u200d"  # unseen, but part of how some languages are written


class Consent:
    """The verbs for the user context of one scope: nothing sensitive in it changes without the person's word."""

    def __init__(self, ctx: Context, scope: Scope, labels: Labels) -> None:
        self._ctx, self._scope, self._labels = ctx, scope, labels

    async def about(self) -> dict[str, str | builtins.list[str]]:
        """What is in force, by field; `goals` is a list."""
        found = _in_force(await proposals.load(self._ctx.store, self._scope))
        goals = [each.value for each in found if each.field == "goals_add"]
        known: dict[str, str | builtins.list[str]] = {
            each.field: each.value for each in found if each.field != "goals_add"
        }
        return known | {"goals": goals} if goals else known

    async def list(self) -> builtins.list[Proposal]:
        """What waits for a decision, oldest first; what nobody decided within seven days has lapsed."""
        now, there = self._ctx.clock(), await proposals.load(self._ctx.store, self._scope)
        return [each for each in there if each.decided is None and now < each.lapses_at]

    async def propose(
        self, field: str, value: str, *, evidence: Sequence[str], actor: str | None = None
    ) -> Proposal:
        """Propose what was inferred of the person from these memories. `decided` tells whether it is in force.

        A sensitive field waits for `approve`. A benign one comes into force when two things the person said speak for
        it, or an insight that is sure. Raises InvalidInput; NotAllowed if the evidence is not the person's own words;
        ConsentMissing if they said no to it before; Refused while memory is off.
        """
        text = _checked(field, value)
        if why := (await privacy.load_disabled(self._ctx, self._scope, [self._labels.session])).get(
            self._labels.session
        ):
            raise Refused(f"Not proposed: {why}")
        async with self._ctx.store.transaction(self._scope) as tx:
            now = self._ctx.clock()
            there = await self._swept(tx, now)
            signals = await self._signals(tx, evidence)
            denied = normalize.wording(f"{field}: {text}")
            if denied in await tx.tombstones(self._scope, [denied], now):
                raise ConsentMissing(
                    f"The person said no to this {field}: it is not proposed again"
                )
            same = [each for each in there if each.field == field and _is_same(each.value, text)]
            if held := next((each for each in _in_force(there) if each in same), None):
                return held
            new = Proposal(id=new_id(), field=field, value=text, at=now, lapses_at=now + WAITS)
            known = next((each for each in same if each.decided is None), new)
            made = replace(
                known,
                evidence=tuple(dict.fromkeys((*known.evidence, *(each.id for each in signals)))),
            )
            if made != known:
                return await self._supported(
                    tx, made, "proposed" if known is new else "supported", now, actor
                )
        return made

    async def _supported(
        self, tx: Transaction, made: Proposal, decision: str, now: datetime, actor: str | None
    ) -> Proposal:
        """Keep a proposal with what speaks for it now, which may be enough."""
        if made.field in BENIGN and _is_corroborated(await tx.get(self._scope, made.evidence)):
            decision = "corroborated"
            made = replace(made, decided=decision, decided_at=now)
        await tx.decide_proposal(made, decision, at=now, actor=actor)
        return made

    async def approve(
        self, id: str, *, shown: str | None = None, actor: str | None = None
    ) -> Proposal:
        """Let a proposal come into force, as it was shown. Raises NotFound if it does not wait, or has lapsed.

        With `shown`, raises InvalidInput unless that is its value.
        """
        return await self._settled(id, "approved", shown, actor)

    async def deny(self, id: str, *, actor: str | None = None) -> Proposal:
        """Erase a proposal for good; the same is not proposed again. Raises NotFound."""
        return await self._settled(id, "denied", None, actor)

    async def set(self, field: str, value: str, *, actor: str | None = None) -> Proposal:
        """What the person says of themselves on purpose: it is in force at once. Raises InvalidInput."""
        text, now = _checked(field, value), self._ctx.clock()
        await privacy.refuse_incognito(self._ctx, self._scope, self._labels.session)
        made = Proposal(
            id=new_id(),
            field=field,
            value=text,
            at=now,
            lapses_at=now,
            decided="told",
            decided_at=now,
        )
        async with self._ctx.store.transaction(self._scope) as tx:
            await tx.decide_proposal(made, "told", at=now, actor=actor)
        return made

    async def withdraw(self, field: str, *, actor: str | None = None) -> int:
        """Erase what is known and proposed of a field, and all it held before; how many values that were."""
        _check_field(field)
        async with self._ctx.store.transaction(self._scope) as tx:
            gone = [each for each in await proposals.load(tx, self._scope) if each.field == field]
            now = self._ctx.clock()
            for each in gone:
                await tx.decide_proposal(each, "withdrawn", at=now, actor=actor)
        return len(gone)

    async def _settled(
        self, id: str, decision: str, shown: str | None, actor: str | None
    ) -> Proposal:
        validation.fields({"actor": actor})
        async with self._ctx.store.transaction(self._scope) as tx:
            now = self._ctx.clock()
            found = next((each for each in await self._swept(tx, now) if each.id == str(id)), None)
            if found is not None and found.decided is None:
                if shown is not None and shown != found.value:
                    raise InvalidInput(
                        f"The proposal is {found.value!r}, not {shown!r:.220}: show it again"
                    )
                made = replace(found, decided=decision, decided_at=now)
                await tx.decide_proposal(made, decision, at=now, actor=actor)
                return made
        state = (
            "it was decided" if found is not None else "it was decided, has lapsed, or never was"
        )
        raise NotFound(
            f"No proposal {id!r} waits for a decision: {state}. See `memorist consent list`"
        )

    async def _swept(self, tx: Transaction, now: datetime) -> builtins.list[Proposal]:
        """What waits or is in force, when what has lapsed is erased."""
        there = await proposals.load(tx, self._scope)
        late = expire.find_lapsed(there, now)
        for each in late:
            await tx.decide_proposal(each, "lapsed", at=now)
        return [each for each in there if each not in late]

    async def _signals(self, reading: Reader, evidence: Sequence[str]) -> builtins.list[Memory]:
        """The memories that speak for a proposal. Raises InvalidInput, NotAllowed."""
        if (
            isinstance(evidence, str)
            or not evidence
            or not all(isinstance(each, str) for each in evidence)
        ):
            raise InvalidInput(
                "A proposal needs evidence: name the ids of the memories it was inferred from"
            )
        found = {
            each.id: each for each in await reading.get(self._scope, evidence) if each.is_active
        }
        if missing := [each for each in evidence if each not in found]:
            raise InvalidInput(f"There is no memory {missing[0]!r} here to infer anything from")
        if not all(map(authority.is_persons, found.values())):
            raise NotAllowed(
                "What others said does not become known of the person: only their own words do"
            )
        return list(found.values())


def _in_force(proposals: Iterable[Proposal]) -> list[Proposal]:
    """The last decided value of each field, and each goal once."""
    decided = sorted(
        (each for each in proposals if each.decided_at), key=lambda each: (each.decided_at, each.id)
    )
    last = {
        each.field if each.field != "goals_add" else (each.field, _folded(each.value)): each
        for each in decided
    }
    return list(last.values())


def _is_same(one: str, other: str) -> bool:
    """Word for word: stricter than any likeness that merges memories, because this is about who somebody is."""
    return _folded(one) == _folded(other)


def _folded(value: str) -> str:
    return normalize.one_line(value).casefold()


def _is_corroborated(evidence: Sequence[Memory]) -> bool:
    said = {
        each.source_message_id or each.id: 1 + each.repeat_count
        for each in evidence
        if each.kind != "insight"
    }
    return sum(said.values()) >= ENOUGH or any(
        each.kind == "insight" and each.confidence >= SURE for each in evidence
    )


def _check_field(field: object) -> None:
    if field not in FIELDS:
        raise InvalidInput(f"No field {field!r:.60} of a person: there are {', '.join(FIELDS)}")


def _checked(field: object, value: object) -> str:
    """A value on one line, in which nothing is hidden from whoever is asked."""
    _check_field(field)
    text = normalize.compose(value).strip() if isinstance(value, str) else ""
    if not 1 <= len(text) <= LONGEST:
        raise InvalidInput(f"{field} is a text of 1 to {LONGEST} characters, not {value!r:.60}")
    if any(
        unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") and c not in _JOINERS
        for c in text
    ):
        raise InvalidInput(
            f"{field} holds characters that are not seen: a person could not know what they agree to"
        )
    return text
