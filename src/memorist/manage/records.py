"""Long-term records: the profile of the person and what is known of projects.

Each addition is a new version that contains what was there before. Short-term items are promoted
into the records they belong to; the items are the evidence and stay, archived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from ..errors import InvalidInput
from ..ingest import transitions
from ..storage import Change, Forget, Save, person
from ..storage.person import RecordType, Summary
from ..storage.queries import portions
from ..storage.store import Store
from ..storage.transaction import Transaction
from ..text import cues
from ..text.clock import new_id
from ..types import ITEM_TYPES, Filter, Memory, Scope, frozen

CUTOFF = timedelta(hours=48)  # age from which items are promoted
PROFILE = ("preferences", "stable_facts", "do_not_assume")  # the lists of a person's profile
PROJECT_TAG = "project:"  # prefix of the tag that names the project of an item
_PROFILE_LISTS = {"preference": "preferences", "fact": "stable_facts", "decision": "stable_facts"}
_PROJECT_LISTS = {
    "blocker": "blockers",
    "next_step": "next_steps",
    "next": "next_steps",
    "goal": "goals",
}

LISTS: dict[RecordType, tuple[str, ...]] = {
    "user_profile": PROFILE,
    "project_memory": ("goals", "blockers", "next_steps"),
}


@frozen
class PromotionReport:
    """What was promoted to long-term memory."""

    compressed: int = 0  # items
    projects: int = 0  # whose records were written
    profile: int = 0  # 1 if the profile of the person was written
    words: tuple[str, ...] = ()  # that were erased


async def add(store: Store, scope: Scope, patch: Summary) -> Summary:
    """Add the lists of a patch to the newest record of its name. Adding it twice changes nothing.

    Raises InvalidInput if the evidence is not stored, or if a profile would be based on the words
    of someone else.
    """
    async with store.transaction(scope) as tx:
        return await merge(tx, scope, patch)


async def merge(tx: Transaction, scope: Scope, patch: Summary) -> Summary:
    """Store a new version of a record, with the lists of a patch. Raises InvalidInput."""
    ids = patch.evidence_ids
    checks = await tx.checks(scope, messages=dict.fromkeys(ids, ""))
    evidence: dict[str, str] = {}  # the memory of each id; a message stands for its memory
    for id in ids:
        evidence[id] = id
        message = checks.seen.get(id)
        if message is not None and message.outcome.ids:
            evidence[id] = message.outcome.ids[0]
    memories = await tx.get(scope, list(evidence.values()))
    found = {memory.id: memory for memory in memories}
    for id, memory_id in evidence.items():
        if memory_id not in found:
            raise InvalidInput(f"No item with id {id!r}: evidence has to be stored first")
        is_own = cues.is_persons(found[memory_id])
        if patch.record_type == "user_profile" and not is_own:
            raise InvalidInput(
                f"Item {id!r} holds the words of someone else:"
                " a profile is based on the person's own words"
            )
    versions = await person.load_summaries(tx, scope, patch.record_type)
    for version in versions:
        if version.id == patch.id:
            return version
    old = newest(versions, patch.name) or replace(patch, data={}, evidence_ids=())
    lists = {}
    for name, values in patch.data.items():
        before = tuple(old.data.get(name, ()))
        lists[name] = transitions.union(before, tuple(values))
    evidence_ids = transitions.union(tuple(old.evidence_ids), tuple(evidence.values()))
    at = patch.at
    if old.id != patch.id:
        at = max(at, old.at + timedelta(microseconds=1))
    record = replace(patch, data=lists, evidence_ids=evidence_ids, at=at)
    await person.save_summary(tx, record)
    return record


async def add_missing(
    tx: Transaction,
    scope: Scope,
    imported: Sequence[Summary],
    *,
    any_speaker: bool,
) -> list[str]:
    """Store imported versions that are not here yet; return why others are refused.

    Without `any_speaker`, a profile has to be based on the person's own words.
    """
    here = set()
    for kind in LISTS:
        for known in await person.load_summaries(tx, scope, kind):
            here.add(known.id)
    reasons = []
    for record in imported:
        if record.id in here:
            continue
        found = await tx.get(scope, record.evidence_ids)
        is_own = any_speaker or all(map(cues.is_persons, found))
        if set(record.evidence_ids).difference(memory.id for memory in found):
            reasons.append(f"the {record.record_type} is based on memories that are not here")
        elif record.record_type == "user_profile" and not is_own:
            reasons.append("a profile is based on the person's own words")
        else:
            await person.save_summary(tx, record)
    return reasons


def newest(versions: Sequence[Summary], name: str) -> Summary | None:
    """Return the last version of the record of that name."""
    for version in versions:
        if version.name == name.casefold():
            return version
    return None


async def promote(
    store: Store,
    scope: Scope,
    *,
    before: datetime,
    now: datetime,
    erase: bool = False,
) -> PromotionReport:
    """Write older items into the records they belong to, and archive or erase them.

    Pinned and manually saved items stay. Each transaction covers a few hundred items.
    """
    where = Filter(
        item_types=ITEM_TYPES,
        created_before=before,
        pinned=False,
        manually_saved=False,
        none_of=(transitions.EXPIRING,),
    )
    items = await store.find_all(scope, where)
    items.sort(key=lambda item: (item.created_at, item.id))
    count = 0
    written = set()
    words = []
    reason = "compressed into long-term memory"
    meta = {"state": "archived", "reason": reason}
    for portion in portions(items):
        async with store.transaction(scope) as tx:
            stored = await tx.get(scope, [item.id for item in portion])
            batch = [item for item in stored if item.is_active and not item.on_purpose]
            for patch in _make_patches(batch, now):
                await merge(tx, scope, patch)
                written.add((patch.record_type, patch.name))
            changes: list[Change] = []
            for item in batch:
                if erase:
                    words += await tx.versions(scope, item.id)
                    gone = Forget(
                        memory_id=item.id,
                        at=now,
                        until=now,
                        reason=reason,
                        purged=True,
                    )
                    changes.append(gone)
                else:
                    archived = transitions.archive(item, now)
                    changes.append(Save(memory=archived, event="updated", meta=meta))
            await tx.apply(changes)
        count += len(batch)
    projects = sum(kind == "project_memory" for kind, _ in written)
    return PromotionReport(
        compressed=count,
        projects=projects,
        profile=len(written) - projects,
        words=tuple(words),
    )


def _make_patches(items: Sequence[Memory], now: datetime) -> list[Summary]:
    """Return what to add to each record. An item that belongs to no record is left out.

    An item belongs to the records of its projects, in the list that a tag or else its type names;
    without a project, a statement of the person belongs to their profile.
    """
    found: dict[tuple[RecordType, str], list[tuple[str, Memory]]] = {}
    for item in items:
        names: dict[str, None] = {}
        for tag in map(str.casefold, item.tags):
            name = tag.removeprefix(PROJECT_TAG).strip()
            if tag.startswith(PROJECT_TAG) and name:
                names[name] = None
        kind = "goals" if item.item_type == "project" else "next_steps"
        for tag, each in _PROJECT_LISTS.items():
            if tag in item.tags:
                kind = each
                break
        for name in names:
            found.setdefault(("project_memory", name), []).append((kind, item))
        if not names and item.item_type in _PROFILE_LISTS and cues.is_persons(item):
            kind = _PROFILE_LISTS[item.item_type]
            if "do_not_assume" in item.tags:
                kind = "do_not_assume"
            found.setdefault(("user_profile", "user"), []).append((kind, item))
    patches = []
    for (record_type, name), lines in found.items():
        data: dict[str, list[str]] = {each: [] for each in LISTS[record_type]}
        for kind, item in lines:
            data[kind].append(item.text)
        patch = Summary(
            id=new_id(),
            record_type=record_type,
            name=name,
            data=data,
            at=now,
            evidence_ids=tuple(item.id for _, item in lines),
        )
        patches.append(patch)
    return patches
