"""Forgetting: what is erased, what is erased with it, and what stays but has lost a source."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypedDict

from ..context import Context, Place
from ..errors import InvalidInput, NotFound, ProviderFailed, StoreDamaged, StoreFull
from ..ingest import transitions, validation
from ..jobs import vectors
from ..jobs.summarize import in_order, tags_of, turns_of
from ..ports import Forgetful
from ..storage import Change, Forget, Save, erase
from ..storage.atomic import lock, new_file
from ..storage.queries import Reader
from ..storage.transaction import Transaction
from ..text import summarize, tokens
from ..types import GUILD, STATES, Memory, Scope, frozen
from . import edit, privacy, topics
from .journal import Journal

SOURCE_FORGOTTEN = "source-forgotten"  # tag of what is based on something forgotten, among others
SLICE = 100  # memories erased in one transaction: others get their turn in between
MOST_OF_TURN = 0.6  # share of the words of a turn from which on a fact says most of it
VISIBLE = tuple(state for state in STATES if state not in ("superseded", "soft_deleted"))


class ForgetOptions(TypedDict, total=False):
    """How the caller wants something forgotten."""

    reason: str
    actor: str | None
    keep_days: float  # 0: erase at once
    never_again: bool  # the tombstone has no end


@frozen
class Manner:
    """Checked options. Raises InvalidInput if one is not valid."""

    reason: str = ""
    actor: str | None = None
    keep_days: float = 0  # 0: erase at once
    never_again: bool = False  # the tombstone has no end

    def __post_init__(self) -> None:
        validation.days(self.keep_days)
        validation.fields({"reason": self.reason, "actor": self.actor})

    def tombstone_end(self, ctx: Context, now: datetime) -> datetime | None:
        """Return until when automatic writes do not bring it back."""
        if self.never_again:
            return None
        return now + timedelta(hours=ctx.settings.tombstone_hours)


@frozen
class Forgotten:
    """The ids of what was forgotten, or would be, and of what is based on it."""

    ids: tuple[str, ...] = ()  # as requested
    # what was based on those alone, earlier statements that they had replaced, and turns that say
    # hardly more than a forgotten fact
    derived: tuple[str, ...] = ()
    # what is also based on other memories: it stays, with a tag, and a summary is made again
    flagged: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()  # turns that say a forgotten fact, among other things: they stay
    copies: tuple[str, ...] = ()  # memories with exactly the same text: they stay
    dry_run: bool = False

    def __add__(self, other: Forgotten) -> Forgotten:
        """Return both together; what was erased after all is not listed as kept."""
        ids = self.ids + other.ids
        derived = self.derived + other.derived
        gone = {*ids, *derived}

        def keep(*named: str) -> tuple[str, ...]:
            return tuple(id for id in dict.fromkeys(named) if id not in gone)

        return Forgotten(
            ids=ids,
            derived=derived,
            flagged=keep(*self.flagged, *other.flagged),
            sources=keep(*self.sources, *other.sources),
            copies=keep(*self.copies, *other.copies),
        )


@frozen
class Plan:
    """What is erased and changed together with memories."""

    report: Forgotten
    derived: tuple[str, ...]  # what is based on these alone
    flagged: tuple[Memory, ...]  # what is also based on other memories

    @property
    def gone(self) -> list[str]:
        return [*self.report.ids, *self.report.derived]

    @property
    def summaries(self) -> list[Memory]:
        """What is to be summarized again, the current versions last."""
        found = [memory for memory in self.flagged if memory.compression_source]
        return sorted(found, key=lambda memory: memory.state != "superseded")


async def make_plan(reading: Reader, scope: Scope, ids: Sequence[str]) -> Plan:
    """Follow evidence and replaced statements from these memories, until nothing is added."""
    known: list[Memory] = []
    with suppress(StoreDamaged):  # an altered row is erased all the same
        known = await reading.get(scope, ids)
    turns = await _find_turns(reading, scope, known)
    replaced: dict[str, None] = {}
    derived = dict.fromkeys(id for id, says_same in turns.items() if says_same)
    touched: dict[str, Memory] = {}
    new = list(dict.fromkeys([*ids, *derived]))
    gone = set(new)
    while new:
        touched |= await reading.derived_from(scope, new)
        earlier = await reading.earlier_versions(scope, new)
        new = [id for id in earlier if id not in gone]
        replaced |= dict.fromkeys(new)
        gone.update(new)
        alone = []
        for id, memory in touched.items():
            named = {*memory.evidence_ids, *memory.source_ids, *memory.evidence}
            named.discard(memory.source_message_id or "")  # the message in which it was said
            if id not in gone and named <= gone:
                alone.append(id)
        derived |= dict.fromkeys(alone)
        gone.update(alone)
        new += alone
    for id in gone:
        touched.pop(id, None)
    changed = touched
    while changed:  # what is based on a summary that changes
        summaries = [id for id, memory in changed.items() if memory.compression_source]
        changed = await reading.derived_from(scope, summaries)
        for id in gone.union(touched):
            changed.pop(id, None)
        touched = touched | changed
    copies: list[Memory] = []  # such as turns of another session or speaker
    with suppress(StoreDamaged):
        hashes = {memory.content_hash for memory in known}
        copies = await reading.same_text(scope, hashes, *VISIBLE)
    flagged = tuple(touched.values())
    report = Forgotten(
        ids=tuple(ids),
        derived=(*derived, *replaced),
        flagged=tuple(memory.id for memory in flagged if memory.state != "superseded"),
        sources=tuple(id for id, says_same in turns.items() if not says_same),
        copies=tuple(memory.id for memory in copies if memory.id not in gone),
    )
    return Plan(report=report, derived=tuple(derived), flagged=flagged)


async def _plan_allowed(place: Place, tx: Transaction, ids: Sequence[str]) -> Plan:
    """Return the plan if the caller may remove what is in it. Raises NotAllowed."""
    plan = await make_plan(tx, place.scope, ids)
    if not place.voice.is_owner:
        place.voice.require_removal(await tx.get(place.scope, plan.gone))
    return plan


async def _find_turns(reading: Reader, scope: Scope, known: Sequence[Memory]) -> dict[str, bool]:
    """Return the turns of the facts among some memories, and whether they say hardly more."""
    found: dict[str, bool] = {}
    ids = {memory.id for memory in known}
    with suppress(StoreDamaged):  # an altered row is erased all the same
        for fact in known:
            if not fact.evidence_text:
                continue
            stated = set(tokens.analyze(fact.text))
            for turn in await reading.get(scope, fact.evidence_ids):
                words = set(tokens.analyze(turn.text))
                if turn.id not in ids:
                    found[turn.id] = len(words & stated) >= MOST_OF_TURN * len(words)
    return found


async def require_one(place: Place, query: str, ids: Sequence[str]) -> None:
    """Raise InvalidInput unless these memories are one thing, and a query names it for sure.

    Memories with the same text, and what is based on them alone, are one thing.
    """
    found = await topics.load(place, ids)
    if not found:
        return
    plan = await make_plan(place.ctx.store, place.scope, ids[:1])
    same = {ids[0], *plan.report.derived, *plan.report.copies}
    if same.issuperset(ids) and topics.is_named(found[0], query):
        return
    count = "1 memory" if len(ids) == 1 else f"{len(ids)} memories"
    raise InvalidInput(
        f"Nothing was forgotten: {query!r:.80} may mean {count}. "
        "Review what a dry run lists, then forget by id"
    )


async def forget(place: Place, ids: Sequence[str], manner: Manner) -> Forgotten:
    """Forget memories with what is based on them: all or none, or many in slices.

    If it is interrupted between two slices, repeating it forgets the rest.
    Raises NotFound, NotAllowed, StoreUnavailable.
    """
    if manner.keep_days:
        return await _hide(place, ids, manner)
    ctx = place.ctx
    scope = place.scope
    done = Forgotten()
    for start in range(0, len(ids), SLICE):
        some = [id for id in ids[start : start + SLICE] if id not in done.derived]
        if start > 0:  # what another process has forgotten meanwhile is no error
            some = [memory.id for memory in await ctx.store.get(scope, some)]
        try:
            plan, words = await _erase(place, some, manner)
        except StoreFull:  # erasing needs space too: some was reserved for it
            ctx.store.database.make_room()
            plan, words = await _erase(place, some, manner)
        await sweep(ctx, scope, words)
        await _embed_summaries(ctx, scope, plan)
        done += plan.report
    return done


async def sweep(ctx: Context, scope: Scope, words: Sequence[str]) -> None:
    """Remove erased words from everything outside the store."""
    ctx.index.drop(scope)
    await clear_copies(ctx, words)
    if ctx.external_index is not None:
        with suppress(ProviderFailed):  # an unavailable index catches up later
            await ctx.external_index.sync(scope)


async def clear_copies(ctx: Context, words: Sequence[str]) -> None:
    """Remove words from the cache of vectors and from the journal."""
    if isinstance(ctx.embedder, Forgetful):
        await ctx.embedder.forget(words)
    if ctx.settings.journal_dir is not None:
        await asyncio.to_thread(Journal(ctx.settings.journal_dir).redact, words)
    await asyncio.to_thread(clear_aside, ctx.settings.spool_folder, words)


def clear_aside(folder: Path, words: Sequence[str]) -> None:
    """Remove the lines that contain one of these texts from the files that a replay set aside."""
    found = [json.dumps(text, ensure_ascii=False)[1:-1].encode() for text in filter(None, words)]
    for path in folder.glob("*.corrupt-*.jsonl") if found else ():
        with lock(folder / "files.lock"):
            lines = path.read_bytes().splitlines(keepends=True)
            kept = [line for line in lines if not any(text in line for text in found)]
            if not kept:
                path.unlink()
            elif len(kept) < len(lines):
                with new_file(path) as draft:
                    draft.write_bytes(b"".join(kept))


async def _erase(place: Place, ids: Sequence[str], manner: Manner) -> tuple[Plan, list[str]]:
    """Erase memories in one transaction; return what was erased with them, and all their words."""
    ctx = place.ctx
    scope = place.scope
    now = ctx.clock()
    until = manner.tombstone_end(ctx, now)
    async with ctx.store.transaction(scope) as tx:
        plan = await _plan_allowed(place, tx, ids)
        words: list[str] = []
        if scope.user == GUILD:  # more was embedded than the text
            with suppress(StoreDamaged):  # an altered row is erased all the same
                memories = await tx.get(scope, plan.gone)
                words += map(tokens.meaning_of, memories)
        changes: list[Change] = []
        for memory in plan.flagged:
            if not memory.compression_source:
                left = _without_sources(memory, plan.gone, now)
                put = Save(
                    memory=left,
                    event=None if memory.state == "superseded" else "updated",
                    meta={"reason": "a source was forgotten", "final": True},
                )
                changes.append(put)
        for id in plan.gone:
            gone = Forget(
                memory_id=id,
                at=now,
                until=until,
                reason=manner.reason if id in ids else "it rested on what was forgotten",
                actor=manner.actor,
            )
            changes.append(gone)
        await tx.apply(changes)
        for id in ids:
            if id not in tx.erased:
                raise NotFound(f"No memory with id {id!r} in this scope")
        words += [*tx.erased.values(), *tx.merged]
        await tx.write_each(erase.QUOTES, [(memory.id,) for memory in plan.flagged])
        words += await _summarize_again(tx, scope, plan, now, until)
        await clear_copies(ctx, words)  # before the commit, so that a kill in between leaves none
    return plan, list(dict.fromkeys(words))


def _without_sources(memory: Memory, gone: Sequence[str], now: datetime) -> Memory:
    evidence_ids = [id for id in memory.evidence_ids if id not in gone]
    source_ids = [id for id in memory.source_ids if id not in gone]
    return transitions.revise(
        memory,
        now,
        evidence_ids=tuple(evidence_ids),
        source_ids=tuple(source_ids),
        evidence_text=None,  # it may quote what is erased
        tags=transitions.union(memory.tags, (SOURCE_FORGOTTEN,)),
    )


async def _summarize_again(
    tx: Transaction, scope: Scope, plan: Plan, now: datetime, until: datetime | None
) -> list[str]:
    """Make summaries again from the sources that are left, and return the words of the old ones.

    The old ones are erased with a tombstone, because they may quote what was forgotten.
    """
    words: list[str] = []
    for old in plan.summaries:
        gone = await tx.versions(scope, old.id)
        words += gone
        why = SOURCE_FORGOTTEN
        erased = Forget(memory_id=old.id, at=now, until=now, reason=why, purged=True)
        await tx.apply([erased])
        kept = _without_sources(old, plan.gone, now)
        found = await tx.get(scope, kept.evidence_ids)
        left = [source for source in found if source.state != "soft_deleted"]
        turns = turns_of(in_order(left))
        text = summarize.extract(turns)
        await tx.add_tombstones({*gone} - {text}, until)
        if text and old.state != "superseded":
            new = edit.reword(
                kept,
                text,
                summary=None,
                category=None,
                tags=transitions.union(tags_of(left), (SOURCE_FORGOTTEN,)),
                needs_embedding=True,
            )
            meta = {"reason": "summed up without a source that was forgotten", "final": True}
            put = Save(memory=new, event="created", meta=meta)
            await tx.apply([put])
    return words


async def _embed_summaries(ctx: Context, scope: Scope, plan: Plan) -> None:
    """Embed summaries that were made again, or leave it to a job if the model is unavailable."""
    if ids := [memory.id for memory in plan.summaries]:
        found = await ctx.store.get(scope, ids)
        with suppress(ProviderFailed):
            await vectors.embed_now(ctx, found)


async def _hide(place: Place, ids: Sequence[str], manner: Manner) -> Forgotten:
    """Hide memories with what is based on them alone; they can be restored until purged."""
    ctx = place.ctx
    scope = place.scope
    now = ctx.clock()
    purge_at = now + timedelta(days=manner.keep_days)
    until = manner.tombstone_end(ctx, now)
    trace = await privacy.trace(place)
    async with ctx.store.transaction(scope) as tx:  # a separate one: this cannot be undone
        plan = await _plan_allowed(place, tx, ids)
        words = await _summarize_again(tx, scope, plan, now, until)
    if words:
        await sweep(ctx, scope, words)
        await _embed_summaries(ctx, scope, plan)
    async with ctx.store.transaction(scope, command=place.command_id) as tx:
        plan = await make_plan(tx, scope, ids)
        found = await tx.get(scope, [*ids, *plan.derived])
        if missing := set(ids).difference(memory.id for memory in found):
            raise NotFound(f"No memory with id {min(missing)!r} in this scope")
        saves: list[Save] = []
        texts: list[str] = []
        for old in found:
            new = transitions.hide(old, now, purge_at=purge_at)
            meta = {"state": new.state, **trace}
            if manner.reason:
                meta["reason"] = manner.reason
            saves.append(Save(memory=new, event="soft_deleted", actor=manner.actor, meta=meta))
            saves += await edit.carry_versions(tx, old, new)
            texts += await tx.versions(scope, old.id)
        texts += await erase.read_merged(tx, scope, [old.id for old in found])
        texts += [put.memory.text for put in saves]
        await tx.apply(saves)
        end = max(until, purge_at) if until else None
        unique = dict.fromkeys(texts)
        await tx.add_tombstones(tuple(unique), end)
    return replace(plan.report, flagged=())
