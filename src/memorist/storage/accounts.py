"""Data outside of scopes: API keys, answers to idempotent requests, and the token usage of language
models. Secrets and requests are stored as keyed digests only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ..ports import LlmUsage
from ..text import clock
from ..types import Scope, frozen
from . import rows
from .database import EVERY, Database, execute
from .queries import Reader

# owner: speaks for the person; service: acts for any user of the tenant whom a request names
RIGHTS = ("read", "write", "owner", "admin", "service")
OF_USER = RIGHTS[:-1]  # rights of a caller who is one user
ABANDONED = timedelta(minutes=5)  # after which a request without an answer may be repeated
_KEY = """SELECT id, name, user_id, created_at, tenant, space, agent,
'["' || replace(rights, ' ', '", "') || '"]', expires_at, revoked_at, made_by FROM api_keys"""
_ADD = """INSERT INTO api_keys
(id, digest, name, tenant, user_id, space, agent, rights, created_at, expires_at, made_by)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_REVOKE = """WITH RECURSIVE made (id) AS (SELECT CAST(? AS TEXT)
UNION SELECT k.id FROM api_keys k JOIN made m ON k.made_by = m.id)
UPDATE api_keys SET revoked_at = ? WHERE id IN (SELECT id FROM made) AND revoked_at IS NULL
RETURNING id"""
_TABLE = "spending p JOIN scopes s ON s.id = p.scope"
_TOKENS = "p.tokens_in + p.tokens_out + p.reserved"
_USED = f"""SELECT coalesce(sum(CASE WHEN s.user_id = ? THEN {_TOKENS} ELSE 0 END), 0),
coalesce(sum({_TOKENS}), 0) FROM {_TABLE} WHERE s.tenant = ? AND p.day = ?"""
_CREATE = "INSERT INTO scopes (tenant, user_id, space) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_RESERVE = """INSERT INTO spending
(scope, day, task, model, calls, tokens_in, tokens_out, reserved)
SELECT id, ?, ?, ?, 0, 0, 0, ? FROM scopes WHERE tenant = ? AND user_id = ? AND space = ?
ON CONFLICT (scope, day, task, model)
DO UPDATE SET reserved = spending.reserved + excluded.reserved"""
_SETTLE = """UPDATE spending SET calls = calls + 1, tokens_in = tokens_in + ?,
tokens_out = tokens_out + ?, reserved = reserved - ?
WHERE scope = ? AND day = ? AND task = ? AND model = ?"""


@frozen
class Key:
    """An API key: the user it authenticates and their rights. The secret is shown once and stored as
    a digest."""

    id: str
    name: str
    user: str
    created_at: datetime
    tenant: str = "default"
    space: str | None = None  # None: every space of the user
    agent: str | None = None  # for categories with an allowlist
    rights: tuple[str, ...] = ("read", "write")  # some of RIGHTS
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    made_by: str | None = None  # id of the key that created it; it is revoked with that key

    def is_good(self, now: datetime) -> bool:
        is_expired = self.expires_at is not None and self.expires_at <= now
        return self.revoked_at is None and not is_expired


@dataclass(frozen=True, slots=True)
class Accounts:
    """Base of the tables that are not read by scope."""

    database: Database
    reader: Reader


class Keys(Accounts):
    """Stores API keys."""

    async def add(self, key: Key, secret: str) -> None:
        """Store a key."""
        values = (
            key.id,
            self.reader.digest(secret),
            key.name,
            key.tenant,
            key.user,
            key.space,
            key.agent,
            " ".join(key.rights),
            clock.iso(key.created_at),
            key.expires_at and clock.iso(key.expires_at),
            key.made_by,
        )
        await execute(self.database, _ADD, values)

    async def get(self, id: str, secret: str) -> Key | None:
        """Return the key with this id and secret, even if it is revoked or expired."""
        sql = f"{_KEY} WHERE id = ? AND digest = ?"
        found = await self.database.rows(sql, (id, self.reader.digest(secret)))
        return rows.parse(Key, found[0]) if found else None

    async def list(self) -> list[Key]:
        """Return all keys, oldest first, including revoked ones."""
        found = await self.database.rows(f"{_KEY} ORDER BY created_at, id")
        return rows.parse_all(Key, found)

    async def revoke(self, id: str, at: datetime) -> bool:
        """Revoke a key and those that it created, and so on. Return False if it does not exist or is
        revoked already."""
        found = await execute(self.database, _REVOKE, (id, clock.iso(at)))
        return (id,) in [tuple(row) for row in found]

    async def erase(self, tenant: str, user: str) -> int:
        """Delete the keys of a user with the answers to their requests; return how many."""
        own = "FROM api_keys WHERE tenant = ? AND user_id = ?"
        answers = f"DELETE FROM answered WHERE caller IN (SELECT id {own})"
        async with self.database.transaction() as connection:
            _, gone = await connection.read(
                [(answers, (tenant, user)), (f"DELETE {own} RETURNING id", (tenant, user))]
            )
            connection.wipe_after_commit()
        return len(gone)


class Requests(Accounts):
    """Stores the answers to requests, by caller and idempotency key, so that a repeated request
    gets the same answer."""

    async def begin(
        self,
        caller: str,
        key: str,
        request: str,
        *,
        at: datetime,
        since: datetime,
    ) -> str | None:
        """Record that a caller makes a request with an idempotency key. Return None if it is new.

        Otherwise return the stored answer, "pending" while there is none, or an empty text if the
        key was used for a different request. Requests before `since` and abandoned ones are
        deleted.
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
        if earlier != digest:
            return ""
        return answer or "pending"

    async def end(self, caller: str, key: str, answer: str | None, *, begun: datetime) -> None:
        """Store the answer, which contains ids but no text; None if the request failed and may be
        repeated.

        Does nothing if the request that began at `begun` was replaced by a newer one.
        """
        sql = "DELETE FROM answered"
        values: tuple[str, ...] = (caller, key, clock.iso(begun))
        if answer is not None:
            sql = "UPDATE answered SET answer = ?"
            values = (answer, *values)
        await execute(self.database, f"{sql} WHERE caller = ? AND key = ? AND at = ?", values)


class UsageLedger(Accounts):
    """Reserves and counts the tokens of language models."""

    async def reserve(self, usage: LlmUsage, *, user_cap: int, tenant_cap: int) -> bool:
        """Reserve tokens for a call. Return False if that would exceed the daily cap of the user or
        the tenant (0: no cap).

        Used and reserved tokens together never exceed a cap, even with concurrent processes.
        """
        scope = usage.scope
        key = (scope.tenant, scope.user, scope.space)
        async with self.database.transaction() as connection:
            if lock := connection.dialect.lock:
                await connection.rows(lock.format("spending"))
            found = await connection.rows(_USED, (scope.user, scope.tenant, usage.day), scope=EVERY)
            for used, cap in zip(found[0], (user_cap, tenant_cap), strict=True):
                if cap and used + usage.reserved > cap:
                    return False
            reserve = (usage.day, usage.task, usage.model, usage.reserved, *key)
            await connection.read([(_CREATE, key), (_RESERVE, reserve)], scope=EVERY)
        return True

    async def settle(self, usage: LlmUsage) -> None:
        """Replace the tokens reserved for a call by those it used."""
        number = await self.reader.number(usage.scope)
        cost = (usage.tokens_in, usage.tokens_out, usage.reserved)
        call = (number, usage.day, usage.task, usage.model)
        await execute(self.database, _SETTLE, (*cost, *call), scope=number)

    async def list(self, scope: Scope | None, since: str) -> list[LlmUsage]:
        """Return the usage since a day, by scope, day, task and model."""
        number = EVERY if scope is None else await self.reader.number(scope)
        sql = f"""SELECT s.tenant, s.user_id, s.space, p.day, p.task, p.model, p.calls, p.tokens_in,
        p.tokens_out, p.reserved FROM {_TABLE} WHERE p.day >= ? AND (p.scope = ? OR ? = {EVERY})
        ORDER BY p.day, 1, 2, 3, p.task, p.model"""
        found = await self.database.rows(sql, (since, number, number), scope=number)
        return rows.parse_all(LlmUsage, ((rows.scope_of(row), *row[3:]) for row in found))
