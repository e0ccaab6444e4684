"""The storage port: what differs between SQLite and PostgreSQL. All other SQL is understood by
both."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ..ports import Vectors
from ..types import Scope

Values: TypeAlias = Sequence[Any]
Rows: TypeAlias = list[tuple[Any, ...]]
Query: TypeAlias = tuple[str, Values]  # one statement and the values of its question marks
Batch: TypeAlias = tuple[str, Sequence[Values]]  # one statement, run once for each set of values
EVERY = 0  # stands for all scopes, whose numbers begin with 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """SQL that engines write differently. For both, times are sortable text and JSON is text in
    Python."""

    lower: str  # a text in lower case, in any script
    each: str  # the members of a JSON array, as rows with a `value`
    head: str  # the first id in a message's outcome
    now: str  # seconds since 1970, by the clock of the database
    dimensions: str  # of a stored vector
    row: str  # the number of a memory's row, in queries that go through all scopes in its order
    skip_locked: str  # leave out rows that another transaction has locked
    lock: str  # lock a table against other writers; empty where there is one writer anyway
    day: str  # the day of a time, in UTC
    columns: str  # query for the names of a table's columns
    size: str  # query for the bytes that the database takes
    integrity: str  # query for the problems that the engine itself finds, "ok" where there are none
    renumber: tuple[str, ...] = ()  # run after rows were inserted together with their numbers


class Connection(Protocol):
    """Statements inside one transaction.

    `scope` is the number of the scope whose rows a statement is about, or EVERY. An engine may hide
    all other rows, so without it a statement sees only tables that belong to no scope (or what it
    saw before).
    """

    @property
    def dialect(self) -> Dialect: ...

    @property
    def secret(self) -> bytes:
        """The key of the digests in this database."""
        ...

    async def rows(self, sql: str, values: Values = (), *, scope: int | None = None) -> Rows:
        """Run one statement and return its rows."""
        ...

    async def read(self, queries: Sequence[Query], *, scope: int | None = None) -> list[Rows]:
        """Run several statements in one trip to the database and return the rows of each."""
        ...

    async def run(self, batches: Sequence[Batch], *, scope: int | None = None) -> None:
        """Run several batches in one trip to the database, in order."""
        ...

    def wipe_after_commit(self) -> None:
        """Leave no trace of deleted text in the database's files once this transaction is
        committed."""
        ...

    def notify_after_commit(self, scope: int, revision: int) -> None:
        """Wake those who wait for changes once this transaction is committed."""
        ...


class Database(Protocol):
    """A transactional SQL database. Every implementation passes the tests in tests/contract.

    Raises StoreUnavailable if it cannot be reached, StoreFull if there is no room, StoreDamaged if
    its contents cannot be trusted. Any number of processes may use one database at a time.
    """

    @property
    def dialect(self) -> Dialect: ...

    @property
    def secret(self) -> bytes:
        """The key of the digests in this database."""
        ...

    async def rows(self, sql: str, values: Values = (), *, scope: int | None = None) -> Rows:
        """Read outside a transaction."""
        ...

    async def read(self, queries: Sequence[Query], *, scope: int | None = None) -> list[Rows]:
        """Read with several statements in one trip to the database."""
        ...

    def transaction(
        self, scope: Scope | None = None, *, number: int | None = None
    ) -> AbstractAsyncContextManager[Connection]:
        """Run the body in one transaction: commit durably when it ends, roll back if it raises.

        Writers of one scope are serialized; without a scope the transaction sees all of them.
        `number` is that of the scope, where it is known.
        """
        ...

    def try_lock(self, name: str) -> AbstractAsyncContextManager[bool]:
        """Hold a named lock for the length of the body; yields False if another process holds
        it."""
        ...

    async def wait_for_change(self, seconds: float) -> None:
        """Wait until something may have changed in some scope, at most for so long."""
        ...

    async def backup(self, path: Path) -> None:
        """Write a complete copy as one SQLite file, while others may write."""
        ...

    async def vacuum(self) -> None:
        """Give unused space back and leave no trace of deleted text."""
        ...

    def make_room(self) -> bool:
        """Release the space reserved for a full disk, so that forgetting works; False if there
        is none."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class VectorSearch(Protocol):
    """A database that finds near vectors itself."""

    async def nearest(
        self, scope: int, vector: Vectors, *, model: str, limit: int
    ) -> list[tuple[int, float]]:
        """Return row numbers with their cosine, nearest first: exact in small scopes,
        approximate in large ones."""
        ...
