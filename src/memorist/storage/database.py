"""What the statements need of a database engine: to run one and give back its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Values = Sequence[Any]
EVERY = 0  # stands for all scopes, whose numbers begin with 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The few words that engines say differently. Times are text that sorts and JSON is text on our side of each."""

    lower: str  # a text in lower case, whatever its script
    each: str  # the members of a JSON array, as rows with a `value`
    head: str  # the first id in a message's outcome
    now: str  # seconds since 1970, by the clock of the database
    size: str  # how many numbers a vector holds
    row: str  # the number of a memory's row, where all scopes are gone through in its order
    skip_locked: str  # leaves out rows that somebody else is at
    lock: str  # keeps others from changing a table until the transaction ends; empty where one writes at a time anyway
    day: str  # the day of a time, in UTC
    columns: str  # asks for the names of a table's columns


class Session(Protocol):
    """A connection in use, inside a transaction or outside of one.

    `scope` is the number of the scope whose rows the statement is about, or EVERY. An engine may hide all others, so
    without it a statement sees only what belongs to no scope (in a transaction: what it saw before).
    """

    @property
    def dialect(self) -> Dialect: ...

    async def rows(
        self, sql: str, values: Values = (), *, scope: int | None = None
    ) -> list[tuple[Any, ...]]:
        """Run one statement; its values stand for the question marks."""
        ...

    async def many(self, sql: str, values: Iterable[Values], *, scope: int | None = None) -> None:
        """Run one statement once for each set of values."""
        ...
