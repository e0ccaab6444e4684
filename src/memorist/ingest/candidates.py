"""The state of one write: the drafts, the memories they are compared with, and the decisions so far.

`load` reads what a chunk may repeat, contradict or replace. Later chunks meet earlier ones, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..context import Context, compute
from ..index import Snapshot
from ..index.arrays import Bools, Floats, products
from ..ports import Vectors
from ..storage import Change, Checks, Event, Save, SeenMessage
from ..storage.fingerprints import Fingerprints, load_fingerprints
from ..storage.transaction import Transaction
from ..text import clock, cues, normalize, tokens
from ..text.agent_records import is_record
from ..text.cues import CHANGING, read
from ..text.normalize import ClauseParts
from ..types import KINDS, Memory, Scope
from .analyze import Chunk, is_turn
from .guard import Item
from .policies import Bands, Policy

MOST = 5  # memories that a chunk is compared with
COMPARED = 4  # earlier statements that a chunk may replace, the most similar ones
LEAST_SIMILAR = 0.1
PARTITIONED = 1000  # from this number on, sorting all would take longer
_INSIGHT = KINDS.index("insight")
_SAID_AS = {"live": "live moved relocated", "work": "work joined started"}

Similar = list[tuple[int, float]]  # rows or places, with the similarity
ComparedVectors = tuple[bool, Vectors | None, Vectors | None]  # is it English; by both models
Older = tuple[Chunk, Similar, list[tuple[Chunk, float]]]  # stored rows, and chunks before it
Neighbors = Sequence[tuple[float, Memory]]  # with their cosine, nearest first


@dataclass(kw_only=True)
class Batch:
    """Drafts that are written in one transaction, the data read for them, and the decisions."""

    ctx: Context
    scope: Scope
    policy: Policy
    now: datetime
    items: Sequence[Item]
    size: int  # characters of all drafts
    refusals: Sequence[Event] = ()  # of drafts that may not be stored
    chunks: list[Chunk] = field(default_factory=list)
    problem: str = ""  # why there are no vectors
    second: dict[str, tuple[str, Any]] = field(default_factory=dict)  # model and vector, by text
    checks: Checks | None = None  # read under the write lock
    # Of the scope before the write; empty if nothing is compared by its meaning.
    snapshot: Snapshot = field(init=False)
    memories: dict[str, Memory] = field(default_factory=dict)  # by id: what a chunk may repeat
    rows: dict[str, int] = field(default_factory=dict)  # of those, by id
    near: dict[str, dict[str, float]] = field(default_factory=dict)  # cosines by text and id
    forgotten: frozenset[str] = frozenset()  # texts that must not be stored again
    keyed: dict[str, Memory] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)  # the last sequence number in each session
    fingerprints: Fingerprints = field(default_factory=Fingerprints)  # if there is no snapshot
    replaced: list[tuple[Chunk, Memory]] = field(default_factory=list)  # by turns
    ended_by: dict[str, set[str]] = field(default_factory=dict)  # ids of what replaced it, by id
    changes: Mapping[tuple[str, str], bool] = field(default_factory=dict)  # see `known_changes`
    alike: dict[object, set[str]] = field(default_factory=dict)  # ids of memories, by form
    puts: dict[str, Save] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)  # rows of `vectors`, by id
    vectors: Vectors = field(init=False)  # of what is written
    others: list[Change] = field(default_factory=list)
    messages: list[SeenMessage] = field(default_factory=list)

    @property
    def has_only_words(self) -> bool:
        """Whether memories are compared only by their words: turns whose vectors come later."""
        return self.policy.embed == "deferred" and all(chunk.is_turn for chunk in self.chunks)

    @cached_property
    def statements(self) -> Bools:
        """Which memories of the snapshot are statements; see `find_statements`."""
        return find_statements(self.snapshot)

    def valid_since(self, chunk: Chunk) -> datetime:
        """Return since when a chunk is valid."""
        return chunk.draft.at or chunk.draft.told_at or self.now

    def add(self, memory: Memory) -> None:
        """Add a memory, or a new version of it, that chunks may repeat."""
        self.memories[memory.id] = memory
        for form in _forms(memory):
            self.alike.setdefault(form, set()).add(memory.id)

    def find(self, chunk: Chunk) -> tuple[list[Memory], Neighbors]:
        """Return the memories that a chunk is compared with.

        First those that may have the same text or a near fingerprint, in their order; then those
        with a near vector, the nearest first.
        """
        ids: set[str] = set()
        for form in _forms(chunk):
            ids |= self.alike.get(form, set())
        alike = [memory for id, memory in self.memories.items() if id in ids] if ids else []
        if chunk.is_turn or (self.policy.bands is None and not self.policy.conflicts):
            return alike, ()
        found = dict(self.near.get(chunk.text, {}))
        if self.written:
            cosines = np.zeros(len(self.written), np.float32)
            if chunk.vector is not None:
                cosines = products(self.vectors[: len(self.written)], chunk.vector)
            written = list(self.written)
            for row in np.argsort(-cosines, kind="stable")[:MOST].tolist():
                found[written[row]] = float(cosines[row])
        usable = []
        for id, cosine in found.items():
            memory = self.memories[id]
            if memory.is_active and not is_turn(memory):
                usable.append((cosine, memory))
        return alike, sorted(usable, key=lambda each: (-each[0], each[1].id))

    def save(self, put: Save) -> None:
        """Add a memory to the write; later chunks of this call are compared with it."""
        memory = put.memory
        self.puts[memory.id] = put
        if put.vector is not None:
            if not self.written:  # a chunk writes at most its memory and an earlier version
                self.vectors = np.zeros((2 * len(self.chunks), len(put.vector)), np.float32)
            row = self.written.setdefault(memory.id, len(self.written))
            self.vectors[row] = put.vector
        if memory.key:
            self.keyed[memory.key] = memory
        by = self.policy
        if by.exact or by.near or by.bands or by.conflicts:
            self.add(memory)
        session = memory.labels.session
        place = memory.sequence
        if session is not None and place is not None:
            self.places[session] = max(place, self.places.get(session, place))


def _forms(of: Chunk | Memory) -> Iterator[object]:
    """Yield the hash and the four parts of the fingerprint: near ones have a part in common."""
    yield of.content_hash
    yield from enumerate(struct.unpack("<4H", struct.pack("<Q", of.simhash)))


async def load_scope(tx: Transaction, batch: Batch) -> None:
    """Read what has to be known of the whole scope: its snapshot, or fingerprints alone."""
    ctx = batch.ctx
    scope = batch.scope
    if not batch.has_only_words:
        batch.snapshot = await ctx.index.current(scope, tx)
        return
    batch.snapshot = Snapshot.empty(ctx.index.model, ctx.index.dimensions)
    if batch.chunks:
        known = ctx.fingerprints.get(scope, Fingerprints())
        batch.fingerprints = await load_fingerprints(tx, scope, known)
        ctx.fingerprints.clear()  # one is enough: an import writes to one scope
        ctx.fingerprints[scope] = batch.fingerprints


async def load(tx: Transaction, batch: Batch) -> None:
    """Read everything that the chunks are compared with, in a few queries."""
    scope = batch.scope
    chunks = batch.chunks
    hashes = {chunk.content_hash for chunk in chunks}
    checks = batch.checks
    if checks is None:
        sessions = {chunk.session for chunk in chunks}
        checks = await tx.checks(scope, sessions=sessions, hashes=hashes)
    near, older = await compute(batch.size, lambda: (_find_near(batch), _find_all_older(batch)))
    same = checks.same & {chunk.content_hash for chunk in chunks if chunk.is_self_contained}
    if batch.policy.exact and same:
        for memory in await tx.same_text(scope, same):
            batch.add(memory)
    rows = {row for _, stored, _ in older for row, _ in stored}.union(*near.values())
    if batch.policy.near:
        rows.update(_find_alike(batch))
    at_rows = await tx.at_rows(scope, sorted(rows)) if rows else {}
    for row, memory in at_rows.items():
        batch.add(memory)
        batch.rows[memory.id] = row
    for text, cosines in near.items():
        batch.near[text] = {at_rows[row].id: cosine for row, cosine in cosines.items()}
    for chunk, stored, said in older:
        found: list[tuple[Memory | Chunk, float]] = []
        found += [(at_rows[row], similar) for row, similar in stored if row in at_rows]
        found += said
        found.sort(key=lambda each: -each[1])
        chunk.older = found[:COMPARED]
    batch.forgotten = await tx.tombstones(scope, [chunk.text for chunk in chunks], batch.now)
    if keys := [chunk.key for chunk in chunks if chunk.key is not None]:
        batch.keyed = await tx.by_key(scope, keys)
    batch.places.update(checks.sequences)


def _find_alike(batch: Batch) -> list[int]:
    """Return the rows with a fingerprint near to one of the chunks."""
    asked = {chunk.simhash for chunk in batch.chunks if chunk.is_self_contained}
    if batch.has_only_words:
        return batch.fingerprints.find_near(asked)
    snapshot = batch.snapshot
    positions = normalize.find_near(snapshot.simhash, asked)
    alive = positions[snapshot.alive[positions]]
    rows: list[int] = snapshot.row[alive].tolist()
    return rows


def _find_near(batch: Batch) -> dict[str, dict[int, float]]:
    """Return the rows that each chunk may repeat or contradict, by cosine and by subject."""
    policy = batch.policy
    if policy.bands is None and not policy.conflicts:
        return {}
    snapshot = batch.snapshot
    is_said = (snapshot.session >= 0) & (snapshot.speaker >= 0)
    usable = snapshot.alive & ~is_said
    by_text = {chunk.text: chunk for chunk in batch.chunks if not chunk.is_turn}
    if not by_text or not usable.any():
        return {}
    chunks = by_text.values()
    bands = policy.bands or Bands()
    all_cosines = snapshot.similarities([chunk.vector for chunk in chunks], usable)
    found: dict[str, dict[int, float]] = {}
    for chunk, cosines in zip(chunks, all_cosines, strict=True):
        is_near = cosines >= bands.check_low
        chosen = _pick_best(is_near & usable, cosines)
        if policy.conflicts and chunk.clause is not None:
            same_subject = _find_same_subject(snapshot, chunk.clause)
            chosen |= _pick_best(same_subject & usable, cosines)
        places = sorted(chosen)
        rows = snapshot.row[places].tolist()
        near = cosines[places].tolist()
        found[chunk.text] = dict(zip(rows, near, strict=True))
    return found


def _pick_best(usable: Bools, cosines: Floats) -> set[int]:
    """Return the positions with the highest cosines; of equals, the latest."""
    positions = np.flatnonzero(usable)
    order = np.lexsort((-positions, -cosines[positions]))[:MOST]
    return set(positions[order].tolist())


def _find_same_subject(snapshot: Snapshot, clause: ClauseParts) -> Bools:
    """Mark the memories with the same subject and verb, whose vectors may be far from the chunk."""
    verb = clause.verb.removesuffix("s")
    words = (*clause.subject.split(), _SAID_AS.get(verb, verb))
    marked = np.zeros(snapshot.n, np.bool_)
    for i, terms in enumerate(filter(None, map(tokens.analyze, words))):
        here = np.zeros(snapshot.n, np.bool_)
        for positions, _ in snapshot.postings(list(map(tokens.term_id, terms))):
            here[positions] = True
        marked = marked & here if i else here
        if not marked.any():
            break
    return marked


def _find_all_older(batch: Batch) -> list[Older]:
    """Return what people and assistants said that may replace an earlier statement of their own."""
    return _find_older(batch, by_agent=False) + _find_older(batch, by_agent=True)


def _find_older(batch: Batch, *, by_agent: bool) -> list[Older]:
    """Return each turn or note that may replace an earlier statement, with the most similar ones.

    They are the rows of stored ones, and chunks that come before it in the batch, unless they were
    said later.
    """
    snapshot = batch.snapshot
    said = [chunk for chunk in batch.chunks if chunk.is_turn or _is_note(chunk)]
    said = [each for each in said if not by_agent or each.draft.labels.role == "assistant"]
    has_vectors = any(chunk.vector is not None for chunk in said)
    if not has_vectors or snapshot.matrix is None or not batch.policy.conflicts:
        return []
    stating, asked = _find_changing(said, snapshot, by_agent=by_agent)
    usable = find_statements(snapshot, by_agent=True) if by_agent else batch.statements
    second = {text: vector for text, (_, vector) in batch.second.items()}
    changing: list[ComparedVectors] = []
    for i in asked:
        text = said[i].text
        changing.append((read(text).is_english, said[i].vector, second.get(text)))
    firsts = np.array([said[i].vector for i in stating])
    others = np.array([second[said[i].text] for i in stating if said[i].text in second])
    rows = np.flatnonzero(usable)
    places = np.array(stating, np.int64)
    times = np.array([clock.micros(batch.valid_since(said[i])) for i in stating])
    stored_times = snapshot.said[rows]
    similarities = compare_all(changing, snapshot, usable)
    stated = int((snapshot.alive & (snapshot.flags & cues.IS_EXTRACTED == 0)).sum())
    found = []
    for i, (is_english, _, _), similar in zip(asked, changing, similarities, strict=True):
        chunk = said[i]
        chunk.earlier = stated + i
        place = int(np.searchsorted(places, i))
        since = times[place]
        earlier = rows[stored_times <= since]
        stored = pick(similar[earlier], snapshot.row[earlier])
        here: Similar = []
        before = np.flatnonzero(times[:place] <= since)
        if len(before):
            similar = products(firsts[before], np.asarray(chunk.vector))
            if len(others) == len(places) and chunk.text in second:
                other = products(others[before], second[chunk.text])
                similar = _mean(is_english, similar, other)
            here = pick(similar, places[before])
        found.append((chunk, stored, [(said[place], cosine) for place, cosine in here]))
    return found


def _is_note(chunk: Chunk) -> bool:
    """Return whether a chunk is a whole text that was written down, and not a fact or a how-to."""
    draft = chunk.draft
    is_derived = bool(draft.evidence_ids) or draft.steps_text is not None
    return not is_derived and chunk.text == draft.text.strip()


def _find_changing(
    said: Sequence[Chunk],
    snapshot: Snapshot,
    *,
    by_agent: bool,
) -> tuple[list[int], list[int]]:
    """Return the places of the statements of people, and of those that can replace something.

    If `by_agent`, those of the records of assistants. A note has to say that something changed.
    Turns that follow a question of the other side are marked.
    """
    last: dict[str | None, tuple[bool, str | None]] = {}
    stating = []
    changing = []
    for i, chunk in enumerate(said):
        session = chunk.session
        speaker = chunk.draft.speaker
        if session not in last:
            last[session] = snapshot.last_turn(session)
        role = chunk.draft.labels.role
        is_wanted = cues.is_own_role(role)
        if by_agent:
            is_wanted = role == "assistant" and is_record(chunk.text)
        asks, other = last[session]
        chunk.answers = asks and speaker != other
        last[session] = (cues.ends_asking(chunk.text), speaker)
        parts = read(chunk.text)
        if chunk.vector is None or not is_wanted or parts.asks >= 1:
            continue
        stating.append(i)
        says_changed = chunk.is_turn or not CHANGING.isdisjoint(parts.cues)
        if says_changed and len(chunk.text.split()) >= 2:
            changing.append(i)
    return stating, changing


def find_statements(snapshot: Snapshot, *, by_agent: bool = False) -> Bools:
    """Mark what people said themselves, apart from questions; or else what an assistant said."""
    unwanted = cues.ONLY_ASKS | cues.ENDS_ASKING if by_agent else cues.ONLY_ASKS
    unwanted |= cues.IS_SUMMARY | cues.IS_EXTRACTED
    usable: Bools = snapshot.flags & unwanted == 0
    usable &= (snapshot.flags & cues.FROM_ASSISTANT != 0) == by_agent
    usable &= snapshot.alive & (snapshot.kind != _INSIGHT)
    return usable


def compare_all(
    said: Sequence[ComparedVectors],
    snapshot: Snapshot,
    usable: Bools,
) -> Iterator[Floats]:
    """Yield the similarity of the usable positions to each text, given its vectors.

    It is the mean of both cosines; only the second model knows languages other than English.
    """
    firsts = snapshot.similarities([first for _, first, _ in said], usable)
    for (is_english, _, second), cosines in zip(said, firsts, strict=True):
        others = cosines
        if second is not None:
            others = snapshot.second_similarity(second, usable & snapshot.has_second, cosines)
        yield _mean(is_english, cosines, others)


def _mean(is_english: bool, first: Floats, second: Floats) -> Floats:
    weight = np.float32(0.5 if is_english else 0.0)
    return weight * first + (1 - weight) * second


def pick(similar: Floats, names: NDArray[np.int64]) -> Similar:
    """Return the names of the most similar ones, with their similarity."""
    if len(similar) > PARTITIONED:
        best = np.argpartition(-similar, COMPARED)[:COMPARED]
    else:
        best = np.argsort(-similar, kind="stable")[:COMPARED]
    found = zip(names[best].tolist(), similar[best].tolist(), strict=True)
    return [(name, cosine) for name, cosine in found if cosine >= LEAST_SIMILAR]
