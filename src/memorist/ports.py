"""The doors to the outside world. A docstring here is a contract; `tests/contract` holds every provider to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from .results import (
    Answer,
    Ask,
    Backlog,
    Entry,
    Key,
    Logged,
    Page,
    Proposal,
    Saved,
    SpaceSettings,
    Spending,
    Tally,
    Task,
)
from .storage.changes import Change, Happened, Pending, Relation, Summary
from .types import Filter, Memory, Message, Outcome, Scope

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


class LanguageModel(Protocol):
    """Answers questions in a given shape."""

    @property
    def name(self) -> str: ...

    async def answer(self, ask: Ask) -> Answer:
        """An answer that fits the schema, asked for once more if the first does not.

        Raises ModelUnavailable if none comes in time, BadModelAnswer if none can be used.
        """
        ...

    async def close(self) -> None: ...


class BudgetedModel(Protocol):
    """A language model within the budget of whoever it works for; `llms.metered` makes one."""

    async def answer(self, scope: Scope, ask: Ask) -> Mapping[str, Any]:
        """A value that fits the schema of the question; what it cost is in the ledger of the scope.

        Raises ModelUnavailable, BadModelAnswer or OverBudget: then rules do the work, and the receipt says so.
        """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """A memory as a vector index keeps it: where it stands in the store, its vector, and what can be filtered on."""

    row: int
    vector: Vectors
    about: Mapping[
        str, str | float | bool
    ]  # user_id, session_id, memory_type, importance, compressed, created_at …


class VectorIndex(Protocol):
    """Finds near vectors outside this process. It holds derived data: filled from the store, never trusted alone.

    Every method raises IndexUnavailable if the index does not answer in time.
    """

    @property
    def name(self) -> str:
        """Names the index and where it is: what was put into another one is not in this one."""
        ...

    async def put(self, scope: Scope, entries: Sequence[IndexEntry]) -> None:
        """Add entries, or replace those of the same rows."""
        ...

    async def delete(self, scope: Scope, rows: Sequence[int]) -> None:
        """Remove rows; what is not there is no error."""
        ...

    async def nearest(self, scope: Scope, vector: Vectors, *, limit: int) -> list[int]:
        """The rows of a scope whose vectors are nearest by cosine, nearest first, about as well as it can."""
        ...

    async def clear(self) -> None:
        """Remove everything of this store and model, so that it can be filled anew."""
        ...

    async def count(self) -> int:
        """How many entries of this store and model it holds."""
        ...

    async def close(self) -> None: ...


class NearestRows(Protocol):
    """Answers for the dense leg of scopes whose vectors are not held in this process."""

    async def nearest(
        self, scope: Scope, vector: Vectors, *, limit: int, revision: int
    ) -> tuple[list[int], str]:
        """Return the nearest rows at a revision of the scope, and "ok" or what is wrong.

        Raises ProviderFailed.
        """
        ...

    def notify(self, scope: Scope) -> None:
        """Bring the index up to date with the scope soon, in the background."""
        ...

    async def sync(self, scope: Scope) -> bool:
        """Bring the index up to date with the scope now; False if another process is doing it."""
        ...

    async def close(self) -> None: ...


class Searching(Protocol):
    """A store that finds near vectors itself."""

    async def nearest(
        self, scope: Scope, vector: Vectors, *, model: str, limit: int
    ) -> list[tuple[int, float]]:
        """Row numbers with their cosine, nearest first; exact in small scopes, about right in large ones."""
        ...


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

    async def page(
        self, scope: Scope, where: Filter, *, limit: int, cursor: str | None = None
    ) -> Page:
        """A page of the memories that pass the filter, newest first; pages never repeat or skip a memory."""
        ...

    async def rows_where(self, scope: Scope, where: Filter) -> list[int]:
        """The row numbers of all memories that pass the filter."""
        ...

    async def revision(self, scope: Scope) -> int:
        """Grows with each committed change of the scope; 0 if nothing was ever remembered in it."""
        ...

    async def changed_since(
        self, scope: Scope, revision: int, *, model: str, limit: int, after: int = 0
    ) -> Delta:
        """What changed after a revision, in pages of at most `limit` rows, by row number."""
        ...

    async def vectors(
        self, scope: Scope, numbers: Sequence[int], *, model: str
    ) -> dict[int, bytes]:
        """The vectors that a model made of the memories at these row numbers: float32, little-endian."""
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

    async def relations(
        self, scope: Scope, type: str, *, limit: int, from_id: str | None = None
    ) -> list[Relation]:
        """The relations of a type in a scope, or of one memory, newest first."""
        ...

    async def links(self, scope: Scope, ids: Sequence[str]) -> list[Relation]:
        """The `related_to` relations that begin or end at these memories and whose other end is active, by strength."""
        ...

    async def logged(self, scope: Scope, thread: str, since: int) -> list[Logged]:
        """The changes of a thread after a revision, oldest first, as far back as they are kept."""
        ...

    async def shown(self, scope: Scope, thread: str) -> int:
        """The revision up to which the changes of a thread were told."""
        ...

    async def last_sequence(self, scope: Scope, session: str) -> int:
        """The highest place taken in a session, or -1."""
        ...

    async def space_settings(
        self, scope: Scope, sessions: Iterable[str | None]
    ) -> tuple[SpaceSettings, set[str | None]]:
        """What the person decided for the space, and which of the sessions are incognito (None: no session named)."""
        ...

    async def proposals(self, scope: Scope) -> list[Proposal]:
        """What is proposed or in force of the user context, oldest first."""
        ...

    async def checked(self, scope: Scope, since: datetime) -> set[tuple[str, str, float]]:
        """The pairs of memories that were compared since then, with their cosine in two places."""
        ...

    async def tombstones(self, scope: Scope, texts: Iterable[str], now: datetime) -> set[str]:
        """Those of the texts (normalised for comparison) that were forgotten and must not come back yet."""
        ...


class Transaction(Reading, Protocol):
    """Reads and writes with the scope's write lock held: what it read cannot change before it commits."""

    @property
    def operation(self) -> str:
        """What this transaction is called in the history."""
        ...

    async def apply(self, changes: Sequence[Change]) -> None:
        """Make all the changes with their history, or none of them.

        Raises RevisionConflict for a task that is Done under a lease that was given to somebody else in the meantime.
        """
        ...

    async def tidy(self, before: datetime) -> None:
        """Let go of events and comparisons from before a time, of tombstones that ended before it, and of all but the
        last changes of each thread."""
        ...


class Checkpoints(Protocol):
    """Keeps one JSON document for each thread of a scope. What another scope saved is not found."""

    async def save(self, thread: str, data: str, at: datetime) -> Saved:
        """Keep the document, in place of the one before, durably."""
        ...

    async def load(self, thread: str) -> str | None:
        """A document equal to the one that was saved last."""
        ...

    async def list(self, *, limit: int) -> list[Saved]:
        """Which threads have one, the one saved last first."""
        ...

    async def delete(self, thread: str) -> bool:
        """False if there was none."""
        ...


class Store(Reading, Protocol):
    """Keeps memories. Every implementation passes tests/contract/test_store.py.

    Raises StoreUnavailable if it cannot be reached, StoreFull if there is no room, StoreDamaged if what it
    holds cannot be trusted. Any number of processes may use one store at a time.
    """

    def transaction(self, scope: Scope) -> AbstractAsyncContextManager[Transaction]:
        """Commits when the block ends, durably, and rolls back if it raises."""
        ...

    def checkpoints(self, scope: Scope) -> Checkpoints:
        """Where the threads of a scope stood."""
        ...

    async def messages(self, scope: Scope, ids: Sequence[str]) -> dict[str, Message]:
        """The words of messages, as far as the store keeps them apart from their memories."""
        ...

    async def history(
        self, scope: Scope, memory_id: str | None = None, *, limit: int = 100
    ) -> list[Entry]:
        """What happened to one memory, or in the scope, newest first."""
        ...

    async def history_since(
        self, scope: Scope, name: Literal["operation", "session"], value: str
    ) -> list[Entry]:
        """What happened in the scope since the first entry of an operation or a session, oldest first."""
        ...

    async def events(
        self, scope: Scope, *, node: str | None, op: str | None, limit: int
    ) -> list[Happened]:
        """What the parts did, newest first."""
        ...

    async def tallies(
        self, scope: Scope | None, since: datetime, until: datetime | None = None
    ) -> list[Tally]:
        """How often they did what from then on, and before `until`: day by day, in one scope or in all."""
        ...

    async def summaries(self, scope: Scope, record_type: str) -> list[Summary]:
        """Long-term records, newest first."""
        ...

    async def unembedded(
        self,
        model: str,
        *,
        limit: int,
        everything: bool = False,
        after: int = 0,
        dimensions: int | None = None,
    ) -> list[tuple[int, Memory]]:
        """Memories of all scopes that this model has not embedded yet (or all of them), by row number.

        Where `dimensions` are given, a vector of another size counts as none.
        """
        ...

    async def drop_vectors(self, keep: str) -> int:
        """Delete the vectors of all models but one; how many there were."""
        ...

    async def name(self) -> str:
        """A short name that no other store has, for what is derived from this one."""
        ...

    async def position(self, scope: Scope, name: str) -> int:
        """How far a vector index has followed the scope: a revision, 0 if it has not begun."""
        ...

    async def move(self, scope: Scope, name: str, revision: int) -> None:
        """Note that a vector index has followed so far."""
        ...

    async def claim_unembedded(
        self,
        model: str,
        *,
        worker: str,
        limit: int,
        lease_seconds: float,
        everything: bool = False,
        waiting: bool = False,
        after: int = 0,
        dimensions: int | None = None,
    ) -> list[tuple[int, Memory]]:
        """Like `unembedded`, but nobody else is given these for so long; then what was not done is free again.

        `waiting` asks only for those that no model has embedded, which is quick however many others there are.
        """
        ...

    async def release(self, worker: str) -> None:
        """Give back what this worker has claimed."""
        ...

    async def claim_tasks(
        self, names: Sequence[str], *, now: datetime, limit: int, lease_seconds: float
    ) -> list[Task]:
        """Work of these names that is due, of all scopes; nobody else is given it for so long.

        Longest due first, but for what was begun before: that comes last, so that nothing holds up all others. What
        has a key and was begun eight times without coming to its end is set aside: nobody is given it.
        """
        ...

    async def renew(self, task: Task, *, lease_seconds: float) -> bool:
        """Keep claimed work for so long from now; False if somebody else has it, or it is done."""
        ...

    async def postpone(self, task: Task, *, due_at: datetime, failed: bool = True) -> None:
        """Give claimed work back for a later time. Does nothing if the lease is over and somebody else has it.

        What did not fail does not count as begun.
        """
        ...

    async def seed(
        self, name: str, *, due: Callable[[Scope], datetime], latest: datetime, whole: bool = False
    ) -> int:
        """Give a duty to each scope that has none, due when `due` says, or to one scope for all; how many got one.

        One that is due after `latest` was put off by a clock that was ahead: it is due then.
        """
        ...

    async def retry(self, names: Sequence[str], *, now: datetime) -> int:
        """Let work that was set aside be tried again; how much there was."""
        ...

    async def backlog(self, now: datetime) -> list[Backlog]:
        """How much work waits, by name, of all scopes; `embed` stands for memories without a vector."""
        ...

    async def reserve(
        self,
        scope: Scope,
        *,
        task: str,
        model: str,
        day: str,
        tokens: int,
        user_cap: int,
        tenant_cap: int,
    ) -> bool:
        """Set tokens aside for a call, if the user and the tenant have so many left on that day (0: no limit).

        What is spent and set aside never goes beyond a cap, however many processes ask at a time.
        """
        ...

    async def settle(
        self,
        scope: Scope,
        *,
        task: str,
        model: str,
        day: str,
        reserved: int,
        tokens_in: int,
        tokens_out: int,
    ) -> None:
        """Put what a call cost in the place of what was set aside for it."""
        ...

    async def spending(self, scope: Scope | None, since: str) -> list[Spending]:
        """What was spent from that day on, by scope, day, task and model."""
        ...

    async def add_key(self, key: Key, secret: str) -> None:
        """Let somebody in who shows this secret. Only a keyed digest of it is kept."""
        ...

    async def key(self, id: str, secret: str) -> Key | None:
        """The key of that id, if the secret is its own; also one that is revoked or has expired."""
        ...

    async def keys(self) -> list[Key]:
        """All keys there ever were, oldest first."""
        ...

    async def revoke(self, id: str, at: datetime) -> bool:
        """Let nobody in with this key any more; False if there is no such key, or it was revoked before."""
        ...

    async def begin_request(
        self, caller: str, key: str, request: str, *, at: datetime, since: datetime
    ) -> str | None:
        """Note that a caller asks for something under a key of their own; None if that is new.

        Otherwise the answer it was given, "pending" while there is none, or an empty text if it was another request.
        What was asked before `since` is let go of, and what has been pending for minutes, because whoever was at it
        is gone. Of the request only a keyed digest is kept.
        """
        ...

    async def end_request(
        self, caller: str, key: str, answer: str | None, *, begun: datetime
    ) -> None:
        """Keep the answer, which holds ids and no words; None if the request failed and may be made again.

        It is the answer to what began then: nothing happens if somebody else is at it by now.
        """
        ...

    def alone(self, name: str) -> AbstractAsyncContextManager[bool]:
        """Whether nobody else, in any process, is in such a block of that name; then nobody can be until it ends."""
        ...

    async def changes(self, seconds: float) -> None:
        """Wait until something may have changed in some scope, or for so long."""
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


class Spool(Protocol):
    """Holds on disk what is told while the store is away, in order, for any number of processes.

    Its methods block for as long as the disk takes, and raise OSError where there is none.
    """

    @property
    def folder(self) -> Path: ...

    @property
    def is_empty(self) -> bool: ...

    def waiting(self) -> list[Pending]:
        """What waits, drafts before long-term records, otherwise in the order it was told."""
        ...

    def add(self, new: Sequence[Pending]) -> list[Pending]:
        """Keep these durably, all or none; for a message that waits already, gives the one that waits.

        Raises InvalidInput for what could not be read back.
        """
        ...

    def remove(self, ids: Iterable[str], problems: Collection[str] = ()) -> list[str]:
        """Take these out for good, and set those with a problem aside with what cannot be read; gives the ids found."""
        ...

    def set_aside(self) -> list[Path]:
        """The files with what could not be handed over."""
        ...

    def alone(self) -> AbstractContextManager[bool]:
        """Whether nobody else hands lines over; then nobody else can until the block ends or this process dies."""
        ...

    def close(self) -> None: ...
