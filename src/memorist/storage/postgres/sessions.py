"""Running statements, each with the scope it may see.

Row-level security compares every row with a setting of the transaction, so even one SELECT comes after another that
makes the setting; they travel together, so it still costs one journey.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ..database import EVERY, Dialect, Values
from . import pipeline
from .connection import ANSWER_SECONDS, Pool, answered
from .pipeline import Connection
from .types import numbered

SETTINGS = (
    "SELECT set_config('role', $1, true), set_config('search_path', $2, true), "
    "set_config('memorist.scope', $3, true), set_config('memorist.every_scope', $4, true), "
    "set_config('statement_timeout', $5, true)"
)
_DURABLE = "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
_PORTION = 256  # statements that travel together


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How we speak to one database."""

    place: str  # as it may be printed
    dialect: Dialect
    role: str  # who we are in a transaction: whoever logged in may be above row-level security
    path: str  # where tables and types are looked for

    def settings(self, scope: int | None) -> pipeline.Statement:
        """What a transaction begins with: who asks, whose rows there are, how long a statement may take."""
        one = "" if scope is None or scope == EVERY else str(scope)
        return SETTINGS, (
            self.role,
            self.path,
            one,
            "on" if scope == EVERY else "off",
            f"{ANSWER_SECONDS}s",
        )


class Outside:
    """Statements outside of a transaction, each on any connection. Implements `Session`."""

    def __init__(self, pool: Pool, manner: Manner) -> None:
        self.pool, self.manner, self.dialect = pool, manner, manner.dialect

    async def rows(
        self, sql: str, values: Values = (), *, scope: int | None = None
    ) -> list[tuple[Any, ...]]:
        async with self.pool.lease() as connection, answered(self.manner.place):
            return (
                await pipeline.asked(
                    connection, [self.manner.settings(scope), (numbered(sql), values)]
                )
            )[-1]

    async def many(self, sql: str, values: Iterable[Values], *, scope: int | None = None) -> None:
        raise NotImplementedError("Changes are made in a transaction")

    @asynccontextmanager
    async def begun(self, scope: int | None, *, lock: int | None = None) -> AsyncIterator[Inside]:
        """A transaction; commits at the end of the block. With a lock it is alone among those with the same one."""
        async with self.pool.lease() as connection:
            session = Inside(connection, self.manner)
            await session.begin(scope, lock)
            yield session
            await _to_the_end(session.commit())


class Inside:
    """Statements in one transaction. Implements `Session`."""

    def __init__(self, connection: Connection, manner: Manner) -> None:
        self._connection, self._manner, self.dialect = connection, manner, manner.dialect
        self._scope: int | None = None

    async def begin(self, scope: int | None, lock: int | None) -> None:
        alone = [] if lock is None else [("SELECT pg_advisory_xact_lock($1)", (lock,))]
        async with answered(self._manner.place):
            await pipeline.asked(
                self._connection,
                [("BEGIN", ()), self._manner.settings(scope), (_DURABLE, ()), *alone],
            )
        self._scope = scope

    async def rows(
        self, sql: str, values: Values = (), *, scope: int | None = None
    ) -> list[tuple[Any, ...]]:
        async with answered(self._manner.place):
            return (
                await pipeline.asked(
                    self._connection, [*self._seeing(scope), (numbered(sql), values)]
                )
            )[-1]

    async def many(self, sql: str, values: Iterable[Values], *, scope: int | None = None) -> None:
        batch = list(values)
        async with answered(self._manner.place):
            if batch and (settings := self._seeing(scope)):
                await pipeline.asked(self._connection, settings)
        for start in range(0, len(batch), _PORTION):
            async with answered(self._manner.place):
                await pipeline.repeated(
                    self._connection, numbered(sql), batch[start : start + _PORTION]
                )

    def _seeing(self, scope: int | None) -> list[pipeline.Statement]:
        """What changes the scope, if it is another one than before."""
        if scope is None or scope == self._scope:
            return []
        self._scope = scope
        return [self._manner.settings(scope)]

    async def commit(self) -> None:
        async with answered(self._manner.place):
            await pipeline.commit(self._connection)


async def _to_the_end(work: Any) -> None:
    """Wait for something that must not be cut in the middle, even if we are cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(Exception):
            await task
        raise
