"""Where one transaction decides: what is known, what it is about to write, and so what the next piece meets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from ..corpus import Corpus
from ..model import Change, Memory, Put, Scope
from ..policy.writing import Policy
from ..ports import Transaction, Vectors
from ..text import normalise, simhash
from . import dedupe
from .piece import Piece
from .weigh import Weighed


@dataclass(kw_only=True)
class Desk:
    """The state of one write; it ends with the transaction."""

    scope: Scope
    policy: Policy
    now: datetime
    new_id: Callable[[], str]
    corpus: Corpus
    known: dict[str, Memory]  # memories of the store that some piece may repeat, by id
    forgotten: set[str]  # normalised texts that must not come back
    keyed: dict[str, Memory]
    puts: dict[str, Put] = field(default_factory=dict)
    extra: list[Change] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)  # the last place taken in each session

    @property
    def changes(self) -> list[Change]:
        return [*self.puts.values(), *self.extra]

    def is_forgotten(self, piece: Piece) -> bool:
        """An automatic write of a forgotten text; saving it on purpose is the person's right."""
        if not self.forgotten or piece.draft.on_purpose:
            return False
        return normalise.wording(piece.text) in self.forgotten

    def twin(self, piece: Piece) -> Memory | None:
        """The memory that this piece repeats, as it stands on the desk."""
        speaker, session = piece.draft.speaker, piece.draft.labels.session
        said = (m for m in self.known.values() if m.speaker == speaker)
        candidates = [m for m in said if session is None or m.labels.session == session]
        found = None
        if self.policy.exact:
            found = dedupe.exact(piece, (m for m in candidates if m.content_hash == piece.content_hash))
        if found is None and self.policy.near:
            found = dedupe.near(piece, candidates)
        return found

    def merge(self, memory: Memory, piece: Piece) -> Memory:
        """Say a memory again."""
        again = dedupe.merged(memory, piece, self.now, self.tags(piece)[0])
        put = self.puts.get(memory.id)
        self._put(replace(put, memory=again) if put else Put(memory=again, event="merged"))
        return again

    def create(self, piece: Piece, weighed: Weighed, vector: Vectors | None, model: str, key: str | None) -> Memory:
        """Make a new memory of a piece."""
        made = _memory(piece, weighed, self, key, embedded=vector is not None)
        self._put(Put(memory=made, event="created", vector=vector, model=model))
        return made

    def tags(self, piece: Piece) -> tuple[tuple[str, ...], float]:
        """What a piece is about, where the policy looks for that, and how sure it is."""
        return piece.tags if self.policy.score in ("unified", "theoria") else ((), 0.0)

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
        if self.policy.exact or self.policy.near:
            self.known[put.memory.id] = put.memory


def _memory(piece: Piece, weighed: Weighed, desk: Desk, key: str | None, *, embedded: bool) -> Memory:
    draft = piece.draft
    created = draft.at if desk.policy.dated and draft.at else desk.now
    tags, confidence = desk.tags(piece)
    return Memory(
        id=desk.new_id(),
        scope=desk.scope,
        text=piece.text,
        kind=weighed.kind,
        created_at=created,
        updated_at=desk.now,
        labels=draft.labels,
        item_type=weighed.item_type,
        fact_type=draft.fact_type,
        category=weighed.category,
        procedural_form="preference" if weighed.kind == "procedural" else None,
        key=key,
        importance=weighed.importance,
        base_importance=weighed.importance,
        importance_parts=weighed.parts,
        confidence=draft.confidence,
        metadata_confidence=confidence,
        tags=tuple(dict.fromkeys([*(tag.lower() for tag in draft.tags), *tags])),
        source_ids=draft.source_ids,
        evidence=draft.evidence,
        evidence_ids=draft.evidence_ids,
        evidence_text=draft.evidence_text,
        source_message_id=draft.message_id,
        pinned=draft.pinned,
        manually_saved=draft.manually_saved,
        simhash=piece.simhash,
        content_hash=piece.content_hash,
        sequence=desk.place(draft.labels.session),
        speaker=draft.speaker,
        occurred_at=draft.at,
        valid_from=draft.at or desk.now,
        needs_embedding=not embedded,
    )


async def opened(
    tx: Transaction,
    scope: Scope,
    corpus: Corpus,
    pieces: Sequence[Piece],
    *,
    policy: Policy,
    keys: Sequence[str],
    now: datetime,
    new_id: Callable[[], str],
) -> Desk:
    """Read everything that the pieces may meet, in a few queries."""
    known: dict[str, Memory] = {}
    if policy.exact:
        for memories in (await tx.same_text(scope, {piece.content_hash for piece in pieces})).values():
            known |= {memory.id: memory for memory in memories}
    if policy.near:
        rows = {int(corpus.row[position]) for piece in pieces for position in _near(corpus, piece)}
        known |= {memory.id: memory for memory in (await tx.at_rows(scope, sorted(rows))).values()}
    texts = (normalise.wording(piece.text) for piece in pieces)  # made only where something was ever forgotten
    sessions = {piece.draft.labels.session for piece in pieces} - {None}
    return Desk(
        scope=scope,
        policy=policy,
        now=now,
        new_id=new_id,
        corpus=corpus,
        known=known,
        forgotten=await tx.tombstones(scope, texts, now),
        keyed=await tx.by_key(scope, keys),
        places={session: await tx.last_sequence(scope, session) for session in sessions if session is not None},
    )


def _near(corpus: Corpus, piece: Piece) -> Sequence[int]:
    found = simhash.near(corpus.simhash, piece.simhash)
    return [int(position) for position in found[corpus.alive[found]]] if len(found) else []
