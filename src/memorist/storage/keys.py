"""API keys. They belong to no scope; of a secret only a keyed digest is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..text import clock
from . import rows
from .database import Database
from .queries import Reader

_COLUMNS = "id, name, tenant, user_id, space, agent, rights, created_at, expires_at, revoked_at"


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


class Keys:
    """Stores API keys."""

    def __init__(self, database: Database, reader: Reader) -> None:
        self._database = database
        self._reader = reader

    async def add(self, key: Key, secret: str) -> None:
        """Store a key."""
        sql = (
            "INSERT INTO api_keys (id, digest, name, tenant, user_id, space, agent, rights, "
            "created_at, expires_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )
        values = (
            key.id,
            self._reader.digest(secret),
            key.name,
            key.tenant,
            key.user,
            key.space,
            key.agent,
            " ".join(key.rights),
            clock.iso(key.created_at),
            clock.iso(key.expires_at) if key.expires_at else None,
        )
        async with self._database.transaction() as connection:
            await connection.rows(sql, values)

    async def get(self, id: str, secret: str) -> Key | None:
        """Return the key with that id and secret; also one that is revoked or has expired."""
        sql = f"SELECT {_COLUMNS} FROM api_keys WHERE id = ? AND digest = ?"
        found = await self._database.rows(sql, (id, self._reader.digest(secret)))
        return _parse(found[0]) if found else None

    async def list(self) -> list[Key]:
        """Return all keys, oldest first, revoked ones too."""
        sql = f"SELECT {_COLUMNS} FROM api_keys ORDER BY created_at, id"
        return [_parse(row) for row in await self._database.rows(sql)]

    async def revoke(self, id: str, at: datetime) -> bool:
        """Revoke a key; False if it does not exist or was revoked before."""
        sql = "UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL RETURNING id"
        async with self._database.transaction() as connection:
            return bool(await connection.rows(sql, (clock.iso(at), id)))


def _parse(row: Sequence[Any]) -> Key:
    id, name, tenant, user, space, agent, rights, created, expires, revoked = row
    return Key(
        id=id,
        name=name,
        tenant=tenant,
        user=user,
        space=space,
        agent=agent,
        rights=tuple(rights.split()),
        created_at=rows.moment(created),
        expires_at=rows.moment(expires) if expires else None,
        revoked_at=rows.moment(revoked) if revoked else None,
    )
