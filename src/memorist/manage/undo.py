"""Taking back what was done: the history keeps the fields before each change, and undoing is a change itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from ..context import Context
from ..errors import InvalidInput, NotFound, RevisionConflict
from ..ingest import transitions, validation
from ..ports import Vectors
from ..storage.changes import Change, Relation, Save, Unrelated
from ..storage.history import HistoryEntry
from ..storage.queries import Reader
from ..storage.transaction import Transaction
from ..text import clock, tokens
from ..text.clock import new_id
from ..types import CONTRADICTS, HistoryEvent, Labels, Memory, Scope
from . import edit, privacy

KEPT = timedelta(days=30)  # what was not there before can be brought back for this long


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What was undone, or would be."""

    operations: tuple[str, ...]  # newest first
    memories: tuple[Memory, ...]  # as they are after it
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One memory, as it is and as it was before what is undone."""

    now: Memory
    then: Memory
    entries: tuple[HistoryEntry, ...]  # that are undone, newest first


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoPlan:
    """What undoing changes."""

    operations: tuple[str, ...]
    steps: tuple[Step, ...]


async def undo(
    ctx: Context,
    scope: Scope,
    labels: Labels,
    given: Mapping[str, str | None],
    *,
    dry_run: bool,
    actor: str | None,
) -> Undone:
    """Undo an operation, or all of a session, whole or not at all. Raises NotFound, InvalidInput, RevisionConflict."""
    what = {name: value for name, value in given.items() if value is not None}
    validation.fields({**what, "actor": actor})
    if len(what) != 1:
        raise InvalidInput("Pass what to undo: either an operation or a session")
    session = await privacy.traceable_session(ctx, scope, labels.session)
    plan = await _plan(ctx, ctx.store, scope, what)
    if dry_run:
        memories = tuple(step.then for step in plan.steps)
        return Undone(operations=plan.operations, memories=memories, dry_run=True)
    texts = {
        text
        for step in plan.steps
        if step.now.text != step.then.text
        for text in (step.now.text, step.then.text)
    }
    made = await edit.encode(ctx, sorted(texts))
    async with ctx.store.transaction(scope) as tx:
        plan = await _plan(ctx, tx, scope, what)
        meta = {"undoes": list(plan.operations), **({"session": session} if session else {})}
        changes = [
            change
            for step in plan.steps
            for change in await _changes(tx, step, made, ctx, actor, meta)
        ]
        ids = [step.now.id for step in plan.steps]
        await tx.apply([change for change in changes if not _is_aside(change, ids)])
        memories = tuple(await tx.get(scope, ids))
    return Undone(operations=plan.operations, memories=memories)


async def _plan(ctx: Context, reading: Reader, scope: Scope, what: Mapping[str, str]) -> UndoPlan:
    """Read what happened since, and how each memory stood before; with the lock held nobody else adds to it."""
    (name, value), *_ = what.items()
    since = await ctx.store.history.since(
        scope, "session" if name == "session" else "operation", value
    )
    mine = [entry for entry in since if entry.meta.get(name) == value]
    if not mine:
        raise NotFound(
            f"No {name} {value!r} in the history of this scope, or what it did was forgotten since"
        )
    if any(entry.meta.get("final") for entry in mine) and name == "operation":
        raise InvalidInput(f"Operation {value!r} belongs to a forget, which is for good")
    chosen = {entry.id for entry in mine if not entry.meta.get("final")}
    there = await reading.get(scope, list(dict.fromkeys(entry.memory_id for entry in mine)))
    now = ctx.clock()
    steps = [
        _step(memory, [e for e in since if e.memory_id == memory.id], chosen, now)
        for memory in there
    ]
    operations = dict.fromkeys(entry.meta["operation"] for entry in reversed(mine))
    return UndoPlan(
        operations=tuple(operations), steps=tuple(step for step in steps if step.entries)
    )


def _step(memory: Memory, entries: Sequence[HistoryEntry], chosen: set[str], now: datetime) -> Step:
    """Go back through what happened to a memory, newest first. Raises RevisionConflict where something came after."""
    then, later, taken = memory, dict[str, Any](), list[HistoryEntry]()
    for entry in reversed(entries):
        before = _before(entry, now)
        if entry.id in chosen:
            if any(
                name in later and later[name] != tokens.field_value(then, name) for name in before
            ):
                why = "was changed again since, or this is undone already: undo the later change first"
                raise RevisionConflict(f"Memory {memory.id!r} {why}")
            then = tokens.with_fields(then, before)
            taken.append(entry)
        later |= before
    return Step(now=memory, then=then, entries=tuple(taken))


def _before(entry: HistoryEntry, now: datetime) -> dict[str, Any]:
    """The fields that an entry changed, as they were. What it made was not there: so it disappears."""
    if entry.event == "ADD":
        return {"state": "soft_deleted", "purge_at": clock.iso(now + KEPT)}
    return dict(entry.meta.get("before", {}))


async def _changes(
    tx: Transaction,
    step: Step,
    made: Mapping[str, Vectors],
    ctx: Context,
    actor: str | None,
    meta: dict[str, Any],
) -> list[Change]:
    """The memory as it was, under a new revision; a text that goes is kept as an earlier version."""
    now, model, old = ctx.clock(), ctx.index.model, step.now
    then = await edit.release_key(
        tx, transitions.revise(replace(step.then, revision=old.revision), now)
    )
    decision = _decision(step)
    put = Save(
        memory=then, event=_event(old, then), actor=actor, model=model, meta={**meta, **decision}
    )
    changes: list[Change] = [*_relations(decision, now), *await edit.carry_versions(tx, old, then)]
    if old.text == then.text:
        return [put, *changes]
    ends = max(filter(None, (old.valid_from, then.valid_from)), default=now)
    version = replace(
        old, id=new_id(), state="superseded", superseded_by=old.id, valid_to=ends, key=None
    )
    kept = Save(memory=version, event=None, model=model)
    both = [edit.attach_vector(each, made) for each in (kept, replace(put, old_ref=version.id))]
    return [*both, *await _never_held(tx, step), *changes]


async def _never_held(tx: Transaction, step: Step) -> list[Save]:
    """The versions that stand for the time before what is undone: now the memory itself does again."""
    ids = [entry.old_ref for entry in step.entries if entry.old_ref and entry.event != "ADD"]
    found = [
        memory
        for memory in await tx.get(step.now.scope, ids)
        if memory.superseded_by == step.now.id
    ]
    return [Save(memory=replace(each, valid_to=each.valid_from), event=None) for each in found]


def _event(old: Memory, then: Memory) -> HistoryEvent:
    if old.state == then.state:
        return "updated"
    named: dict[str, HistoryEvent] = {
        "active": "restored",
        "soft_deleted": "soft_deleted",
        "superseded": "superseded",
    }
    return named.get(then.state, "updated")


def _is_aside(change: Change, ids: Sequence[str]) -> bool:
    """A memory that is put back itself is not also put somewhere as the version of another."""
    return isinstance(change, Save) and change.event is None and change.memory.id in ids


def _decision(step: Step) -> dict[str, Any]:
    """What this does to a decision about a conflict, kept so that undoing it can be undone too."""
    decided = [entry.meta for entry in step.entries if "between" in entry.meta]
    if not decided:
        return {}
    again = "closed" if decided[-1]["decision"] == "reopened" else "reopened"
    return {"decision": again, "between": decided[-1]["between"]}


def _relations(decision: Mapping[str, Any], now: datetime) -> list[Change]:
    """A decision that is taken back is open again; one that is made again is closed."""
    if not decision:
        return []
    new, old = decision["between"]
    if decision["decision"] == "reopened":
        return [Relation(from_id=new, to_id=old, type=CONTRADICTS, at=now)]
    return [Unrelated(from_id=new, to_id=old, type=CONTRADICTS)]
