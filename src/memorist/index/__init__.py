"""One scope, held in the process so that a question is answered by a few array operations.

A `Snapshot` is an immutable snapshot: vectors in one matrix, postings in sorted segments, everything else in columns.
`SnapshotCache` keeps the snapshots of recently used scopes and lets go of the longest unused when there are too many.
"""

from .cache import SnapshotCache
from .neighbors import Places
from .snapshot import NO_TIME, WORKING, Columns, Snapshot

__all__ = ["NO_TIME", "WORKING", "Columns", "Places", "Snapshot", "SnapshotCache"]
