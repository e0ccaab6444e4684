"""Theoria's memory in its own words: persist, retrieve, keep within the soft cap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from ..client import Client
from ..errors import InvalidInput, Refused
from ..ingest import policies, trim
from ..retrieve import profiles, render
from ..text import clock, normalize
from ..types import Memory

FEWEST, MOST = 8, 16  # memories a question gets, where so many answer and fit


class Theoria:
    """Theoria's API over an engine; the soft cap and the weights of the tri-score can be chosen."""

    def __init__(
        self,
        engine: Client,
        *,
        soft_cap: int | None = None,
        profile: profiles.Profile = profiles.THEORIA,
    ) -> None:
        self._engine, self._profile = engine, profile
        self._policy = policies.named("theoria", engine.settings.capacity)
        if soft_cap is not None and soft_cap != self._policy.capacity:
            if soft_cap < 1:
                raise InvalidInput(f"A soft cap is at least 1, not {soft_cap}")
            self._policy = replace(self._policy, name=f"theoria.{soft_cap}", capacity=soft_cap)
            policies.register(self._policy)

    @property
    def soft_cap(self) -> int | None:
        """How many entries a user has in a space before the least valuable go."""
        return self._policy.capacity

    async def persist_memory(
        self, user_id: str, space: str, text: str, manually_saved: bool = False
    ) -> str:
        """Keep a text, or count it as a repetition; returns the id of the entry that holds it.

        Raises Refused if the person had it forgotten a short while ago and did not save it on purpose.
        """
        receipt = await self._engine.scope(user=user_id, space=space).remember(
            text,
            policy=self._policy.name,
            manually_saved=manually_saved,
            source_ids=normalize.find_links(text),
        )
        if not receipt.ids:
            raise Refused(receipt.outcomes[0].reason)
        return receipt.ids[0]

    async def retrieve_memories(
        self, user_id: str, space: str, query_text: str, now: datetime, top_n: int = 12
    ) -> list[Memory]:
        """The memories that answer, best and most different first: 8 to 16 of them where so many answer and fit."""
        then = Client(self._engine.ctx.at(clock.utc(now)), self._engine.offline)
        limit = min(MOST, max(FEWEST, top_n))
        answer = await then.scope(user=user_id, space=space).recall(
            query_text, limit=limit, profile=self._profile
        )
        return list(answer.memories)

    async def enforce_capacity(self, user_id: str, space: str) -> list[str]:
        """Trim a space to the soft cap, the pinned and saved excepted; returns the ids that went."""
        scope = self._engine.scope(user=user_id, space=space).scope
        if self._policy.capacity is None:
            return []
        async with self._engine.ctx.store.transaction(scope) as tx:
            return await trim.enforce(tx, scope, self._policy.capacity, self._engine.ctx.clock())


def context(memories: Sequence[Memory]) -> str:
    """Memories as text for a model: by topic, long ones by their summary, with the references they rest on."""
    return render.grouped(memories)
