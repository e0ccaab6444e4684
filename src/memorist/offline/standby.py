"""What recall reads while something waits or the store is away: the snapshot, texts lately seen, and what waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..index import Snapshot, SnapshotCache
from ..ingest import policies
from ..ingest.analyze import analyze
from ..ingest.classify import is_kept
from ..ingest.decide import WriteSession, build_memory
from ..ports import Delta, IndexRow, Vectors
from ..storage.changes import Relation, Save
from ..text import clock, tokens
from ..types import Draft, Filter, Labels, Memory, Page, Scope
from .proxy import StoreProxy
from .spool import Pending

LAST = 1 << 20  # waiting turns stand after those of the store
_EQUAL = (
    "pinned",
    "manually_saved",
    "needs_embedding",
    "speaker",
    "procedural_form",
    "content_hash",
)
_AMONG = (("ids", "id"), ("kinds", "kind"), ("states", "state"), ("item_types", "item_type"))


def policy(
    known: Mapping[str, policies.Policy], name: str, capacity: int | None = None
) -> policies.Policy:
    """The policy that a draft was told under, or where this process does not know it, the nearest to it."""
    nearest = next(each for each in (name, name.split(".")[0], "default") if each in known)
    return policies.find(known, nearest, capacity)


def prepared(
    pending: Pending, place: int, language: str, by_name: Mapping[str, policies.Policy]
) -> list[tuple[Memory, IndexRow]]:
    """What a waiting draft would become, as far as that can be told without the store, with what finds it."""
    draft, by = pending.what, policy(by_name, pending.policy)
    if not isinstance(draft, Draft) or draft.told_at is None:
        return []
    known = WriteSession(
        scope=pending.scope,
        policy=by,
        now=draft.told_at,
        snapshot=Snapshot.empty("", 1),
        places={draft.labels.session or "": LAST + place},
    )
    made = []
    for chunk in analyze(draft, by):
        memory = build_memory(chunk, known)
        if is_kept(memory.importance, by.gate, on_purpose=draft.on_purpose):
            known.save(Save(memory=memory, event="created"))
            made.append((memory, index_row(memory, language)))
    return made


@dataclass
class Laid:
    """A snapshot without what cannot be shown, with what waits laid over it, as far as it was known."""

    base: Snapshot
    key: tuple[bool, int]  # whether the store is away, and the version of the texts
    snapshot: Snapshot
    known: dict[int, Memory]  # by row; what waits has rows below 0
    names: list[str] = field(default_factory=list)  # of what waits


@dataclass(kw_only=True)
class Standby:
    """Reads one scope for one question. Implements what recall asks of `ports.Reading` and of the snapshots."""

    store: StoreProxy
    index: SnapshotCache
    waiting: Sequence[tuple[Memory, IndexRow]]
    embedded: Mapping[str, Vectors]  # of what waits, by id
    is_away: bool
    laid: dict[Scope, Laid]  # for the next question
    _known: dict[int, Memory] = field(default_factory=dict)

    async def current(self, scope: Scope, source: Any, revision: int | None = None) -> Snapshot:
        """The snapshot, without what cannot be shown, with what waits."""
        base = await self.index.current(scope, self if self.is_away else self.store)
        laid, names = self.laid.get(scope), [memory.id for memory, _ in self.waiting]
        if (
            laid is None
            or laid.base is not base
            or laid.key != self._key
            or laid.names != names[: len(laid.names)]
        ):
            laid = self._bare(scope, base)
        rows = [self._row(-1 - number) for number in range(len(laid.names), len(names))]
        laid.known |= {row.row: self.waiting[-1 - row.row][0] for row in rows}
        laid.names, self._known, self.laid[scope] = names, laid.known, laid
        if rows:
            laid.snapshot = laid.snapshot.extend(rows, [], base.revision)
        return laid.snapshot

    @property
    def _key(self) -> tuple[bool, int]:
        return self.is_away, self.store.texts.version if self.is_away else 0

    def _bare(self, scope: Scope, base: Snapshot) -> Laid:
        if not self.is_away:
            return Laid(base, self._key, base, {})
        known = _by_row(base, self.store.texts.of(scope))
        shown = np.isin(base.row, list(known))
        return Laid(
            base,
            self._key,
            replace(base, present=base.present & shown, alive=base.alive & shown),
            known,
        )

    def _row(self, row: int) -> IndexRow:
        memory, made = self.waiting[-1 - row]
        vector = self.embedded.get(memory.id)
        return made._replace(
            row=row, vector=None if vector is None else vector.astype("<f4").tobytes()
        )

    async def changed_since(self, scope: Scope, revision: int, **_: Any) -> Delta:
        """Nothing that anybody could tell now."""
        return Delta(revision=revision, rows=[], gone=[], next=None)

    async def at_rows(self, scope: Scope, rows: Sequence[int]) -> dict[int, Memory]:
        found = {row: self._known[row] for row in rows if row in self._known}
        rest = [row for row in rows if row not in found]
        return found if self.is_away or not rest else found | await self.store.at_rows(scope, rest)

    async def vectors(self, scope: Scope, rows: Sequence[int], *, model: str) -> dict[int, bytes]:
        own = {row: self._row(row).vector for row in rows if -len(self.waiting) <= row < 0}
        stored = [row for row in rows if row >= 0]
        rest = (
            {}
            if self.is_away or not stored
            else await self.store.vectors(scope, stored, model=model)
        )
        return {row: vector for row, vector in own.items() if vector is not None} | rest

    async def rows_where(self, scope: Scope, where: Filter) -> list[int]:
        own = [row for row, memory in self._known.items() if passes(where, memory)]
        return own if self.is_away else own + await self.store.rows_where(scope, where)

    async def links(self, scope: Scope, ids: Sequence[str]) -> list[Relation]:
        return [] if self.is_away else await self.store.links(scope, ids)

    async def page(
        self, scope: Scope, where: Filter, *, limit: int, cursor: str | None = None
    ) -> Page:
        own = [memory for memory in self._known.values() if passes(where, memory)]
        own.sort(key=lambda memory: memory.created_at, reverse=True)
        rest = () if self.is_away else (await self.store.page(scope, where, limit=limit)).memories
        return Page((*own, *rest)[:limit])


def _by_row(snapshot: Snapshot, memories: Sequence[Memory]) -> dict[int, Memory]:
    """Texts lately seen, by row: only of memories that the snapshot holds in that very version."""
    known = {
        (clock.micros(m.created_at), clock.micros(m.updated_at), m.simhash): m for m in memories
    }
    there = np.flatnonzero(
        snapshot.present & np.isin(snapshot.created, [created for created, _, _ in known])
    )
    columns = (snapshot.row, snapshot.created, snapshot.updated, snapshot.simhash)
    found = zip(*(column[there].tolist() for column in columns), strict=True)
    return {
        row: known[at, then, mark] for row, at, then, mark in found if (at, then, mark) in known
    }


def index_row(memory: Memory, language: str) -> IndexRow:
    def micros(at: Any) -> int | None:
        return None if at is None else clock.micros(at)

    labels = memory.labels
    return IndexRow(
        row=0,
        state=memory.state,
        session=labels.session,
        sequence=memory.sequence,
        speaker=memory.speaker,
        channel=labels.channel,
        kind=memory.kind,
        occurred=micros(memory.occurred_at),
        created=clock.micros(memory.created_at),
        updated=clock.micros(memory.updated_at),
        valid_from=micros(memory.valid_from),
        valid_to=micros(memory.valid_to),
        importance=memory.importance,
        confidence=memory.confidence,
        pinned=memory.pinned,
        simhash=memory.simhash,
        flags=tokens.flags_of(memory),
        terms=tokens.terms_of(memory, language),
        vector=None,
    )


def passes(where: Filter, memory: Memory) -> bool:
    """Whether a filter lets a memory through, as the store would decide."""
    wanted = [
        getattr(memory, field) in values
        for name, field in _AMONG
        if (values := getattr(where, name))
    ]
    wanted += [
        getattr(memory, name) == value
        for name in _EQUAL
        if (value := getattr(where, name)) is not None
    ]
    wanted += [
        getattr(memory.labels, name) == value
        for name in Labels.__slots__
        if (value := getattr(where.labels, name)) is not None
    ]
    for name in ("created", "updated", "occurred"):
        at, after, before = (
            getattr(memory, f"{name}_at"),
            *(getattr(where, f"{name}_{end}") for end in ("after", "before")),
        )
        wanted += [
            after is None or bool(at and at >= after),
            before is None or bool(at and at < before),
        ]
    return all(wanted) and _fits(where, memory)


def _fits(where: Filter, memory: Memory) -> bool:
    tags = {tag.lower() for tag in memory.tags}
    categories = {category.lower() for category in where.categories}
    return (
        (where.importance_min is None or memory.importance >= where.importance_min)
        and (where.importance_max is None or memory.importance <= where.importance_max)
        and (not categories or (memory.category or "").lower() in categories)
        and (not where.tags or not tags.isdisjoint(tag.lower() for tag in where.tags))
        and (not where.subjects or memory.labels.subject in where.subjects)
        and (where.source_id is None or where.source_id in memory.source_ids)
        and (where.versions_of is None or where.versions_of == memory.superseded_by)
    )
