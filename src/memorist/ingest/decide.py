"""What becomes of each chunk: it is created, merged or skipped, or it updates or supersedes a memory.

A `Batch` holds what is known in one transaction: the memories that chunks may repeat or contradict,
and what has been decided so far, so that the next chunk of the same call meets it. Memories are
compared exactly, by fingerprint, or in other words with the same values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import nlargest
from typing import Any

from ..context import Context
from ..index import Snapshot
from ..storage import Change, Event, Relation, Save, SeenMessage
from ..storage.queries import Checks
from ..text import compare, contradictions, entities, normalize
from ..text.clock import new_id
from ..text.statements import parse
from ..types import CONTRADICTS, Memory, Outcome, Scope
from . import transitions
from .analyze import Chunk, is_kept, is_turn, novelty, novelty_importance, unified
from .guard import Item
from .policies import Bands, Policy

FORGOTTEN = "it was forgotten on request: save it on purpose to keep it again"
SAID_AGAIN = "said again"
MOST = 5  # memories that a chunk is compared with
MOST_TAGS = 3  # taken over from near memories
# Like all tags with a colon, these say something about one memory alone.
_OWN_TAGS = ("source-forgotten", "do_not_assume")
# What a new memory takes from its draft as it is.
_COPIED = """
    labels fact_type confidence source_ids evidence evidence_ids evidence_text source_session_id
    compression_source pinned manually_saved speaker
""".split()
# What a memory has gained by repetition, and a new memory in its place keeps.
_GAINED = """
    repeat_count importance base_importance manually_saved pinned confidence tags source_ids
    evidence evidence_ids
""".split()

Neighbors = Sequence[tuple[float, Memory]]  # with their cosine, nearest first


@dataclass(kw_only=True)
class Batch:
    """Drafts that are written in one transaction, what is known there, and what is decided."""

    ctx: Context
    scope: Scope
    policy: Policy
    now: datetime
    items: Sequence[Item]
    problem: str = ""  # why there are no vectors
    checks: Checks | None = None  # read under the write lock
    snapshot: Snapshot = field(init=False)  # of the scope before the write
    memories: dict[str, Memory] = field(default_factory=dict)  # that a chunk may repeat, by id
    rows: dict[str, int] = field(default_factory=dict)  # of those, by id
    near: dict[str, dict[str, float]] = field(default_factory=dict)  # cosines by text and id
    forgotten: frozenset[str] = frozenset()  # texts that must not be stored again
    keyed: dict[str, Memory] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)  # the last place taken in each session
    puts: dict[str, Save] = field(default_factory=dict)
    others: list[Change] = field(default_factory=list)
    messages: list[SeenMessage] = field(default_factory=list)

    @property
    def chunks(self) -> list[Chunk]:
        return [chunk for item in self.items for chunk in item.chunks]

    def neighbors(self, chunk: Chunk) -> Neighbors:
        """Return what a chunk is compared with, nearest first: in the store, and of this call."""
        found = dict(self.near.get(chunk.text, {}))
        written = {}
        for id, put in self.puts.items():
            if put.vector is not None:
                written[id] = 0.0 if chunk.vector is None else float(put.vector @ chunk.vector)
        found.update(nlargest(MOST, written.items(), key=lambda each: each[1]))
        usable = []
        for id, cosine in found.items():
            memory = self.memories[id]
            if memory.is_active and not is_turn(memory):
                usable.append((cosine, memory))
        return sorted(usable, key=lambda each: (-each[0], each[1].id))

    def save(self, put: Save) -> None:
        """Write a memory; the next chunk of this call meets it."""
        memory = put.memory
        policy = self.policy
        self.puts[memory.id] = put
        if memory.key:
            self.keyed[memory.key] = memory
        if policy.exact or policy.near or policy.bands or policy.conflicts:
            self.memories[memory.id] = memory
        session = memory.labels.session
        place = memory.sequence
        if session is not None and place is not None:
            self.places[session] = max(place, self.places.get(session, place))


def decide(chunk: Chunk, batch: Batch) -> Outcome:
    """Decide what becomes of a chunk, and note what is written for it."""
    policy = batch.policy
    is_forgotten = batch.forgotten and normalize.wording(chunk.text) in batch.forgotten
    if is_forgotten and not chunk.on_purpose:  # on purpose is the person's right
        return Outcome(status="refused", reason=FORGOTTEN)
    neighbors: Neighbors = ()
    if not chunk.is_turn and (policy.bands is not None or policy.conflicts):
        neighbors = batch.neighbors(chunk)
    old, verdict = find_duplicate(chunk, batch, neighbors)
    if old is not None:
        if policy.bands is None or chunk.is_turn:
            return _merge(old, chunk, batch)
        if policy.merge == "recreate" and old.content_hash != chunk.content_hash:
            repeated = transitions.repeat(old, chunk.draft, batch.now, chunk.tags)
            gained = {name: getattr(repeated, name) for name in _GAINED}
            memory = replace(build_memory(chunk, batch), **gained)
            return _supersede(old, memory, chunk, batch, SAID_AGAIN)
        return (_update if verdict == "more" else _merge)(old, chunk, batch)
    memory = build_memory(chunk, batch)
    if policy.gate and not is_kept(memory.importance, policy.gate, chunk.on_purpose):
        reason = f"importance {memory.importance:.2f} is below {policy.gate}"
        return Outcome(status="skipped", reason=reason)
    if chunk.key is not None and chunk.key in batch.keyed:
        return _merge(batch.keyed[chunk.key], chunk, batch)
    contradicted = _find_contradicted(chunk, batch, neighbors)
    if contradicted is not None:
        memory = replace(memory, pinned=memory.pinned or contradicted.pinned)
        return _supersede(contradicted, memory, chunk, batch, CONTRADICTS)
    model = batch.snapshot.model
    batch.save(
        Save(
            memory=memory,
            event="created",
            vector=chunk.vector,
            model=model,
        )
    )
    return Outcome(status="created", ids=(memory.id,))


def find_duplicate(
    chunk: Chunk,
    batch: Batch,
    neighbors: Neighbors,
) -> tuple[Memory | None, compare.Verdict]:
    """Return the memory that a chunk repeats, as it now stands, and whether the chunk says more.

    In this order: the same words, the nearest fingerprint that says the same, the nearest vector
    that says the same in other words; a very near one may say less.
    """
    policy = batch.policy
    close = []
    for memory in batch.memories.values():
        if not memory.is_active:
            continue
        is_same = policy.exact and memory.content_hash == chunk.content_hash
        if is_same and chunk.is_comparable(memory):
            return memory, "same"
        distance = (chunk.simhash ^ memory.simhash).bit_count()
        if distance <= normalize.NEAR:
            close.append((distance, memory.id, memory))
    for _, _, memory in sorted(close) if policy.near else ():
        verdict = compare_with(chunk, memory)
        if verdict != "other":
            return memory, verdict
    bands = policy.bands
    for cosine, memory in neighbors:
        if bands is None or cosine < bands.check_low:
            break
        verdict = compare_with(chunk, memory)
        if verdict == "same" or (verdict == "more" and cosine >= bands.auto_update):
            return memory, verdict
    return None, "other"


def compare_with(chunk: Chunk, memory: Memory) -> compare.Verdict:
    """Return whether a chunk says what a memory says, or a little more, or a little less."""
    if not chunk.is_comparable(memory):
        return "other"
    if chunk.content_hash == memory.content_hash:
        return "same"
    return compare.verdict(chunk.statement, parse(memory.text))


def _find_contradicted(chunk: Chunk, batch: Batch, neighbors: Neighbors) -> Memory | None:
    """Return the memory that a chunk replaces, because it gives another value to an attribute.

    What is said late about an earlier time replaces nothing, and "tomorrow" is another day on
    another day.
    """
    since = chunk.draft.at or chunk.draft.told_at or batch.now
    for _, memory in neighbors if chunk.clause is not None else ():
        held = transitions.held_since(memory)
        if since < held or not chunk.has_same_source(memory):
            continue
        if not contradictions.contradicts(chunk.statement, parse(memory.text)):
            continue
        both = f"{chunk.text} {memory.text}"
        if since.date() == held.date() or not contradictions.is_relative(both):
            return memory
    return None


def _merge(old: Memory, chunk: Chunk, batch: Batch) -> Outcome:
    """A memory says this already; it counts for more."""
    memory = transitions.repeat(old, chunk.draft, batch.now, chunk.tags)
    put = batch.puts.get(memory.id)
    if put is None:
        put = Save(memory=memory, event="merged", meta=chunk.during)
    else:  # Said twice in one call: it is one change, and counts as said again all the same.
        again = Event(
            node="episodic" if memory.kind == "episodic" else "hotpath",
            op="merge",
            at=batch.now,
            memory_id=memory.id,
            category=memory.category,
        )
        batch.others.append(again)
    batch.save(replace(put, memory=memory))
    return Outcome(status="merged", ids=(memory.id,), reason="said before")


def _update(old: Memory, chunk: Chunk, batch: Batch) -> Outcome:
    """A memory gets the text of the chunk; its earlier version is kept beside it."""
    now = batch.now
    snapshot = batch.snapshot
    put = batch.puts.get(old.id)
    vector = put.vector if put else None
    if put is None and old.id in batch.rows and not snapshot.is_lean:
        stored = snapshot.vectors(snapshot.positions([batch.rows[old.id]]))[0]
        vector = stored if stored.any() else None
    earlier = transitions.earlier_version(old, now, id=new_id())
    earlier = replace(earlier, needs_embedding=vector is None)
    memory = replace(
        transitions.repeat(old, chunk.draft, now, chunk.tags),
        text=chunk.text,
        content_hash=chunk.content_hash,
        simhash=chunk.simhash,
        summary=None,
        valid_from=now,
        needs_embedding=chunk.vector is None,
    )
    made = Save(
        memory=memory,
        event=put.event if put else "updated",
        vector=chunk.vector,
        model=snapshot.model,
        old_ref=earlier.id,
        meta={"fields": ["text"], "reason": "said again, with more", **chunk.during},
    )
    batch.save(
        Save(
            memory=earlier,
            event=None,
            vector=vector,
            model=snapshot.model,
        )
    )
    batch.save(made)
    return Outcome(status="updated", ids=(memory.id,), reason="said before, with less")


def _supersede(old: Memory, memory: Memory, chunk: Chunk, batch: Batch, reason: str) -> Outcome:
    """The chunk becomes a new memory that replaces an older one."""
    now = batch.now
    gone = transitions.supersede(old, now, by=memory.id, since=memory.valid_from)
    meta = {"reason": reason, "superseded_by": memory.id, **chunk.during}
    ended = Save(memory=gone, event="superseded", meta=meta)
    made = Save(
        memory=replace(memory, key=None),
        event="created",
        vector=chunk.vector,
        model=batch.snapshot.model,
        old_ref=old.id,
        meta={"reason": reason, "supersedes": old.id},
    )
    put = batch.puts.get(old.id)
    batch.save(replace(put, memory=gone) if put else ended)
    batch.save(made)
    why = f"it takes the place of {old.id}"
    if reason == CONTRADICTS:
        why = f"it contradicts {old.id}: confirm or reject it"
        batch.others.append(
            Relation(
                from_id=memory.id,
                to_id=old.id,
                type=CONTRADICTS,
                at=now,
            )
        )
    return Outcome(
        status="created",
        ids=(memory.id,),
        reason=why,
        supersedes=old.id,
    )


def build_memory(chunk: Chunk, batch: Batch) -> Memory:
    """Return a new memory of a chunk."""
    draft = chunk.draft
    policy = batch.policy
    told = draft.told_at or batch.now
    importance, parts = _score(chunk, batch)
    tags = chunk.tags
    confidence = chunk.confidence
    if proposed := _propose_tags(chunk, batch):
        tags, confidence = entities.tags([*chunk.about, *proposed])
    session = chunk.session
    form = "preference" if draft.steps_text is None else "workflow"
    is_procedural = chunk.kind == "procedural"
    copied: dict[str, Any] = {name: getattr(draft, name) for name in _COPIED}
    return Memory(
        id=draft.id if draft.id is not None and draft.id not in batch.puts else new_id(),
        scope=batch.scope,
        text=chunk.text,
        kind=chunk.kind,
        created_at=draft.at if policy.dated and draft.at else told,
        updated_at=told,
        item_type=chunk.item_type,
        category=chunk.category,
        steps_text=draft.steps_text if is_procedural else None,
        procedural_form=form if is_procedural else None,
        key=chunk.key,
        importance=importance,
        base_importance=importance,
        importance_parts=parts,
        metadata_confidence=confidence,
        tags=tuple(dict.fromkeys([*map(str.lower, draft.tags), *tags])),
        source_message_id=draft.message_id,
        simhash=chunk.simhash,
        content_hash=chunk.content_hash,
        sequence=None if session is None else batch.places.get(session, -1) + 1,
        occurred_at=draft.at,
        valid_from=draft.at or told,
        needs_embedding=chunk.vector is None,
        **copied,
    )


def _score(chunk: Chunk, batch: Batch) -> tuple[float, Mapping[str, float]]:
    """Return the importance of a chunk by the policy's measure, and its parts."""
    given = chunk.draft.importance
    heuristic = chunk.heuristic
    measure = batch.policy.score
    if measure == "given" or (measure == "heuristic" and given is not None):
        usual = batch.policy.usual_importance if given is None else given
        return usual, {"given": usual}
    if measure == "heuristic":
        return heuristic, {"heuristics": heuristic}
    new = 1.0
    if chunk.vector is not None:
        new = novelty(chunk.vector, batch.snapshot.centroid)
    parts = {"novelty": new, "salience": chunk.salience}
    by_novelty = novelty_importance(new, chunk.salience)
    if measure == "novelty":
        return by_novelty, parts
    parts |= {"heuristics": heuristic, "given": given or 0.0}
    return unified(by_novelty, heuristic, given or 0.0), parts


def _propose_tags(chunk: Chunk, batch: Batch) -> list[entities.Entity]:
    """Return the tags that most of the near stored memories have, weighted by their cosine.

    Only what one speaker said in one role about one subject lends tags to each other. A tag that
    stands in the words of a neighbor is its own: what is near to "Anna likes tea" need not be about
    Anna.
    """
    votes: dict[str, float] = {}
    count = 0
    total = 0.0
    low = (batch.policy.bands or Bands()).check_low
    for id, cosine in batch.near.get(chunk.text, {}).items() if chunk.takes_tags else ():
        memory = batch.memories[id]
        if cosine < low or not memory.is_active:
            continue
        if memory.item_type != chunk.draft.item_type or not chunk.has_same_source(memory):
            continue
        count += 1
        total += cosine
        words = memory.text.casefold()
        for tag in memory.tags:
            if tag not in words and tag not in _OWN_TAGS and ":" not in tag:
                votes[tag] = votes.get(tag, 0.0) + cosine
    best = sorted((-vote, tag) for tag, vote in votes.items() if 2 * vote >= total)[:MOST_TAGS]
    return [entities.Entity(text=tag, confidence=-vote / count) for vote, tag in best]
