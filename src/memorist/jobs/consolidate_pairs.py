"""Find pairs of memories that may state the same fact, and merge such a pair into one memory.

Candidate pairs are found by comparing the vectors of a scope, nearest first, before any text is
read. A merge can be undone: nothing is erased. The memory that goes is superseded by the one that
stays, which keeps the evidence of both. A memory that a person pinned or saved manually always
stays; two such memories are never merged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..context import Context
from ..index import Snapshot
from ..index.arrays import products
from ..ingest import transitions
from ..ingest.policies import Bands
from ..manage import edit
from ..ports import Vectors
from ..storage import Change, Relation, Save
from ..text import clock, compare, contradictions
from ..text.clock import new_id
from ..text.statements import Statement, parse
from ..types import CONTRADICTS, KINDS, Memory, Scope, frozen

NEW = timedelta(hours=72)
RECENT = timedelta(days=90)
LEVEL = 3  # importance level from which a memory is compared regardless of its age
FREQUENT = 10  # one memory in this many counts as frequently recalled
NEIGHBORS = 12  # per memory
MAX_COMPARED = 10_000  # memories per run, the most recently changed ones
MAX_PAIRS = 20_000  # per run
ACTOR = "worker"  # in the history
_BATCH = 256
_NOT_INHERITED = (
    "summary evidence_text source_message_id key sequence last_accessed last_scores".split()
)
NearRows = tuple[int, int, float]  # two rows, the smaller one first, and their cosine


@frozen
class Pair:
    """Two memories that may state the same fact."""

    old: Memory
    new: Memory
    cosine: float

    @property
    def fingerprint(self) -> tuple[str, str, float]:
        a, b = sorted((self.old.id, self.new.id))
        return a, b, round(self.cosine, 2)

    @property
    def is_automatic(self) -> bool:
        """Neither memory was pinned or saved manually."""
        return not (self.old.on_purpose or self.new.on_purpose)

    @property
    def statements(self) -> tuple[Statement, Statement]:
        return parse(self.old.text), parse(self.new.text)

    @property
    def texts(self) -> dict[str, object]:
        return {"a": self.old.text, "b": self.new.text}


async def find_near(
    ctx: Context,
    scope: Scope,
    bands: Bands,
    now: datetime,
) -> list[NearRows]:
    """Return the pairs whose vectors are near; none if an external index holds the vectors.

    Memories that changed in the last three days, are important or are recalled frequently are
    compared with everything that changed in the last ninety days. Turns of a conversation are left
    out.
    """
    snapshot = await ctx.index.current(scope, ctx.store)
    if snapshot.matrix is None:
        return []
    frequent = await ctx.store.most_recalled(scope, one_in=FREQUENT)
    is_turn = (snapshot.session >= 0) & (snapshot.speaker >= 0)
    recent = snapshot.alive & snapshot.embedded & ~is_turn
    recent &= snapshot.kind != KINDS.index("working")
    recent &= snapshot.updated >= clock.micros(now - RECENT)
    chosen = snapshot.updated >= clock.micros(now - NEW)
    chosen |= snapshot.importance > (LEVEL - 1) / 5 + 1e-6
    chosen |= np.isin(snapshot.row, frequent)
    found = np.flatnonzero(recent & chosen)
    newest = np.lexsort((-snapshot.row[found], -snapshot.updated[found]))
    compared = found[newest[:MAX_COMPARED]]
    others = np.flatnonzero(recent)
    return await asyncio.to_thread(compare_vectors, snapshot, compared, others, bands)


def compare_vectors(
    snapshot: Snapshot,
    compared: NDArray[np.intp],
    others: NDArray[np.intp],
    bands: Bands,
) -> list[NearRows]:
    """Return the pairs that are near enough, nearest first: of each memory a few that a model may
    be asked about and a few others, of the same speaker.
    """
    found = {}
    other_vectors = snapshot.vectors(others)
    for batch in np.split(compared, range(_BATCH, len(compared), _BATCH)):
        near_others = products(snapshot.vectors(batch), other_vectors.T)
        for at, cosines in zip(batch.tolist(), near_others, strict=True):
            is_near = (cosines >= bands.fallback_low) & (others != at)
            is_near &= snapshot.speaker[others] == snapshot.speaker[at]
            near = np.flatnonzero(is_near)
            nearest = near[np.lexsort((others[near], -cosines[near]))]
            is_asked = cosines[nearest] < bands.ask_below
            row = int(snapshot.row[at])
            for other in (*nearest[~is_asked][:NEIGHBORS], *nearest[is_asked][:NEIGHBORS]):
                other_row = int(snapshot.row[others[other]])
                a, b = sorted((row, other_row))
                found[a, b] = min(float(cosines[other]), 1.0)
    ranked = sorted(found.items(), key=lambda each: (-round(each[1], 6), each[0]))
    return [(a, b, cosine) for (a, b), cosine in ranked[:MAX_PAIRS]]


def make_pair(a: Memory, b: Memory, cosine: float) -> Pair | None:
    """Return both as a pair, the older one first, or None if they cannot state the same fact.

    They have to be statements of one speaker about one subject. Insights are compared only with
    insights, and workflows are not compared. Words such as "tomorrow" depend on the day, so texts
    with them have to be of the same day.
    """
    if not a.is_active or not b.is_active:
        return None
    if "workflow" in (a.procedural_form, b.procedural_form):
        return None
    if a.speaker != b.speaker or (a.kind == "insight") != (b.kind == "insight"):
        return None
    if a.labels.subject != b.labels.subject or a.labels.role != b.labels.role:
        return None
    since = transitions.held_since
    old, new = sorted((a, b), key=lambda memory: (since(memory), memory.id))
    is_other_day = since(old).date() != since(new).date()
    if is_other_day and any(map(contradictions.is_relative, (old.text, new.text))):
        return None
    return Pair(old=old, new=new, cosine=cosine)


def is_same(pair: Pair, bands: Bands) -> bool:
    """Return whether both state the same fact according to the rules."""
    if pair.old.content_hash == pair.new.content_hash:
        return True
    old, new = pair.statements
    verdict = compare.verdict(new, old)
    if verdict == "same":
        return True
    if verdict != "other" and pair.cosine >= bands.auto_update:
        return True
    return pair.cosine >= bands.reworded and compare.is_reworded(old, new)


def choose(pair: Pair) -> tuple[Memory, Memory] | None:
    """Return the memory that stays and the one that goes; None if a person saved both.

    A manually saved memory stays; otherwise the one that says more, the longer one, or the older
    one.
    """
    old = pair.old
    new = pair.new
    if old.on_purpose and new.on_purpose:
        return None
    old_stays = old.on_purpose
    if pair.is_automatic:
        text = compare.pick_containing(*reversed(pair.statements))
        longer = max(old.text, new.text, key=len)
        old_stays = (text or longer) == old.text
    return (old, new) if old_stays else (new, old)


def merge(pair: Pair, now: datetime) -> list[Change]:
    """Keep one memory and add what the other has; return no changes if a person saved both."""
    chosen = choose(pair)
    if chosen is None:
        return []
    stays, goes = chosen
    merged = Save(
        memory=transitions.revise(stays, now, **transitions.absorbed_fields(stays, goes)),
        event="merged",
        old_ref=goes.id,
        actor=ACTOR,
        meta={"reason": "the same fact"},
    )
    return [merged, _supersede(goes, stays.id, now)]


def recreate(
    pair: Pair,
    text: str,
    now: datetime,
    vectors: Mapping[str, Vectors],
    model: str,
) -> list[Change]:
    """Replace both with a new memory whose text was composed from both."""
    ids = pair.old.id, pair.new.id
    fields = transitions.absorbed_fields(transitions.unshare(pair.new), pair.old)
    fields["evidence_ids"] = transitions.union(fields["evidence_ids"], ids)
    fields |= dict.fromkeys(_NOT_INHERITED)
    made = edit.reword(
        pair.new,
        text,
        **fields,
        id=new_id(),
        created_at=now,
        updated_at=now,
        access_count=0,
        revision=1,
    )
    meta = {"reason": "the same fact", "supersedes": [*ids]}
    about = {"old_ref": pair.new.id, "actor": ACTOR, "meta": meta}
    created = edit.to_save(made, vectors, model, "created", **about)
    gone = [_supersede(each, made.id, now, event="merged") for each in (pair.old, pair.new)]
    return [created, *gone]


def supersede(pair: Pair, now: datetime) -> list[Change]:
    """Let the newer value replace the older one, and record the contradiction."""
    old = pair.old
    new = pair.new
    if old.on_purpose:
        return []
    since = transitions.held_since(new)
    gone = _supersede(old, new.id, now, since=since, reason=CONTRADICTS)
    return [gone, Relation(from_id=new.id, to_id=old.id, type=CONTRADICTS, at=now)]


def _supersede(
    memory: Memory,
    by: str,
    now: datetime,
    *,
    event: Literal["superseded", "merged"] = "superseded",
    since: datetime | None = None,
    **meta: str,
) -> Save:
    gone = transitions.supersede(memory, now, by=by, since=since)
    return Save(memory=gone, event=event, actor=ACTOR, meta={**meta, "superseded_by": by})
