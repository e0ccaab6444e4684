"""The token budget of a language model: the most that a call can cost is reserved first, so no
limit is exceeded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from ..errors import BadModelAnswer, ModelUnavailable, OverBudget, ProviderFailed
from ..ports import Store
from ..results import Ask
from ..text.tokens import count_tokens
from ..types import Scope
from .breaker import Breaker

TRIES = 2  # a question is asked once more if the answer is not usable
OVERHEAD = 1_500  # tokens that a server adds, or we for the schema of the answer or a second try


def max_cost(ask: Ask) -> tuple[int, int]:
    """Return the most input and output tokens of one try: no tokenizer makes more tokens than there
    are bytes.

    >>> max_cost(Ask(task="t", system="", user="é", schema={}, max_tokens=100))
    (1506, 100)
    """
    schema = json.dumps(dict(ask.schema))
    texts = (ask.system, ask.user, schema, schema)  # it may be sent in words and as a parameter
    return OVERHEAD + sum(len(text.encode("utf-8", "replace")) for text in texts), ask.max_tokens


def likely_cost(ask: Ask, reply: str, reported: tuple[int, int]) -> tuple[int, int]:
    """Return the tokens of a try as the server reported them, within what is possible.

    >>> ask = Ask(task="t", system="", user="tea " * 8, schema={}, max_tokens=9)
    >>> likely_cost(ask, "tea", (0, 10**12))
    (9, 9)
    """
    max_in, max_out = max_cost(ask)
    min_in = count_tokens(ask.system) + count_tokens(ask.user)
    tokens_in = min(max_in, max(reported[0], min_in))
    return tokens_in, min(max_out, max(reported[1], count_tokens(reply)))


class MeteredModel:
    """A BudgetedModel. The limits are tokens per day (UTC) for a user and for a tenant; 0 is no
    limit.

    What a process reserved before it died stays counted until the day ends.
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
        """Return a value that fits the schema.

        Raises ModelUnavailable, BadModelAnswer, OverBudget.
        """
        self.model.check()
        max_in, max_out = (TRIES * tokens for tokens in max_cost(ask))
        day = self._clock().date().isoformat()
        call: dict[str, Any] = {"task": ask.task, "model": self.model.name, "day": day}
        await self._reserve(scope, call, max_in + max_out)
        spent: tuple[int, int] = (max_in, max_out)  # until the real figures are known
        try:
            answer = await self.model.answer(ask)
            spent = (answer.tokens_in, answer.tokens_out)
            return answer.value
        except (ModelUnavailable, BadModelAnswer) as error:
            spent = error.cost or spent
            raise
        finally:
            with suppress(ProviderFailed):  # then the reservation stays counted
                await self._store.settle(
                    scope,
                    **call,
                    reserved=max_in + max_out,
                    tokens_in=min(spent[0], max_in),
                    tokens_out=min(spent[1], max_out),
                )

    async def _reserve(self, scope: Scope, call: dict[str, Any], tokens: int) -> None:
        try:
            is_within = await self._store.reserve(
                scope, tokens=tokens, user_cap=self._user_cap, tenant_cap=self._tenant_cap, **call
            )
        except ProviderFailed as error:
            raise ModelUnavailable(
                "The language model is not used, because its cost cannot be recorded now"
            ) from error
        if not is_within:
            raise OverBudget(
                "The daily token budget of the language model is used up, so rules were used. "
                "Raise `llm_daily_tokens_per_user` or `llm_daily_tokens_per_tenant`, or wait until"
                " tomorrow (UTC)"
            )

    async def close(self) -> None:
        await self.model.close()
