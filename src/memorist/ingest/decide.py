"""Where one transaction decides: what is known, what it is about to write, and so what the next chunk meets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from heapq import nlargest
from typing import Any

from ..index import Corpus
from ..ports import Transaction, Vectors
from ..storage.changes import Change, Happened, Put, Relation
from ..text import contradictions, entities, normalize
from ..text.statements import Statement, parse
from ..types import CONTRADICTS, Draft, Memory, Node, Outcome, Scope
from . import candidates as kin
from . import duplicates
from .chunk import Chunk
from .classify import Classification, proposed
from .duplicates import Duplicate
from .policies import Bands, Policy


@dataclass(kw_only=True)
class WriteSession:
    """The state of one write; it ends with the transaction."""

    scope: Scope
    policy: Policy
    now: datetime
    new_id: Callable[[], str]
    corpus: Corpus
    known: dict[str, Memory]  # memories of the store that some chunk may repeat, by id
    forgotten: set[str]  # normalised texts that must not come back
    keyed: dict[str, Memory]
    near: kin.Near = field(default_factory=lambda: kin.Near({}))  # what each chunk is compared with
    rows: dict[int, str] = field(default_factory=dict)  # the ids of the known by their row
    puts: dict[str, Put] = field(default_factory=dict)
    extra: list[Change] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)  # the last place taken in each session

    @property
    def changes(self) -> list[Change]:
        return [*self.puts.values(), *self.extra]

    def is_forgotten(self, chunk: Chunk) -> bool:
        """An automatic write of a forgotten text; saving it on purpose is the person's right."""
        if not self.forgotten or chunk.draft.on_purpose:
            return False
        return normalize.wording(chunk.text) in self.forgotten

    def duplicate(self, chunk: Chunk, vector: Vectors | None) -> Duplicate | None:
        """The memory that this chunk repeats, as it stands on the writes."""
        speaker, session = chunk.draft.speaker, chunk.draft.labels.session
        said = (m for m in self.known.values() if m.speaker == speaker and m.is_active)
        candidates = [m for m in said if session is None or m.labels.session == session]
        found: Duplicate | None = None
        if self.policy.exact:
            found = duplicates.exact(
                chunk, (m for m in candidates if m.content_hash == chunk.content_hash)
            )
        if found is None and self.policy.near:
            found = duplicates.near(chunk, candidates)
        if found is None and self.policy.bands is not None and not kin.is_turn(chunk):
            found = duplicates.banded(chunk, self._kin(chunk, vector), self.policy.bands)
        return found

    def rival(self, chunk: Chunk, vector: Vectors | None) -> Memory | None:
        """The memory whose place this chunk takes, because it gives another value to the same attribute."""
        if not self.policy.conflicts or kin.is_turn(chunk):
            return None
        if chunk.statement.clause is None:
            return None
        for _, memory in self._kin(chunk, vector):
            if duplicates.of_one(chunk, memory) and self._takes_its_place(
                chunk, chunk.statement, memory
            ):
                return memory
        return None

    def _takes_its_place(self, chunk: Chunk, new: Statement, memory: Memory) -> bool:
        """What is told late about an earlier time does not, and "tomorrow" is another day on another day."""
        since, held = (
            chunk.draft.at or chunk.draft.told_at or self.now,
            memory.valid_from or memory.created_at,
        )
        old = parse(memory.text)
        if since < held or not contradictions.contradicts(new, old):
            return False
        return since.date() == held.date() or not contradictions.is_relative(
            f"{chunk.text} {memory.text}"
        )

    def _kin(self, chunk: Chunk, vector: Vectors | None) -> list[tuple[float, Memory]]:
        """What the chunk is compared with, nearest first: in the store, and told in the same call."""
        near = self.near.rows.get(chunk.text, {})
        found = {id: cosine for row, cosine in near.items() if (id := self.rows.get(row))}
        told = {
            id: _cosine(put.vector, vector)
            for id, put in self.puts.items()
            if put.vector is not None
        }
        found |= dict(nlargest(kin.MOST, told.items(), key=lambda each: each[1]))
        usable = [
            (cosine, memory) for id, cosine in found.items() if (memory := self.known[id]).is_active
        ]
        usable = [each for each in usable if not kin.is_turn(each[1])]
        return sorted(usable, key=lambda each: (-each[0], each[1].id))

    def renews(self, duplicate: Duplicate, chunk: Chunk) -> bool:
        """Whether the newer text is to stand in the place of the older, and is not only said again."""
        if self.policy.bands is None or kin.is_turn(chunk):
            return False
        return duplicate.verdict == "more" or (
            self.policy.merge == "recreate" and not _same_text(duplicate.memory, chunk)
        )

    def update(self, memory: Memory, chunk: Chunk, vector: Vectors | None, model: str) -> Memory:
        """Give a memory the newer text; the version before is kept beside it."""
        put, merged = (
            self.puts.get(memory.id),
            duplicates.merged(memory, chunk, self.now, self.tags(chunk)[0]),
        )
        known = self._vector(memory)
        before = replace(
            memory, id=self.new_id(), state="superseded", superseded_by=memory.id, key=None
        )
        before = replace(before, valid_to=self.now, needs_embedding=known is None)
        again = replace(
            merged,
            text=chunk.text,
            content_hash=chunk.content_hash,
            simhash=chunk.simhash,
            summary=None,
            valid_from=self.now,
            needs_embedding=vector is None,
        )
        self._put(Put(memory=before, event=None, vector=known, model=model))
        event = put.event if put else "updated"
        meta = {
            "fields": ["text"],
            "reason": "said again, with more",
            **_during(chunk.draft.labels.session),
        }
        self._put(
            Put(memory=again, event=event, vector=vector, model=model, old_ref=before.id, meta=meta)
        )
        return again

    def recreate(
        self,
        old: Memory,
        chunk: Chunk,
        classified: Classification,
        vector: Vectors | None,
        model: str,
    ) -> Memory:
        """Make a new memory that takes the place of one that says the same; what it had gained is kept."""
        merged = duplicates.merged(old, chunk, self.now, self.tags(chunk)[0])
        kept = {name: getattr(merged, name) for name in _GAINED}
        return self._in_place_of(
            old,
            _memory(chunk, classified, self, None, embedded=vector is not None),
            kept,
            vector,
            model,
            "said again",
        )

    def contradict(
        self,
        old: Memory,
        chunk: Chunk,
        classified: Classification,
        vector: Vectors | None,
        model: str,
    ) -> Memory:
        """Make a new memory that takes the place of one with another value, and list the two for a decision."""
        made = _memory(chunk, classified, self, None, embedded=vector is not None)
        new = self._in_place_of(
            old, made, {"pinned": made.pinned or old.pinned}, vector, model, CONTRADICTS
        )
        self.extra.append(Relation(from_id=new.id, to_id=old.id, type=CONTRADICTS, at=self.now))
        return new

    def _in_place_of(
        self,
        old: Memory,
        made: Memory,
        kept: Mapping[str, Any],
        vector: Vectors | None,
        model: str,
        reason: str,
    ) -> Memory:
        new = replace(made, **kept)
        put = self.puts.get(old.id)
        since = new.valid_from or self.now
        gone = replace(
            old,
            state="superseded",
            superseded_by=new.id,
            valid_to=since,
            updated_at=self.now,
            revision=old.revision + 1,
        )
        meta = {"reason": reason, "superseded_by": new.id, **_during(new.labels.session)}
        self._put(
            replace(put, memory=gone) if put else Put(memory=gone, event="superseded", meta=meta)
        )
        meta = {"reason": reason, "supersedes": old.id}
        self._put(
            Put(memory=new, event="created", vector=vector, model=model, old_ref=old.id, meta=meta)
        )
        return new

    def _vector(self, memory: Memory) -> Vectors | None:
        """The vector of a memory, as far as it is at hand."""
        if memory.id in self.puts:
            given: Vectors | None = self.puts[memory.id].vector
            return given
        rows = [row for row, id in self.rows.items() if id == memory.id]
        positions = self.corpus.positions(rows)
        found = (
            self.corpus.vectors(positions) if len(positions) and not self.corpus.is_lean else None
        )
        return found[0] if found is not None and found.any() else None

    def merge(self, memory: Memory, chunk: Chunk) -> Memory:
        """Say a memory again."""
        again = duplicates.merged(memory, chunk, self.now, self.tags(chunk)[0])
        put = self.puts.get(memory.id)
        meta = _during(chunk.draft.labels.session)
        self._put(
            replace(put, memory=again) if put else Put(memory=again, event="merged", meta=meta)
        )
        if put:  # told twice in one call: it is one change, and counts as said again all the same
            node: Node = "episodic" if again.kind == "episodic" else "hotpath"
            self.extra.append(
                Happened(
                    node=node, op="merge", at=self.now, memory_id=again.id, category=again.category
                )
            )
        return again

    def create(
        self,
        chunk: Chunk,
        classified: Classification,
        vector: Vectors | None,
        model: str,
        key: str | None,
    ) -> Memory:
        """Make a new memory of a chunk."""
        made = _memory(chunk, classified, self, key, embedded=vector is not None)
        self._put(Put(memory=made, event="created", vector=vector, model=model))
        return made

    def note(self, chunk: Chunk, result: Outcome, vector: Vectors | None) -> None:
        """Leave two events: whether the chunk was kept, and how near the nearest memory came; turns leave none."""
        made = next((put.memory for id in result.ids if (put := self.puts.get(id))), None)
        if made is not None and made.kind == "episodic":
            return
        thread = chunk.draft.labels.thread or chunk.draft.labels.session
        line = Happened(
            node="hotpath",
            op="classify",
            at=self.now,
            thread=thread,
            category=made.category if made else None,
        )
        best = max(self.near.rows.get(chunk.text, {}).values(), default=None)
        searched = replace(
            line, op="search", sim=best, category=None, status="skipped" if vector is None else "ok"
        )
        self.extra += [line if result.ids else replace(line, status="skipped"), searched]

    def tags(self, chunk: Chunk, *, proposed: bool = False) -> tuple[tuple[str, ...], float]:
        """What a chunk is about, where the policy looks for that, and how sure it is; also by what is near to it."""
        if self.policy.score not in ("unified", "theoria"):
            return (), 0.0
        return entities.tags([*chunk.about, *(self._proposed(chunk) if proposed else ())])

    def _proposed(self, chunk: Chunk) -> list[entities.Entity]:
        """Tags by the memories of the store that were read to be compared with the chunk."""
        near, low = self.near.rows.get(chunk.text), (self.policy.bands or Bands()).check_low
        if not near or chunk.draft.labels.session is not None:
            return []
        found = {
            id: cosine
            for row, cosine in near.items()
            if cosine >= low and (id := self.rows.get(row))
        }
        return proposed(
            chunk,
            [(cosine, self.known[id]) for id, cosine in found.items() if self.known[id].is_active],
        )

    def place(self, session: str | None) -> int | None:
        """The next place in a session."""
        if session is None:
            return None
        self.places[session] = self.places.get(session, -1) + 1
        return self.places[session]

    def _put(self, put: Put) -> None:
        self.puts[put.memory.id] = put
        if put.memory.key:
            self.keyed[put.memory.key] = put.memory
        if self.policy.exact or self.policy.near or self.policy.bands or self.policy.conflicts:
            self.known[put.memory.id] = put.memory


def _during(session: str | None) -> dict[str, str]:
    """In which session a memory of perhaps another one was changed."""
    return {"session": session} if session else {}


def _memory(
    chunk: Chunk,
    classified: Classification,
    writes: WriteSession,
    key: str | None,
    *,
    embedded: bool,
) -> Memory:
    draft = chunk.draft
    told = draft.told_at or writes.now
    created = draft.at if writes.policy.dated and draft.at else told
    tags, confidence = writes.tags(chunk, proposed=True)
    return Memory(
        id=draft.id if draft.id is not None and draft.id not in writes.puts else writes.new_id(),
        scope=writes.scope,
        text=chunk.text,
        kind=classified.kind,
        created_at=created,
        updated_at=told,
        labels=draft.labels,
        item_type=classified.item_type,
        fact_type=draft.fact_type,
        category=classified.category,
        steps_text=draft.steps_text if classified.kind == "procedural" else None,
        procedural_form=_form(draft) if classified.kind == "procedural" else None,
        key=key,
        importance=classified.importance,
        base_importance=classified.importance,
        importance_parts=classified.parts,
        confidence=draft.confidence,
        metadata_confidence=confidence,
        tags=tuple(dict.fromkeys([*(tag.lower() for tag in draft.tags), *tags])),
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
        sequence=writes.place(draft.labels.session),
        speaker=draft.speaker,
        occurred_at=draft.at,
        valid_from=draft.at or told,
        needs_embedding=not embedded,
    )


def _form(draft: Draft) -> str:
    return "workflow" if draft.steps_text is not None else "preference"


async def opened(
    tx: Transaction,
    scope: Scope,
    corpus: Corpus,
    chunks: Sequence[Chunk],
    *,
    policy: Policy,
    keys: Sequence[str],
    vectors: Mapping[str, Vectors],
    now: datetime,
    new_id: Callable[[], str],
) -> WriteSession:
    """Read everything that the chunks may meet, in a few queries."""
    known: dict[str, Memory] = {}
    near = kin.found(corpus, chunks, vectors, policy)
    if policy.exact:
        for memories in (
            await tx.same_text(scope, {chunk.content_hash for chunk in chunks})
        ).values():
            known |= {memory.id: memory for memory in memories}
    rows = near.all()
    if policy.near:
        rows |= {int(corpus.row[position]) for chunk in chunks for position in _near(corpus, chunk)}
    read = await tx.at_rows(scope, sorted(rows)) if rows else {}
    known |= {memory.id: memory for memory in read.values()}
    texts = (
        normalize.wording(chunk.text) for chunk in chunks
    )  # made only where something was ever forgotten
    sessions = {chunk.draft.labels.session for chunk in chunks} - {None}
    return WriteSession(
        scope=scope,
        policy=policy,
        now=now,
        new_id=new_id,
        corpus=corpus,
        known=known,
        near=near,
        rows={row: memory.id for row, memory in read.items()},
        forgotten=await tx.tombstones(scope, texts, now),
        keyed=await tx.by_key(scope, keys),
        places={
            session: await tx.last_sequence(scope, session)
            for session in sessions
            if session is not None
        },
    )


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


def _same_text(memory: Memory, chunk: Chunk) -> bool:
    return memory.content_hash == chunk.content_hash


def _cosine(a: Vectors, b: Vectors | None) -> float:
    return float(a @ b) if b is not None else 0.0


def _near(corpus: Corpus, chunk: Chunk) -> Sequence[int]:
    found = normalize.find_near(corpus.simhash, chunk.simhash)
    return [int(position) for position in found[corpus.alive[found]]] if len(found) else []
