"""Import records that were exported before, in batches that are each stored in one transaction.

`record_reader.py` reads and checks them; `storage/scan.py` exports them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from itertools import chain
from typing import Any, TypeVar
from uuid import UUID, uuid5

from ..context import Context
from ..errors import InvalidInput
from ..ingest import guard, validation
from ..ingest.decide import FORGOTTEN
from ..storage import HistoryEntry, Relation, Save, SeenMessage
from ..storage.person import Summary
from ..storage.transaction import Transaction
from ..text import authority
from ..types import (
    Draft,
    HistoryEvent,
    Labels,
    Memory,
    Outcome,
    Receipt,
    Scope,
)
from . import edit
from .record_reader import (
    HOW_TO_RESTORE,
    IGNORED,
    MESSAGE,
    Import,
    Record,
    Value,
    read_batches,
)
from .records import add_missing

_UNDO_KEYS = "operation session final".split()  # by these `undo` finds what it reverts

T = TypeVar("T")


async def import_records(records: Iterable[Mapping[str, Any]], how: Import) -> Receipt:
    """Import records in batches that are each stored whole.

    Raises InvalidInput at the first record that cannot be read; those before it are stored.
    """
    if isinstance(records, (str, bytes, Mapping)) or not isinstance(records, Iterable):
        given = type(records).__name__
        raise InvalidInput(f"import_ takes an iterable of records, not {given}")
    outcomes: list[Outcome] = []
    batches = iter(read_batches(records, how))
    while (batch := await asyncio.to_thread(next, batches, None)) is not None:
        outcomes += await _store_batch(batch, how)
    return Receipt(tuple(outcomes))


async def _store_batch(batch: Sequence[Record], how: Import) -> Sequence[Outcome]:
    """Store records of one kind; return the outcomes of memories and messages, and refusals."""
    if not batch or batch[0].kind in IGNORED:
        return []
    kind, _, scope, origin = batch[0]
    values = [record.value for record in batch]
    if kind == MESSAGE and how.remember is not None:
        return (await how.remember(values)).outcomes
    assert scope is not None
    if kind == "relation":
        await _store_relations(values, scope, how.ctx)
        return []
    values, reasons = await admit(values, scope, how)
    if kind == "memory":
        return await _store_memories(values, reasons, scope, how.ctx)
    allowed = list(_select_allowed(values, reasons))
    async with how.ctx.store.transaction(scope) as tx:
        if kind == "history":
            if origin != asdict(scope):
                _rename_entries(allowed, scope)
            await _store_history(tx, allowed, how.ctx.clock())
        elif kind == "message":
            for number, seen in enumerate(allowed):
                ids = set(seen.outcome.ids)
                found = await tx.get(scope, list(ids))
                if len(found) < len(ids):  # its memories were forgotten here
                    allowed[number] = replace(seen, keep_text=False)
            await tx.save_messages(allowed)
        else:
            reasons += await add_missing(tx, scope, allowed, any_speaker=how.restore)
    refused: list[Outcome] = []
    for why in filter(None, reasons):
        outcome = Outcome(status="refused", reason=why)
        refused.append(outcome)
    return refused


async def _store_relations(relations: Sequence[Relation], scope: Scope, ctx: Context) -> None:
    """Store the relations between memories that are here."""
    async with ctx.store.transaction(scope) as tx:
        ids = {id for each in relations for id in (each.from_id, each.to_id)}
        there = {memory.id for memory in await tx.get(scope, sorted(ids))}
        known = [each for each in relations if there.issuperset((each.from_id, each.to_id))]
        await tx.apply(known)


def _select_allowed(
    values: Sequence[T],
    reasons: Sequence[str],
) -> Iterator[T]:
    """Yield the values that are not refused."""
    for value, why in zip(values, reasons, strict=True):
        if not why:
            yield value


def _rename_entries(entries: list[HistoryEntry], scope: Scope) -> None:
    """Give entries from another scope new ids, which are the same at each import."""
    name = "\0".join((scope.tenant, scope.user, scope.space))
    for number, entry in enumerate(entries):
        id = uuid5(UUID(entry.id), name)
        entries[number] = replace(entry, id=str(id))


async def admit(
    values: Sequence[Value],
    scope: Scope,
    how: Import,
) -> tuple[list[Any], list[str]]:
    """Return the values with the authority of their speakers, and the reason of each refusal.

    A record that claims to be pinned or manually saved gets no exception.
    """
    ctx = how.ctx
    drafts = list(map(_to_draft, values))
    sessions = {draft.labels.session for draft in drafts}
    disabled, _ = await guard.load_disabled(ctx, ctx.store, scope, sessions)
    policy = validation.policy(ctx.policies, ctx.settings.policy)
    admitted: list[Any] = []
    reasons: list[str] = []
    for value, draft in zip(values, drafts, strict=True):
        labels = draft.labels
        why = disabled.get(labels.session, "")
        is_own = authority.is_own(labels.role, draft.speaker, scope.user)
        if how.restore:
            why = why if why == guard.INCOGNITO else ""
        elif why != guard.INCOGNITO:
            if draft.text and not why:
                why = guard.find_refusal(draft, policy, is_own=is_own)
            if why:
                why += f"; {HOW_TO_RESTORE}"
        if isinstance(value, Memory) and not how.restore:
            low = guard.lower_authority(draft, policy, is_own=is_own)
            if low != draft or not is_own:
                value = edit.reword(
                    value,
                    low.text,
                    kind=low.kind or "episodic",
                    steps_text=low.steps_text,
                    category=low.category,
                    item_type=low.item_type,
                    fact_type=low.fact_type,
                    procedural_form=None,
                    key=None,
                )
        admitted.append(value)
        reasons.append(why)
    return admitted, reasons


def _to_draft(value: Value) -> Draft:
    """Return the text and the speaker of a value as a draft, for the guard to check."""
    if isinstance(value, Memory):
        return Draft(
            text=value.text,
            labels=value.labels,
            speaker=value.speaker,
            kind=value.kind,
            evidence=value.evidence,
            evidence_text=value.evidence_text,
            steps_text=value.steps_text,
            category=value.category,
            item_type=value.item_type,
            fact_type=value.fact_type,
        )
    if isinstance(value, SeenMessage):
        message = value.message
        labels = Labels(session=message.session, role=message.role)
        speaker = authority.speaker_of(message.role, message.name)
        return Draft(text=message.content, labels=labels, speaker=speaker)
    if isinstance(value, Summary):  # derived text, so it is checked like the words of a tool
        lines = chain.from_iterable(value.data.values())
        text = "\n".join(lines)
        return Draft(text=text, labels=Labels(role="tool"))
    assert isinstance(value, HistoryEntry)
    session = value.meta.get("session")
    labels = Labels(session=session if isinstance(session, str) else None)
    return Draft(text="", labels=labels)


async def _store_memories(
    memories: Sequence[Memory],
    refusals: Sequence[str],
    scope: Scope,
    ctx: Context,
) -> list[Outcome]:
    """Store memories as they are, with vectors of the current model; those already here stay.

    The memories of a session are numbered after those already stored, in the order of the file.
    """
    allowed = _select_allowed(memories, refusals)
    texts = [memory.text for memory in allowed]
    vectors = await edit.encode(ctx, texts)
    outcomes: list[Outcome] = []
    async with ctx.store.transaction(scope) as tx:
        ids = [memory.id for memory in memories]
        stored = await tx.get(scope, ids)
        here = {memory.id for memory in stored}
        words = [memory.text for memory in memories]
        forgotten = await tx.tombstones(scope, words, ctx.clock())
        new: dict[str, Memory] = {}
        for memory, why in zip(memories, refusals, strict=True):
            own = (memory.id,)
            if memory.text in forgotten:
                why = FORGOTTEN
            if memory.id in here:
                outcome = Outcome(status="skipped", ids=own, reason="it is here already")
            elif why:
                outcome = Outcome(status="refused", reason=why)
            else:
                outcome = Outcome(status="created", ids=own)
                new[memory.id] = memory
            outcomes.append(outcome)
        saves: list[Save] = []
        keys: set[str | None] = set()
        last: dict[str, int] = {}
        for memory in new.values():
            memory = await edit.release_key(tx, replace(memory, scope=scope))
            if memory.key in keys:
                memory = replace(memory, key=None)
            keys.add(memory.key)
            session = memory.labels.session
            if session is not None:
                number = last.get(session)
                if number is None:
                    number = await tx.last_sequence(scope, session)
                last[session] = number + 1
                memory = replace(memory, sequence=number + 1)
            event: HistoryEvent | None = "created"
            if memory.state == "superseded":
                event = None
            save = edit.to_save(
                memory,
                vectors,
                ctx.index.model,
                event,
                meta={"imported": True},
            )
            saves.append(save)
        await tx.apply(saves)
    return outcomes


async def _store_history(
    tx: Transaction,
    entries: Sequence[HistoryEntry],
    now: datetime,
) -> None:
    """Add entries, without words that were forgotten here, and so that `undo` ignores them."""
    words: list[set[str]] = []
    for entry in entries:
        before = entry.meta.get("before", {})
        texts = (before.get("text", ""), *entry.meta.get("merged", ()))
        words.append(set(map(str, texts)))
    forgotten = await tx.tombstones(tx.scope, set().union(*words), now)
    imported: list[HistoryEntry] = []
    for entry, said in zip(entries, words, strict=True):
        meta: dict[str, Any] = {}
        known = entry.meta if forgotten.isdisjoint(said) else {}
        for name, value in known.items():
            if name in _UNDO_KEYS:
                name = f"imported_{name}"
            meta[name] = value
        meta["imported"] = True
        imported.append(replace(entry, meta=meta))
    await tx.import_history(imported)
