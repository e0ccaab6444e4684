"""Access from outside: API keys, and the one query for agents, limited to what each may read.

A token is `rk_<id>_<secret>`; its secret is shown once. An agent that asks for a category outside
its allowlist is refused rather than given less.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from ..context import Context
from ..errors import InvalidInput, KeyRefused, NotAllowed, NotFound
from ..ingest import validation
from ..retrieve import profiles, render
from ..settings import allowlists
from ..settings.allowlists import Access, Category
from ..storage.keys import Key
from ..types import Filter, Memory, Recall, Scope

RIGHTS = ("read", "write", "owner", "admin")  # owner: acts for the person, as importing does
RETURNS = ("bullets", "full")
PROFILE = "imp.bullets"
_PREFIX = "rk"
_LABELS = {"agent_id": "agent", "run_id": "run", "actor_id": "actor", "role": "role"}
_LEVELS = {"importance_min": 1, "importance_max": 5}  # the ends, which exclude nothing
FILTERS = ("user_id", *_LABELS, "category", "pinned", *_LEVELS, "updated_after", "updated_before")
_TINY = 1e-9  # a level ends where the next begins


async def create_key(
    ctx: Context,
    name: str,
    *,
    user: str,
    rights: Sequence[str],
    days: float | None,
    **place: str | None,
) -> tuple[Key, str]:
    """Create a key and return it with its token; its place is a tenant, a space and an agent.

    Raises InvalidInput.
    """
    given = {each: value for each, value in place.items() if value is not None}
    for what, value in {"name": name, "user": user, **given}.items():
        validation.name(what, value)
    if not rights or isinstance(rights, str) or not set(rights) <= set(RIGHTS):
        raise InvalidInput(f"Rights of a key are some of {', '.join(RIGHTS)}, not {rights!r:.60}")
    if "agent" in given and "owner" in rights:
        raise InvalidInput(
            "A key of an agent cannot have the right 'owner': make one without an agent"
        )
    if days is not None:
        validation.days(days)
    now = ctx.clock()
    secret = secrets.token_urlsafe(32)
    key = Key(
        id=secrets.token_hex(8),
        name=name,
        user=user,
        rights=tuple(right for right in RIGHTS if right in rights),
        created_at=now,
        expires_at=None if days is None else now + timedelta(days=days),
        tenant=given.get("tenant", ctx.settings.tenant),
        space=given.get("space"),
        agent=given.get("agent"),
    )
    await ctx.store.keys.add(key, secret)
    return key, f"{_PREFIX}_{key.id}_{secret}"


async def authenticate(ctx: Context, token: str) -> Key:
    """Return the key of a token. Raises KeyRefused if it is unknown, revoked or expired."""
    prefix, _, rest = token.partition("_")
    id, _, secret = rest.partition("_")
    if prefix == _PREFIX and id.isalnum() and secret.isascii():
        key = await ctx.store.keys.get(id, secret)
        if key is not None and key.is_good(ctx.clock()):
            return key
    raise KeyRefused


async def revoke_key(ctx: Context, id: str) -> None:
    """Revoke a key. Raises NotFound."""
    if not await ctx.store.keys.revoke(id, ctx.clock()):
        raise NotFound(f"No valid key with id {id!r:.60}: see `memorist keys list`")


async def query(
    ctx: Context,
    scope: Scope,
    recall: Callable[[Filter, profiles.Profile], Awaitable[Recall]],
    *,
    agent: str,
    categories: Sequence[str] | None,
    filters: Mapping[str, Any] | None,
    top_k: int,
    shape: str,
    budget_tokens: int,
    threshold: float | None,
) -> list[dict[str, Any]]:
    """Return what the agent may read of the answer, best first. Raises NotAllowed, InvalidInput."""
    if shape not in RETURNS:
        raise InvalidInput(f"return is one of {', '.join(RETURNS)}, not {shape!r}")
    if categories is not None:
        validation.texts("categories", categories)
    validation.number("top_k", top_k)
    validation.number("budget_tokens", budget_tokens)
    gate = profiles.Gate()
    if threshold is not None:
        validation.fields({"confidence": threshold})
        gate = profiles.Gate(enough={"semantic": threshold})
    access = ctx.allowlists
    count = ctx.count_tokens
    where = _to_filter(scope, access, agent, categories, filters or {})
    if not where.categories:
        return []
    workflows = allowlists.PROCEDURAL in where.categories
    profile = profiles.find(ctx.profiles, PROFILE)
    profile = replace(profile, gate=gate, workflows=workflows, related=0)
    found = await recall(where, profile)
    items: list[dict[str, Any]] = []
    for memory in limit_categories(found, access):
        category = access.category(memory.category or memory.kind)
        items.append(to_item(memory, category, is_full=shape == "full"))
    fitted = render.fit(
        items,
        render.Caps(tokens=budget_tokens),
        lambda _: "",
        count,
        cost=lambda item: count(json.dumps(item, ensure_ascii=False)),  # as it is sent
    )
    return [items[i] for i in fitted.taken]


def _to_filter(
    scope: Scope,
    access: Access,
    agent: str,
    categories: Sequence[str] | None,
    filters: Mapping[str, Any],
) -> Filter:
    """Return the filter for the store: the categories asked for and allowed, and what was given.

    Without categories, all that the agent may read, except workflows. Raises NotAllowed,
    InvalidInput.
    """
    given = {name: value for name, value in filters.items() if value is not None}
    if unknown := [name for name in given if name not in FILTERS]:
        raise InvalidInput(f"No filter {unknown[0]!r}: there are {', '.join(FILTERS)}")
    if given.get("user_id", scope.user) != scope.user:
        raise NotAllowed(f"This is the memory of {scope.user!r}: no other user's can be read here")
    wanted = list(access.allowed(agent, categories))
    if not categories and allowlists.PROCEDURAL in wanted:
        wanted.remove(allowlists.PROCEDURAL)
    if "category" in given:
        only = access.allowed(agent, [given["category"]])
        wanted = [each for each in wanted if each in only] if categories else list(only)
    if "pinned" in given:
        validation.fields({"pinned": given["pinned"]})
    limits: dict[str, float] = {}
    for name, end in _LEVELS.items():
        level = given.get(name, end)
        if level == end:
            continue
        if isinstance(level, bool) or level not in (1, 2, 3, 4, 5):
            raise InvalidInput(f"{name} is a level from 1 to 5, not {level!r}")
        limits[name] = (level - (end == 1)) / 5 + _TINY
    labels = {label: given.get(name) for name, label in _LABELS.items()}
    return Filter(
        categories=allowlists.spellings(wanted),
        pinned=given.get("pinned"),
        labels=validation.labels(labels),
        updated_after=validation.moment(given.get("updated_after")),
        updated_before=validation.moment(given.get("updated_before")),
        importance_min=limits.get("importance_min"),
        importance_max=limits.get("importance_max"),
    )


def limit_categories(found: Recall, access: Access) -> Iterator[Memory]:
    """Yield the hits, of each category no more than may enter a context."""
    taken: Counter[str] = Counter()
    for memory in found.memories:
        category = access.category(memory.category or memory.kind)
        taken[category.name] += 1
        is_whole = category.context == "all" or category.rag_length == allowlists.ALL
        if is_whole or taken[category.name] <= category.rag_length:
            yield memory


def to_item(memory: Memory, category: Category, *, is_full: bool) -> dict[str, Any]:
    """Return a memory as an agent reads it."""
    item: dict[str, Any] = {"id": memory.id, "category": category.name}
    if not is_full:
        return {**item, "text": render.bullet(memory, category.name)}
    return {
        **item,
        "kind": memory.kind,
        "text": memory.text,
        "summary": memory.summary or memory.text[:280],
        "steps_text": memory.steps_text,
        "told_by": render.teller(memory),
        "tags": list(memory.tags),
        "importance": memory.importance_level,
        "confidence": memory.confidence,
        "pinned": memory.pinned,
        "created_at": memory.created_at.isoformat(),
        "updated_at": memory.updated_at.isoformat(),
    }
