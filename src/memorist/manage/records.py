"""Long-term records: each addition is a new version that holds what was there before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from ..errors import InvalidInput
from ..storage import summaries
from ..storage.store import Store
from ..storage.summaries import Summary
from ..storage.transaction import Transaction
from ..text import authority
from ..types import Scope

PROFILE = ("preferences", "stable_facts", "do_not_assume")  # the lists of a person's profile
PROJECT = ("goals", "blockers", "next_steps")  # … and of what is known of a project


async def add(store: Store, scope: Scope, patch: Summary) -> Summary:
    """Add the lists of a patch to the newest record of its name. Doing it again changes nothing.

    Raises InvalidInput if the evidence is not remembered, or if a profile would rest on words of somebody else.
    """
    async with store.transaction(scope) as tx:
        made = await added(tx, store, scope, patch)
        await summaries.save(tx, made)
    return made


async def added(tx: Transaction, store: Store, scope: Scope, patch: Summary) -> Summary:
    """The newest record of its name with the lists of a patch, as `add` keeps it. Raises InvalidInput."""
    evidence = await _evidence(tx, scope, patch)
    versions = await summaries.load(tx, scope, patch.record_type)
    done = next((version for version in versions if version.id == patch.id), None)
    if done is not None:
        return done
    old = newest(versions, patch.name)
    lists = {
        name: _union(old.data.get(name, ()) if old else (), values)
        for name, values in patch.data.items()
    }
    since = patch.at if old is None else max(patch.at, old.at + timedelta(microseconds=1))
    return replace(
        patch, data=lists, at=since, evidence_ids=_union(old.evidence_ids if old else (), evidence)
    )


def newest(versions: Sequence[Summary], name: str) -> Summary | None:
    """The last version of the record of that name."""
    return next((version for version in versions if version.name == name.casefold()), None)


async def _evidence(tx: Transaction, scope: Scope, patch: Summary) -> list[str]:
    """The memories that the items' ids stand for, all of them there; for a profile, all in the person's own words."""
    ids = patch.evidence_ids
    said = await tx.seen(scope, dict.fromkeys(ids, ""))
    meant = {id: next(iter(said[id].outcome.ids), id) if id in said else id for id in ids}
    there = {memory.id: memory for memory in await tx.get(scope, list(meant.values()))}
    missing = [id for id in ids if meant[id] not in there]
    if missing:
        raise InvalidInput(f"No item with id {missing[0]!r}: evidence has to be remembered first")
    others = [id for id in ids if not authority.is_persons(there[meant[id]])]
    if others and patch.record_type == "user_profile":
        raise InvalidInput(
            f"Item {others[0]!r} holds the words of somebody else: a profile rests on the person's own"
        )
    return list(meant.values())


def _union(*lists: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for items in lists for item in items))
