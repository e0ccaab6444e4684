"""API keys, and the answers that their bearers were given. Both belong to no scope; of secrets and
requests only keyed digests are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..text import clock
from . import rows
from .database import Database, execute
from .queries import Reader

RIGHTS = ("read", "write", "owner", "admin")  # owner: acts for the person, as importing does
ABANDONED = timedelta(minutes=5)  # after which a request without an answer may be made again
_KEY = """SELECT id, name, tenant, user_id, space, agent, rights, created_at, expires_at, revoked_at
FROM api_keys"""
_ADD = """INSERT INTO api_keys
(id, digest, name, tenant, user_id, space, agent, rights, created_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key: who its bearer is, and what they may do. Its secret is shown once and stored
    as a digest."""

    id: str
    name: str
    user: str
    created_at: datetime
    tenant: str = "default"
    space: str | None = None  # None: every space of the user
    agent: str | None = None  # for categories with an allowlist
    rights: tuple[str, ...] = ("read", "write")  # read · write · owner · admin
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_good(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class Keys:
    """Stores API keys."""

    database: Database
    reader: Reader

    async def add(self, key: Key, secret: str) -> None:
        """Store a key."""
        owner = (key.name, key.tenant, key.user, key.space, key.agent, " ".join(key.rights))
        times = (clock.iso(key.created_at), key.expires_at and clock.iso(key.expires_at))
        await execute(self.database, _ADD, (key.id, self.reader.digest(secret), *owner, *times))

    async def get(self, id: str, secret: str) -> Key | None:
        """Return the key with that id and secret; also one that is revoked or has expired."""
        sql = f"{_KEY} WHERE id = ? AND digest = ?"
        found = await self.database.rows(sql, (id, self.reader.digest(secret)))
        return _parse(found[0]) if found else None

    async def list(self) -> list[Key]:
        """Return all keys, oldest first, revoked ones too."""
        return [_parse(row) for row in await self.database.rows(f"{_KEY} ORDER BY created_at, id")]

    async def revoke(self, id: str, at: datetime) -> bool:
        """Revoke a key; False if it does not exist or was revoked before."""
        sql = "UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL RETURNING id"
        return bool(await execute(self.database, sql, (clock.iso(at), id)))


def _parse(row: Sequence[Any]) -> Key:
    id, name, tenant, user, space, agent, rights, *times = row
    created, expires, revoked = (at and rows.moment(at) for at in times)
    return Key(
        id=id,
        name=name,
        tenant=tenant,
        user=user,
        space=space,
        agent=agent,
        rights=tuple(rights.split()),
        created_at=created,
        expires_at=expires,
        revoked_at=revoked,
    )


@dataclass(frozen=True, slots=True)
class Requests:
    """Stores the answers to requests, by caller and idempotency key, so that a repeated request
    gets the same answer."""

    database: Database
    reader: Reader

    async def begin(
        self, caller: str, key: str, request: str, *, at: datetime, since: datetime
    ) -> str | None:
        """Note that a caller makes a request under a key of their own; None if it is new.

        Otherwise return the answer it was given, "pending" while there is none, or an empty text if
        it was another request. Requests from before `since` are deleted, and pending ones that were
        abandoned.
        """
        digest = self.reader.digest(request)
        lost = "DELETE FROM answered WHERE caller = ? AND key = ? AND answer IS NULL AND at < ?"
        insert = """INSERT INTO answered (caller, key, request, at) VALUES (?, ?, ?, ?)
        ON CONFLICT DO NOTHING RETURNING key"""
        known = "SELECT request, answer FROM answered WHERE caller = ? AND key = ?"
        async with self.database.transaction() as connection:
            *_, new, found = await connection.read(
                [
                    ("DELETE FROM answered WHERE at < ?", (clock.iso(since),)),
                    (lost, (caller, key, clock.iso(at - ABANDONED))),
                    (insert, (caller, key, digest, clock.iso(at))),
                    (known, (caller, key)),
                ]
            )
        if new:
            return None
        earlier, answer = found[0]
        return "" if earlier != digest else answer or "pending"

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
        await execute(self.database, f"{sql} WHERE caller = ? AND key = ? AND at = ?", values)
