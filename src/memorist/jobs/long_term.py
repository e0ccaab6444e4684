"""From short-term items to long-term records, as Milton does it: the items are the evidence and stay, archived."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ..ingest import transitions
from ..manage import records
from ..ports import Store
from ..storage.changes import Change, Forget, Put, Summary
from ..storage.paging import matching
from ..text import authority
from ..text.clock import new_id
from ..types import ITEM_TYPES, Filter, Memory, Scope

PROJECT = "project:"  # begins the tag that names the project of an item
AT_ONCE = 500  # items in one transaction
_PROFILE = {"preference": "preferences", "fact": "stable_facts", "decision": "stable_facts"}
_STAGES = {"blocker": "blockers", "next_step": "next_steps", "next": "next_steps", "goal": "goals"}

RecordType = Literal["user_profile", "project_memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    """What left the short-term memory."""

    compressed: int = 0  # items
    projects: int = 0  # whose records were written
    profile: int = 0  # 1 if the profile of the person was
    words: tuple[str, ...] = ()  # that were erased


async def promote(
    store: Store, scope: Scope, *, before: datetime, now: datetime, erase: bool = False
) -> Promoted:
    """Write the items from before a time into the records they belong to, and archive them, or erase them.

    What is pinned or was saved on purpose stays. Each few hundred items are one transaction.
    """
    where = Filter(item_types=ITEM_TYPES, created_before=before, pinned=False, manually_saved=False)
    items = sorted(await matching(store, scope, where), key=lambda item: (item.created_at, item.id))
    done, projects = Promoted(), set[str]()
    for start in range(0, len(items), AT_ONCE):
        few = items[start : start + AT_ONCE]
        async with store.transaction(scope) as tx:
            ids = [item.id for item in few]
            still = [
                item for item in await tx.get(scope, ids) if item.is_active and not item.on_purpose
            ]
            made = [await records.added(tx, store, scope, patch) for patch in patches(still, now)]
            words = (
                [text for item in still for text in await tx.wordings(scope, item.id)]
                if erase
                else []
            )
            await tx.apply([*made, *_gone(still, now, erase=erase)])
        projects |= {record.name for record in made if record.record_type == "project_memory"}
        profile = max(done.profile, *(record.record_type == "user_profile" for record in made), 0)
        done = Promoted(
            compressed=done.compressed + len(still),
            projects=len(projects),
            profile=int(profile),
            words=(*done.words, *words),
        )
    return done


def patches(items: Sequence[Memory], now: datetime) -> list[Summary]:
    """What is to be added to which record; nothing for an item that belongs into none."""
    found: dict[tuple[RecordType, str], list[tuple[str, Memory]]] = {}
    for item in items:
        names = project_names(item.tags)
        for name in names:
            found.setdefault(("project_memory", name), []).append((_stage(item), item))
        if not names and (field := _field(item)):
            found.setdefault(("user_profile", "user"), []).append((field, item))
    return [
        Summary(
            id=new_id(),
            record_type=kind,
            name=name,
            data=_lists(kind, lines),
            at=now,
            evidence_ids=tuple(item.id for _, item in lines),
        )
        for (kind, name), lines in found.items()
    ]


def project_names(tags: Iterable[str]) -> list[str]:
    """The projects that an item belongs to.

    >>> project_names(["urgent", "project:Atlas"])
    ['atlas']
    """
    named = (
        tag[len(PROJECT) :].strip().casefold() for tag in tags if tag.casefold().startswith(PROJECT)
    )
    return list(dict.fromkeys(filter(None, named)))


def _stage(item: Memory) -> str:
    """Where in the record of its project an item stands: its tags say so, or else its type."""
    by_tag = next((_STAGES[tag] for tag in _STAGES if tag in item.tags), None)
    return by_tag or ("goals" if item.item_type == "project" else "next_steps")


def _field(item: Memory) -> str | None:
    """Where in the profile an item stands; None for what is no statement of the person."""
    if item.item_type not in _PROFILE or not authority.is_persons(item):
        return None
    return "do_not_assume" if "do_not_assume" in item.tags else _PROFILE[item.item_type]


def _lists(kind: RecordType, lines: Sequence[tuple[str, Memory]]) -> Mapping[str, Sequence[str]]:
    names = records.PROFILE if kind == "user_profile" else records.PROJECT
    return {
        name: tuple(dict.fromkeys(item.text for field, item in lines if field == name))
        for name in names
    }


def _gone(items: Sequence[Memory], now: datetime, *, erase: bool) -> list[Change]:
    if erase:
        return [
            Forget(memory_id=i.id, at=now, until=now, reason="it was compressed", purged=True)
            for i in items
        ]
    meta = {"state": "archived", "reason": "compressed into long-term memory"}
    away = [transitions.archive(item, now) for item in items]
    return [Put(memory=item, event="updated", meta=meta) for item in away]
