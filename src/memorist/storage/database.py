"""The storage port: what differs between SQLite and PostgreSQL. All other SQL works on both.
Numbered migrations bring each to the newest schema."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..errors import MigrationNeeded, StoreDamaged
from ..ports import Vectors
from ..types import Scope, frozen

Values: TypeAlias = Sequence[Any]
Rows: TypeAlias = list[tuple[Any, ...]]
Query: TypeAlias = tuple[str, Values]  # one statement and the values of its question marks
JsonPath: TypeAlias = tuple[str, ...]  # keys that lead to a value in a JSON object
Batch: TypeAlias = tuple[str, Sequence[Values]]  # one statement, run once for each set of values
_MIGRATIONS = (
    "CREATE TABLE migrations (number INTEGER PRIMARY KEY, name TEXT, checksum TEXT NOT NULL)"
)
EVERY = 0  # all scopes; their numbers start at 1


class LogRow(NamedTuple):
    """The log of one change: a history entry if it has an `id`, an event if it has an `event_id`,
    the next change of its thread if it has a `line_id`."""

    scope: int
    at: str | None = None
    revision: int = 0  # new revision of the scope, unless that is already higher
    memory_id: str | None = None
    id: str | None = None
    event: str | None = None
    old_ref: str | None = None
    new_ref: str | None = None
    actor: str | None = None
    meta: str | None = None
    seal: str | None = None
    event_id: str | None = None
    user: str | None = None
    thread: str | None = None
    node: str | None = None
    op: str | None = None
    status: str | None = None
    category: str | None = None
    sim: float | None = None
    line_id: str | None = None
    line_event: str | None = None
    line_meta: str | None = None


@frozen
class Dialect:
    """SQL that differs between engines. With both, times are sortable text and JSON is text in
    Python."""

    lower: str  # a text in lower case, in any script
    each: str  # the members of a JSON array, as rows with a `value`
    first: str  # the first member of a JSON array
    head: str  # the first id in a message's outcome
    now: str  # seconds since 1970, by the clock of the database
    dimensions: str  # of a stored vector
    row: str  # the number of a memory's row, in queries over all scopes that are ordered by it
    skip_locked: str  # leave out rows that another transaction has locked
    lock: str  # lock a table against other writers; empty if the engine has only one writer
    day: str  # the day of a time, in UTC
    columns: str  # query for the names of a table's columns
    size: str  # query for the bytes that the database takes
    integrity: str  # query for problems that the engine finds, "ok" if there are none
    log: Callable[[Sequence[LogRow]], list[Batch]]  # batches that write to the log
    match: Callable[[JsonPath, str, Sequence[Any]], Query]  # metadata: see `match_metadata`
    renumber: tuple[str, ...] = ()  # run after rows were inserted with explicit numbers


class Readable(Protocol):
    """Reads from a database, inside or outside a transaction.

    `scope` is the number of the scope whose rows a statement is about, or EVERY. An engine may hide
    all other rows, so without it a statement sees only tables that do not belong to a scope (or, in
    a transaction, the scope of the previous statement).
    """

    @property
    def dialect(self) -> Dialect: ...

    @property
    def secret(self) -> bytes:
        """The key of the digests in this database."""
        ...

    async def read(self, queries: Sequence[Query], *, scope: int | None = None) -> list[Rows]:
        """Run several statements in one round trip to the database and return the rows of each."""
        ...

    async def rows(self, sql: str, values: Values = (), *, scope: int | None = None) -> Rows:
        """Run one statement and return its rows."""
        ...


class Connection(Readable, Protocol):
    """Statements inside one transaction."""

    async def run(self, batches: Sequence[Batch], *, scope: int | None = None) -> None:
        """Run several batches in one round trip to the database, in order."""
        ...

    def wipe_after_commit(self) -> None:
        """Remove all traces of deleted text from the database's files after the commit."""
        ...

    def notify_after_commit(self, scope: int, revision: int) -> None:
        """Wake processes that wait for changes after the commit."""
        ...


class Database(Readable, Protocol):
    """A transactional SQL database. Every implementation passes the tests in tests/contract.

    Raises StoreUnavailable if it cannot be reached, StoreFull if the disk is full, StoreDamaged if
    its contents cannot be trusted. Any number of processes may use one database at the same time.
    """

    def transaction(
        self, scope: Scope | None = None, *, number: int | None = None
    ) -> AbstractAsyncContextManager[Connection]:
        """Run the body in one transaction: commit durably when it ends, roll back if it raises.

        Writers of one scope are serialized; without a scope the transaction sees all of them.
        `number` is the number of the scope, if it is known.
        """
        ...

    def try_lock(self, name: str) -> AbstractAsyncContextManager[bool]:
        """Hold a named lock while the body runs; yields False if another process holds it."""
        ...

    async def nearest(
        self, scope: int, vector: Vectors, *, model: str, limit: int
    ) -> list[tuple[int, float]]:
        """Return row numbers with their cosine, nearest first: exact in small scopes,
        approximate in large ones. Raises Misconfigured if it does not search vectors itself."""
        ...

    async def ping(self) -> None:
        """Check that the database can be reached. Raises StoreUnavailable."""
        ...

    async def wait_for_change(self, seconds: float) -> None:
        """Wait until something may have changed in some scope, or the time is up."""
        ...

    async def backup(self, path: Path) -> None:
        """Write a complete copy as one SQLite file. Writes may continue during the copy."""
        ...

    async def vacuum(self) -> None:
        """Release unused space and remove all traces of deleted text."""
        ...

    def make_room(self) -> bool:
        """Release the space reserved for a full disk, so that forgetting works; return False if
        there is none."""
        ...

    async def close(self) -> None: ...


async def read_one(
    self: Readable, sql: str, values: Values = (), *, scope: int | None = None
) -> Rows:
    """Run one statement with `read`. This is the `rows` method of every engine."""
    (found,) = await self.read([(sql, values)], scope=scope)
    return found


async def execute(
    database: Database, sql: str, values: Values = (), *, scope: int | None = None
) -> Rows:
    """Run one statement in a separate transaction."""
    async with database.transaction() as connection:
        return await connection.rows(sql, values, scope=scope)


def parse_secret(rows: Rows, place: str) -> bytes:
    """Return the key of the digests. Raises StoreDamaged."""
    try:
        return bytes.fromhex(rows[0][0])
    except (IndexError, TypeError, ValueError) as error:
        raise StoreDamaged(f"The key in {place!r} is missing: restore a backup") from error


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema. A database stores the steps that were applied, with checksums."""

    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def statements(self) -> list[str]:
        """The SQL without comments, split at each ";" that is not inside `$$ … $$`.

        >>> Migration(1, "example", "SELECT 1; DO $$ BEGIN NULL; END $$; -- done").statements
        ['SELECT 1', ' DO $$ BEGIN NULL; END $$']
        """
        bare = re.sub("--.*", "", self.sql)
        found = re.findall(r"(?:\$\$.*?\$\$|[^;])+", bare, re.DOTALL)
        return [statement for statement in found if statement.strip()]


def shipped_migrations(package: str) -> list[Migration]:
    """Return the migrations of an engine's package, in order."""
    steps = []
    for file in resources.files(package).joinpath("migrations").iterdir():
        if file.name.endswith(".sql"):
            number, name = file.name.removesuffix(".sql").split("_", 1)
            steps.append(Migration(int(number), name, file.read_text("utf-8")))
    return sorted(steps, key=lambda step: step.number)


def plan(steps: Iterable[Migration], **meta: str) -> Iterator[Query]:
    """Yield the statements of steps; the first step also creates the migrations table and the
    key."""
    for step in steps:
        if step.number == 1:
            yield _MIGRATIONS, ()
        for statement in step.statements:
            yield statement, ()
        done = (step.number, step.name, step.checksum)
        yield "INSERT INTO migrations VALUES (?, ?, ?)", done
        if step.number == 1:
            for item in (("secret", secrets.token_hex(32)), *meta.items()):
                yield "INSERT INTO meta VALUES (?, ?)", item


def missing_migrations(
    done: Mapping[int, str], steps: Sequence[Migration], place: str
) -> list[Migration]:
    """Return the steps that were not applied yet.

    Raises MigrationNeeded for a database from a newer version, StoreDamaged for an altered one.
    """
    known = {step.number: step.checksum for step in steps}
    newest = max(done, default=0)
    if newest > max(known):
        raise MigrationNeeded(
            f"{place!r} was created by a newer Memorist (schema {newest}): upgrade with pip"
        )
    for number, checksum in done.items():
        if known.get(number) != checksum:
            raise StoreDamaged(f"Schema step {number} of {place!r} is not the one Memorist ships")
    return [step for step in steps if step.number > newest]
