"""The order of facts that are shown without being searched for: the current value comes first.

A newer statement of which no such fact was extracted ("I moved to Porto" is an event) is shown in
place of the fact that it ended, or before the one that it may replace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from ..context import Place
from ..text.cues import read_cues
from ..text.endings import ends_fact
from ..types import REPLACES, Memory


async def arrange(
    place: Place,
    found: Sequence[Memory],
    may_show: Callable[[Memory], bool],
) -> list[Memory]:
    """Return memories, newest first, each after what may replace it or its turn.

    Those that are outdated are replaced by what ended them, if that still holds.
    """
    store, scope = place.ctx.store, place.scope
    found = sorted(found, key=_said_at, reverse=True)
    sources = {id for memory in found for id in (*memory.evidence_ids, memory.id)}
    pairs = await store.links(scope, sorted(sources), REPLACES)
    ends = {id for pair in pairs for id in (pair.from_id, pair.to_id)}
    stated = {memory.id: memory for memory in await store.get(scope, sorted(ends))}
    newer: dict[str, list[Memory]] = {}
    for pair in pairs:
        replacing = stated[pair.from_id]
        if replacing.valid_to is None and pair.to_id in stated:
            newer.setdefault(pair.to_id, []).append(replacing)
    shown = {memory.id: memory for memory in found if is_current(memory)}
    ordered: dict[str, Memory] = {}
    for memory in found:
        for old in (memory.id, *memory.evidence_ids):
            for replacing in newer.get(old, ()):
                is_told = any(_tells(each, replacing, stated[old]) for each in shown.values())
                if not is_told and may_show(replacing) and not _only_ends(replacing.text):
                    ordered.setdefault(replacing.id, replacing)
        if memory.id in shown:
            ordered.setdefault(memory.id, memory)
    return list(ordered.values())


def is_current(memory: Memory) -> bool:
    return memory.valid_to is None or memory.pinned


def _tells(fact: Memory, newer: Memory, old: Memory) -> bool:
    """Return whether a fact is what a newer statement says in place of an older one."""
    if fact.id == newer.id:
        return True
    return newer.id in fact.evidence_ids and ends_fact(old.text, newer.text, fact.text)


def _only_ends(text: str) -> bool:
    """Return whether a text says that something is over, and nothing that came in its place."""
    cues = read_cues(text)
    return "ended" in cues and cues.isdisjoint(("moved", "new", "now"))


def _said_at(memory: Memory) -> datetime:
    return memory.occurred_at or memory.created_at
