"""The doors to the outside world. A docstring here is a contract; `tests/contract` holds every provider to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .model import Change, Entry, Filter, Memory, Message, Outcome, Page, Scope, Summary

Vectors = NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into vectors of one model."""

    @property
    def model(self) -> str:
        """Names the vector space: vectors of different models never meet."""
        ...

    @property
    def dimensions(self) -> int: ...

    async def encode_batch(self, texts: Sequence[str]) -> Vectors:
        """One unit-length row per text, in order: shape (len(texts), dimensions).

        The row of a text does not depend on the other texts. Raises EmbedderUnavailable.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Forgetful(Protocol):
    """An embedder that keeps what it has seen, and can let go of it."""

    async def forget(self, texts: Sequence[str]) -> None:
        """Keep nothing of these texts."""
        ...


class Reranker(Protocol):
    """Looks at a question and each text together, slower and closer than vectors can."""

    @property
    def name(self) -> str: ...

    async def score(self, question: str, texts: Sequence[str]) -> NDArray[np.float32]:
        """How well each text answers, in [0, 1] and in order. Raises ProviderFailed."""
        ...

    async def close(self) -> None: ...


class IndexRow(NamedTuple):
    """What the legs of recall need of one memory, without its text."""

    row: int  # number of the row in the store; a memory keeps it for life
    state: str
    session: str | None
    sequence: int | None
    speaker: str | None
    channel: str | None
    kind: str
    occurred: int | None  # this and the next four: microseconds since 1970
    created: int
    updated: int
    valid_from: int | None
    valid_to: int | None
    importance: float
    confidence: float
    pinned: bool
    simhash: int
    flags: int  # as `text.index` sets them
    terms: bytes  # as `text.terms` packs them
    vector: bytes | None  # float32, or None if it has not been embedded by that model


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What changed in a scope."""

    revision: int  # of the scope, when this page was read
    rows: list[IndexRow]  # as they are now
    gone: list[int]  # rows that were erased since the revision; they come with the first page
    next: int | None  # where the next page begins
    total: int = 0  # how many rows changed, on the first of several pages


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidBefore:
    """A message that was remembered earlier."""

    same: bool  # with the same words
    outcome: Outcome


class Reading(Protocol):
    """Reads one scope. What lies in another scope is not found, whatever its id."""

    async def get(self, scope: Scope, ids: Sequence[str]) -> list[Memory]:
        """The memories with these ids, in any state, in the order of the ids; the missing are left out.

        Each row is checked against its hash: raises StoreDamaged rather than return altered words.
        """
        ...

    async def at_rows(self, scope: Scope, rows: Sequence[int]) -> dict[int, Memory]:
        """The memories at these row numbers, checked like `get`."""
        ...

    async def page(self, scope: Scope, where: Filter, *, limit: int, cursor: str | None = None) -> Page:
        """A page of the memories that pass the filter, newest first; pages never repeat or skip a memory."""
        ...

    async def rows_where(self, scope: Scope, where: Filter) -> list[int]:
        """The row numbers of all memories that pass the filter."""
        ...

    async def revision(self, scope: Scope) -> int:
        """Grows with each committed change of the scope; 0 if nothing was ever remembered in it."""
        ...

    async def changed_since(self, scope: Scope, revision: int, *, model: str, limit: int, after: int = 0) -> Delta:
        """What changed after a revision, in pages of at most `limit` rows, by row number."""
        ...

    async def same_text(self, scope: Scope, hashes: Iterable[str]) -> dict[str, list[Memory]]:
        """Active memories by content hash."""
        ...

    async def by_key(self, scope: Scope, keys: Iterable[str]) -> dict[str, Memory]:
        """Active memories by their key."""
        ...

    async def said(self, scope: Scope, digests: Mapping[str, str]) -> dict[str, SaidBefore]:
        """What became of messages that were remembered before, by id; the digests are those of their words now."""
        ...

    async def wordings(self, scope: Scope, id: str) -> list[str]:
        """The words of a memory, earliest version first, even if a row was altered; empty if there is no such id."""
        ...

    async def last_sequence(self, scope: Scope, session: str) -> int:
        """The highest place taken in a session, or -1."""
        ...

    async def tombstones(self, scope: Scope, texts: Iterable[str], now: datetime) -> set[str]:
        """Those of the texts (normalised for comparison) that were forgotten and must not come back yet."""
        ...


class Transaction(Reading, Protocol):
    """Reads and writes with the scope's write lock held: what it read cannot change before it commits."""

    async def apply(self, changes: Sequence[Change]) -> None:
        """Make all the changes with their history, or none of them."""
        ...


class Store(Reading, Protocol):
    """Keeps memories. Every implementation passes tests/contract/test_store.py.

    Raises StoreUnavailable if it cannot be reached, StoreFull if there is no room, StoreDamaged if what it
    holds cannot be trusted. Any number of processes may use one store at a time.
    """

    def transaction(self, scope: Scope) -> AbstractAsyncContextManager[Transaction]:
        """Commits when the block ends, durably, and rolls back if it raises."""
        ...

    async def messages(self, scope: Scope, ids: Sequence[str]) -> dict[str, Message]:
        """The words of messages, as far as the store keeps them apart from their memories."""
        ...

    async def history(self, scope: Scope, memory_id: str | None = None, *, limit: int = 100) -> list[Entry]:
        """What happened to one memory, or in the scope, newest first."""
        ...

    async def summaries(self, scope: Scope, record_type: str) -> list[Summary]:
        """Long-term records, newest first."""
        ...

    async def unembedded(
        self, model: str, *, limit: int, everything: bool = False, after: int = 0
    ) -> list[tuple[int, Memory]]:
        """Memories of all scopes that this model has not embedded yet (or all of them), by row number."""
        ...

    async def scopes(self) -> list[Scope]: ...

    async def stats(self, scope: Scope | None, model: str) -> dict[str, Any]:
        """Counts, sizes and what still needs work, of one scope or of all."""
        ...

    def export(self, scope: Scope | None) -> AsyncIterator[dict[str, Any]]:
        """Everything that is kept, as plain values, in an order in which it can be taken in again."""
        ...

    async def backup(self, path: Path) -> None:
        """A complete copy, taken while others write."""
        ...

    def make_room(self) -> bool:
        """Release what was kept aside for a full disk, so that forgetting still works; False if there is nothing."""
        ...

    async def vacuum(self) -> None:
        """Give unused space back and leave no trace of erased words."""
        ...

    async def check(self) -> list[str]:
        """What is wrong with the stored data; empty if nothing is."""
        ...

    async def close(self) -> None: ...
