"""Everything of one user, in all spaces: erase it, or export it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from ..context import Context, Place
from ..errors import StoreDamaged
from ..storage import dump, scan
from ..types import Filter, Labels, frozen
from . import forget
from .journal import Journal, snapshot


@frozen
class ErasedUser:
    """What was erased of a user."""

    spaces: tuple[str, ...]
    memories: int
    keys: int
    spooled: int = 0  # writes that were pending or set aside
    journal_lines: int = 0


async def erase_user(ctx: Context, tenant: str, user: str) -> ErasedUser:
    """Erase all spaces of a user, their API keys and the lines of the journal.

    Memories are forgotten first, in slices, so that no copy of their words stays anywhere.
    """
    store = ctx.store
    spaces: list[str] = []
    memories = lines = 0
    journal = None if ctx.settings.journal_dir is None else Journal(ctx.settings.journal_dir)
    if journal is not None:
        lines = await asyncio.to_thread(journal.erase_user, tenant, user)
    for scope in await store.scopes(tenant, user):
        ids = await store.rows_where(scope, Filter(states=()), "id")
        with suppress(StoreDamaged):  # altered rows are erased with the space
            await forget.forget(Place(ctx, scope, Labels()), ids, forget.Manner())
        await store.erase_scope(scope)
        ctx.index.drop(scope)
        spaces.append(scope.space)
        memories += len(ids)
    keys = await store.keys.erase(tenant, user)
    if journal is not None and journal.has_snapshot:
        await snapshot(ctx, refresh=True)
    return ErasedUser(spaces=tuple(spaces), memories=memories, keys=keys, journal_lines=lines)


async def export_user(ctx: Context, tenant: str, user: str) -> AsyncIterator[dict[str, Any]]:
    """Yield everything that is stored of a user, in all spaces, with API keys and journal lines.

    `import_` reads the memories and ignores what belongs to this place alone.
    """
    scopes = await ctx.store.scopes(tenant, user)
    async for record in scan.export(ctx.store, scopes):
        yield record
    for scope in scopes:
        async for record in scan.export_rows(ctx.store, scope):
            yield record
    for key in await ctx.store.keys.list():
        if (key.tenant, key.user) == (tenant, user):
            yield {"record_type": "key", "data": dump(key)}
    if ctx.settings.journal_dir is not None:
        journal = Journal(ctx.settings.journal_dir)
        for line in await asyncio.to_thread(journal.lines_of, tenant, user):
            yield {"record_type": "journal", "data": {"line": line}}
