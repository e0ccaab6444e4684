"""What this process knows of memories, to answer from while the store is down."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..index import SnapshotCache
from ..storage import Change, Forget, Save
from ..storage.atomic import lock, open_private
from ..text import clock
from ..types import Memory, Scope

MOST_RECENT = 2000  # memories to answer from while the store is down
ERASED = "erased.ids"  # file in the folder of the spool
MOST_ERASED = 1 << 20  # bytes of it; the older half is dropped


class Recent:
    """Memories that this process recently read or wrote, as long as that is the current version."""

    def __init__(self, index: SnapshotCache, folder: Path) -> None:
        self._index = index
        self._erased = folder / ERASED  # tells other processes which memories were erased
        # With the revision of the scope's snapshot when it was written here; -1: it was read.
        self._held: OrderedDict[tuple[Scope, str], tuple[Memory, Save | None, int]] = OrderedDict()

    def note_read(self, memories: Iterable[Memory]) -> None:
        """Hold memories that were just read."""
        for memory in memories:
            self._hold(memory, None, -1)

    def note_commit(self, scope: Scope, changes: Sequence[Change]) -> None:
        """Hold what was just written, and drop what was forgotten."""
        snapshot = self._index.peek(scope)
        for change in changes:
            if isinstance(change, Save):
                self._hold(change.memory, change, snapshot.revision if snapshot else 0)
        gone = {change.memory_id for change in changes if isinstance(change, Forget)}
        if gone:
            with suppress(OSError):
                self._note_erased(gone)
        for save in self.of(scope) if gone else ():
            if not gone.isdisjoint((save.memory.id, save.memory.superseded_by)):
                del self._held[scope, save.memory.id]

    def _note_erased(self, ids: Iterable[str]) -> None:
        folder = self._erased.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock(folder / "files.lock"):
            with open(self._erased, "a", opener=open_private) as file:
                file.writelines(f"{id}\n" for id in ids)
            if self._erased.stat().st_size > MOST_ERASED:
                known = self._erased.read_text()
                self._erased.write_text(known[len(known) // 2 :])

    def _hold(self, memory: Memory, save: Save | None, revision: int) -> None:
        key = memory.scope, memory.id
        self._held[key] = memory, save, revision
        self._held.move_to_end(key)
        if len(self._held) > MOST_RECENT:
            self._held.popitem(last=False)

    def of(self, scope: Scope) -> list[Save]:
        """Return everything held of a scope, least recent first."""
        found = []
        for memory, save, _ in self._held.values():
            if memory.scope == scope:
                found.append(save or Save(memory=memory, event=None))
        return found

    def current(self, scope: Scope) -> list[Save]:
        """Return what the snapshot has in the same version, with its vector, or cannot have yet."""
        snapshot = self._index.peek(scope)
        versions = {}
        found = []
        revision = snapshot.revision if snapshot else 0
        erased: set[str] = set()
        with suppress(OSError):
            erased.update(self._erased.read_text().split())
        for save in self.of(scope):
            memory = save.memory
            if memory.id in erased:
                continue
            *_, written_at = self._held[scope, memory.id]
            if revision <= written_at:
                found.append(save)
            else:
                created = clock.micros(memory.created_at)
                updated = clock.micros(memory.updated_at)
                versions[created, updated, memory.simhash] = save
        if snapshot is None:
            return found
        created_then = np.isin(snapshot.created, [version[0] for version in versions])
        positions = np.flatnonzero(snapshot.present & created_then)
        columns = (snapshot.created, snapshot.updated, snapshot.simhash)
        there = zip(*(column[positions].tolist() for column in columns), strict=True)
        for version, vector in zip(there, snapshot.vectors(positions), strict=True):
            if version in versions:
                given = vector if vector.any() else None
                found.append(replace(versions[version], vector=given, model=snapshot.model))
        return found
