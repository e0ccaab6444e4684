"""What the tables beside the memories have in common: how their statements are run for one scope."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ..types import Scope
from .database import Values

FEW = 200  # values in one statement


class Shelf:
    """Tables of one scope. The first value of every statement is the scope's number."""

    def __init__(self, store: Any, scope: Scope) -> None:
        self._store, self._scope = store, scope

    async def _rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Read outside of a transaction; nothing, if the scope was never written to."""
        found: list[tuple[Any, ...]] = await self._store._rows(self._scope, sql, values)
        return found

    @asynccontextmanager
    async def _writing(self, *, new: bool = True) -> AsyncIterator[Writing]:
        """A transaction that holds the scope's lock. Where nothing `new` is written, no scope is made for it."""
        async with self._store.transaction(self._scope) as tx:
            yield Writing(tx, await (tx.place() if new else tx.number(self._scope)))


class Writing:
    """Statements in a transaction."""

    def __init__(self, tx: Any, number: int) -> None:
        self._tx, self.number = tx, number

    async def rows(self, sql: str, values: Values = ()) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = await self._tx._session.rows(
            sql, (self.number, *values), scope=self.number
        )
        return found

    async def many(self, sql: str, values: Iterable[Values], *, leads: bool = True) -> None:
        """Run a statement for each set of values; the scope's number leads each of them, unless they hold it."""
        given = [(self.number, *each) if leads else tuple(each) for each in values]
        if given:
            await self._tx._session.many(sql, given, scope=self.number)

    def erased(self) -> None:
        """Words were removed: no trace of them is to stay behind."""
        self._tx.wipe()


def few(values: Sequence[Any]) -> list[Sequence[Any]]:
    """The values in portions that one statement can take.

    >>> few("abc")
    ['abc']
    """
    return [values[start : start + FEW] for start in range(0, len(values), FEW)]


def marks(n: int, each: str = "?") -> str:
    """
    >>> marks(2)
    '?, ?'
    """
    return ", ".join([each] * n)
