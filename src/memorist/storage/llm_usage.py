"""What language models cost, and the daily caps that are never exceeded."""

from __future__ import annotations

from dataclasses import dataclass

from ..types import Scope
from .database import EVERY, Database
from .queries import Reader

_TABLE = "spending p JOIN scopes s ON s.id = p.scope"
_TOKENS = "p.tokens_in + p.tokens_out + p.reserved"
_RESERVE = (
    "INSERT INTO spending (scope, day, task, model, calls, tokens_in, tokens_out, reserved) "
    "SELECT id, ?, ?, ?, 0, 0, 0, ? FROM scopes WHERE tenant = ? AND user_id = ? AND space = ? "
    "ON CONFLICT (scope, day, task, model) DO UPDATE SET reserved = spending.reserved + "
    "excluded.reserved"
)


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


class UsageLedger:
    """Reserves and counts the tokens of language models."""

    def __init__(self, database: Database, reader: Reader) -> None:
        self._database = database
        self._reader = reader

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
        sql = f"SELECT coalesce(sum(CASE WHEN s.user_id = ? THEN {_TOKENS} ELSE 0 END), 0), "
        sql += f"coalesce(sum({_TOKENS}), 0) FROM {_TABLE} WHERE s.tenant = ? AND p.day = ?"
        key = (scope.tenant, scope.user, scope.space)
        create = (
            "INSERT INTO scopes (tenant, user_id, space) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
        )
        async with self._database.transaction() as connection:
            if lock := connection.dialect.lock:
                await connection.rows(lock.format("spending"))
            found = await connection.rows(sql, (scope.user, scope.tenant, day), scope=EVERY)
            by_user, by_tenant = map(int, found[0])
            if user_cap and by_user + tokens > user_cap:
                return False
            if tenant_cap and by_tenant + tokens > tenant_cap:
                return False
            await connection.read(
                [(create, key), (_RESERVE, (day, task, model, tokens, *key))], scope=EVERY
            )
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
        number = await self._reader.number(scope)
        sql = (
            "UPDATE spending SET calls = calls + 1, tokens_in = tokens_in + ?, tokens_out = "
            "tokens_out + ?, "
            "reserved = reserved - ? WHERE scope = ? AND day = ? AND task = ? AND model = ?"
        )
        values = (tokens_in, tokens_out, reserved, number, day, task, model)
        async with self._database.transaction() as connection:
            await connection.rows(sql, values, scope=number)

    async def list(self, scope: Scope | None, since: str) -> list[LlmUsage]:
        """Return what was used from that day on, by scope, day, task and model."""
        sql = "SELECT s.tenant, s.user_id, s.space, p.day, p.task, p.model, p.calls, p.tokens_in, "
        sql += f"p.tokens_out, p.reserved FROM {_TABLE} WHERE p.day >= ?"
        number = EVERY
        values: tuple[object, ...] = (since,)
        if scope is not None:
            number = await self._reader.number(scope)
            sql += " AND p.scope = ?"
            values = (since, number)
        sql += " ORDER BY p.day, 1, 2, 3, p.task, p.model"
        names = ("day", "task", "model", "calls", "tokens_in", "tokens_out", "reserved")
        usage = []
        for tenant, user, space, *rest in await self._database.rows(sql, values, scope=number):
            owner = Scope(tenant=tenant, user=user, space=space)
            usage.append(LlmUsage(scope=owner, **dict(zip(names, rest, strict=True))))
        return usage
