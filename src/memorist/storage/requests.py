"""Requests that were answered already, so that a repeated one gets the same answer. They belong
to no scope."""

from __future__ import annotations

from datetime import datetime, timedelta

from ..text import clock
from .database import Database
from .queries import Reader

ABANDONED = timedelta(minutes=5)  # after which a request without an answer may be made again


class Requests:
    """Stores the answers to requests, by caller and idempotency key."""

    def __init__(self, database: Database, reader: Reader) -> None:
        self._database = database
        self._reader = reader

    async def begin(
        self, caller: str, key: str, request: str, *, at: datetime, since: datetime
    ) -> str | None:
        """Note that a caller makes a request under a key of their own; None if it is new.

        Otherwise return the answer it was given, "pending" while there is none, or an empty text if
        it was another request. Requests from before `since` are deleted, and pending ones that were
        abandoned. Of the request only a keyed digest is stored.
        """
        digest = self._reader.digest(request)
        lost = "DELETE FROM answered WHERE caller = ? AND key = ? AND answer IS NULL AND at < ?"
        insert = "INSERT INTO answered (caller, key, request, at) VALUES (?, ?, ?, ?) "
        insert += "ON CONFLICT DO NOTHING RETURNING key"
        async with self._database.transaction() as connection:
            *_, new = await connection.read(
                [
                    ("DELETE FROM answered WHERE at < ?", (clock.iso(since),)),
                    (lost, (caller, key, clock.iso(at - ABANDONED))),
                    (insert, (caller, key, digest, clock.iso(at))),
                ]
            )
            if new:
                return None
            sql = "SELECT request, answer FROM answered WHERE caller = ? AND key = ?"
            known, answer = (await connection.rows(sql, (caller, key)))[0]
        return "" if known != digest else answer or "pending"

    async def end(self, caller: str, key: str, answer: str | None, *, begun: datetime) -> None:
        """Store the answer, which holds ids and no text; None if the request failed and may be made
        again.

        It answers the request that began then: nothing happens if another one has begun since.
        """
        sql = "DELETE FROM answered"
        values: tuple[str, ...] = (caller, key, clock.iso(begun))
        if answer is not None:
            sql = "UPDATE answered SET answer = ?"
            values = (answer, *values)
        async with self._database.transaction() as connection:
            await connection.rows(f"{sql} WHERE caller = ? AND key = ? AND at = ?", values)
