"""Functions of routes for agents. Each takes the scope first; `routes.toml` lists them."""

from __future__ import annotations

from typing import Any

from ...errors import NotAllowed
from ...manage.turn_context import TurnContext
from ...scoped import ScopedClient


async def context(mine: ScopedClient, *, agent: str | None, **options: Any) -> TurnContext:
    """Return what an agent reads before it answers a message, within one budget of tokens.

    The text has what changed in the thread after the revision `since`, the profile of the person,
    pinned memories, whole categories, and what is recalled for the message. `lines` says where
    each line comes from, `cut` what found no room, and `revision` is the `since` of the next call.
    With an agent, only what its allowlist names.
    """
    own = mine.labels.agent  # of the key
    if own in mine.ctx.allowlists.allowlists:
        if agent not in (None, own):
            raise NotAllowed(f"This key is only for the agent {own!r}")
        agent = own
    return await mine.context(**options, agent=agent)


async def query(mine: ScopedClient, *, shape: str, **options: Any) -> list[dict[str, Any]]:
    """Answer the question of an agent, as bullets or in full. Its allowlist always applies."""
    agent = mine.labels.agent or ""
    return await mine.query(**options, agent=agent, return_=shape)


async def feedback(
    mine: ScopedClient,
    *,
    recalled: list[str],
    reply: str,
    used: list[str] | None,
    question: str | None,
) -> dict[str, str]:
    """Report which recalled memories a reply used: told, cited or echoed. No text is stored."""
    text = reply if used is None else None
    return await mine.feedback(recalled, used=used, reply=text, question=question)
