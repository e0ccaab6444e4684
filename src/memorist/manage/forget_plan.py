"""What is forgotten together with memories: what is based on them, and earlier versions of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ..errors import StoreDamaged
from ..storage.queries import Reader
from ..text import tokens
from ..types import STATES, Filter, Memory, Scope, frozen

AT_ONCE = 500  # ids in one query to the store
MOST_OF_TURN = 0.6  # share of the words of a turn from which on a fact says most of it
VISIBLE = tuple(state for state in STATES if state not in ("superseded", "soft_deleted"))


@frozen
class Forgotten:
    """The ids of what was forgotten, or would be, and of what is based on it."""

    ids: tuple[str, ...] = ()  # as requested
    # what was based on those alone, earlier statements that they had replaced, and turns that say
    # hardly more than a forgotten fact
    derived: tuple[str, ...] = ()
    # what is also based on other memories: it stays, with a tag, and a summary is made again
    flagged: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()  # turns that say a forgotten fact, among other things: they stay
    copies: tuple[str, ...] = ()  # memories with exactly the same text: they stay
    dry_run: bool = False

    def __add__(self, other: Forgotten) -> Forgotten:
        """Return both together; what was erased after all is not listed as kept."""
        ids = self.ids + other.ids
        derived = self.derived + other.derived
        gone = {*ids, *derived}

        def keep(*named: str) -> tuple[str, ...]:
            return tuple(id for id in dict.fromkeys(named) if id not in gone)

        return Forgotten(
            ids=ids,
            derived=derived,
            flagged=keep(*self.flagged, *other.flagged),
            sources=keep(*self.sources, *other.sources),
            copies=keep(*self.copies, *other.copies),
        )


@frozen
class Plan:
    """What is erased and changed together with memories."""

    ids: tuple[str, ...]
    derived: tuple[str, ...]  # what is based on these alone
    others: tuple[str, ...]  # those, and earlier versions and statements that were replaced
    flagged: tuple[Memory, ...]  # what is also based on other memories
    sources: tuple[str, ...]  # turns that say more than a fact of theirs that is forgotten
    copies: tuple[str, ...]  # other memories with the same text

    @property
    def gone(self) -> set[str]:
        return {*self.ids, *self.others}

    @property
    def summaries(self) -> list[Memory]:
        """What is to be summarized again, the current versions last."""
        found = [memory for memory in self.flagged if memory.compression_source]
        return sorted(found, key=lambda memory: memory.state != "superseded")

    def report(self, *, dry_run: bool = False) -> Forgotten:
        flagged = [memory.id for memory in self.flagged if memory.state != "superseded"]
        return Forgotten(
            ids=self.ids,
            derived=self.others,
            flagged=tuple(flagged),
            sources=self.sources,
            copies=self.copies,
            dry_run=dry_run,
        )


async def make_plan(
    reading: Reader,
    scope: Scope,
    ids: Sequence[str],
) -> Plan:
    """Follow evidence and replaced statements from these memories, until nothing is added."""
    turns = await _find_turns(reading, scope, ids)
    replaced: dict[str, None] = {}
    derived = dict.fromkeys(id for id, says_same in turns.items() if says_same)
    touched: dict[str, Memory] = {}
    new = list(dict.fromkeys([*ids, *derived]))
    gone = set(new)
    while new:
        touched |= await _load_derived(reading, scope, new)
        before: list[Memory] = []
        for id in new:
            with suppress(StoreDamaged):  # an altered row is erased with the memory all the same
                where = Filter(versions_of=id, states=STATES)
                before += await reading.find_all(scope, where)
        new = [memory.id for memory in before if memory.id not in gone]
        replaced |= dict.fromkeys(new)
        gone.update(new)
        alone = []
        for id, memory in touched.items():
            if id not in gone and find_sources(memory) <= gone:
                alone.append(id)
        derived |= dict.fromkeys(alone)
        gone.update(alone)
        new += alone
    for id in gone:
        touched.pop(id, None)
    changed = touched
    while changed:  # what is based on a summary that changes
        summaries = [id for id, memory in changed.items() if memory.compression_source]
        changed = await _load_derived(reading, scope, summaries)
        for id in gone.union(touched):
            changed.pop(id, None)
        touched = touched | changed
    return Plan(
        ids=tuple(ids),
        others=(*derived, *replaced),
        derived=tuple(derived),
        flagged=tuple(touched.values()),
        sources=tuple(id for id, says_same in turns.items() if not says_same),
        copies=await _find_copies(reading, scope, ids, gone),
    )


async def _find_copies(
    reading: Reader, scope: Scope, ids: Sequence[str], gone: set[str]
) -> tuple[str, ...]:
    """Return other memories with the same text, such as turns of another session or speaker."""
    with suppress(StoreDamaged):  # an altered row is erased all the same
        hashes = {memory.content_hash for memory in await reading.get(scope, ids)}
        found = await reading.same_text(scope, hashes, *VISIBLE)
        return tuple(memory.id for memory in found if memory.id not in gone)
    return ()


async def _find_turns(reading: Reader, scope: Scope, ids: Sequence[str]) -> dict[str, bool]:
    """Return the turns of the facts among some memories, and whether they say hardly more."""
    found: dict[str, bool] = {}
    with suppress(StoreDamaged):  # an altered row is erased all the same
        for fact in await reading.get(scope, ids):
            if not fact.evidence_text:
                continue
            stated = set(tokens.analyze(fact.text))
            for turn in await reading.get(scope, fact.evidence_ids):
                words = set(tokens.analyze(turn.text))
                if turn.id not in ids:
                    found[turn.id] = len(words & stated) >= MOST_OF_TURN * len(words)
    return found


def find_sources(memory: Memory) -> set[str]:
    """Return what a memory is based on, without the message in which it was said."""
    named = {*memory.evidence_ids, *memory.source_ids, *memory.evidence}
    return named - {memory.source_message_id or ""}


async def _load_derived(
    reading: Reader,
    scope: Scope,
    ids: Sequence[str],
) -> dict[str, Memory]:
    """Return what is based on these memories, among others."""
    found: dict[str, Memory] = {}
    for start in range(0, len(ids), AT_ONCE):
        some = tuple(ids[start : start + AT_ONCE])
        where = Filter(derived_from=some, states=STATES)
        for memory in await reading.find_all(scope, where):
            found[memory.id] = memory
    return found
