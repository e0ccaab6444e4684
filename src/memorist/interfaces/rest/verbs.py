"""Functions of routes whose arguments or results differ from those of a method of the client.

Each takes the scope first. `routes.toml` and `verbs.toml` list them in the group `rest`.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import asdict
from typing import Any

from starlette.responses import Response

from ...errors import NotAllowed, NotFound
from ...manage.turn_context import TurnContext
from ...scoped import ScopedClient
from ...storage import HistoryEntry
from ...types import Filter
from .. import Json
from . import bodies

_LISTS = {"kind": "kinds", "state": "states", "category": "categories", "tag": "tags"}


async def summary(mine: ScopedClient) -> bodies.SpaceSummary:
    """Summarize a space as readable text."""
    return bodies.SpaceSummary(
        space=mine.scope.space,
        summary=await mine.overview(),
        counts=await mine.stats(),
    )


async def list_entries(
    mine: ScopedClient, *, limit: int, cursor: str | None, **conditions: Any
) -> bodies.MemoryPage:
    """List memories, newest first. Pass `cursor` to get the next page of the same list."""
    for name, field in _LISTS.items():
        value = conditions.pop(name)
        conditions[field] = () if value is None else (value,)
    return await list_where(mine, where=Filter(**conditions), limit=limit, cursor=cursor)


async def list_where(
    mine: ScopedClient, *, where: Filter | None, limit: int, cursor: str | None
) -> bodies.MemoryPage:
    """List the memories that a filter matches, newest first, with `cursor` for the next page."""
    # A cursor is only valid for the list it came from.
    digest = hashlib.sha256(f"{mine.scope}{where}".encode()).hexdigest()[:16]
    start = None
    if cursor is not None:
        try:
            start, _, bound = base64.urlsafe_b64decode(cursor).decode().partition(".")
        except ValueError:
            bound = ""
        if bound != digest:
            raise NotFound(
                "Unknown cursor: pass the cursor of the previous page, with the same filters"
            )
    page = await mine.list(where, limit=limit, cursor=start)
    following = None
    if page.cursor:
        following = base64.urlsafe_b64encode(f"{page.cursor}.{digest}".encode()).decode()
    return bodies.MemoryPage(entries=list(page), cursor=following)


async def memory_history(mine: ScopedClient, *, id: str, limit: int) -> list[HistoryEntry]:
    """List the history of a memory, newest first. It outlives the memory."""
    entries = await mine.history(id, limit=limit)
    if not entries:
        raise NotFound(f"No memory with id {id!r} in your spaces")
    return entries


async def load_checkpoint(mine: ScopedClient, *, thread: str) -> Response:
    """Return the last checkpoint of a thread, as it is stored."""
    return Response(await mine.checkpoints.load_json(thread), media_type="application/json")


async def privacy_status(mine: ScopedClient) -> bodies.PrivacyStatus:
    """Return the privacy settings of a space or session."""
    reason = await mine.privacy.disabled_reason()
    settings = asdict(await mine.privacy.settings())
    return bodies.PrivacyStatus(space=mine.scope.space, **settings, on=not reason, reason=reason)


async def withdraw(mine: ScopedClient, *, field: str, actor: str) -> bodies.Withdrawal:
    """Erase a field about the user, its proposals and all its previous values."""
    erased = await mine.consent.withdraw(field, actor=actor)
    return bodies.Withdrawal(field=field, values=erased)


async def context(mine: ScopedClient, *, agent: str | None, **options: Any) -> TurnContext:
    """Return what an agent reads before it answers a message, within one token budget.

    The text has what changed in the thread after the revision `since`, the profile of the person,
    pinned memories, whole categories, and what is recalled for the message. `lines` says where
    each line comes from, `cut` what did not fit, and `revision` is the `since` of the next call.
    With an agent, only what its allowlist names.
    """
    own = mine.labels.agent  # of the key
    if own in mine.ctx.allowlists.allowlists:
        if agent not in (None, own):
            raise NotAllowed(f"This key is only for the agent {own!r}")
        agent = own
    return await mine.context(**options, agent=agent)


async def query(mine: ScopedClient, *, shape: str, **options: Any) -> list[Json]:
    """Answer the question of an agent, as bullets or in full. Its allowlist always applies."""
    return await mine.query(**options, agent=mine.labels.agent or "", return_=shape)


async def feedback(
    mine: ScopedClient, *, reply: str, used: list[str] | None, **options: Any
) -> dict[str, str]:
    """Report which recalled memories a reply used: told, cited or echoed. No text is stored."""
    text = reply if used is None else None
    return await mine.feedback(used=used, reply=text, **options)
