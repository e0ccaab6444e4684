"""Long-term records made from memories: profiles of the person and of projects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from ..text import clock
from ..types import Scope
from . import rows
from .history import dump_json
from .queries import Reader
from .transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A long-term record made from memories: a profile of the person, or of a project."""

    id: str
    record_type: Literal["user_profile", "project_memory"]
    name: str
    data: Mapping[str, Any]
    evidence_ids: tuple[str, ...]
    at: datetime


async def load(reader: Reader, scope: Scope, record_type: str) -> list[Summary]:
    """Return long-term records, newest first."""
    sql = "SELECT id, record_type, name, data, evidence_ids, at FROM summaries WHERE scope = ? "
    sql += "AND record_type = ? ORDER BY at DESC, id DESC"
    found = []
    for id, kind, name, data, evidence, at in await reader.rows(scope, sql, (record_type,)):
        found.append(
            Summary(
                id=id,
                record_type=kind,
                name=name,
                data=rows.loaded(data),
                evidence_ids=tuple(rows.loaded(evidence)),
                at=rows.moment(at),
            )
        )
    return found


async def save(tx: Transaction, summary: Summary) -> None:
    """Store a record, unless a newer one with its id is stored."""
    number, _ = await tx.next_revision()
    sql = (
        "INSERT INTO summaries (id, scope, record_type, name, data, evidence_ids, at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope, id) DO UPDATE SET name = excluded.name, "
        "data = excluded.data, at = excluded.at, evidence_ids = excluded.evidence_ids "
        "WHERE summaries.at <= excluded.at"
    )
    values = (
        summary.id,
        number,
        summary.record_type,
        summary.name,
        dump_json(summary.data),
        json.dumps(list(summary.evidence_ids)),
        clock.iso(summary.at),
    )
    await tx.touch((sql, [values]))
