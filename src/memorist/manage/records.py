"""Long-term records: the profile of the person and what is known of projects.

Each addition is a new version that contains what was there before. Short-term items are promoted
into the records they belong to; the items are the evidence and stay, archived.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from ..errors import InvalidInput
from ..ingest import transitions
from ..storage import person
from ..storage.changes import Change, Forget, Save
from ..storage.person import Summary
from ..storage.store import Store
from ..storage.transaction import Transaction
from ..text import authority
from ..text.clock import new_id
from ..types import ITEM_TYPES, Filter, Memory, Scope

PROFILE = ("preferences", "stable_facts", "do_not_assume")  # the lists of a person's profile
PROJECT = ("goals", "blockers", "next_steps")  # the lists of a project
PROJECT_TAG = "project:"  # prefix of the tag that names the project of an item
BATCH = 500  # items in one transaction
_PROFILE_LISTS = {"preference": "preferences", "fact": "stable_facts", "decision": "stable_facts"}
_PROJECT_LISTS = {
    "blocker": "blockers",
    "next_step": "next_steps",
    "next": "next_steps",
    "goal": "goals",
}

RecordType = Literal["user_profile", "project_memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionReport:
    """What was promoted to long-term memory."""

    compressed: int = 0  # items
    projects: int = 0  # whose records were written
    profile: int = 0  # 1 if the profile of the person was written
    words: tuple[str, ...] = ()  # that were erased


async def add(store: Store, scope: Scope, patch: Summary) -> Summary:
    """Add the lists of a patch to the newest record of its name. Adding it again changes nothing.

    Raises InvalidInput if the evidence is not stored, or if a profile would rest on words of
    somebody else.
    """
    async with store.transaction(scope) as tx:
        record = await merge(tx, store, scope, patch)
        await person.save_summary(tx, record)
    return record


async def merge(tx: Transaction, store: Store, scope: Scope, patch: Summary) -> Summary:
    """Return the newest record of its name with the lists of a patch. Raises InvalidInput."""
    evidence = tuple(await _find_evidence(tx, scope, patch))
    versions = await person.load_summaries(tx, scope, patch.record_type)
    for version in versions:
        if version.id == patch.id:
            return version
    old = newest(versions, patch.name)
    if old is None:
        lists = {name: transitions.union(tuple(values)) for name, values in patch.data.items()}
        return replace(patch, data=lists, evidence_ids=transitions.union(evidence))
    lists = {
        name: transitions.union(tuple(old.data.get(name, ())), tuple(values))
        for name, values in patch.data.items()
    }
    at = max(patch.at, old.at + timedelta(microseconds=1))
    ids = transitions.union(tuple(old.evidence_ids), evidence)
    return replace(patch, data=lists, at=at, evidence_ids=ids)


def newest(versions: Sequence[Summary], name: str) -> Summary | None:
    """Return the last version of the record of that name."""
    return next((version for version in versions if version.name == name.casefold()), None)


async def _find_evidence(tx: Transaction, scope: Scope, patch: Summary) -> list[str]:
    """Return the ids of the memories that a patch rests on.

    Raises InvalidInput if one is missing or unfit.
    """
    ids = patch.evidence_ids
    said = await tx.seen(scope, dict.fromkeys(ids, ""))
    memory_ids = {id: next(iter(said[id].outcome.ids), id) if id in said else id for id in ids}
    found = {memory.id: memory for memory in await tx.get(scope, list(memory_ids.values()))}
    for id in ids:
        if memory_ids[id] not in found:
            raise InvalidInput(f"No item with id {id!r}: evidence has to be stored first")
    for id in ids:
        is_own = authority.is_persons(found[memory_ids[id]])
        if patch.record_type == "user_profile" and not is_own:
            raise InvalidInput(
                f"Item {id!r} holds the words of somebody else: a profile rests on the person's own"
            )
    return list(memory_ids.values())


async def promote(
    store: Store, scope: Scope, *, before: datetime, now: datetime, erase: bool = False
) -> PromotionReport:
    """Write the items from before a time into the records they belong to, and archive or erase
    them.

    Pinned and manually saved items stay. Each few hundred items are one transaction.
    """
    where = Filter(item_types=ITEM_TYPES, created_before=before, pinned=False, manually_saved=False)
    items = sorted(await store.find_all(scope, where), key=lambda item: (item.created_at, item.id))
    count, has_profile = 0, False
    projects: set[str] = set()
    words: list[str] = []
    for start in range(0, len(items), BATCH):
        ids = [item.id for item in items[start : start + BATCH]]
        async with store.transaction(scope) as tx:
            batch = await tx.get(scope, ids)
            batch = [item for item in batch if item.is_active and not item.on_purpose]
            changes: list[Change] = []
            for patch in make_patches(batch, now):
                await person.save_summary(tx, await merge(tx, store, scope, patch))
                if patch.record_type == "project_memory":
                    projects.add(patch.name)
                else:
                    has_profile = True
            for item in batch:
                if erase:
                    words += await tx.versions(scope, item.id)
                changes.append(_remove(item, now, erase=erase))
            await tx.apply(changes)
        count += len(batch)
    return PromotionReport(
        compressed=count, projects=len(projects), profile=int(has_profile), words=tuple(words)
    )


def make_patches(items: Sequence[Memory], now: datetime) -> list[Summary]:
    """Return what is to be added to which record; nothing for an item that belongs to none."""
    found: dict[tuple[RecordType, str], list[tuple[str, Memory]]] = {}
    for item in items:
        names = project_names(item.tags)
        for name in names:
            lines = found.setdefault(("project_memory", name), [])
            lines.append((_project_list(item), item))
        if not names and (field := _profile_list(item)):
            found.setdefault(("user_profile", "user"), []).append((field, item))
    patches: list[Summary] = []
    for (kind, name), lines in found.items():
        data: dict[str, tuple[str, ...]] = {}
        for field in PROFILE if kind == "user_profile" else PROJECT:
            texts = [item.text for each, item in lines if each == field]
            data[field] = tuple(dict.fromkeys(texts))
        ids = tuple(item.id for _, item in lines)
        patch = Summary(
            id=new_id(), record_type=kind, name=name, data=data, at=now, evidence_ids=ids
        )
        patches.append(patch)
    return patches


def project_names(tags: Iterable[str]) -> list[str]:
    """Return the projects that an item belongs to.

    >>> project_names(["urgent", "project:Atlas"])
    ['atlas']
    """
    folded = [tag.casefold() for tag in tags]
    named = [tag.removeprefix(PROJECT_TAG).strip() for tag in folded if tag.startswith(PROJECT_TAG)]
    return list(dict.fromkeys(filter(None, named)))


def _project_list(item: Memory) -> str:
    """Return the list of the project's record that an item belongs to, by its tags or else its
    type.
    """
    for tag, name in _PROJECT_LISTS.items():
        if tag in item.tags:
            return name
    return "goals" if item.item_type == "project" else "next_steps"


def _profile_list(item: Memory) -> str | None:
    """Return the list of the profile that an item belongs to; None if it is no statement of the
    person.
    """
    if item.item_type not in _PROFILE_LISTS or not authority.is_persons(item):
        return None
    return "do_not_assume" if "do_not_assume" in item.tags else _PROFILE_LISTS[item.item_type]


def _remove(item: Memory, now: datetime, *, erase: bool) -> Change:
    if erase:
        return Forget(
            memory_id=item.id,
            at=now,
            until=now,
            reason="compressed into long-term memory",
            purged=True,
        )
    meta = {"state": "archived", "reason": "compressed into long-term memory"}
    return Save(memory=transitions.archive(item, now), event="updated", meta=meta)
