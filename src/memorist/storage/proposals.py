"""Proposals for the user context: values that were inferred, and what the person decided about
them."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..errors import StoreDamaged
from ..text import clock
from ..text.clock import new_id
from ..types import Scope
from . import rows
from .database import Batch
from .history import HISTORY_OF, HistoryEntry
from .queries import Reader

GONE = ("denied", "withdrawn", "lapsed")  # decisions after which a proposal is deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A value for a field of the user context, and what the person decided. Its value never
    changes."""

    id: str
    field: str
    value: str
    at: datetime
    lapses_at: datetime
    evidence: tuple[str, ...] = ()  # the memories it was inferred from
    decided: str | None = None  # approved · corroborated · told; None while it waits
    decided_at: datetime | None = None


async def load(reader: Reader, scope: Scope) -> list[Proposal]:
    """Return the proposals that wait or are in force, oldest first. Raises StoreDamaged for an
    altered one."""
    sql = "SELECT id, field, proposal, decided, created_at, lapses_at FROM consent_queue "
    found = await reader.rows(scope, f"{sql}WHERE scope = ? ORDER BY created_at, id")
    return [_parse(row, scope) for row in found]


async def unsupported(reader: Reader, scope: Scope, gone: Collection[str]) -> list[Proposal]:
    """Return the proposals inferred from these memories alone, unless the person agreed to them."""
    found: list[Proposal] = []
    with suppress(StoreDamaged):  # an altered proposal does not prevent forgetting
        for each in await load(reader, scope):
            if each.decided not in (None, "corroborated"):
                continue
            left = {memory.id for memory in await reader.get(scope, each.evidence)}
            if not left - set(gone):
                found.append(each)
    return found


def write(scope: Scope, number: int, proposal: Proposal, decision: str) -> list[Batch]:
    """Return the batches that store a proposal after a decision, or delete it together with its
    text.

    Decisions are proposed, supported, approved, corroborated, told, denied, lapsed and withdrawn.
    """
    delete = ("DELETE FROM consent_queue WHERE scope = ? AND id = ?", [(number, proposal.id)])
    if decision in GONE:
        return [delete]
    words = _words(proposal)
    seal = _seal(proposal.id, proposal.field, proposal.decided, words, scope)
    insert = (
        "INSERT INTO consent_queue (id, scope, field, proposal, decided, created_at, lapses_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)"
    )
    values = (
        proposal.id,
        number,
        proposal.field,
        json.dumps([*words, seal], ensure_ascii=False),
        proposal.decided,
        clock.iso(proposal.at),
        clock.iso(proposal.lapses_at),
    )
    return [delete, (insert, [values])]


def entry(proposal: Proposal, decision: str, at: datetime, actor: str | None) -> HistoryEntry:
    """Return a decision as an entry of the history."""
    event = "deleted" if decision in GONE else "updated"
    return HistoryEntry(
        id=new_id(),
        memory_id=proposal.id,
        event=HISTORY_OF["created" if decision == "proposed" else event],
        old_ref=None,
        new_ref=None,
        actor=actor,
        meta={"field": proposal.field, "decision": decision},
        at=at,
    )


def _words(proposal: Proposal) -> list[Any]:
    decided_at = None if proposal.decided_at is None else clock.iso(proposal.decided_at)
    return [proposal.value, list(proposal.evidence), decided_at]


def _seal(id: str, field: str, decided: str | None, words: Sequence[Any], scope: Scope) -> str:
    """Return a digest of the text, so that nothing is approved but what was shown."""
    return rows.row_hash((id, field, decided, *words), scope).hex()


def _parse(row: Sequence[Any], scope: Scope) -> Proposal:
    id, field, text, decided, at, lapses_at = row
    *words, seal = rows.loaded(text) or ("",)
    if seal != _seal(id, field, decided, words, scope):
        raise StoreDamaged(rows.ALTERED)
    value, evidence, decided_at = words
    return Proposal(
        id=id,
        field=field,
        value=value,
        evidence=tuple(evidence),
        decided=decided,
        at=rows.moment(at),
        lapses_at=rows.moment(lapses_at),
        decided_at=None if decided_at is None else rows.moment(decided_at),
    )
