"""What the statements need of a database engine: to run one and give back its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

Values = Sequence[Any]


class Session(Protocol):
    """A connection in use, inside a transaction or outside of one."""

    async def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Run one statement; its values stand for the question marks."""
        ...

    async def many(self, sql: str, values: Iterable[Values]) -> None:
        """Run one statement once for each set of values."""
        ...
