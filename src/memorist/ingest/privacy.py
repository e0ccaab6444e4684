"""Where memory is disabled: everywhere, in a space, or in one incognito session. Any "off" wins.

Where it is disabled, nothing is stored automatically; saving on purpose still works, except in an
incognito session, of which nothing is stored at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from ..context import Context
from ..errors import StoreUnavailable
from ..storage.queries import Reader
from ..types import Draft, Scope
from .analyze import Item

INCOGNITO = "this session is incognito: nothing of it is kept, and nothing is recalled in it"
OFF = "memory is off in this space: `memorist privacy set on` turns it on"
OFF_EVERYWHERE = (
    "memory is off: MEMORIST_MEMORY_ENABLED, MILTON_MEMORY_ENABLED or the setting `memory_enabled`"
    " says so"
)
_VARIABLES = ("MEMORIST_MEMORY_ENABLED", "MILTON_MEMORY_ENABLED")
_YES = {"1", "true", "yes", "on", "t", "y"}
MOST_KNOWN = 10_000

Disabled = Mapping[str | None, str]  # sessions in which memory is disabled, with the reason


async def load(
    ctx: Context, reading: Reader, scope: Scope, sessions: Iterable[str | None]
) -> Disabled:
    """Return in which of the sessions memory is disabled, and why.

    While the store is unavailable, the last known state holds. Raises StoreUnavailable without a
    spool.
    """
    return (await load_with_revision(ctx, reading, scope, sessions))[0]


async def load_with_revision(
    ctx: Context, reading: Reader, scope: Scope, sessions: Iterable[str | None]
) -> tuple[Disabled, int | None]:
    """Return the same as `load`, and the revision of the scope, in one trip to the store."""
    asked = set(sessions)
    variables = {os.environ.get(name, "").strip().lower() for name in _VARIABLES} - {""}
    is_enabled = ctx.settings.memory_enabled and variables <= _YES
    everywhere = "" if is_enabled else OFF_EVERYWHERE
    found: dict[str | None, str] = {}
    revision = None
    try:
        checks = await reading.checks(scope, sessions=asked)
    except StoreUnavailable:
        if not ctx.has_spool:
            raise
        for session in asked:
            found[session] = ctx.disabled.get((scope, session)) or everywhere
    else:
        revision = checks.revision
        reason = everywhere or ("" if checks.settings.memory_enabled else OFF)
        for session in asked:
            found[session] = INCOGNITO if session in checks.incognito else reason
            note(ctx, scope, session, found[session])
    return {session: why for session, why in found.items() if why}, revision


def note(ctx: Context, scope: Scope, session: str | None, why: str) -> None:
    """Remember whether memory is disabled in a session, for while the store is unavailable."""
    ctx.disabled.pop((scope, session), None)
    if why:
        ctx.disabled[scope, session] = why
    if len(ctx.disabled) > MOST_KNOWN:
        del ctx.disabled[next(iter(ctx.disabled))]


def find_refusal(draft: Draft, disabled: Disabled) -> str:
    """Return why a draft may not be stored; empty if it may."""
    why = disabled.get(draft.labels.session, "")
    return "" if why and draft.on_purpose and why != INCOGNITO else why


def refuse(items: Iterable[Item], disabled: Disabled) -> None:
    """Refuse the items of sessions in which memory is disabled."""
    for item in items:
        if item.outcome is None and (why := find_refusal(item.draft, disabled)):
            item.refuse(why)
