"""The state of one write: the drafts, the memories they are compared with, and the decisions so far.

Later chunks of a call are compared with earlier ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from ..context import Context
from ..errors import ProviderFailed
from ..index import Snapshot
from ..index.arrays import Matrix, products
from ..ports import FindNames
from ..storage import Change, Checks, Save, SeenMessage
from ..text import normalize
from ..text.entities import entities
from ..text.offload import length
from ..types import Memory, Scope
from .analyze import Chunk, is_turn, split
from .guard import Item
from .policies import Policy

MOST = 5  # memories that a chunk is compared with

Neighbors = Sequence[tuple[float, Memory]]  # with their cosine, nearest first


@dataclass(kw_only=True)
class Batch:
    """Drafts that are written in one transaction, the data read for them, and the decisions."""

    ctx: Context
    scope: Scope
    policy: Policy
    now: datetime
    items: Sequence[Item]
    problem: str = ""  # why there are no vectors
    second: dict[str, tuple[str, Any]] = field(default_factory=dict)  # model and vector, by text
    checks: Checks | None = None  # read under the write lock
    snapshot: Snapshot = field(init=False)  # of the scope before the write
    memories: dict[str, Memory] = field(default_factory=dict)  # by id: what a chunk may repeat
    rows: dict[str, int] = field(default_factory=dict)  # of those, by id
    near: dict[str, dict[str, float]] = field(default_factory=dict)  # cosines by text and id
    forgotten: frozenset[str] = frozenset()  # texts that must not be stored again
    keyed: dict[str, Memory] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)  # the last sequence number in each session
    replaced: list[tuple[Chunk, Memory]] = field(
        default_factory=list
    )  # turns and what they replace
    alike: dict[object, set[str]] = field(default_factory=dict)  # ids of memories, by form
    puts: dict[str, Save] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)  # rows of `vectors`, by id
    vectors: Matrix = field(default_factory=lambda: Matrix(0))  # of what is written
    others: list[Change] = field(default_factory=list)
    messages: list[SeenMessage] = field(default_factory=list)

    @property
    def size(self) -> int:
        return length(item.draft.text for item in self.items)

    @property
    def chunks(self) -> list[Chunk]:
        return [chunk for item in self.items for chunk in item.chunks]

    def add(self, memory: Memory) -> None:
        """Add a memory, or a new version of it, that chunks may repeat."""
        self.memories[memory.id] = memory
        for form in _forms(memory):
            self.alike.setdefault(form, set()).add(memory.id)

    def find_alike(self, chunk: Chunk) -> list[Memory]:
        """Return the memories that may have the same text or a near fingerprint, in their order."""
        found: set[str] = set()
        for form in _forms(chunk):
            found |= self.alike.get(form, set())
        if not found:
            return []
        return [memory for id, memory in self.memories.items() if id in found]

    def neighbors(self, chunk: Chunk) -> Neighbors:
        """Return the memories a chunk is compared with, nearest first."""
        found = dict(self.near.get(chunk.text, {}))
        cosines = np.zeros(len(self.written), np.float32)
        if chunk.vector is not None and self.written:
            cosines = products(self.vectors.rows[: len(self.written)], chunk.vector)
        ids = list(self.written)
        for row in np.argsort(-cosines, kind="stable")[:MOST].tolist():
            found[ids[row]] = float(cosines[row])
        usable = []
        for id, cosine in found.items():
            memory = self.memories[id]
            if memory.is_active and not is_turn(memory):
                usable.append((cosine, memory))
        return sorted(usable, key=lambda each: (-each[0], each[1].id))

    def save(self, put: Save) -> None:
        """Add a memory to the write; later chunks of this call are compared with it."""
        memory = put.memory
        policy = self.policy
        self.puts[memory.id] = put
        if put.vector is not None:
            count = len(self.written)
            row = self.written.setdefault(memory.id, count)
            vectors = self.vectors if count else Matrix(len(put.vector))
            self.vectors = vectors if row < count else vectors.add(count, put.vector[None])
            self.vectors.rows[row] = put.vector
        if memory.key:
            self.keyed[memory.key] = memory
        if policy.exact or policy.near or policy.bands or policy.conflicts:
            self.add(memory)
        session = memory.labels.session
        place = memory.sequence
        if session is not None and place is not None:
            self.places[session] = max(place, self.places.get(session, place))


def _forms(of: Chunk | Memory) -> Iterator[object]:
    """Yield the hash and the parts of the fingerprint: near ones have a part in common."""
    yield of.content_hash
    yield from enumerate(normalize.split_fingerprint(of.simhash))


async def find_names(ctx: Context, item: Item, policy: Policy) -> FindNames:
    """Return what finds the names in a chunk: rules, or the caller's detector while it works."""
    if ctx.entities is None:
        return entities
    texts = split(item.draft.text, policy)
    try:
        found = await ctx.entities.detect(texts)
    except ProviderFailed as error:
        item.note = item.note or f"names were found by rules: {error}"
        return entities
    return dict(zip(texts, found, strict=True)).__getitem__
