"""What becomes of each chunk, as a value: create, merge, update, supersede or skip.

A `WriteSession` holds what is known in one transaction: the memories that chunks may repeat, and
what has been decided so far, so that the next chunk of the same call meets it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import nlargest
from typing import Literal

from ..index import Snapshot
from ..ports import Vectors
from ..storage.changes import Change, Event, Relation, Save, SeenMessage
from ..storage.transaction import Transaction
from ..text import entities, normalize
from ..text.clock import new_id
from ..types import CONTRADICTS, Memory, Scope
from . import candidates, classify, transitions
from .analyze import Chunk, is_turn, score
from .candidates import Duplicate, NearRows
from .policies import Bands, Policy

FORGOTTEN = "it was forgotten on request: save it on purpose to keep it again"
SAID_AGAIN = "said again"
# What a memory has gained by repetition, and a new memory in its place keeps.
_GAINED = (
    "repeat_count",
    "importance",
    "base_importance",
    "manually_saved",
    "pinned",
    "confidence",
    "tags",
    "source_ids",
    "evidence",
    "evidence_ids",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """The chunk is not stored."""

    status: Literal["skipped", "refused"]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """The chunk becomes a new memory."""

    memory: Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A memory says this already; it counts for more."""

    memory: Memory  # afterwards


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A memory gets the text of the chunk; its earlier version is kept beside it."""

    memory: Memory  # afterwards
    earlier: Memory
    earlier_vector: Vectors | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Supersede:
    """The chunk becomes a new memory that replaces an older one."""

    memory: Memory
    old: Memory  # afterwards
    reason: str  # SAID_AGAIN or CONTRADICTS


Decision = Skip | Create | Merge | Update | Supersede


@dataclass(kw_only=True)
class WriteSession:
    """What is known in one transaction, and what it is about to write."""

    scope: Scope
    policy: Policy
    now: datetime
    snapshot: Snapshot
    model: str = ""
    new_id: Callable[[], str] = new_id
    memories: dict[str, Memory] = field(default_factory=dict)  # that a chunk may repeat, by id
    ids: dict[int, str] = field(default_factory=dict)  # of those, by row
    near: NearRows = field(default_factory=dict)  # what each chunk is compared with
    forgotten: set[str] = field(default_factory=set)  # texts that must not be stored again
    keyed: dict[str, Memory] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)  # the last place taken in each session
    puts: dict[str, Save] = field(default_factory=dict)
    others: list[Change] = field(default_factory=list)
    messages: list[SeenMessage] = field(default_factory=list)

    def neighbors(self, chunk: Chunk) -> list[tuple[float, Memory]]:
        """Return what a chunk is compared with, nearest first: in the store, and of this call."""
        found = {}
        for row, cosine in self.near.get(chunk.text, {}).items():
            if row in self.ids:
                found[self.ids[row]] = cosine
        written = {}
        for id, put in self.puts.items():
            if put.vector is not None:
                written[id] = 0.0 if chunk.vector is None else float(put.vector @ chunk.vector)
        found.update(nlargest(candidates.MOST, written.items(), key=lambda each: each[1]))
        usable = []
        for id, cosine in found.items():
            memory = self.memories[id]
            if memory.is_active and not is_turn(memory):
                usable.append((cosine, memory))
        return sorted(usable, key=lambda each: (-each[0], each[1].id))

    def add(self, chunk: Chunk, decision: Decision) -> None:
        """Extend what is known, and what is to be written, by a decision."""
        during = {"session": chunk.session} if chunk.session else {}
        match decision:
            case Create(memory=memory):
                self._put_new(Save(memory=memory, event="created", vector=chunk.vector))
            case Merge(memory=memory):
                self._merge(memory, during)
            case Update(memory=memory, earlier=earlier):
                put = self.puts.get(memory.id)
                vector = decision.earlier_vector
                self._put(Save(memory=earlier, event=None, vector=vector, model=self.model))
                self._put(
                    Save(
                        memory=memory,
                        event=put.event if put else "updated",
                        vector=chunk.vector,
                        model=self.model,
                        old_ref=earlier.id,
                        meta={"fields": ["text"], "reason": "said again, with more", **during},
                    )
                )
            case Supersede(memory=memory, old=old, reason=reason):
                put = self.puts.get(old.id)
                meta = {"reason": reason, "superseded_by": memory.id, **during}
                gone = Save(memory=old, event="superseded", meta=meta)
                self._put(replace(put, memory=old) if put else gone)
                meta = {"reason": reason, "supersedes": old.id}
                made = Save(memory=memory, event="created", vector=chunk.vector, meta=meta)
                self._put_new(replace(made, old_ref=old.id))
                if reason == CONTRADICTS:
                    self.others.append(
                        Relation(from_id=memory.id, to_id=old.id, type=CONTRADICTS, at=self.now)
                    )

    def _merge(self, memory: Memory, during: dict[str, str]) -> None:
        put = self.puts.get(memory.id)
        if put is None:
            self._put(Save(memory=memory, event="merged", meta=during))
            return
        # Said twice in one call: it is one change, and counts as said again all the same.
        self._put(replace(put, memory=memory))
        self.others.append(
            Event(
                node="episodic" if memory.kind == "episodic" else "hotpath",
                op="merge",
                at=self.now,
                memory_id=memory.id,
                category=memory.category,
            )
        )

    def _put_new(self, put: Save) -> None:
        memory = put.memory
        if memory.sequence is not None and memory.labels.session is not None:
            self.places[memory.labels.session] = memory.sequence
        self._put(replace(put, model=self.model))

    def _put(self, put: Save) -> None:
        memory, policy = put.memory, self.policy
        self.puts[memory.id] = put
        if memory.key:
            self.keyed[memory.key] = memory
        if policy.exact or policy.near or policy.bands or policy.conflicts:
            self.memories[memory.id] = memory

    def note(self, chunk: Chunk, ids: Sequence[str]) -> None:
        """Add two events: whether the chunk was kept, and how near the nearest memory came.

        Turns of a conversation leave none.
        """
        made = next((self.puts[id].memory for id in ids if id in self.puts), None)
        if made is not None and made.kind == "episodic":
            return
        labels = chunk.draft.labels
        event = Event(
            node="hotpath",
            op="classify",
            at=self.now,
            thread=labels.thread or labels.session,
            category=made.category if made else None,
            status="ok" if ids else "skipped",
        )
        best = max(self.near.get(chunk.text, {}).values(), default=None)
        status: Literal["skipped", "ok"] = "skipped" if chunk.vector is None else "ok"
        searched = replace(event, op="search", sim=best, category=None, status=status)
        self.others += [event, searched]


async def load(
    tx: Transaction,
    scope: Scope,
    snapshot: Snapshot,
    chunks: Sequence[Chunk],
    *,
    policy: Policy,
    now: datetime,
    model: str,
) -> WriteSession:
    """Read everything that the chunks may meet, in a few queries."""
    known = WriteSession(scope=scope, policy=policy, now=now, snapshot=snapshot, model=model)
    known.near = candidates.find_near_rows(snapshot, chunks, policy)
    if policy.exact:
        same = await tx.same_text(scope, {chunk.content_hash for chunk in chunks})
        for memories in same.values():
            known.memories.update((memory.id, memory) for memory in memories)
    rows = {row for found in known.near.values() for row in found}
    if policy.near:
        rows |= candidates.find_near_fingerprints(snapshot, chunks)
    if rows:
        for row, memory in (await tx.at_rows(scope, sorted(rows))).items():
            known.memories[memory.id] = memory
            known.ids[row] = memory.id
    # A generator: the texts are made only where something was ever forgotten.
    texts = (normalize.wording(chunk.text) for chunk in chunks)
    known.forgotten = set(await tx.tombstones(scope, texts, now))
    if keys := [chunk.key for chunk in chunks if chunk.key is not None]:
        known.keyed = await tx.by_key(scope, keys)
    for session in {chunk.session for chunk in chunks}:
        if session is not None:
            known.places[session] = await tx.last_sequence(scope, session)
    return known


def decide(chunk: Chunk, known: WriteSession) -> Decision:
    """Decide what becomes of a chunk."""
    policy, draft, now = known.policy, chunk.draft, known.now
    may_return = draft.on_purpose or not known.forgotten  # on purpose is the person's right
    if not may_return and normalize.wording(chunk.text) in known.forgotten:
        return Skip(status="refused", reason=FORGOTTEN)
    duplicate = find_duplicate(chunk, known)
    if duplicate is not None and not _is_renewed(duplicate, chunk, policy):
        return Merge(memory=transitions.repeat(duplicate.memory, draft, now, chunk.tags))
    if duplicate is not None:
        return _renew(duplicate.memory, chunk, known)
    if policy.gate:
        importance, _ = score(chunk, policy, known.snapshot.centroid)
        if not classify.is_kept(importance, policy.gate, on_purpose=draft.on_purpose):
            reason = f"importance {importance:.2f} is below {policy.gate}"
            return Skip(status="skipped", reason=reason)
    if chunk.key is not None and chunk.key in known.keyed:
        same = known.keyed[chunk.key]
        return Merge(memory=transitions.repeat(same, draft, now, chunk.tags))
    if policy.conflicts and not chunk.is_turn:
        old = candidates.find_contradicted(chunk, known.neighbors(chunk), now)
        if old is not None:
            memory = build_memory(chunk, known)
            memory = replace(memory, pinned=memory.pinned or old.pinned)
            return _supersede(old, memory, known, CONTRADICTS)
    return Create(memory=build_memory(chunk, known))


def find_duplicate(chunk: Chunk, known: WriteSession) -> Duplicate | None:
    """Return the memory that a chunk repeats, as it now stands."""
    policy = known.policy
    said = []
    for memory in known.memories.values():
        is_near = chunk.session is None or memory.labels.session == chunk.session
        if is_near and memory.is_active and memory.speaker == chunk.draft.speaker:
            said.append(memory)
    found = candidates.find_exact(chunk, said) if policy.exact else None
    if found is None and policy.near:
        found = candidates.find_by_fingerprint(chunk, said)
    if found is None and policy.bands is not None and not chunk.is_turn:
        found = candidates.find_reworded(chunk, known.neighbors(chunk), policy.bands)
    return found


def _is_renewed(duplicate: Duplicate, chunk: Chunk, policy: Policy) -> bool:
    """Return whether the newer text is to replace the older, and is not only said again."""
    if policy.bands is None or chunk.is_turn:
        return False
    if duplicate.verdict == "more":
        return True
    return policy.merge == "recreate" and duplicate.memory.content_hash != chunk.content_hash


def _renew(old: Memory, chunk: Chunk, known: WriteSession) -> Update | Supersede:
    """Replace a memory that said the same, or less; what it had gained is kept."""
    now = known.now
    repeated = transitions.repeat(old, chunk.draft, now, chunk.tags)
    if known.policy.merge == "recreate":
        gained = {name: getattr(repeated, name) for name in _GAINED}
        return _supersede(old, replace(build_memory(chunk, known), **gained), known, SAID_AGAIN)
    vector = _find_vector(old, known)
    earlier = transitions.earlier_version(old, now, id=known.new_id())
    memory = replace(
        repeated,
        text=chunk.text,
        content_hash=chunk.content_hash,
        simhash=chunk.simhash,
        summary=None,
        valid_from=now,
        needs_embedding=chunk.vector is None,
    )
    earlier = replace(earlier, needs_embedding=vector is None)
    return Update(memory=memory, earlier=earlier, earlier_vector=vector)


def _supersede(old: Memory, memory: Memory, known: WriteSession, reason: str) -> Supersede:
    gone = transitions.supersede(old, known.now, by=memory.id, since=memory.valid_from)
    return Supersede(memory=replace(memory, key=None), old=gone, reason=reason)


def _find_vector(memory: Memory, known: WriteSession) -> Vectors | None:
    """Return the vector of a memory, as far as it is at hand."""
    if memory.id in known.puts:
        given: Vectors | None = known.puts[memory.id].vector
        return given
    snapshot = known.snapshot
    positions = snapshot.positions([row for row, id in known.ids.items() if id == memory.id])
    if not len(positions) or snapshot.is_lean:
        return None
    vector: Vectors = snapshot.vectors(positions)[0]
    return vector if vector.any() else None


def build_memory(chunk: Chunk, known: WriteSession) -> Memory:
    """Return a new memory of a chunk."""
    draft, policy = chunk.draft, known.policy
    told = draft.told_at or known.now
    importance, parts = score(chunk, policy, known.snapshot.centroid)
    tags, confidence = entities.tags([*chunk.about, *_propose_tags(chunk, known)])
    session = chunk.session
    form = "preference" if draft.steps_text is None else "workflow"
    is_procedural = chunk.kind == "procedural"
    return Memory(
        id=draft.id if draft.id is not None and draft.id not in known.puts else known.new_id(),
        scope=known.scope,
        text=chunk.text,
        kind=chunk.kind,
        created_at=draft.at if policy.dated and draft.at else told,
        updated_at=told,
        labels=draft.labels,
        item_type=chunk.item_type,
        fact_type=draft.fact_type,
        category=chunk.category,
        steps_text=draft.steps_text if is_procedural else None,
        procedural_form=form if is_procedural else None,
        key=chunk.key,
        importance=importance,
        base_importance=importance,
        importance_parts=parts,
        confidence=draft.confidence,
        metadata_confidence=confidence,
        tags=tuple(dict.fromkeys([*map(str.lower, draft.tags), *tags])),
        source_ids=draft.source_ids,
        evidence=draft.evidence,
        evidence_ids=draft.evidence_ids,
        evidence_text=draft.evidence_text,
        source_message_id=draft.message_id,
        source_session_id=draft.source_session_id,
        compression_source=draft.compression_source,
        pinned=draft.pinned,
        manually_saved=draft.manually_saved,
        simhash=chunk.simhash,
        content_hash=chunk.content_hash,
        sequence=None if session is None else known.places.get(session, -1) + 1,
        speaker=draft.speaker,
        occurred_at=draft.at,
        valid_from=draft.at or told,
        needs_embedding=chunk.vector is None,
    )


def _propose_tags(chunk: Chunk, known: WriteSession) -> list[entities.Entity]:
    """Return tags of the stored memories that the chunk was compared with."""
    near, policy = known.near.get(chunk.text), known.policy
    if not near or chunk.session is not None or policy.score not in ("unified", "theoria"):
        return []
    low = (policy.bands or Bands()).check_low
    neighbors = []
    for row, cosine in near.items():
        if cosine >= low and row in known.ids:
            memory = known.memories[known.ids[row]]
            if memory.is_active:
                neighbors.append((cosine, memory))
    return candidates.propose_tags(chunk, neighbors)
