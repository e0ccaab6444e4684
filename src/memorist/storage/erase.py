"""Erase a memory: remove its text wherever it is stored. The transaction runs the batches that are
built here."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from ..errors import StoreDamaged
from ..text import clock, normalize
from ..text.clock import new_id
from ..types import Scope
from . import Forget, rows
from .database import Batch, LogRow, Query, Rows
from .history import EMPTY
from .queries import Reader

_ROW = """SELECT row, id, source_ids, source_message_id, text, coalesce(thread, session), kind,
superseded_by FROM memories WHERE scope = ? AND"""
_ROWS = f"{_ROW} id = ? UNION ALL {_ROW} superseded_by = ?"  # OR would not use an index
_IDS = """SELECT id FROM memories WHERE scope = ? AND id = ? UNION ALL
SELECT id FROM memories WHERE scope = ? AND superseded_by = ?"""
_HISTORY = f"SELECT meta FROM history WHERE scope = ? AND memory_id IN ({_IDS})"
# A record names the current version, but may hold lines of an earlier one.
_SUMMARIES = f"""SELECT id, data, evidence_ids FROM summaries WHERE scope = ?
AND EXISTS (SELECT 1 FROM {{each}} WHERE value IN ({_IDS}
UNION ALL SELECT superseded_by FROM memories WHERE scope = ? AND id = ?))"""
_PROPOSALS = """SELECT id, field, proposal FROM consent_queue WHERE scope = ?
AND (decided IS NULL OR decided = 'corroborated') ORDER BY created_at, id"""
_TOMBSTONE = """INSERT INTO tombstones (scope, digest, until) VALUES (?, ?, ?)
ON CONFLICT (scope, digest) DO UPDATE SET until = CASE WHEN tombstones.until IS NULL
OR tombstones.until > excluded.until THEN tombstones.until ELSE excluded.until END"""
# Entries of a memory up to the end of an earlier version.
_EARLIER = """UPDATE history SET meta = '{}' WHERE scope = ? AND memory_id = ? AND row <=
(SELECT max(h.row) FROM history h WHERE h.scope = ? AND h.old_ref = ?)"""
_BY_ID = (
    "DELETE FROM relations WHERE scope = ? AND from_id = ?",
    "DELETE FROM relations WHERE scope = ? AND to_id = ?",
    "UPDATE history SET meta = '{}' WHERE scope = ? AND memory_id = ?",
    "UPDATE history SET meta = '{}' WHERE scope = ? AND old_ref = ?",
    "UPDATE change_log SET meta = '{}' WHERE scope = ? AND memory_id = ?",
    "UPDATE events SET category = NULL WHERE scope = ? AND memory_id = ?",
)
# Entries of what was based on something forgotten, if they hold what it quoted.
QUOTES = """UPDATE history SET meta = '{}' WHERE scope = ? AND memory_id = ?
AND CAST(meta AS TEXT) LIKE '%"evidence_text"%'"""
TABLES = """vectors claims memories erased messages history thread_revision change_log tombstones
summaries relations events supervisor_checkpoints consent_queue pair_fingerprints space_settings
incognito_sessions graph_checkpoints graph_values graph_writes items item_vectors index_positions tasks
spending""".split()  # all that belong to a scope
# The lists that chat commands showed, which are settings of the space with these keys (`person.py`).
CHATS = ("chat:", "chat;")
_SHOWN = "DELETE FROM space_settings WHERE scope = ? AND key >= ? AND key < ? AND value LIKE ?"
SOURCE_FORGOTTEN = "source_forgotten"  # in a long-term record: ids of its erased sources


class Erased(NamedTuple):
    """A row to erase: the memory itself, or an earlier version."""

    row: int
    id: str
    source_ids: str
    source_message_id: str | None
    text: str
    thread: str | None
    kind: str
    superseded_by: str | None


class Traces(NamedTuple):
    """What is to be erased of a memory, and what was made from it."""

    gone: list[Erased]  # the memory itself first
    merged: list[str]  # wordings that were merged into it
    sources: set[str]  # ids of messages that were once among its sources
    summaries: Rows
    proposals: Rows  # of the scope, which the person did not approve


async def find(reader: Reader, scope: Scope, change: Forget) -> Traces | None:
    """Return what has to be erased with a memory, in one round trip; None if it does not exist."""
    number = reader.numbers.get(scope) or await reader.number(scope)
    if number < 0:
        return None
    id = change.memory_id
    both = (number, id, number, id)
    queries: list[Query] = [(_ROWS, both), (_HISTORY, (number, *both))]
    if not change.purged:
        each = reader.connection.dialect.each.format("evidence_ids")
        summaries = (_SUMMARIES.format(each=each), (number, *both, number, id))
        queries += [summaries, (_PROPOSALS, (number,))]
    rows_found, history, *rest = await reader.connection.read(queries, scope=number)
    if not rows_found:
        return None
    gone = sorted(map(Erased._make, rows_found), key=lambda each: each.id != id)
    return Traces(gone, *read_payloads(history), *(rest or ([], [])))


async def prepare(
    reader: Reader, scope: Scope, number: int, change: Forget, traces: Traces, changed: int
) -> tuple[list[Batch], list[LogRow]]:
    """Return the batches that erase rows and everything derived only from them, and the log rows."""
    gone = traces.gone
    ids = [each.id for each in gone]
    at = clock.iso(change.at)
    batches: list[Batch] = []
    log: list[LogRow] = []
    if not change.purged:
        texts = {each.text for each in gone}.union(traces.merged)
        batches.append(tombstones(reader, number, texts, change.until))
        if traces.summaries:
            batches += detach_summaries(number, traces.summaries, ids, texts)
        if traces.proposals:
            withdrawn = await find_unsupported(reader, scope, traces.proposals, ids)
            delete = "DELETE FROM consent_queue WHERE scope = ? AND id = ?"
            batches.append((delete, [(number, id) for id, _ in withdrawn]))
            for id, field in withdrawn:
                meta = rows.dump_json({"field": field, "decision": "withdrawn"})
                entry = LogRow(number, at, memory_id=id, id=new_id(), event="DELETE", meta=meta)
                log.append(entry)
    batches += delete_rows(number, changed, gone, traces.sources)
    thread = gone[0].thread
    erased = LogRow(
        scope=number,
        at=at,
        revision=changed,
        memory_id=change.memory_id,
        id=new_id(),
        event="DELETE",
        actor=change.actor,
        meta=rows.dump_json({"reason": change.reason} if change.reason else {}),
        event_id=new_id(),
        user=scope.user,
        thread=thread,
        node="worker" if change.purged else rows.node_of(gone[0].kind),
        op="delete",
        status="ok",
        line_id=None if thread is None else new_id(),
        line_event="deleted",
        line_meta=EMPTY,
    )
    return batches, [*log, erased]


async def find_unsupported(
    reader: Reader, scope: Scope, proposals: Rows, gone: Sequence[str]
) -> list[tuple[str, str]]:
    """Return id and field of the proposals that were inferred only from these memories."""
    found = []
    for id, field, text in proposals:
        # An altered proposal or row does not prevent forgetting.
        with suppress(StoreDamaged, ValueError, TypeError):
            _, evidence, *_ = json.loads(text)
            left = {memory.id for memory in await reader.get(scope, evidence)}
            if not left - set(gone):
                found.append((id, field))
    return found


async def read_merged(reader: Reader, scope: Scope, ids: Sequence[str]) -> list[str]:
    """Return the wordings that were merged into memories."""
    sql = "SELECT meta FROM history WHERE scope = ?"
    merged, _ = read_payloads(await reader.rows_in(scope, sql, "memory_id", ids))
    return merged


def read_payloads(found: Rows) -> tuple[list[str], set[str]]:
    """Return the wordings that were merged into memories, and the ids of messages that were once
    among their sources: the merge may have been undone."""
    merged: list[str] = []
    sources: set[str] = set()
    for (text,) in found:
        with suppress(ValueError, TypeError, AttributeError, KeyError):  # an altered row
            meta = json.loads(text)
            merged += meta.get("merged", ())
            before = meta.get("before", {}).get("source_ids", ())
            if isinstance(before, dict):  # what was added to the list and dropped from it
                before = (*before["added"], *before["dropped"])
            sources.update(before)
    return merged, sources


def tombstones(
    reader: Reader,
    number: int,
    texts: Collection[str],
    until: datetime | None,
    digests: Collection[str] = (),
) -> Batch:
    """Return the batch that stores a keyed digest of each text; the later end counts."""
    end = clock.iso(until) if until else None
    made = [reader.tombstone_digests(text)[0] for text in texts]
    return _TOMBSTONE, [(number, digest, end) for digest in sorted({*made, *digests})]


def delete_rows(
    number: int,
    changed: int,
    gone: Sequence[Erased],
    sources: set[str],
) -> list[Batch]:
    """Return the batches that delete rows, their vectors and relations, and their text in history
    and messages."""
    by_row = [(number, each.row) for each in gone]
    by_id = [(number, each.id) for each in gone]
    for each in gone:
        sources.update(parse_ids(each.source_ids))
        sources.add(each.source_message_id or "")
    messages = [(number, source) for source in sorted(sources) if source]
    earlier = [(number, each.superseded_by, number, each.id) for each in gone]
    shown = [(number, *CHATS, f"%{each.id}%") for each in gone]
    return [
        (
            "INSERT INTO erased (scope, row, changed) VALUES (?, ?, ?)",
            [(*row, changed) for row in by_row],
        ),
        ("DELETE FROM vectors WHERE scope = ? AND memory = ?", by_row),
        ("DELETE FROM memories WHERE scope = ? AND row = ?", by_row),
        ("UPDATE messages SET text = NULL, name = NULL WHERE scope = ? AND id = ?", messages),
        (_EARLIER, earlier),
        (_SHOWN, shown),
        *((sql, by_id) for sql in _BY_ID),
    ]


def detach_summaries(
    number: int,
    summaries: Rows,
    ids: Sequence[str],
    texts: Collection[str],
) -> list[Batch]:
    """Return the batches that delete long-term records derived only from these memories, and mark
    the others.

    The others lose the reference and the lines with these texts.
    """
    wordings = set(map(normalize.wording, texts))
    gone = []
    changed = []
    for id, data, evidence in summaries:
        left = [source for source in parse_ids(evidence) if source not in ids]
        if not left:
            gone.append((number, id))
            continue
        kept: dict[str, Any] = rows.load_json(data)
        for name, lines in kept.items():
            if isinstance(lines, list):
                kept[name] = [
                    line for line in lines if normalize.wording(str(line)) not in wordings
                ]
        if len(left) < len(parse_ids(evidence)):
            kept[SOURCE_FORGOTTEN] = sorted(ids)
        changed.append((rows.dump_json(kept), json.dumps(left), number, id))
    return [
        ("DELETE FROM summaries WHERE scope = ? AND id = ?", gone),
        ("UPDATE summaries SET data = ?, evidence_ids = ? WHERE scope = ? AND id = ?", changed),
    ]


def parse_ids(text: str) -> list[str]:
    """Return a list of ids, or an empty one if the row was altered."""
    with suppress(ValueError):
        found = json.loads(text)
        if isinstance(found, list):
            return [each for each in found if isinstance(each, str)]
    return []
