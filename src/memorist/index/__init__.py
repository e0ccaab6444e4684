"""The in-process index of a scope, so that a question is answered by a few array operations.

A `Snapshot` is immutable: vectors in one matrix, postings in sorted segments, everything else in
columns. `SnapshotCache` keeps the snapshots of recently used scopes and evicts the longest unused
when there are too many.
"""

from .snapshot import Snapshot, SnapshotCache

__all__ = ["Snapshot", "SnapshotCache"]
