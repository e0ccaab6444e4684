"""What language models cost, and the daily caps that are never exceeded."""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Scope
from . import rows
from .database import EVERY, Database, execute
from .queries import Reader

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmUsage:
    """What one task of a language model cost in a scope on one day."""

    scope: Scope
    day: str  # 2026-11-16, UTC
    task: str
    model: str
    calls: int
    tokens_in: int
    tokens_out: int
    reserved: int = 0  # tokens reserved for calls that are under way, or never came back


@dataclass(frozen=True, slots=True)
class UsageLedger:
    """Reserves and counts the tokens of language models."""

    database: Database
    reader: Reader

    async def reserve(
        self,
        scope: Scope,
        *,
        task: str,
        model: str,
        day: str,
        tokens: int,
        user_cap: int,
        tenant_cap: int,
    ) -> bool:
        """Reserve tokens for a call, if the user and the tenant have so many left on that day (0:
        no cap).

        What is used and reserved never exceeds a cap, however many processes ask at a time.
        """
        key = (scope.tenant, scope.user, scope.space)
        async with self.database.transaction() as connection:
            if lock := connection.dialect.lock:
                await connection.rows(lock.format("spending"))
            found = await connection.rows(_USED, (scope.user, scope.tenant, day), scope=EVERY)
            for used, cap in zip(found[0], (user_cap, tenant_cap), strict=True):
                if cap and used + tokens > cap:
                    return False
            reserve = (_RESERVE, (day, task, model, tokens, *key))
            await connection.read([(_CREATE, key), reserve], scope=EVERY)
        return True

    async def settle(
        self,
        scope: Scope,
        *,
        task: str,
        model: str,
        day: str,
        reserved: int,
        tokens_in: int,
        tokens_out: int,
    ) -> None:
        """Replace what was reserved for a call by what it cost."""
        number = await self.reader.number(scope)
        values = (tokens_in, tokens_out, reserved, number, day, task, model)
        await execute(self.database, _SETTLE, values, scope=number)

    async def list(self, scope: Scope | None, since: str) -> list[LlmUsage]:
        """Return what was used from that day on, by scope, day, task and model."""
        number = EVERY if scope is None else await self.reader.number(scope)
        sql = f"""SELECT s.tenant, s.user_id, s.space, p.day, p.task, p.model, p.calls, p.tokens_in,
        p.tokens_out, p.reserved FROM {_TABLE} WHERE p.day >= ? AND (p.scope = ? OR ? = {EVERY})
        ORDER BY p.day, 1, 2, 3, p.task, p.model"""
        found = await self.database.rows(sql, (since, number, number), scope=number)
        return [rows.parse(LlmUsage, (rows.scope_of(row), *row[3:])) for row in found]
