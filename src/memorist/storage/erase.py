"""Erasing a memory: its text is removed wherever it is stored. The transaction runs the batches
made here."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from ..text import clock, normalize
from ..text.clock import new_id
from ..types import Scope
from . import proposals, rows
from .changes import Forget
from .database import Batch, Rows
from .filters import placeholders
from .history import HistoryEntry, dump_json
from .queries import Reader

_TOMBSTONE = (
    "INSERT INTO tombstones (scope, digest, until) VALUES (?, ?, ?) "
    "ON CONFLICT (scope, digest) DO UPDATE SET until = CASE WHEN tombstones.until IS NULL "
    "OR tombstones.until > excluded.until THEN tombstones.until ELSE excluded.until END"
)
SOURCE_FORGOTTEN = "source_forgotten"  # in a long-term record: ids of its sources that are erased


class Erased(NamedTuple):
    """A row to erase: the memory itself, or an earlier version."""

    row: int
    id: str
    source_ids: str
    source_message_id: str | None
    text: str
    thread: str | None
    kind: str


async def find(reader: Reader, scope: Scope, id: str) -> list[Erased]:
    """Return the rows of a memory and of its earlier versions, that of the memory first."""
    sql = (
        "SELECT row, id, source_ids, source_message_id, text, coalesce(thread, session), kind "
        "FROM memories WHERE scope = ? AND {} = ?"
    )
    both = f"{sql.format('id')} UNION ALL {sql.format('superseded_by')}"  # OR would use no index
    found = await reader.rows(scope, both, (id, await reader.number(scope), id))
    return sorted((Erased(*row) for row in found), key=lambda each: each.id != id)


def delete(number: int, changed: int, gone: Sequence[Erased]) -> list[Batch]:
    """Return the batches that remove rows, vectors, relations, and their text in history and
    messages."""
    erased = [(number, each.row, changed) for each in gone]
    by_row = [(number, each.row) for each in gone]
    by_id = [(number, each.id) for each in gone]
    sources: set[str] = set()
    for each in gone:
        sources.update(parse_ids(each.source_ids))
        if each.source_message_id:
            sources.add(each.source_message_id)
    return [
        ("INSERT INTO erased (scope, row, changed) VALUES (?, ?, ?)", erased),
        ("DELETE FROM vectors WHERE scope = ? AND memory = ?", by_row),
        ("DELETE FROM memories WHERE scope = ? AND row = ?", by_row),
        ("DELETE FROM relations WHERE scope = ? AND from_id = ?", by_id),
        ("DELETE FROM relations WHERE scope = ? AND to_id = ?", by_id),
        ("UPDATE history SET meta = '{}' WHERE scope = ? AND memory_id = ?", by_id),
        ("UPDATE history SET meta = '{}' WHERE scope = ? AND old_ref = ?", by_id),
        ("UPDATE change_log SET meta = '{}' WHERE scope = ? AND memory_id = ?", by_id),
        ("UPDATE events SET category = NULL WHERE scope = ? AND memory_id = ?", by_id),
        (
            "UPDATE messages SET text = NULL, name = NULL WHERE scope = ? AND id = ?",
            [(number, source) for source in sorted(sources) if source],
        ),
    ]


async def prepare(
    reader: Reader, scope: Scope, change: Forget, gone: Sequence[Erased], changed: int
) -> tuple[list[Batch], list[HistoryEntry]]:
    """Return the batches that erase rows and what rests on them alone, and their entries."""
    number = await reader.number(scope)
    batches: list[Batch] = []
    entries: list[HistoryEntry] = []
    if not change.purged:
        ids = [each.id for each in gone]
        texts = {each.text for each in gone}
        wordings = {normalize.wording(text) for text in texts}
        batches.append(tombstones(reader, number, texts, change.until))
        summaries, has_proposals = await find_derived(reader, scope, ids)
        batches += detach_summaries(number, summaries, ids, wordings)
        lost = await proposals.unsupported(reader, scope, ids) if has_proposals else []
        for proposal in lost:
            batches += proposals.write(scope, number, proposal, "withdrawn")
            entries.append(proposals.entry(proposal, "withdrawn", change.at, None))
    batches += delete(number, changed, gone)
    entries.append(
        HistoryEntry(
            id=new_id(),
            memory_id=change.memory_id,
            event="DELETE",
            old_ref=None,
            new_ref=None,
            actor=change.actor,
            meta={"reason": change.reason} if change.reason else {},
            at=change.at,
        )
    )
    return batches, entries


def tombstones(
    reader: Reader, number: int, texts: Collection[str], until: datetime | None
) -> Batch:
    """Return the batch that leaves a keyed digest of each text; the longer time counts."""
    end = clock.iso(until) if until else None
    digests = [reader.digest(normalize.wording(text)) for text in texts]
    return _TOMBSTONE, [(number, digest, end) for digest in digests]


async def find_derived(reader: Reader, scope: Scope, ids: Sequence[str]) -> tuple[Rows, bool]:
    """Return the long-term records that name these memories as evidence, and whether there are
    proposals."""
    number = await reader.number(scope)
    each = reader.connection.dialect.each.format("evidence_ids")
    sql = "SELECT id, data, evidence_ids FROM summaries WHERE scope = ? AND EXISTS "
    sql += f"(SELECT 1 FROM {each} WHERE value IN ({placeholders(len(ids))}))"
    proposals = "SELECT 1 FROM consent_queue WHERE scope = ? LIMIT 1"
    summaries, waiting = await reader.connection.read(
        [(sql, (number, *ids)), (proposals, (number,))], scope=number
    )
    return summaries, bool(waiting)


def detach_summaries(
    number: int, summaries: Rows, ids: Sequence[str], texts: Collection[str]
) -> list[Batch]:
    """Return the batches that delete long-term records that rest on these memories alone, and mark
    the others.

    Those that stay lose the reference and the lines with these texts.
    """
    gone = []
    changed = []
    for id, data, evidence in summaries:
        left = [source for source in parse_ids(evidence) if source not in ids]
        if left:
            kept = _without_lines(rows.loaded(data), texts)
            kept[SOURCE_FORGOTTEN] = sorted(ids)
            changed.append((dump_json(kept), json.dumps(left), number, id))
        else:
            gone.append((number, id))
    return [
        ("DELETE FROM summaries WHERE scope = ? AND id = ?", gone),
        ("UPDATE summaries SET data = ?, evidence_ids = ? WHERE scope = ? AND id = ?", changed),
    ]


def _without_lines(data: dict[str, Any], texts: Collection[str]) -> dict[str, Any]:
    """Return a record without the lines that say what was forgotten."""
    kept: dict[str, Any] = {}
    for name, lines in data.items():
        kept[name] = lines
        if isinstance(lines, list):
            kept[name] = [
                line
                for line in lines
                if not isinstance(line, str) or normalize.wording(line) not in texts
            ]
    return kept


def parse_ids(text: str) -> list[str]:
    """Return a list of ids, or an empty one where the row was altered."""
    with suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, list):
            return [each for each in found if isinstance(each, str)]
    return []
