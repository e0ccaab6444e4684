"""Keys by which somebody is known who comes from outside: `rk_<id>_<secret>`, whose secret is shown once."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta

from ..context import Context
from ..errors import InvalidInput, KeyRefused, NotFound
from ..ingest import validation
from ..storage.keys import Key

RIGHTS = (
    "read",
    "write",
    "owner",
    "admin",
)  # owner: acts for the person as a whole, as importing records does
_PREFIX = "rk"


async def create(
    ctx: Context,
    name: str,
    *,
    user: str,
    tenant: str | None,
    space: str | None,
    agent: str | None,
    rights: Sequence[str],
    days: float | None,
) -> tuple[Key, str]:
    """A new key, and what whoever holds it has to show."""
    validation.name("name", name)
    validation.name("user", user)
    for what, value in (("space", space), ("agent", agent), ("tenant", tenant)):
        if value is not None:
            validation.name(what, value)
    if not rights or isinstance(rights, str) or not set(rights) <= set(RIGHTS):
        raise InvalidInput(
            f"The rights of a key are some of {', '.join(RIGHTS)}, not {rights!r:.60}"
        )
    if agent is not None and "owner" in rights:
        raise InvalidInput(
            "A key of an agent cannot have the right 'owner': make one without an agent"
        )
    if days is not None:
        validation.days(days)
    now = ctx.clock()
    key = Key(
        id=secrets.token_hex(8),
        name=name,
        user=user,
        tenant=tenant or ctx.settings.tenant,
        space=space,
        agent=agent,
        rights=tuple(right for right in RIGHTS if right in rights),
        created_at=now,
        expires_at=None if days is None else now + timedelta(days=days),
    )
    secret = secrets.token_urlsafe(32)
    await ctx.store.keys.add(key, secret)
    return key, f"{_PREFIX}_{key.id}_{secret}"


async def authenticate(ctx: Context, token: str) -> Key:
    """The key that somebody shows. Raises KeyRefused, without a word about what is wrong with it."""
    prefix, _, rest = token.partition("_")
    id, _, secret = rest.partition("_")
    found = (
        await ctx.store.keys.get(id, secret)
        if prefix == _PREFIX and id.isalnum() and secret.isascii()
        else None
    )
    if found is None or not found.is_good(ctx.clock()):
        raise KeyRefused
    return found


async def revoke(ctx: Context, id: str) -> None:
    if not await ctx.store.keys.revoke(id, ctx.clock()):
        raise NotFound(f"No key {id!r:.60} that is still good: see `memorist keys list`")
