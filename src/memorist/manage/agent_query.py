"""One question for agents: each sees the categories it may read, and is refused the others rather than given less."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..context import Context
from ..errors import InvalidInput, NotAllowed
from ..ingest import validation
from ..retrieve import budget, profiles, render
from ..settings import allowlists
from ..settings.allowlists import Access, Category
from ..types import Filter, Memory, Recall, Scope

RETURNS = ("bullets", "full")
_LABELS = {"agent_id": "agent", "run_id": "run", "actor_id": "actor", "role": "role"}
_LEVELS = ("importance_min", "importance_max")
PROFILE = "imp.bullets"
FILTERS = ("user_id", *_LABELS, "category", "pinned", *_LEVELS, "updated_after", "updated_before")
_TINY = 1e-9  # a level ends where the next begins


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an agent asks."""

    agent: str
    categories: Sequence[str] | None
    filters: Mapping[str, Any] | None
    top_k: int
    shape: str
    budget_tokens: int
    threshold: float | None


async def answer(
    ctx: Context,
    asked: Request,
    scope: Scope,
    recall: Callable[[Filter, profiles.Profile], Awaitable[Recall]],
) -> list[dict[str, Any]]:
    """What the agent may read of what answers, best first. Raises NotAllowed, InvalidInput."""
    _check(asked)
    access, count = ctx.allowlists, ctx.count_tokens
    where = _where(asked, scope, access)
    if not where.categories:
        return []
    gate = profiles.Gate()
    if asked.threshold is not None:
        gate = profiles.Gate(enough={"semantic": asked.threshold})
    workflows = allowlists.PROCEDURAL in where.categories
    profile = profiles.find(ctx.profiles, PROFILE)
    found = await recall(where, replace(profile, gate=gate, workflows=workflows, related=0))
    shown = _full if asked.shape == "full" else _bullet
    items = [
        shown(memory, access.category(memory.category or memory.kind))
        for memory in limit_categories(found, access)
    ]
    caps = budget.Caps(tokens=asked.budget_tokens)
    cost = partial(_tokens_sent, count)
    fitted = budget.fit(items, caps, lambda _: "", count, cost=cost)
    return [items[i] for i in fitted.taken]


def _check(asked: Request) -> None:
    if asked.shape not in RETURNS:
        raise InvalidInput(f"return is one of {', '.join(RETURNS)}, not {asked.shape!r}")
    if isinstance(asked.categories, str) or not all(
        isinstance(each, str) for each in asked.categories or ()
    ):
        raise InvalidInput(f"categories is a list of texts, not {asked.categories!r:.60}")
    validation.number("top_k", asked.top_k)
    validation.number("budget_tokens", asked.budget_tokens)
    if asked.threshold is not None:
        validation.fields({"confidence": asked.threshold})


def _where(asked: Request, scope: Scope, access: Access) -> Filter:
    """The filter for the store: categories that were asked for and allowed, and everything else that was given."""
    given = {name: value for name, value in (asked.filters or {}).items() if value is not None}
    if unknown := [name for name in given if name not in FILTERS]:
        raise InvalidInput(f"No filter {unknown[0]!r}: there are {', '.join(FILTERS)}")
    if given.get("user_id", scope.user) != scope.user:
        raise NotAllowed(
            f"This is the memory of {scope.user!r}: nobody else's can be asked for here"
        )
    named = access.allowed(asked.agent, asked.categories)
    wanted = (
        named
        if asked.categories
        else tuple(each for each in named if each != allowlists.PROCEDURAL)
    )
    if "category" in given:
        only = access.allowed(asked.agent, [given["category"]])
        wanted = tuple(each for each in (named if asked.categories else only) if each in only)
    if "pinned" in given:
        validation.fields({"pinned": given["pinned"]})
    least, most = (_level(name, given.get(name)) for name in _LEVELS)
    return Filter(
        categories=allowlists.spellings(wanted),
        pinned=given.get("pinned"),
        labels=validation.labels({label: given.get(name) for name, label in _LABELS.items()}),
        importance_min=None if least is None else (least - 1) / 5 + _TINY,
        importance_max=None if most is None else most / 5 + _TINY,
        updated_after=validation.moment(given.get("updated_after")),
        updated_before=validation.moment(given.get("updated_before")),
    )


def _level(name: str, value: Any) -> int | None:
    """A level from 1 to 5; the ends bound nothing."""
    if value is None or value == {"importance_min": 1, "importance_max": 5}[name]:
        return None
    if isinstance(value, bool) or value not in (1, 2, 3, 4, 5):
        raise InvalidInput(f"{name} is a level from 1 to 5, not {value!r}")
    return int(value)


def limit_categories(found: Recall, access: Access) -> Iterator[Memory]:
    """The hits, of each category no more than it lets into a context."""
    taken: Counter[str] = Counter()
    for memory in found.memories:
        category = access.category(memory.category or memory.kind)
        taken[category.name] += 1
        if (
            category.context == "all"
            or category.rag_length == allowlists.ALL
            or taken[category.name] <= category.rag_length
        ):
            yield memory


def _bullet(memory: Memory, category: Category) -> dict[str, Any]:
    return {
        "id": memory.id,
        "category": category.name,
        "text": render.bullet(memory, category.name),
    }


def _full(memory: Memory, category: Category) -> dict[str, Any]:
    return {
        "id": memory.id,
        "category": category.name,
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


def _tokens_sent(count: Callable[[str], int], item: dict[str, Any]) -> int:
    """Count the tokens of an item as it is sent."""
    return count(json.dumps(item, ensure_ascii=False))
