"""Theoria: persist and retrieve memories within a soft cap."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from ..client import Client
from ..errors import Refused
from ..ingest import trim, validation
from ..retrieve import render
from ..retrieve.profiles import Profile
from ..text import clock
from ..text.values import find_links
from ..types import Memory
from . import THEORIA

MOST = 16  # memories to return


class Theoria:
    """Theoria's API over a client; the soft cap and the ranking profile can be chosen."""

    def __init__(
        self,
        client: Client,
        *,
        soft_cap: int | None = None,
        profile: Profile = THEORIA,
    ) -> None:
        self._client = client
        self._profile = profile
        policy = validation.policy(client.ctx.policies, "theoria", client.settings.capacity)
        if soft_cap is not None and soft_cap != policy.capacity:
            validation.number("soft_cap", soft_cap)
            policy = replace(
                policy,
                name=f"theoria.{soft_cap}",
                capacity=soft_cap,
                has_own_capacity=True,
            )
            client.ctx.policies[policy.name] = policy
        self._policy = policy

    @property
    def soft_cap(self) -> int | None:
        """How many entries a user may have in a space before the least valuable are removed."""
        return self._policy.capacity

    async def persist_memory(
        self,
        user_id: str,
        space: str,
        text: str,
        manually_saved: bool = False,
    ) -> str:
        """Store a text, or count it as a repetition; return the id of its entry.

        Raises Refused if the user had it forgotten recently and did not save it manually.
        """
        receipt = await self._client.scope(user=user_id, space=space).remember(
            text,
            policy=self._policy.name,
            manually_saved=manually_saved,
            source_ids=find_links(text),
        )
        if not receipt.ids:
            raise Refused(receipt.outcomes[0].reason)
        return receipt.ids[0]

    async def retrieve_memories(
        self,
        user_id: str,
        space: str,
        query_text: str,
        now: datetime,
        top_n: int = 12,
    ) -> list[Memory]:
        """Return the relevant memories, best and most diverse first: at most `top_n`, and 16."""
        then = Client(self._client.ctx.at(clock.utc(now)), self._client.offline)
        limit = min(MOST, top_n)
        answer = await then.scope(user=user_id, space=space).recall(
            query_text, limit=limit, profile=self._profile
        )
        return list(answer.memories)

    async def enforce_capacity(self, user_id: str, space: str) -> list[str]:
        """Trim a space to the soft cap, except pinned and saved entries; return the ids that were
        removed.
        """
        ctx = self._client.ctx
        scope = self._client.scope(user=user_id, space=space).scope
        if self._policy.capacity is None:
            return []
        async with ctx.store.transaction(scope) as tx:
            return await trim.enforce(tx, scope, self._policy.capacity, ctx.clock())


def context(memories: Sequence[Memory]) -> str:
    """Render memories for a model: by topic, long ones by their summary, with their references."""
    return render.grouped(memories)
