"""State changes of a memory, as pure functions from the old memory to the new one.

Nothing here reads or writes the store. A changed memory has the next revision; an earlier version
that is kept in addition has a new id and keeps its revision.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from ..types import Draft, Filter, Memory

# What has an end; nothing lasting is derived from it.
EXPIRING = Filter(expired_by=datetime(9999, 12, 31, tzinfo=UTC))
SHARED = "share:"  # tag prefix of what another space may recall; its name follows
_LISTS = ("tags", "source_ids", "evidence", "evidence_ids")
MOST_LISTED = 200  # latest sources of a memory; the history has the earlier ones
SAVED = 0.5  # added to the importance of what a person pins or saves
_MOST_BOOST = 0.3  # largest increase of the importance by repetition


def revise(memory: Memory, now: datetime, **fields: Any) -> Memory:
    """Return the next revision of the memory, with changed fields."""
    return replace(
        memory,
        **fields,
        updated_at=now,
        revision=memory.revision + 1,
    )


def archive(memory: Memory, now: datetime) -> Memory:
    """Return the memory archived: kept and readable, but not recalled."""
    return revise(memory, now, state="archived")


def hide(memory: Memory, now: datetime, *, purge_at: datetime) -> Memory:
    """Return the memory soft-deleted: it can be restored until `purge_at`."""
    return revise(memory, now, state="soft_deleted", purge_at=purge_at)


def restore(memory: Memory, now: datetime) -> Memory:
    """Return a superseded memory, active again."""
    return revise(
        memory,
        now,
        state="active",
        superseded_by=None,
        valid_to=None,
    )


def supersede(
    memory: Memory,
    now: datetime,
    *,
    by: str,
    since: datetime | None = None,
) -> Memory:
    """Return the memory superseded by another one, which is valid since then."""
    return revise(
        memory,
        now,
        state="superseded",
        superseded_by=by,
        valid_to=since or now,
    )


def earlier_version(memory: Memory, now: datetime, *, id: str) -> Memory:
    """Return the earlier version of a memory whose text changes."""
    return replace(
        memory,
        id=id,
        state="superseded",
        superseded_by=memory.id,
        valid_to=now,
        key=None,
    )


def repeat(
    memory: Memory,
    draft: Draft,
    now: datetime,
    tags: tuple[str, ...] = (),
) -> Memory:
    """Return the memory after a draft repeated it: more important, with what the draft adds."""
    count = memory.repeat_count + 1
    fields = join(memory, draft)
    base = memory.base_importance
    if fields["manually_saved"] and not memory.on_purpose:
        base = min(1.0, base + SAVED)
    importance = repeated_importance(base, count)
    named = tuple(map(str.lower, draft.tags))
    fields["tags"] = union(memory.tags, named, tags)
    since = [at for at in (memory.valid_from, draft.at) if at is not None]
    ends = memory.valid_to
    if ends is not None and draft.valid_to is None and (draft.at or now) >= ends:
        ends = None  # it is said again after it ended
    return revise(
        memory,
        now,
        repeat_count=count,
        importance=max(importance, draft.importance or 0.0),
        base_importance=base,
        valid_from=min(since, default=None),
        valid_to=ends,
        metadata={**memory.metadata, **draft.metadata},
        expires_at=later_end(memory.expires_at, draft.expires_at),
        **fields,
    )


def drop_tags(memory: Memory, old_text: str) -> Memory:
    """Return a reworded memory without tags that name words of its old text alone."""
    old = old_text.lower()
    text = memory.text.lower()
    kept = [tag for tag in memory.tags if tag in text or tag not in old]
    return replace(memory, tags=tuple(kept))


def saved_fields(memory: Memory) -> dict[str, Any]:
    """Return the fields of a memory that a person pins or saves: it becomes more important, once."""
    if memory.on_purpose:
        return {"manually_saved": True}
    importance = min(1.0, memory.importance + SAVED)
    return {"manually_saved": True, "importance": importance, "base_importance": importance}


def unshare(memory: Memory) -> Memory:
    """Return the memory without the tags that share it with other spaces.

    They were given to its words, and do not hold for others.
    """
    tags = tuple(tag for tag in memory.tags if not tag.startswith(SHARED))
    return replace(memory, tags=tags)


def absorbed_fields(memory: Memory, other: Memory) -> dict[str, Any]:
    """Return the fields of a memory that absorbs another memory of the same fact."""
    return join(memory, unshare(other)) | {
        "importance": max(memory.importance, other.importance),
        "base_importance": max(memory.base_importance, other.base_importance),
        "repeat_count": memory.repeat_count + other.repeat_count + 1,
        "valid_from": min(held_since(memory), held_since(other)),
        "metadata": {**other.metadata, **memory.metadata},
        "expires_at": later_end(memory.expires_at, other.expires_at),
    }


def join(memory: Memory, other: Memory | Draft) -> dict[str, Any]:
    """Return the joined lists, flags and confidence of both. A memory is no evidence of itself."""
    fields: dict[str, Any] = {}
    for name in _LISTS:
        joined = union(getattr(memory, name), getattr(other, name))
        fields[name] = tuple(each for each in joined if each != memory.id)[-MOST_LISTED:]
    return fields | {
        "confidence": max(memory.confidence, other.confidence),
        "pinned": memory.pinned or other.pinned,
        "manually_saved": memory.manually_saved or other.manually_saved or other.pinned,
    }


def later_end(one: datetime | None, other: datetime | None) -> datetime | None:
    """Return the later of two ends; None means that there is none."""
    return None if one is None or other is None else max(one, other)


def held_since(memory: Memory) -> datetime:
    """Return since when a memory is valid."""
    return memory.valid_from or memory.created_at


def repeated_importance(base: float, repeats: int) -> float:
    """Return the importance of something repeated `repeats` times; it grows logarithmically.

    >>> repeated_importance(0.5, 3), repeated_importance(0.9, 7)
    (0.7, 1.0)
    """
    boost = 0.1 * math.log2(1 + max(0, repeats))
    importance = base + min(_MOST_BOOST, boost)
    return min(1.0, round(importance, 12))


def union(*lists: tuple[str, ...]) -> tuple[str, ...]:
    """Return the items of all the lists, each once, in order."""
    items = chain.from_iterable(lists)
    return tuple(dict.fromkeys(items))
