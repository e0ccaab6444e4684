"""What a decision between two turns means for what they replaced, and for the facts that were
extracted from them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Any

from ..ingest import transitions
from ..ingest.echoes import find_restated
from ..storage import Change, Relation, Save, Unrelated
from ..storage.transaction import Transaction
from ..types import CONTRADICTS, REPLACES, Filter, Memory, State

MOST = 100  # memories that one statement replaces


async def list_replaced(tx: Transaction, by: Memory) -> dict[str, float]:
    """Return what a memory replaces, by id, with how probable that is."""
    pairs = await tx.relations(tx.scope, REPLACES, limit=MOST, from_id=by.id)
    return {pair.to_id: pair.strength for pair in pairs}


async def find_facts(tx: Transaction, turn: Memory, *states: State) -> list[Memory]:
    """Return the facts in these states that were extracted from a turn."""
    where = Filter(derived_from=(turn.id,), kinds=("semantic", "procedural"), states=states)
    found = await tx.find_all(tx.scope, where)
    return [fact for fact in found if fact.evidence_text and turn.id in fact.evidence_ids]


async def follow(
    tx: Transaction,
    new: Memory,
    old: Memory,
    gone: Memory | None,
    now: datetime,
    reverted: Collection[str] = (),
) -> list[Change]:
    """Return the changes of the facts of two turns, of which one is no longer true, or none.

    The facts of that one end if they are about what changed. Those that had ended because of it
    are valid again. `reverted` are the ids of what an undo has changed already.
    """
    changes: list[Change] = []
    for turn, other in ((new, old), (old, new)):
        if gone is not None and turn.id == gone.id:
            changes += await end_facts(tx, turn, other, now, reverted)
            continue
        for fact in await find_facts(tx, turn, "active", "superseded"):
            for pair in await tx.relations(tx.scope, REPLACES, limit=MOST, from_id=other.id):
                if pair.to_id == fact.id:
                    changes += restore(pair, fact, now)
    return changes


async def end_facts(
    tx: Transaction, gone: Memory, kept: Memory, now: datetime, reverted: Collection[str] = ()
) -> list[Change]:
    """Return the changes that end the facts of a turn which another memory replaces.

    A fact that an undo has ended again is only related to what replaces it.
    """
    related = await list_replaced(tx, kept)
    since = max(transitions.held_since(gone), transitions.held_since(kept))
    changes: list[Change] = []
    for memory in await find_restated(tx, gone, kept.text):
        if memory.id == kept.id:
            continue
        is_reverted = memory.id in reverted and memory.id not in related
        if memory.valid_to is None:
            outdated = transitions.revise(memory, now, valid_to=since)
            changes.append(Save(memory=outdated, event="superseded"))
        if memory.valid_to is None or is_reverted:
            pair = Relation(from_id=kept.id, to_id=memory.id, type=REPLACES, at=now)
            changes.append(pair)
    return changes


async def release(tx: Transaction, by: Memory, old: Memory, now: datetime) -> list[Change]:
    """Return the changes that make valid again what a turn replaced beside an older one and its
    facts: replies that repeat it."""
    changes: list[Change] = []
    for pair in await tx.relations(tx.scope, REPLACES, limit=MOST, from_id=by.id):
        for memory in await tx.get(tx.scope, [pair.to_id]):
            if old.id not in (memory.id, *memory.evidence_ids):
                changes += restore(pair, memory, now)
    return changes


def restore(pair: Relation, memory: Memory, now: datetime) -> Iterator[Change]:
    """Yield the changes that make valid again what another memory replaced."""
    yield Unrelated(from_id=pair.from_id, to_id=pair.to_id, type=REPLACES)
    if memory.is_active or (memory.state == "superseded" and memory.evidence_text):
        yield Save(memory=transitions.restore(memory, now), event="restored")


def reverse(meta: Mapping[str, Any], now: datetime) -> list[Change]:
    """Return the changes that undo a decision, of which this is the record, or make it again.

    The conflict is open again, or closed again, and what the newer memory replaced follows.
    """
    new, old = meta["between"]
    is_reopened = meta["decision"] != "reopened"
    decision = meta["decision"] if is_reopened else meta.get("decided")
    pair = {"from_id": new, "to_id": old, "type": CONTRADICTS}
    changes: list[Change] = [Relation(**pair, at=now) if is_reopened else Unrelated(**pair)]
    for id, strength in meta.get("replaced", {}).items():
        pair = {"from_id": new, "to_id": id, "type": REPLACES}
        if is_reopened or decision == "confirmed":
            changes.append(Relation(**pair, at=now, strength=strength))
        else:
            changes.append(Unrelated(**pair))
    if decision == "rejected" and meta.get("replaced"):
        pair = {"from_id": old, "to_id": new, "type": REPLACES}
        changes.append(Unrelated(**pair) if is_reopened else Relation(**pair, at=now))
    return changes


def describe_reversal(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the history says about the undoing of a decision, so that it can be undone too."""
    is_reopened = meta["decision"] != "reopened"
    told = {name: meta[name] for name in ("between", "replaced") if name in meta}
    if is_reopened:
        return {**told, "decision": "reopened", "decided": meta["decision"]}
    return {**told, "decision": meta.get("decided", "closed")}
