"""What a turn of a conversation says again: a statement of the same person in an earlier session."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..context import Context
from ..index import Snapshot
from ..text import clock
from ..text.changes import read
from ..text.repeats import LEAST, Said, measure, weigh
from ..types import Memory, Scope
from .current import compare_all, find_statements, pick

LEAST_SIMILAR = 0.4


async def find_repeated(
    ctx: Context,
    scope: Scope,
    turns: Sequence[Memory],
) -> dict[str, list[Memory]]:
    """Return by the id of each turn that repeats earlier statements these, the likeliest first."""
    likely: dict[str, list[tuple[float, Memory]]] = {}
    for turn, older, measures in await compare(ctx, scope, turns):
        probability = weigh(measures)
        if probability >= LEAST:
            likely.setdefault(turn.id, []).append((probability, older))
    found = {}
    for id, pairs in likely.items():
        pairs.sort(key=lambda pair: -pair[0])
        found[id] = [older for _, older in pairs]
    return found


async def compare(
    ctx: Context,
    scope: Scope,
    turns: Sequence[Memory],
) -> list[tuple[Memory, Memory, dict[str, float]]]:
    """Compare turns with the most similar statements that their speakers made in other sessions
    before, if these still hold. Return each pair with its measures.
    """
    snapshot = await ctx.index.current(scope, ctx.store)
    if snapshot.is_lean:
        return []
    positions = []
    asked = []
    for turn in turns:
        place = _find_position(snapshot, turn)
        if place is not None and read(turn.text).asks < 1:
            positions.append(place)
            asked.append(turn)
    second = snapshot.second
    said = []
    for turn, place in zip(asked, positions, strict=True):
        other = second.rows[place] if second is not None and snapshot.has_second[place] else None
        said.append((turn.text, snapshot.vectors(np.array([place]))[0], other))
    usable = find_statements(snapshot) & (snapshot.session >= 0)
    usable &= snapshot.valid_to > clock.micros(ctx.clock())
    near = []
    for place, similar in zip(positions, compare_all(said, snapshot, usable), strict=True):
        is_earlier = usable & (snapshot.row < snapshot.row[place])
        is_earlier &= snapshot.speaker == snapshot.speaker[place]
        is_earlier &= snapshot.session != snapshot.session[place]
        places = np.flatnonzero(is_earlier & (similar >= LEAST_SIMILAR))
        near.append(pick(similar[places], snapshot.row[places]))
    rows = {row for found in near for row, _ in found}
    memories = await ctx.store.at_rows(scope, sorted(rows)) if rows else {}
    texts = {memory.text for memory in (*asked, *memories.values())}
    read_once = {text: Said(text) for text in texts}
    pairs = []
    for turn, found in zip(asked, near, strict=True):
        partners = [name for name in snapshot.codes["speaker"] if name != turn.speaker]
        for row, cosine in found:
            if older := memories.get(row):
                new = read_once[turn.text]
                measures = measure(new, read_once[older.text], cosine, partners)
                pairs.append((turn, older, measures))
    return pairs


def _find_position(snapshot: Snapshot, turn: Memory) -> int | None:
    """Return the position of a turn; None if it is not one, or is not in the snapshot."""
    session = turn.labels.session
    if session is None or turn.sequence is None:
        return None
    is_here = snapshot.alive & (snapshot.session == snapshot.code("session", session))
    found = np.flatnonzero(is_here & (snapshot.sequence == turn.sequence))
    return int(found[-1]) if len(found) else None
