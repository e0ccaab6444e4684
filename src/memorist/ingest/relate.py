"""Relate stored turns to the statements that they replace.

The same measures decide as when a turn is stored; each turn is compared with what was said before
it. `relate_stored` does it for turns that were stored before changes were looked for; those that
were changed since, for example by a decision about a conflict, are left alone. `relate_late` does it
for statements that are stored after what was said later, as in an export with the newest first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from ..context import Context
from ..index.arrays import Bools, Floats
from ..storage import Unrelated
from ..storage.transaction import Transaction
from ..text import cues
from ..text.cues import CHANGING, read
from ..types import CONTRADICTS, REPLACES, Draft, Memory, Scope
from . import current
from .analyze import Chunk, is_turn
from .candidates import Batch, ComparedVectors, compare_all, find_statements, pick
from .transitions import held_since


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
    unchanged = {row: turn for row, turn in turns.items() if is_turn(turn) and turn.revision == 1}
    await _relate(tx, batch, unchanged)


async def relate_late(tx: Transaction, written: Batch, ids: Sequence[str]) -> None:
    """Relate the most similar of the later statements to the new ones of a batch with these ids.

    The new ones may also replace what a later one replaced before they were known.
    """
    batch = Batch(
        ctx=written.ctx,
        scope=written.scope,
        policy=written.policy,
        now=written.now,
        items=(),
        size=0,
    )
    batch.snapshot = snapshot = await batch.ctx.index.current(batch.scope, tx)
    if snapshot.matrix is None:
        return
    usable = find_statements(snapshot)
    is_new = usable & (snapshot.row > written.snapshot.row.max(initial=0))
    stored = await tx.at_rows(batch.scope, snapshot.row[is_new].tolist())
    new = {row: memory for row, memory in stored.items() if memory.id in ids}
    rows = set(new)
    for row, similar in zip(new, _compare(batch, new), strict=True):
        later = np.flatnonzero(usable & ~_find_earlier(batch, row) & (snapshot.row != row))
        rows.update(place for place, _ in pick(similar[later], snapshot.row[later]))
    positions = snapshot.positions(sorted(rows))
    order = np.lexsort((snapshot.row[positions], snapshot.said[positions]))
    loaded = await tx.at_rows(batch.scope, sorted(rows))
    turns = {row: loaded[row] for row in snapshot.row[positions[order]].tolist() if row in loaded}
    await _relate(tx, batch, turns, new=ids)


async def _relate(
    tx: Transaction,
    batch: Batch,
    turns: Mapping[int, Memory],
    new: Collection[str] = (),
) -> None:
    """Relate those of the turns that replace something to it: each one once.

    A turn that was stored before a new statement is also related to that, or to another statement
    if what it replaced was replaced by an earlier turn.
    """
    stating = {row: turn for row, turn in turns.items() if _may_replace(turn)}
    if not stating:
        return
    freed: set[str] = set()
    for row, similar in zip(stating, _compare(batch, stating), strict=True):
        chunk = await _find_older(tx, batch, stating[row], row, similar)
        found = current.find_replaced(chunk, batch) if chunk.older else None
        if found is None:
            continue
        old, _ = found
        id = stating[row].id
        ended_by = batch.ended_by.get(old.id, set())
        if id in ended_by:
            continue
        if old.id not in new and id not in freed:
            is_known = new and id not in new
            if is_known or await tx.relations(batch.scope, REPLACES, limit=1, from_id=id):
                continue
        for later in ended_by:
            pair = Unrelated(from_id=later, to_id=old.id, type=REPLACES)
            batch.others += [pair, replace(pair, type=CONTRADICTS)]
        freed |= ended_by
        batch.ended_by[old.id] = {id}
        current.replace_older(chunk, batch, id)
    if batch.replaced:
        await current.end_repeats(tx, batch)
    read.cache_clear()
    await tx.apply([*batch.puts.values(), *batch.others])


def _may_replace(turn: Memory) -> bool:
    """Return whether it is a statement of a person; a note has to say that something changed.

    One that was rejected in a conflict never was valid.
    """
    if turn.valid_to is not None and turn.valid_to <= held_since(turn):
        return False
    is_own = cues.is_own_role(turn.labels.role) and not turn.evidence_ids
    said = read(turn.text)
    is_changing = is_turn(turn) or not CHANGING.isdisjoint(said.cues)
    return is_own and is_changing and said.asks < 1 and " " in turn.text.strip()


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


def _find_earlier(batch: Batch, row: int) -> Bools:
    """Mark what was said before a turn; of what was said at the same time, what was stored first."""
    snapshot = batch.snapshot
    at = snapshot.said[snapshot.positions([row])]
    is_earlier: Bools = snapshot.said < at
    is_earlier |= (snapshot.said == at) & (snapshot.row < row)
    return is_earlier


async def _find_older(
    tx: Transaction,
    batch: Batch,
    turn: Memory,
    row: int,
    similar: Floats,
) -> Chunk:
    """Return a stored turn as if it were new, with the most similar statements said before it."""
    snapshot = batch.snapshot
    is_earlier = _find_earlier(batch, row)
    positions = np.flatnonzero(find_statements(snapshot) & is_earlier)
    nearest = pick(similar[positions], snapshot.row[positions])
    memories = await tx.at_rows(batch.scope, [place for place, _ in nearest])
    for place, memory in memories.items():
        if memory.id not in batch.memories:
            batch.add(memory)
        batch.rows[memory.id] = place
    ended = [memory.id for memory in memories.values() if memory.valid_to is not None]
    for pair in await tx.links(batch.scope, ended, REPLACES) if ended else ():
        batch.ended_by.setdefault(pair.to_id, set()).add(pair.from_id)
    session = turn.labels.session
    asks, speaker = snapshot.last_turn(session, turn.sequence)
    if session is not None:
        batch.places[session] = turn.sequence or 0
    batch.rows[turn.id] = row
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
        is_turn=is_turn(turn),
        on_purpose=turn.on_purpose,
        id=turn.id,
        answers=asks and speaker != turn.speaker,
        older=[(memories[place], cosine) for place, cosine in nearest if place in memories],
        earlier=int((snapshot.alive & is_earlier & ~snapshot.marked[cues.IS_EXTRACTED]).sum()),
    )
