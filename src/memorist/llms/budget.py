"""A language model within a budget: what a question may cost is set aside before it is asked, so no cap is passed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from ..errors import BadModelAnswer, ModelUnavailable, OverBudget, ProviderFailed
from ..ports import Store
from ..results import Ask
from ..types import Scope
from . import cost
from .breaker import Breaker


class Metered:
    """An Adviser. The caps are tokens a day (UTC) for a user and for a tenant; 0 is no limit.

    What is set aside by a process that dies stays counted until the day ends.
    """

    def __init__(
        self,
        model: Breaker,
        store: Store,
        *,
        user_cap: int,
        tenant_cap: int,
        clock: Callable[[], datetime],
    ) -> None:
        self.model, self._store, self._clock = model, store, clock
        self._user_cap, self._tenant_cap = user_cap, tenant_cap

    async def answer(self, scope: Scope, ask: Ask) -> Mapping[str, Any]:
        """A value that fits the schema. Raises ModelUnavailable, BadModelAnswer or OverBudget."""
        self.model.check()
        most_in, most_out = (cost.TRIES * tokens for tokens in cost.most(ask))
        call: dict[str, Any] = {
            "task": ask.task,
            "model": self.model.name,
            "day": self._clock().date().isoformat(),
        }
        await self._reserve(scope, call, most_in + most_out)
        spent: tuple[int, int] = (most_in, most_out)  # until something else is known
        try:
            answer = await self.model.answer(ask)
            spent = (answer.tokens_in, answer.tokens_out)
            return answer.value
        except (ModelUnavailable, BadModelAnswer) as error:
            spent = error.cost or spent
            raise
        finally:
            with suppress(ProviderFailed):  # then what was set aside stays counted
                await self._store.settle(
                    scope,
                    **call,
                    reserved=most_in + most_out,
                    tokens_in=min(spent[0], most_in),
                    tokens_out=min(spent[1], most_out),
                )

    async def _reserve(self, scope: Scope, call: dict[str, Any], tokens: int) -> None:
        try:
            is_left = await self._store.reserve(
                scope, tokens=tokens, user_cap=self._user_cap, tenant_cap=self._tenant_cap, **call
            )
        except ProviderFailed as error:
            raise ModelUnavailable(
                "What the language model costs cannot be noted now, so it is not asked"
            ) from error
        if not is_left:
            raise OverBudget(
                "The tokens of the day do not suffice to ask the language model: rules did its work. "
                "Raise `llm_daily_tokens_per_user` or `llm_daily_tokens_per_tenant`, or wait until tomorrow (UTC)"
            )

    async def close(self) -> None:
        await self.model.close()
