"""What an agent's loop calls around each turn: before it, what to put before the model; after it, what to keep of it.

How much is told and kept are settings, also read from `MILTON_MEMORY_…`: `memory_context_limit`,
`memory_context_max_chars`, `memory_recency_bias`, `memory_profile_limit`, `memory_store_responses`. Where memory is
off, or the session is incognito, nothing is told and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from ..errors import StoreUnavailable
from ..retrieve import budget, profiles, render
from ..scoped import ScopedClient
from ..sync import BlockingScope, verb
from ..types import Message, Receipt
from .milton import Milton, UserProfile

SAID, REPLIED = 0.2, 0.1  # importance of what the person said, and of what was answered


class Hooks:
    """The hooks, over one scope."""

    def __init__(self, scope: ScopedClient) -> None:
        self._scope, self._settings = scope, scope.ctx.settings

    async def before(self, text: str) -> str:
        """What helps with a turn: the first lines of the profile, then the memories that fit what is said, best first.

        Whole lines, within the limits of the settings; empty where memory is off.
        """
        if await self._scope.privacy.disabled_reason():
            return ""
        given = self._settings
        told = budget.fit(
            await self._profile(), budget.Caps(chars=given.memory_context_max_chars), "\n".join
        ).text
        left = given.memory_context_max_chars - len(told) - bool(told)
        if left < 1 or not given.memory_context_limit or not text.strip():
            return told
        by = profiles.milton(given.memory_recency_bias)
        answer = await self._scope.recall(
            text, limit=given.memory_context_limit, max_chars=left, profile=by
        )
        return "\n".join(filter(None, (told, answer.text)))

    async def after(self, text: str, reply: str | None = None) -> Receipt:
        """Keep what the person said as a crumb, and the reply too where the settings say so."""
        receipt = await self._keep(text, "user", SAID)
        if reply is None or not self._settings.memory_store_responses:
            return receipt
        return Receipt(
            (*receipt.outcomes, *(await self._keep(reply, "assistant", REPLIED)).outcomes)
        )

    async def _keep(self, text: str, role: str, importance: float) -> Receipt:
        said = Message(content=text, role=role, at=self._scope.ctx.clock())
        return await self._scope.remember(
            said, policy="milton", item_type="crumb", importance=importance
        )

    async def _profile(self) -> list[str]:
        with suppress(StoreUnavailable):  # the turn goes on without it
            return list(_lines(await Milton(self._scope).user_profile()))[
                : self._settings.memory_profile_limit
            ]
        return []


class BlockingHooks:
    """The hooks, blocking."""

    def __init__(self, scope: BlockingScope) -> None:
        self._inner, self._loop = Hooks(scope._inner), scope._loop

    before = verb(Hooks.before)
    after = verb(Hooks.after)


def _lines(profile: UserProfile) -> Iterator[str]:
    for label in ("preferences", "stable_facts", "do_not_assume"):
        for line in getattr(profile, label):
            yield f"- [{label.replace('_', ' ')}] {render.safe(line)}"
