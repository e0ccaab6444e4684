"""Relate turns that were stored before changes were looked for to the statements that they replace.

The same measures decide as when a turn is stored; each turn is compared with what was stored before
it. Turns that were changed since, for example by a decision about a conflict, are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import numpy as np

from ..context import Context
from ..index.arrays import Floats
from ..storage.transaction import Transaction
from ..text import authority
from ..text.cues import read
from ..types import REPLACES, Draft, Memory, Scope
from . import current
from .analyze import Chunk, is_turn
from .candidates import Batch, ComparedVectors, compare_all, find_statements, pick, read_last


async def relate_stored(
    tx: Transaction,
    ctx: Context,
    scope: Scope,
    turns: Mapping[int, Memory],
    now: datetime,
) -> None:
    """Relate stored turns, given by their rows, to the earlier statements that they replace.

    What is certain ends the earlier statement. All pairs are listed as conflicts for a decision.
    """
    batch = Batch(ctx=ctx, scope=scope, policy=ctx.policy, now=now, items=(), size=0)
    batch.snapshot = await ctx.index.current(scope, tx)
    if batch.snapshot.matrix is None or not ctx.policy.conflicts:
        return
    stating = {row: turn for row, turn in turns.items() if _may_replace(turn)}
    if not stating:
        return
    for row, similar in zip(stating, _compare(batch, stating), strict=True):
        chunk = await _find_older(tx, batch, stating[row], row, similar)
        if not chunk.older or current.find_replaced(chunk, batch) is None:
            continue
        if await tx.relations(scope, REPLACES, limit=1, from_id=stating[row].id):
            continue
        current.replace_older(chunk, batch, stating[row].id)
    if batch.replaced:
        await current.end_repeats(tx, batch)
    read.cache_clear()
    await tx.apply([*batch.puts.values(), *batch.others])


def _may_replace(turn: Memory) -> bool:
    """Return whether it is a statement of a person that was not changed since it was stored."""
    is_own = is_turn(turn) and authority.is_own_role(turn.labels.role) and not turn.evidence_ids
    return is_own and turn.revision == 1 and read(turn.text).asks < 1 and " " in turn.text.strip()


def _compare(batch: Batch, turns: Mapping[int, Memory]) -> list[Floats]:
    """Return the similarity of all positions to each turn."""
    snapshot = batch.snapshot
    has_second = snapshot.has_second
    compared: list[ComparedVectors] = []
    for row, turn in turns.items():
        at = snapshot.positions([row])
        first = snapshot.vectors(at)[0] if len(at) else None
        second = None
        if snapshot.second is not None and len(at) and has_second[at[0]]:
            second = snapshot.second.rows[at[0]]
        compared.append((read(turn.text).is_english, first, second))
    return list(compare_all(compared, snapshot, find_statements(snapshot)))


async def _find_older(
    tx: Transaction,
    batch: Batch,
    turn: Memory,
    row: int,
    similar: Floats,
) -> Chunk:
    """Return a stored turn as if it were new, with the most similar statements stored before it."""
    snapshot = batch.snapshot
    positions = np.flatnonzero(find_statements(snapshot) & (snapshot.row < row))
    nearest = pick(similar[positions], snapshot.row[positions])
    memories = await tx.at_rows(batch.scope, [place for place, _ in nearest])
    for place, memory in memories.items():
        if memory.id not in batch.memories:
            batch.add(memory)
        batch.rows[memory.id] = place
    session = turn.labels.session
    asks, speaker = read_last(snapshot, session, turn.sequence)
    if session is not None:
        batch.places[session] = turn.sequence or 0
    at = turn.occurred_at or turn.valid_from or turn.created_at
    draft = Draft(text=turn.text, id=turn.id, labels=turn.labels, speaker=turn.speaker, at=at)
    return Chunk(
        draft=draft,
        text=turn.text,
        content_hash=turn.content_hash,
        simhash=turn.simhash,
        kind=turn.kind,
        category=turn.category or turn.kind,
        item_type=turn.item_type,
        session=session,
        is_turn=True,
        on_purpose=turn.on_purpose,
        id=turn.id,
        answers=asks and speaker != turn.speaker,
        older=[(memories[place], cosine) for place, cosine in nearest if place in memories],
        earlier=int((snapshot.alive & (snapshot.row < row)).sum()),
    )
