"""Proposals for the user context: inferred values, and what the person decided about them."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from ..errors import StoreDamaged
from ..text import clock
from ..types import Scope, frozen
from . import HistoryEntry, rows
from .database import Batch, Rows
from .queries import Reader

GONE = ("denied", "withdrawn", "lapsed")  # decisions after which a proposal is deleted
ALL = """SELECT id, field, proposal, decided, created_at, lapses_at FROM consent_queue
WHERE scope = ? ORDER BY created_at, id"""
_INSERT = """INSERT INTO consent_queue
(id, scope, field, proposal, decided, created_at, lapses_at) VALUES (?, ?, ?, ?, ?, ?, ?)"""


@frozen
class Proposal:
    """A value for a field of the user context and the decision about it. The value never
    changes."""

    id: str
    field: str
    value: str
    at: datetime
    lapses_at: datetime
    evidence: tuple[str, ...] = ()  # the memories it was inferred from
    decided: str | None = None  # approved · corroborated · told; None while it is pending
    decided_at: datetime | None = None

    def is_lapsed(self, now: datetime) -> bool:
        """Return whether the person did not decide in time."""
        return self.decided is None and self.lapses_at <= now


async def load(reader: Reader, scope: Scope) -> list[Proposal]:
    """Return the proposals that are pending or in force, oldest first. Raises StoreDamaged if one
    was altered."""
    return parse(await reader.rows(scope, ALL), scope)


def parse(found: Rows, scope: Scope) -> list[Proposal]:
    """Return the rows of `ALL` as values. Raises StoreDamaged."""
    made = []
    for id, field, text, decided, at, lapses_at in found:
        *words, seal = rows.load_json(text) or ("",)
        if seal != _seal(id, field, decided, words, scope):
            raise StoreDamaged(rows.ALTERED)
        value, evidence, decided_at = words
        proposal = Proposal(
            id=id,
            field=field,
            value=value,
            evidence=tuple(evidence),
            decided=decided,
            at=rows.parse_time(at),
            lapses_at=rows.parse_time(lapses_at),
            decided_at=decided_at and rows.parse_time(decided_at),
        )
        made.append(proposal)
    return made


async def withdraw(
    reader: Reader, scope: Scope, found: Rows, gone: Collection[str], at: datetime
) -> tuple[list[Batch], list[HistoryEntry]]:
    """Return what deletes the proposals that were inferred only from these memories, unless the
    person approved them, and the history entries."""
    number = await reader.number(scope)
    batches: list[Batch] = []
    entries: list[HistoryEntry] = []
    with suppress(StoreDamaged):  # an altered proposal does not prevent forgetting
        for each in parse(found, scope):
            if each.decided in (None, "corroborated"):
                left = {memory.id for memory in await reader.get(scope, each.evidence)}
                if not left - set(gone):
                    withdrawn, entry = decide(scope, number, each, "withdrawn", at)
                    batches += withdrawn
                    entries.append(entry)
    return batches, entries


def decide(
    scope: Scope,
    number: int,
    proposal: Proposal,
    decision: str,
    at: datetime,
    actor: str | None = None,
) -> tuple[list[Batch], HistoryEntry]:
    """Return the batches that store a proposal after a decision, or delete it with its text, and the
    history entry.

    Decisions are proposed, supported, approved, corroborated, told, denied, lapsed and withdrawn.
    """
    is_gone = decision in GONE
    event = "ADD" if decision == "proposed" else "UPDATE"
    entry = HistoryEntry(
        id=clock.new_id(),
        memory_id=proposal.id,
        event="DELETE" if is_gone else event,
        old_ref=None,
        new_ref=None,
        actor=actor,
        meta={"field": proposal.field, "decision": decision},
        at=at,
    )
    delete = ("DELETE FROM consent_queue WHERE scope = ? AND id = ?", [(number, proposal.id)])
    if is_gone:
        return [delete], entry
    decided_at = proposal.decided_at and clock.iso(proposal.decided_at)
    words = [proposal.value, list(proposal.evidence), decided_at]
    seal = _seal(proposal.id, proposal.field, proposal.decided, words, scope)
    text = json.dumps([*words, seal], ensure_ascii=False)
    times = (clock.iso(proposal.at), clock.iso(proposal.lapses_at))
    values = (proposal.id, number, proposal.field, text, proposal.decided, *times)
    return [delete, (_INSERT, [values])], entry


def _seal(id: str, field: str, decided: str | None, words: Sequence[Any], scope: Scope) -> str:
    """Return a digest that ensures that only the value that was shown can be approved."""
    return rows.row_hash((id, field, decided, *words), scope).hex()
