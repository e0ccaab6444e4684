"""The fingerprints of the memories of a scope: all that an import of turns has to hold of it.

A whole snapshot takes about 500 bytes per memory, without its vectors; a fingerprint takes 16.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import StoreDamaged
from ..text import normalize
from ..types import Scope
from . import rows
from .queries import Reader

PAGE = 16_384
# The plus keeps the planner from using an index on that column, as in `Reader.changed_since`.
_FEW = "changed > ? AND +row > ?"
_MANY = "+changed > ? AND row > ?"
_CHANGED = f"""SELECT row, state, simhash FROM memories
WHERE scope = ? AND {{}} ORDER BY row LIMIT {PAGE}"""
_ERASED = "SELECT row FROM erased WHERE scope = ? AND changed > ?"
_STATE = "SELECT revision FROM scopes WHERE id = ?"


@dataclass(frozen=True, eq=False)
class Fingerprints:
    """The active memories of a scope at one revision."""

    revision: int = 0
    row: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    simhash: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))

    def find_near(self, values: Iterable[int]) -> list[int]:
        """Return the rows whose fingerprint is near to one of the values."""
        near = normalize.find_near(self.simhash, values)
        found: list[int] = self.row[near].tolist()
        return found

    def update(
        self, changed: Sequence[Sequence[Any]], gone: Sequence[int], to: int
    ) -> Fingerprints:
        """Return the fingerprints after some rows changed and others were erased."""
        touched = np.array([*(row for row, _, _ in changed), *gone], np.int64)
        kept, hashes = self.row, self.simhash
        known = touched[touched <= kept.max(initial=-1)]
        if len(known):
            is_kept = ~np.isin(kept, known)
            kept, hashes = kept[is_kept], hashes[is_kept]
        active = [(row, simhash) for row, state, simhash in changed if state == "active"]
        added = np.array(active, np.int64).reshape(-1, 2)
        new = added[:, 1].astype(np.uint64)
        return Fingerprints(to, np.append(kept, added[:, 0]), np.append(hashes, new))


async def load_fingerprints(reader: Reader, scope: Scope, known: Fingerprints) -> Fingerprints:
    """Return the current fingerprints of a scope, given earlier ones. Raises StoreDamaged."""
    number = await reader.number(scope)
    if number < 0:
        return Fingerprints()
    since = known.revision
    now = reader.held.get(number)
    if now is None:
        ((now,),) = await reader.connection.rows(_STATE, (number,), scope=number)
    if now == since:
        return known
    erased = await reader.rows(scope, _ERASED, (since,)) if since else []
    gone = [row for (row,) in erased]
    sql = _CHANGED.format(_FEW if since else _MANY)
    after = 0
    while True:
        page = await reader.rows(scope, sql, (since, after))
        if not all(isinstance(row[2], int) for row in page):
            raise StoreDamaged(rows.ALTERED)
        known = known.update(page, gone, now)
        if len(page) < PAGE:
            return known
        after = page[-1][0]
        gone = []
