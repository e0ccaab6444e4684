"""What the language model cost, and the caps that it never goes beyond."""

from __future__ import annotations

from ..results import Spending
from ..types import Scope
from .database import EVERY
from .tasks import Together

_TABLE = "spending p JOIN scopes s ON s.id = p.scope"
_TOKENS = "p.tokens_in + p.tokens_out + p.reserved"


class Spendings(Together):
    """The part of a store that keeps the ledger."""

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
        async with self._together() as session:
            if lock := session.dialect.lock:
                await session.rows(lock.format("spending"))
            sql = f"SELECT coalesce(sum(CASE WHEN s.user_id = ? THEN {_TOKENS} ELSE 0 END), 0), "
            sql += f"coalesce(sum({_TOKENS}), 0) FROM {_TABLE} WHERE s.tenant = ? AND p.day = ?"
            found = await session.rows(sql, (scope.user, scope.tenant, day), scope=EVERY)
            if any(
                cap and int(spent) + tokens > cap
                for spent, cap in zip(found[0], (user_cap, tenant_cap), strict=True)
            ):
                return False
            key = (scope.tenant, scope.user, scope.space)
            await session.rows(
                "INSERT INTO scopes (tenant, user_id, space) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                key,
            )
            await session.rows(
                "INSERT INTO spending (scope, day, task, model, calls, tokens_in, tokens_out, reserved) "
                "SELECT id, ?, ?, ?, 0, 0, 0, ? FROM scopes WHERE tenant = ? AND user_id = ? AND space = ? "
                "ON CONFLICT (scope, day, task, model) DO UPDATE SET reserved = spending.reserved + excluded.reserved",
                (day, task, model, tokens, *key),
                scope=EVERY,
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
        number = await self.number(scope)
        async with self._together() as session:
            await session.rows(
                "UPDATE spending SET calls = calls + 1, tokens_in = tokens_in + ?, tokens_out = tokens_out + ?, "
                "reserved = reserved - ? WHERE scope = ? AND day = ? AND task = ? AND model = ?",
                (tokens_in, tokens_out, reserved, number, day, task, model),
                scope=number,
            )

    async def spending(self, scope: Scope | None, since: str) -> list[Spending]:
        number = EVERY if scope is None else await self.number(scope)
        sql = "SELECT s.tenant, s.user_id, s.space, p.day, p.task, p.model, p.calls, p.tokens_in, p.tokens_out, "
        sql += f"p.reserved FROM {_TABLE} WHERE p.day >= ?{'' if scope is None else ' AND p.scope = ?'} "
        values = (since,) if scope is None else (since, number)
        found = await self._session.rows(
            f"{sql}ORDER BY p.day, 1, 2, 3, p.task, p.model", values, scope=number
        )
        return [
            Spending(
                scope=Scope(tenant=row[0], user=row[1], space=row[2]),
                day=row[3],
                task=row[4],
                model=row[5],
                calls=row[6],
                tokens_in=row[7],
                tokens_out=row[8],
                reserved=row[9],
            )
            for row in found
        ]
