"""Telling other processes that a scope changed, with LISTEN and NOTIFY.

A notification is a hint that may be lost, so listeners also look again after a while. It is sent
after the commit and for many commits together, because commits that notify wait for each other on
the whole server.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import psycopg

from ...errors import MemoristError
from . import pipeline
from .connection import Pool, complete_url, connect, translated
from .pipeline import Connection

CHANNEL = "memorist"
_ASYNC_COMMIT = "SELECT set_config('synchronous_commit', 'off', true)"
_NOTIFY = "SELECT pg_notify($1, note) FROM unnest($2::text[]) note"
_COLLECT_SECONDS = 0.02
_RETRY_SECONDS = 1.0  # after the connection was lost


class Notifier:
    """Announces changes made here, and waits for those made elsewhere."""

    def __init__(self, url: str, pool: Pool) -> None:
        self._info, self._pool = complete_url(url), pool
        self._new: dict[int, int] = {}  # revisions by the number of their scope
        self._sending: asyncio.Task[None] | None = None
        self._listener: Connection | None = None

    def notify(self, scope: int, revision: int) -> None:
        """Announce soon that a scope has a new revision."""
        self._new[scope] = revision
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._new:
            await asyncio.sleep(_COLLECT_SECONDS)
            notes, self._new = [f"{scope}:{revision}" for scope, revision in self._new.items()], {}
            with suppress(MemoristError):
                async with self._pool.lease() as connection:
                    with translated(self._pool.place):
                        await pipeline.exchange(
                            connection, [(_ASYNC_COMMIT, ()), (_NOTIFY, (CHANNEL, notes))]
                        )

    async def wait(self, seconds: float) -> None:
        """Wait for a notification, at most for so long."""
        try:
            with translated(self._pool.place):
                self._listener = self._listener or await self._start_listening()
                async for _ in self._listener.notifies(timeout=seconds, stop_after=1):
                    pass
        except MemoristError:
            await self._stop_listening()
            await asyncio.sleep(min(seconds, _RETRY_SECONDS))
        except BaseException:
            await self._stop_listening()
            raise

    async def _start_listening(self) -> Connection:
        connection = await connect(self._info, self._pool.place, autocommit=True)
        try:
            await connection.execute(f"LISTEN {CHANNEL}")
        except BaseException:
            await connection.close()
            raise
        return connection

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            listener, self._listener = self._listener, None
            with suppress(psycopg.Error):
                await listener.close()

    async def close(self) -> None:
        if self._sending is not None:
            await self._sending
        await self._stop_listening()
