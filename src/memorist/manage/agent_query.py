"""The query for agents: limited to the categories that each may read, and to a budget of tokens."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..context import Context
from ..errors import EmbedderUnavailable, InvalidInput, NotAllowed
from ..ingest import validation
from ..retrieve import render
from ..retrieve.profiles import Gate, Profile
from ..settings import allowlists
from ..storage.history import Updates
from ..types import Filter, Memory, Recall, Scope

RETURNS = ("bullets", "full")
PROFILE = "imp.bullets"
CHANGE = "change"  # category of items that say what changed in a thread
_LABELS = {"agent_id": "agent", "run_id": "run", "actor_id": "actor", "role": "role"}
_LEVELS = {"importance_min": 1, "importance_max": 5}  # the ends, which exclude nothing
FILTERS = ("user_id", *_LABELS, "category", "pinned", *_LEVELS, "updated_after", "updated_before")
_TINY = 1e-9  # a level ends where the next begins


def check_limits(shape: str, top_k: int, budget: int) -> None:
    """Raise InvalidInput for an unknown shape of the answer, or a limit below 1."""
    if shape not in RETURNS:
        raise InvalidInput(f"return is one of {', '.join(RETURNS)}, not {shape!r}")
    validation.number("top_k", top_k)
    validation.number("budget_tokens", budget)


def limit(
    ctx: Context,
    scope: Scope,
    agent: str,
    categories: Sequence[str] | None,
    filters: Mapping[str, Any] | None,
    threshold: float | None,
) -> tuple[Filter, Profile]:
    """Return a filter for the allowed categories and the given filters, and the profile.

    Without categories, these are all that the agent may read, except workflows. Raises NotAllowed,
    InvalidInput.
    """
    if categories is not None:
        validation.texts("categories", categories)
    profile = ctx.profiles[PROFILE]
    if threshold is not None:  # what is only related may be below it
        validation.share("threshold", threshold)
        if ctx.embedder is None:
            raise InvalidInput(
                "A threshold needs vectors, and no embedding model is configured: leave it out"
            )
        gate = Gate(enough={"semantic": threshold})
        profile = replace(profile, gate=gate, related=0)
    access = ctx.allowlists
    given = {name: value for name, value in (filters or {}).items() if value is not None}
    for name in given:
        if name not in FILTERS:
            raise InvalidInput(f"Unknown filter {name!r}: use one of {', '.join(FILTERS)}")
    user = scope.user
    if given.get("user_id", user) != user:
        raise NotAllowed(
            f"This is the memory of {user!r}: other users' memories cannot be read here"
        )
    wanted = list(access.allowed(agent, categories))
    if not categories and allowlists.PROCEDURAL in wanted:
        wanted.remove(allowlists.PROCEDURAL)
    if "category" in given:
        only = access.allowed(agent, [given["category"]])
        wanted = [each for each in only if each in wanted or not categories]
    if "pinned" in given:
        validation.fields({"pinned": given["pinned"]})
    limits: dict[str, float] = {}
    for name, end in _LEVELS.items():
        level = given.get(name, end)
        if level == end:
            continue
        if isinstance(level, bool) or level not in (1, 2, 3, 4, 5):
            raise InvalidInput(f"{name} is a level from 1 to 5, not {level!r}")
        if end == 1:
            level -= 1
        limits[name] = level / 5 + _TINY
    labels = {label: given.get(name) for name, label in _LABELS.items()}
    where = Filter(
        categories=allowlists.spellings(wanted),
        pinned=given.get("pinned"),
        labels=validation.labels(labels),
        updated_after=validation.moment(given.get("updated_after")),
        updated_before=validation.moment(given.get("updated_before")),
        importance_min=limits.get("importance_min"),
        importance_max=limits.get("importance_max"),
    )
    has_workflows = allowlists.PROCEDURAL in where.categories
    return where, replace(profile, workflows=has_workflows)


def require_vectors(found: Recall) -> None:
    """Raise EmbedderUnavailable if an answer is empty because a threshold had no vectors."""
    status = found.legs.get("dense", "ok")
    if status != "ok" and not found.hits:
        raise EmbedderUnavailable(f"The threshold cannot be applied: {status}")


def to_items(
    ctx: Context,
    found: Recall,
    shape: str,
    budget: int,
    changed: Updates | None = None,
) -> list[dict[str, Any]]:
    """Return an answer as an agent reads it, within a budget of tokens.

    It begins with what changed in the thread and ends with related memories.
    """
    count = ctx.count_tokens
    items: list[dict[str, Any]] = []
    if changed is not None:
        lines = changed.text.splitlines()[1:]
        for change, line in zip(changed.changes, lines, strict=True):
            text = line.removeprefix("- ")
            item = {"id": change.memory_id, "category": CHANGE, "text": text}
            items.append(item | {"revision": change.revision})
    hits = list(limit_categories(found, ctx.allowlists))
    for i, memory in enumerate([*hits, *found.related]):
        name = ctx.allowlists.category(memory.category or memory.kind).name
        is_related = i >= len(hits)
        item = {"id": memory.id, "category": name}
        if shape == "full":
            item |= _to_full(memory, is_related=is_related)
        else:
            item["text"] = render.bullet(memory, name)
            if is_related:
                item["text"] += render.IS_RELATED
        items.append(item)

    def cost(item: dict[str, Any]) -> int:
        sent = json.dumps(item, ensure_ascii=False)
        return count(sent)

    caps = render.Caps(tokens=budget)
    fitted = render.fit(items, caps, lambda _: "", count, cost=cost)
    return [items[i] for i in fitted.taken]


def limit_categories(
    found: Recall,
    access: allowlists.Access,
) -> Iterator[Memory]:
    """Yield the hits, of each category only as many as may enter a context."""
    taken: Counter[str] = Counter()
    for memory in found.memories:
        category = access.category(memory.category or memory.kind)
        name = category.name
        most = category.rag_length
        taken[name] += 1
        is_whole = category.context == "all" or most == allowlists.ALL
        if is_whole or taken[name] <= most:
            yield memory


def _to_full(memory: Memory, *, is_related: bool) -> dict[str, Any]:
    return {
        "kind": memory.kind,
        "text": memory.text,
        "summary": memory.summary or memory.text[:280],
        "steps_text": memory.steps_text,
        "told_by": render.teller(memory),
        "tags": list(memory.tags),
        "importance": memory.importance_level,
        "confidence": memory.confidence,
        "pinned": memory.pinned,
        "related": is_related,
        "created_at": memory.created_at.isoformat(),
        "updated_at": memory.updated_at.isoformat(),
    }
