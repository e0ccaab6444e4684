"""Undo: the history holds the fields before each change, and an undo is itself a change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

from ..context import Place
from ..errors import InvalidInput, NotFound, RevisionConflict
from ..ingest import transitions, validation
from ..ports import Vectors
from ..storage import Change, HistoryEntry, Save
from ..storage.history import History, with_fields
from ..storage.queries import Reader
from ..storage.transaction import Transaction
from ..text import clock
from ..types import HistoryEvent, Memory, Scope, frozen
from . import decisions, edit, privacy

KEPT = timedelta(days=30)  # how long a memory can be restored after its creation was undone
_EVENTS: dict[str, HistoryEvent] = {
    "active": "restored",
    "soft_deleted": "soft_deleted",
    "superseded": "superseded",
}


@frozen
class Undone:
    """What was undone, or would be."""

    operations: tuple[str, ...]  # newest first
    memories: tuple[Memory, ...]  # as they are after it
    dry_run: bool = False


@frozen
class Step:
    """One memory, as it is and as it was before what is undone."""

    now: Memory
    then: Memory
    entries: tuple[HistoryEntry, ...]  # that are undone, newest first

    @property
    def gives_up(self) -> bool:
        """Whether the undo takes away the memory, its words, or that it was saved explicitly."""
        then = self.then
        return not (then.is_active and then.on_purpose and then.text == self.now.text)


async def undo_changes(
    place: Place,
    operation: str | None = None,
    *,
    session: str | None = None,
    dry_run: bool = False,
    actor: str | None = None,
) -> Undone:
    """Undo one operation of the history (`meta` names it), or everything a session did.

    New memories are hidden and can be restored for 30 days; changed ones are reverted. An undo is
    in the history and can itself be undone; an erasure cannot. Raises NotFound, NotAllowed;
    RevisionConflict if something was changed later.
    """
    ctx, scope, _ = place.parts
    validation.fields({"operation": operation, "session": session, "actor": actor})
    if (operation is None) == (session is None):
        raise InvalidInput("Say what to undo: an operation of the history, or a session")
    plan = partial(
        _plan,
        scope=scope,
        name="session" if operation is None else "operation",
        value=operation or session or "",
    )
    operations, steps = await plan(ctx.store, now=ctx.clock())
    if dry_run:
        before = tuple(step.then for step in steps)
        return Undone(operations=operations, memories=before, dry_run=True)
    reworded = [step for step in steps if step.now.text != step.then.text]
    texts = {memory.text for step in reworded for memory in (step.now, step.then)}
    vectors = await edit.encode(ctx, sorted(texts))  # before the write lock
    trace = await privacy.trace(place)
    async with ctx.store.transaction(scope) as tx:
        now = ctx.clock()
        operations, steps = await plan(tx, now=now)
        place.voice.require_removal(step.now for step in steps if step.gives_up)
        meta = {"undoes": list(operations), **trace}
        ids = [step.now.id for step in steps]
        changes: list[Change] = []
        for step in steps:
            reverted = await _revert(tx, step, vectors, ctx.index.model, actor, meta, now)
            for change in reverted:
                if isinstance(change, Save) and change.event is None and change.memory.id in ids:
                    continue  # it is reverted itself, and not also stored as a version
                changes.append(change)
        await tx.apply(changes)
        await tx.apply(await _follow(tx, steps, now))
        memories = await tx.get(scope, ids)
    return Undone(operations=operations, memories=tuple(memories))


async def _follow(tx: Transaction, steps: Sequence[Step], now: datetime) -> list[Change]:
    """Return the changes of facts that were extracted since a decision which is undone."""
    changes: list[Change] = []
    ids = {each.now.id for each in steps}
    pairs = {
        tuple(e.meta["between"]) for each in steps for e in each.entries if "between" in e.meta
    }
    for new, old in sorted(pairs):
        memories = {memory.id: memory for memory in await tx.get(tx.scope, (new, old))}
        if len(memories) == 2:
            ended = [each for each in memories.values() if each.valid_to is not None]
            gone = ended[0] if len(ended) == 1 else None
            changes += await decisions.follow(tx, memories[new], memories[old], gone, now, ids)
    return changes


async def _plan(
    reading: Reader,
    *,
    scope: Scope,
    name: Literal["operation", "session"],
    value: str,
    now: datetime,
) -> tuple[tuple[str, ...], list[Step]]:
    """Return the operations that are undone, newest first, and how each memory was before."""
    since = await History(reading).since(scope, name, value)
    ids = []
    chosen = set()
    operations = []
    for entry in since:
        if entry.meta.get(name) != value:
            continue
        ids.append(entry.memory_id)
        operations.append(entry.meta["operation"])
        if not entry.meta.get("final"):
            chosen.add(entry.id)
        elif name == "operation":
            raise InvalidInput(f"Operation {value!r} belongs to a forget, which cannot be undone")
    if not ids:
        raise NotFound(
            f"No {name} {value!r} in the history of this scope, or its changes were forgotten since"
        )
    added = {entry.memory_id: entry.id for entry in since if entry.event == "ADD"}
    taken = [id for id, entry in added.items() if entry in chosen]
    for id in await _find_derived(reading, scope, taken):
        if id in added:  # else it is older than what is undone
            ids.append(id)
            chosen.add(added[id])
    steps = []
    for memory in await reading.get(scope, ids):
        entries = [entry for entry in since if entry.memory_id == memory.id]
        step = _go_back(memory, entries, chosen, now)
        if step.entries:
            steps.append(step)
    return tuple(dict.fromkeys(reversed(operations))), steps


async def _find_derived(reading: Reader, scope: Scope, ids: Sequence[str]) -> list[str]:
    """Return the memories that were extracted from these alone."""
    derived = await reading.derived_from(scope, ids) if ids else {}
    alone = []
    for id, memory in derived.items():
        if memory.evidence_ids and id not in ids and set(memory.evidence_ids).issubset(ids):
            alone.append(id)
    return alone


def _go_back(
    memory: Memory,
    entries: Sequence[HistoryEntry],
    chosen: set[str],
    now: datetime,
) -> Step:
    """Return a memory as it was before the chosen entries. Raises RevisionConflict if it was
    changed later.
    """
    then = past = memory  # without what is undone, and as it was after each entry
    undone = []
    for entry in reversed(entries):
        before = dict(entry.meta.get("before", {}))
        if entry.event == "ADD":  # it was not there
            before = {"state": "soft_deleted", "purge_at": clock.iso(now + KEPT)}
        if entry.id in chosen:
            reverted = dict(before)
            for name in before:
                if getattr(past, name) == getattr(then, name):
                    continue
                if name == "tags" and name not in entry.meta.get("fields", ()):
                    if "text" not in before:
                        del reverted[name]  # tags follow the text, which was changed later
                    continue
                raise RevisionConflict(
                    f"Memory {memory.id!r} was changed again since, or this was already undone:"
                    " undo the later change first"
                )
            then = with_fields(then, reverted)
            if "importance" in reverted and past.repeat_count != then.repeat_count:
                count = then.repeat_count  # it was repeated later
                importance = transitions.repeated_importance(then.base_importance, count)
                then = replace(then, importance=importance)
            undone.append(entry)
        past = with_fields(past, before)
    return Step(now=memory, then=then, entries=tuple(undone))


async def _revert(
    tx: Transaction,
    step: Step,
    vectors: Mapping[str, Vectors],
    model: str | None,
    actor: str | None,
    meta: Mapping[str, Any],
    now: datetime,
) -> list[Change]:
    """Return the changes that make a memory what it was, under a new revision.

    A replaced text is kept as an earlier version. A decided conflict is open again, or closed again
    if its reopening is undone.
    """
    old = step.now
    then = transitions.revise(replace(step.then, revision=old.revision), now)
    then = await edit.release_key(tx, then)
    event = "updated" if old.state == then.state else _EVENTS.get(then.state, "updated")
    changes: list[Change] = []
    decided = [entry.meta for entry in step.entries if "between" in entry.meta]
    if decided:
        changes += decisions.reverse(decided[-1], now)
        meta = {**meta, **decisions.describe_reversal(decided[-1])}
    changes += await edit.carry_versions(tx, old, then)
    if old.text == then.text:
        put = Save(memory=then, event=event, actor=actor, model=model, meta=meta)
        return [put, *changes]
    ends = max(filter(None, (old.valid_from, then.valid_from)), default=now)
    version = transitions.earlier_version(old, ends, id=clock.new_id())
    refs = [entry.old_ref for entry in step.entries if entry.old_ref and entry.event != "ADD"]
    never = []
    for each in await tx.get(old.scope, refs):
        if each.superseded_by == old.id:
            ended = replace(each, valid_to=each.valid_from)  # it is no longer valid
            never.append(Save(memory=ended, event=None))
    about = {"old_ref": version.id, "actor": actor, "meta": meta}
    put = edit.to_save(then, vectors, model, event, **about)
    kept = edit.to_save(version, vectors, model, None)
    return [kept, put, *never, *changes]
