"""The decision on each chunk: create, merge or skip it, or update or supersede a memory with it.

Memories are compared by exact text, by fingerprint, or by meaning with the same values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..storage import Event, Relation, Save
from ..text import compare, contradictions, entities, normalize
from ..text.clock import new_id
from ..text.statements import parse
from ..types import CONTRADICTS, REPLACES, Memory, Outcome
from . import current, known_changes, transitions
from .analyze import (
    CHIT_CHAT,
    Chunk,
    is_chit_chat,
    is_kept,
    novelty,
    novelty_importance,
    unified,
)
from .candidates import Batch, Neighbors
from .policies import Bands, Policy

FORGOTTEN = "it was forgotten on request: save it explicitly to keep it again"
EXPIRED = "it has already expired, so it is not recalled: `expires_at` is in the past"
SAID_AGAIN = "said again"
MOST_TAGS = 3  # taken over from near memories
# Like all tags with a colon, these apply to a single memory.
_OWN_TAGS = ("source-forgotten", "do_not_assume")
# Fields that a new memory copies from its draft.
_COPIED = """
    labels fact_type confidence source_ids evidence evidence_ids evidence_text source_session_id
    compression_source pinned speaker valid_to metadata expires_at
""".split()
# Fields that change by repetition, and that a memory passes on to its replacement.
_GAINED = """
    repeat_count importance base_importance manually_saved pinned confidence tags source_ids
    evidence evidence_ids metadata expires_at
""".split()


def decide(chunk: Chunk, batch: Batch) -> Outcome:
    """Decide on a chunk, and add what is written for it to the batch."""
    policy = batch.policy
    if chunk.text in batch.forgotten and not chunk.on_purpose:
        return Outcome(status="refused", reason=FORGOTTEN)
    alike, neighbors = batch.find(chunk)
    old, verdict = find_duplicate(chunk, policy, alike, neighbors)
    if old is not None:
        sources = chunk.draft.evidence_ids
        if sources and set(sources) <= {old.id, *old.evidence_ids}:
            return Outcome(status="skipped", ids=(old.id,), reason="it is known from this source")
        if policy.bands is None or chunk.is_turn:
            return _merge(old, chunk, batch)
        is_reworded = old.content_hash != chunk.content_hash
        may_replace = current.may_replace(old, chunk, batch)
        if policy.merge == "recreate" and is_reworded and may_replace:
            unshared = transitions.unshare(old)
            repeated = transitions.repeat(unshared, chunk.draft, batch.now, chunk.tags)
            gained = {name: getattr(repeated, name) for name in _GAINED}
            memory = replace(build_memory(chunk, batch), **gained)
            return _supersede(old, memory, chunk, batch, SAID_AGAIN)
        if verdict == "more":
            return _update(old, chunk, batch)
        return _merge(old, chunk, batch)
    memory = build_memory(chunk, batch)
    if policy.gate and not is_kept(memory.importance, policy.gate, chunk.on_purpose):
        reason = f"importance {memory.importance:.2f} is below {policy.gate}"
        return Outcome(status="skipped", reason=reason)
    if chunk.key is not None and chunk.key in batch.keyed:
        return _merge(batch.keyed[chunk.key], chunk, batch)
    contradicted = _find_contradicted(chunk, batch, neighbors)
    change = contradicted and known_changes.find_source(chunk, contradicted, batch)
    if contradicted is not None and change:
        turn, ends = change
        if ends:
            pair = Relation(from_id=turn, to_id=contradicted.id, type=REPLACES, at=batch.now)
            batch.others.append(pair)
            return _supersede(contradicted, memory, chunk, batch, REPLACES)
        contradicted = None
    if (
        contradicted is not None
        and not contradicted.pinned
        and current.may_replace(contradicted, chunk, batch)
    ):
        return _supersede(contradicted, memory, chunk, batch, CONTRADICTS)
    put = Save(
        memory=memory,
        event="created",
        vector=chunk.vector,
        model=batch.snapshot.model,
    )
    chunk.id = memory.id
    batch.save(put)
    if contradicted is None and not chunk.older:
        is_over = memory.expires_at is not None and memory.expires_at <= batch.now
        return Outcome(status="created", ids=(memory.id,), reason=EXPIRED if is_over else "")
    return current.replace_older(chunk, batch, memory.id, contradicted)


def find_duplicate(
    chunk: Chunk,
    policy: Policy,
    alike: Iterable[Memory],
    neighbors: Neighbors,
) -> tuple[Memory | None, compare.Verdict]:
    """Return the memory that a chunk repeats, in its current version, and how they compare.

    In this order: the same text, the nearest fingerprint with the same statement, the nearest
    vector with the same statement. A very near memory may also say less than the chunk.
    """
    close = []
    for memory in alike:
        if not memory.is_active:
            continue
        is_same = memory.content_hash == chunk.content_hash
        if is_same and policy.exact and chunk.is_comparable(memory):
            return memory, "same"
        different = chunk.simhash ^ memory.simhash
        distance = different.bit_count()
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
    """Return whether a chunk says the same as a memory, more, or something else."""
    if not chunk.is_comparable(memory):
        return "other"
    if chunk.content_hash == memory.content_hash:
        return "same"
    return compare.verdict(chunk.statement, parse(memory.text))


def _find_contradicted(chunk: Chunk, batch: Batch, neighbors: Neighbors) -> Memory | None:
    """Return the memory that a chunk replaces because it gives another value to an attribute.

    A chunk about an earlier time, or that has ended, replaces nothing, and relative dates are
    compared only if both were said on the same day.
    """
    ends = chunk.draft.valid_to
    if chunk.clause is None or not neighbors or (ends is not None and ends <= batch.now):
        return None
    since = batch.valid_since(chunk)
    for _, memory in neighbors:
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
    """Add a repetition to a memory that says this already."""
    memory = transitions.repeat(old, chunk.draft, batch.now, chunk.tags)
    put = batch.puts.get(memory.id)
    if put is None:
        put = Save(memory=memory, event="merged", meta=chunk.during)
    else:  # repeated within one call: one change, but the repetition still counts
        again = Event(
            node="episodic" if memory.kind == "episodic" else "hotpath",
            op="merge",
            at=batch.now,
            memory_id=memory.id,
            category=memory.category,
        )
        batch.others.append(again)
    merged = put.merged
    if chunk.content_hash != old.content_hash:
        merged += (chunk.text,)
    batch.save(replace(put, memory=memory, merged=merged))
    return Outcome(status="merged", ids=(memory.id,), reason="said before")


def _update(old: Memory, chunk: Chunk, batch: Batch) -> Outcome:
    """Give a memory the text of the chunk, and keep its earlier version."""
    now = batch.now
    snapshot = batch.snapshot
    put = batch.puts.get(old.id)
    vector = put.vector if put else None
    if put is None and old.id in batch.rows and snapshot.matrix is not None:
        positions = snapshot.positions([batch.rows[old.id]])
        stored = snapshot.vectors(positions)[0]
        vector = stored if stored.any() else None
    earlier = transitions.earlier_version(old, now, id=new_id())
    earlier = replace(earlier, needs_embedding=vector is None)
    memory = replace(
        transitions.repeat(transitions.unshare(old), chunk.draft, now, chunk.tags),
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
    replaced = Save(memory=earlier, event=None, vector=vector, model=snapshot.model)
    batch.save(replaced)
    batch.save(made)
    return Outcome(status="updated", ids=(memory.id,), reason="said before, with less")


def _supersede(old: Memory, memory: Memory, chunk: Chunk, batch: Batch, reason: str) -> Outcome:
    """Create a memory of the chunk that replaces an older one."""
    now = batch.now
    gone = transitions.supersede(old, now, by=memory.id, since=memory.valid_from)
    put = batch.puts.get(old.id)
    if put is None:
        meta = {"reason": reason, "superseded_by": memory.id, **chunk.during}
        put = Save(memory=gone, event="superseded", meta=meta)
    batch.save(replace(put, memory=gone))
    made = Save(
        memory=replace(memory, key=None),
        event="created",
        vector=chunk.vector,
        model=batch.snapshot.model,
        old_ref=old.id,
        meta={"reason": reason, "supersedes": old.id},
    )
    chunk.id = memory.id
    batch.save(made)
    why = f"it replaces {old.id}"
    if reason == CONTRADICTS:
        why = f"it contradicts {old.id}{current.DECIDE}"
        relation = Relation(from_id=memory.id, to_id=old.id, type=CONTRADICTS, at=now)
        batch.others.append(relation)
    return Outcome(status="created", ids=(memory.id,), reason=why, supersedes=old.id)


def build_memory(chunk: Chunk, batch: Batch) -> Memory:
    """Return a new memory built from a chunk."""
    draft = chunk.draft
    policy = batch.policy
    submitted = draft.told_at or batch.now
    importance, parts = _score(chunk, batch)
    tags = chunk.tags
    confidence = chunk.confidence
    if proposed := _propose_tags(chunk, batch):
        tags, confidence = entities.tags([*chunk.about, *proposed])
    session = chunk.session
    sequence = None
    if session is not None:
        sequence = batch.places.get(session, -1) + 1
    form = None
    if chunk.kind == "procedural":
        form = "preference" if draft.steps_text is None else "workflow"
    id = draft.id
    if id is None or id in batch.puts:
        id = new_id()
    copied: dict[str, Any] = {name: getattr(draft, name) for name in _COPIED}
    copied["manually_saved"] = chunk.on_purpose
    named = map(str.lower, draft.tags)
    return Memory(
        id=id,
        scope=batch.scope,
        text=chunk.text,
        kind=chunk.kind,
        created_at=draft.at if policy.dated and draft.at else submitted,
        updated_at=submitted,
        item_type=chunk.item_type,
        category=chunk.category,
        steps_text=draft.steps_text if form else None,
        procedural_form=form,
        key=chunk.key,
        importance=importance,
        base_importance=importance,
        importance_parts=parts,
        metadata_confidence=confidence,
        tags=tuple(dict.fromkeys([*named, *tags])),
        source_message_id=draft.message_id,
        simhash=chunk.simhash,
        content_hash=chunk.content_hash,
        sequence=sequence,
        occurred_at=draft.at,
        valid_from=draft.at or submitted,
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
        parts = {"heuristics": heuristic}
        if is_chit_chat(chunk.text):
            parts["chit_chat"] = CHIT_CHAT
        return heuristic, parts
    new = 1.0
    if chunk.vector is not None:
        new = novelty(chunk.vector, batch.snapshot.centroid)
    parts = {"novelty": new, "salience": chunk.salience}
    by_novelty = novelty_importance(new, chunk.salience)
    if measure == "novelty":
        return by_novelty, parts
    parts |= {"heuristics": heuristic, "given": given or 0.0}
    # What the person saves is more important than without that, whichever measure is the highest.
    # An importance that the caller gives is not raised.
    saved = transitions.SAVED if chunk.on_purpose and given is None else 0.0
    highest = unified(by_novelty, heuristic - saved, given or 0.0)
    return min(1.0, round(highest + saved, 12)), parts


def _propose_tags(chunk: Chunk, batch: Batch) -> list[entities.Entity]:
    """Return the tags that the near stored memories propose.

    Tags are taken only from memories with the same speaker, role and subject.
    """
    if not chunk.takes_tags:
        return []
    bands = batch.policy.bands or Bands()
    near = batch.near.get(chunk.text, {})
    if chunk.is_turn:
        near = {older.id: cosine for older, cosine in chunk.older if isinstance(older, Memory)}
    found = []
    for id, cosine in near.items():
        memory = batch.memories[id]
        if cosine < bands.check_low or not memory.is_active:
            continue
        is_same_type = memory.item_type == chunk.draft.item_type
        if is_same_type and chunk.has_same_source(memory):
            found.append((memory, cosine))
    return vote(found)


def vote(near: Sequence[tuple[Memory, float]]) -> list[entities.Entity]:
    """Return the tags that most of the near memories share, weighted by their cosine.

    A tag that occurs in the text of a neighbor belongs to that text: what is near to "Anna likes
    tea" need not be about Anna.
    """
    votes: dict[str, float] = {}
    total = 0.0
    for memory, cosine in near:
        total += cosine
        words = memory.text.casefold()
        for tag in memory.tags:
            if tag not in words and tag not in _OWN_TAGS and ":" not in tag:
                votes[tag] = votes.get(tag, 0.0) + cosine
    best = sorted(votes, key=lambda tag: (-votes[tag], tag))[:MOST_TAGS]
    shared = [tag for tag in best if 2 * votes[tag] >= total]
    return [entities.Entity(text=tag, confidence=votes[tag] / len(near)) for tag in shared]
