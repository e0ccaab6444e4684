"""Keys that let somebody in, and requests that were answered already. Neither belongs to one scope."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from ..results import Key
from ..text import clock
from . import rows
from .queries import digest
from .tasks import Together

ABANDONED = timedelta(minutes=5)  # after which nobody is at a request any more that has no answer
_COLUMNS = "id, name, tenant, user_id, space, agent, rights, created_at, expires_at, revoked_at"


class Keys(Together):
    """The part of a store that knows callers."""

    async def add_key(self, key: Key, secret: str) -> None:
        values = (
            key.id,
            digest(self._secret, secret),
            key.name,
            key.tenant,
            key.user,
            key.space,
            key.agent,
            " ".join(key.rights),
            clock.iso(key.created_at),
            clock.iso(key.expires_at) if key.expires_at else None,
        )
        sql = "INSERT INTO api_keys (id, digest, name, tenant, user_id, space, agent, rights, created_at, expires_at) "
        async with self._together() as session:
            await session.rows(f"{sql}VALUES ({', '.join('?' * len(values))})", values)

    async def key(self, id: str, secret: str) -> Key | None:
        sql = f"SELECT {_COLUMNS} FROM api_keys WHERE id = ? AND digest = ?"
        found = await self._session.rows(sql, (id, digest(self._secret, secret)))
        return _key(found[0]) if found else None

    async def keys(self) -> list[Key]:
        return [
            _key(row)
            for row in await self._session.rows(
                f"SELECT {_COLUMNS} FROM api_keys ORDER BY created_at, id"
            )
        ]

    async def revoke(self, id: str, at: datetime) -> bool:
        sql = "UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL RETURNING id"
        async with self._together() as session:
            return bool(await session.rows(sql, (clock.iso(at), id)))

    async def begin_request(
        self, caller: str, key: str, request: str, *, at: datetime, since: datetime
    ) -> str | None:
        asked = digest(self._secret, request)
        async with self._together() as session:
            await session.rows("DELETE FROM answered WHERE at < ?", (clock.iso(since),))
            lost = "DELETE FROM answered WHERE caller = ? AND key = ? AND answer IS NULL AND at < ?"
            await session.rows(lost, (caller, key, clock.iso(at - ABANDONED)))
            sql = "INSERT INTO answered (caller, key, request, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING "
            if await session.rows(f"{sql}RETURNING key", (caller, key, asked, clock.iso(at))):
                return None
            sql = "SELECT request, answer FROM answered WHERE caller = ? AND key = ?"
            same, answer = (await session.rows(sql, (caller, key)))[0]
        return "" if same != asked else answer or "pending"

    async def end_request(
        self, caller: str, key: str, answer: str | None, *, begun: datetime
    ) -> None:
        which, values = " WHERE caller = ? AND key = ? AND at = ?", (caller, key, clock.iso(begun))
        async with self._together() as session:
            if answer is None:
                await session.rows(f"DELETE FROM answered{which}", values)
            else:
                await session.rows(f"UPDATE answered SET answer = ?{which}", (answer, *values))


def _key(row: Sequence[Any]) -> Key:
    id, name, tenant, user, space, agent, rights, *times = row
    created, expires, revoked = (rows.moment(time) if time else None for time in times)
    assert created is not None
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
