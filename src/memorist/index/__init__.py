"""The in-process index of a scope, so that a question is answered by a few array operations.

A `Snapshot` is immutable: vectors in one matrix, postings in sorted segments, everything else in
columns. `SnapshotCache` keeps the snapshots of recently used scopes and evicts the longest unused
when there are too many.
"""

from .arrays import Neighbors
from .cache import SnapshotCache
from .snapshot import NO_TIME, WORKING, Columns, Snapshot

__all__ = ["NO_TIME", "WORKING", "Columns", "Neighbors", "Snapshot", "SnapshotCache"]
