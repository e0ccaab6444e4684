"""What the duties of tending work with: parts they are handed, never ones they open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ..index import SnapshotCache
from ..ports import Adviser, Embedder, Store, Transaction
from ..storage.changes import Change
from ..types import Draft, Outcome, Scope

Also = Callable[[Transaction, Sequence[Outcome]], Awaitable[Sequence[Change]]]


class Remember(Protocol):
    """The ordinary way in: guards, tombstones, merge bands and history hold for what is derived, too."""

    async def __call__(
        self, drafts: Sequence[Draft], scope: Scope, *, policy: str, now: datetime, also: Also
    ) -> None:
        """Take drafts in, and make in the same transaction what `also` gives when it has seen what became of them.

        `also` is called exactly once; if it raises, nothing happens at all.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """What a duty works with."""

    store: Store
    index: SnapshotCache
    embedder: Embedder | None
    adviser: Adviser | None  # None: rules do what a language model would
    remember: Remember
    now: Callable[[], datetime]
