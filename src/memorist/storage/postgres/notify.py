"""Telling other processes that a scope changed, with LISTEN and NOTIFY.

A hint and nothing more: it may be lost, so whoever listens looks again after a while. It is sent after the commit and
for many commits together, because commits that notify wait for each other on the whole server.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psycopg

from ...errors import MemoristError
from . import pipeline
from .connection import Pool, completed, connect, translated
from .pipeline import Connection

CHANNEL = "memorist"
_LIGHTLY = "SELECT set_config('synchronous_commit', 'off', true)"
_NOTIFY = "SELECT pg_notify($1, note) FROM unnest($2::text[]) note"
_TOGETHER_SECONDS = 0.02
_AGAIN_SECONDS = 1.0  # after the connection was lost


class Bell:
    """Rings for changes made here, and hears those made elsewhere."""

    def __init__(self, url: str, pool: Pool) -> None:
        self._info, self._pool = completed(url), pool
        self._new: dict[int, int] = {}  # revisions by the number of their scope
        self._sending: asyncio.Task[None] | None = None
        self._ear: Connection | None = None

    def ring(self, scope: int, revision: int) -> None:
        """Tell soon that a scope has a new revision."""
        self._new[scope] = revision
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._new:
            await asyncio.sleep(_TOGETHER_SECONDS)
            notes, self._new = [f"{scope}:{revision}" for scope, revision in self._new.items()], {}
            with suppress(MemoristError):
                async with self._pool.lease() as connection:
                    with translated(self._pool.place):
                        await pipeline.asked(
                            connection, [(_LIGHTLY, ()), (_NOTIFY, (CHANNEL, notes))]
                        )

    async def heard(self, seconds: float) -> None:
        """Wait for a note, or for so long."""
        try:
            with translated(self._pool.place):
                self._ear = self._ear or await self._listening()
                async for _ in self._ear.notifies(timeout=seconds, stop_after=1):
                    pass
        except MemoristError:
            await self._deaf()
            await asyncio.sleep(min(seconds, _AGAIN_SECONDS))
        except BaseException:
            await self._deaf()
            raise

    async def _listening(self) -> Connection:
        connection = await connect(self._info, self._pool.place, autocommit=True)
        try:
            await connection.execute(f"LISTEN {CHANNEL}")
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _deaf(self) -> None:
        if self._ear is not None:
            ear, self._ear = self._ear, None
            with suppress(psycopg.Error):
                await ear.close()

    async def close(self) -> None:
        if self._sending is not None:
            await self._sending
        await self._deaf()
