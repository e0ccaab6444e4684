"""Forgetting: what goes, what goes with it, and what stays but has lost a source."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from ..context import Context
from ..errors import InvalidInput, NotFound, ProviderFailed, StoreDamaged, StoreFull
from ..ingest import transitions, validation
from ..jobs.summarize import in_order, tags_of, turns_of
from ..ports import Forgetful
from ..storage import embedding_queue
from ..storage.changes import Forget, Save
from ..storage.embedding_queue import Embedding
from ..storage.queries import Reader
from ..storage.transaction import Transaction
from ..text import normalize, summarize, tokens
from ..types import GUILD, STATES, Filter, Labels, Memory, Scope
from . import edit, journal, privacy, recall

SOURCE_FORGOTTEN = (
    "source-forgotten"  # the tag of what rests on something forgotten, and on other things too
)
MOST_FOUND = 100  # memories that one question takes away
AT_ONCE = 200  # ids in one question to the store


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What was forgotten, or would be: its own ids, and those of what rests on it."""

    ids: tuple[str, ...] = ()  # as asked for
    # what rested on those alone, and earlier statements that they had replaced
    derived: tuple[str, ...] = ()
    # what rests on other memories too: it stays, marked, and a summary is made again
    flagged: tuple[str, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How to forget."""

    reason: str = ""
    actor: str | None = None
    keep_days: float = 0  # 0: for good
    never_again: bool = False  # the digest that is left behind has no end
    session: str | None = None  # in which it is asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a forget takes along."""

    ids: tuple[str, ...]
    replaced: tuple[str, ...] = ()  # earlier versions, and statements whose place they took
    derived: tuple[str, ...] = ()  # what rests on all these alone
    flagged: tuple[Memory, ...] = ()  # what rests on other things too

    @property
    def gone(self) -> set[str]:
        return {*self.ids, *self.replaced, *self.derived}

    @property
    def summaries(self) -> list[Memory]:
        """What is to be made anew, the current versions last."""
        made = [memory for memory in self.flagged if memory.compression_source]
        return sorted(made, key=lambda memory: memory.state != "superseded")

    def report(self, *, dry_run: bool) -> Forgotten:
        kept = tuple(memory.id for memory in self.flagged if memory.state != "superseded")
        return Forgotten(
            ids=self.ids, derived=(*self.derived, *self.replaced), flagged=kept, dry_run=dry_run
        )


async def check_manner(
    ctx: Context,
    scope: Scope,
    labels: Labels,
    reason: str,
    keep_days: float,
    never_again: bool,
    actor: str | None,
) -> Manner:
    """Return how to forget. Raises InvalidInput."""
    validation.days(keep_days)
    validation.fields({"reason": reason, "actor": actor})
    return Manner(
        reason=reason,
        actor=actor,
        keep_days=keep_days,
        never_again=never_again,
        session=await privacy.traceable_session(ctx, scope, labels.session),
    )


async def find(
    ctx: Context, scope: Scope, labels: Labels, query: str | None, where: Filter | None
) -> list[str]:
    """Return the ids of what a query finds, best first, or of all that a filter matches.

    Raises InvalidInput if neither is given.
    """
    wanted = validation.where(where)
    if query:
        memories = await recall.look_up(ctx, scope, labels, query, MOST_FOUND, where)
        return [memory.id for memory in memories]
    if wanted.is_plain:
        raise InvalidInput("Pass what to forget: a query, or a filter that names more than states")
    return [memory.id for memory in await ctx.store.find_all(scope, wanted)]


async def preview(ctx: Context, scope: Scope, ids: Sequence[str]) -> Forgotten:
    """Return what forgetting these memories would erase."""
    return (await plan_for(ctx.store, scope, ids)).report(dry_run=True)


async def forget(ctx: Context, scope: Scope, ids: Sequence[str], manner: Manner) -> Forgotten:
    """Forget memories with what rests on them, all or none. Raises NotFound, StoreUnavailable."""
    done = await (_hidden if manner.keep_days else _erased)(ctx, scope, ids, manner)
    return done.report(dry_run=False)


async def plan_for(reading: Reader, scope: Scope, ids: Sequence[str]) -> Plan:
    """Follow evidence and replaced statements from these memories on, until nothing more goes."""
    replaced: dict[str, None] = {}
    derived: dict[str, None] = {}
    touched: dict[str, Memory] = {}
    new = list(dict.fromkeys(ids))
    while new:
        before = [memory for id in new for memory in await _replaced_by(reading, scope, id)]
        touched |= {memory.id: memory for memory in await _resting_on(reading, scope, new)}
        gone = {*ids, *replaced, *derived, *(memory.id for memory in before)}
        alone = [
            memory
            for memory in touched.values()
            if memory.id not in gone and rests_on(memory) <= gone
        ]
        new = [memory.id for memory in before if memory.id not in {*ids, *replaced, *derived}]
        replaced |= dict.fromkeys(new)
        derived |= dict.fromkeys(memory.id for memory in alone)
        new += [memory.id for memory in alone]
    gone = {*ids, *replaced, *derived}
    anew = [id for id, memory in touched.items() if memory.compression_source and id not in gone]
    while anew:  # what rests on a summary that changes
        above = {
            memory.id: memory
            for memory in await _resting_on(reading, scope, anew)
            if memory.id not in touched
        }
        touched |= above
        anew = [id for id, memory in above.items() if memory.compression_source]
    flagged = tuple(memory for id, memory in touched.items() if id not in gone)
    return Plan(ids=tuple(ids), replaced=tuple(replaced), derived=tuple(derived), flagged=flagged)


def rests_on(memory: Memory) -> set[str]:
    """What a memory refers to beside the message in which it was said."""
    return {*memory.evidence_ids, *memory.source_ids, *memory.evidence} - {
        memory.source_message_id or ""
    }


async def _replaced_by(reading: Reader, scope: Scope, id: str) -> list[Memory]:
    with suppress(StoreDamaged):  # a row that was altered on disk goes with the memory all the same
        return await reading.find_all(scope, Filter(versions_of=id, states=STATES))
    return []


async def _resting_on(reading: Reader, scope: Scope, ids: Sequence[str]) -> list[Memory]:
    some = [tuple(ids[start : start + AT_ONCE]) for start in range(0, len(ids), AT_ONCE)]
    return [
        m
        for few in some
        for m in await reading.find_all(scope, Filter(derived_from=few, states=STATES))
    ]


async def _erased(ctx: Context, scope: Scope, ids: Sequence[str], manner: Manner) -> Plan:
    """Remove memories everywhere, at once."""
    try:
        plan, words = await _erase(ctx, scope, ids, manner)
    except StoreFull:  # erasing needs room too: a little was kept aside for it
        ctx.store.make_room()
        plan, words = await _erase(ctx, scope, ids, manner)
    await sweep(ctx, scope, words)
    await _embedded(ctx, scope, plan)
    return plan


async def sweep(ctx: Context, scope: Scope, words: Sequence[str]) -> None:
    """Let nothing beside the store hold words that were erased in it."""
    ctx.index.drop(scope)
    await clear_copies(ctx, words)
    if ctx.external_index is not None:
        with suppress(
            ProviderFailed
        ):  # an index that is away forgets it as soon as it follows again
            await ctx.external_index.sync(scope)


async def clear_copies(ctx: Context, words: Sequence[str]) -> None:
    """Take words out of the cache and the journal: before they are erased, so that a kill in between leaves none."""
    if isinstance(ctx.embedder, Forgetful):
        await ctx.embedder.forget(words)
    if (written := journal.find_journal(ctx)) is not None:
        await asyncio.to_thread(written.redact, words)


async def _erase(
    ctx: Context, scope: Scope, ids: Sequence[str], manner: Manner
) -> tuple[Plan, list[str]]:
    now = ctx.clock()
    until = _until(ctx, manner, now)
    async with ctx.store.transaction(scope) as tx:
        words = await _wordings(tx, scope, ids)
        plan = await plan_for(tx, scope, ids)
        more = [*plan.derived, *plan.replaced]
        words += [text for id in more for text in await tx.versions(scope, id)]
        words += await _meanings(tx, scope, [*ids, *more])
        reasons = {
            **dict.fromkeys(more, "it rested on what was forgotten"),
            **dict.fromkeys(ids, manner.reason),
        }
        gone = [
            Forget(memory_id=id, at=now, until=until, reason=reasons[id], actor=manner.actor)
            for id in (*ids, *plan.derived, *plan.replaced)
        ]
        await tx.apply([*_flagged(plan, now), *gone])
        words += await _summed_up_anew(tx, scope, plan, now)
        await clear_copies(ctx, words)
    return plan, list(dict.fromkeys(words))


async def _wordings(tx: Transaction, scope: Scope, ids: Iterable[str]) -> list[str]:
    out: list[str] = []
    for id in ids:
        words = await tx.versions(scope, id)
        if not words:
            raise NotFound(f"No memory with id {id!r} in this scope")
        out += words
    return out


async def _meanings(tx: Transaction, scope: Scope, ids: Sequence[str]) -> list[str]:
    """What was embedded of memories where that is more than their words."""
    with suppress(StoreDamaged):  # a row that was altered on disk goes all the same
        return (
            [tokens.meaning_of(memory) for memory in await tx.get(scope, ids)]
            if scope.user == GUILD
            else []
        )
    return []


def _flagged(plan: Plan, now: datetime) -> list[Save]:
    """What rests on other things too, marked, and without the references that lead nowhere now."""
    return [
        Save(
            memory=_without(memory, plan.gone, now),
            event=None if memory.state == "superseded" else "updated",
            meta={"reason": "a source was forgotten", "final": True},
        )
        for memory in plan.flagged
        if not memory.compression_source
    ]


async def _summed_up_anew(tx: Transaction, scope: Scope, plan: Plan, now: datetime) -> list[str]:
    """Make summaries again from the sources that are left, because they may hold what was said word for word.

    The old ones are erased with all that led to them; gives their words.
    """
    words: list[str] = []
    for old in plan.summaries:
        words += await tx.versions(scope, old.id)
        await tx.apply(
            [Forget(memory_id=old.id, at=now, until=now, reason=SOURCE_FORGOTTEN, purged=True)]
        )
        there = await tx.get(scope, old.evidence_ids)
        left = [m for m in there if m.id not in plan.gone and m.state != "soft_deleted"]
        text = summarize.extract(turns_of(in_order(left)))
        if text and old.state != "superseded":
            anew = replace(
                _without(replace(old, tags=tags_of(left)), plan.gone, now),
                text=text,
                summary=None,
                category=None,
                needs_embedding=True,
                content_hash=normalize.content_hash(text),
                simhash=normalize.simhash64(text),
            )
            meta = {"reason": "summed up without a source that was forgotten", "final": True}
            await tx.apply([Save(memory=anew, event="created", meta=meta)])
    return words


async def _embedded(ctx: Context, scope: Scope, plan: Plan) -> None:
    """Give summaries that were made anew their vectors, or leave that for later."""
    ids = [memory.id for memory in plan.summaries]
    memories = await ctx.store.get(scope, ids) if ids else []
    made = await edit.encode(ctx, [memory.text for memory in memories]) if memories else {}
    if made:
        async with ctx.store.transaction(scope) as tx:
            still = [m for m in await tx.get(scope, ids) if m.text in made]
            model = ctx.index.model
            await embedding_queue.save(
                tx, [Embedding(memory_id=m.id, model=model, vector=made[m.text]) for m in still]
            )


def _without(memory: Memory, gone: set[str], now: datetime) -> Memory:
    return transitions.revise(
        memory,
        now,
        evidence_ids=tuple(id for id in memory.evidence_ids if id not in gone),
        source_ids=tuple(id for id in memory.source_ids if id not in gone),
        evidence_text=None,  # it may quote what is gone
        tags=tuple(dict.fromkeys((*memory.tags, SOURCE_FORGOTTEN))),
    )


async def _hidden(ctx: Context, scope: Scope, ids: Sequence[str], manner: Manner) -> Plan:
    """Let memories disappear, with what rests on them alone; they can be restored until they are purged."""
    now = ctx.clock()
    purge_at = now + timedelta(days=manner.keep_days)
    until = _until(ctx, manner, now)
    async with ctx.store.transaction(
        scope
    ) as tx:  # by itself: what is hidden can be brought back, this cannot
        plan = await plan_for(tx, scope, ids)
        words = await _summed_up_anew(tx, scope, plan, now)
    if words:
        await sweep(ctx, scope, words)
        await _embedded(ctx, scope, plan)
    async with ctx.store.transaction(scope) as tx:
        plan = await plan_for(tx, scope, ids)
        found = await tx.get(scope, [*ids, *plan.derived])
        if missing := set(ids).difference(memory.id for memory in found):
            raise NotFound(f"No memory with id {min(missing)!r} in this scope")
        puts = [put for memory in found for put in await _hide(tx, memory, purge_at, now, manner)]
        words = [text for memory in found for text in await tx.versions(scope, memory.id)]
        texts = tuple(dict.fromkeys([*words, *(put.memory.text for put in puts)]))
        await tx.apply(puts)
        await tx.add_tombstones(texts, max(until, purge_at) if until else None)
    return replace(plan, flagged=())


async def _hide(
    tx: Transaction, old: Memory, purge_at: datetime, now: datetime, manner: Manner
) -> list[Save]:
    new = transitions.hide(old, now, purge_at=purge_at)
    meta = {"state": new.state, "reason": manner.reason, "session": manner.session}
    told = {name: value for name, value in meta.items() if value}
    put = Save(memory=new, event="soft_deleted", actor=manner.actor, meta=told)
    return [put, *await edit.carry_versions(tx, old, new)]


def _until(ctx: Context, manner: Manner, now: datetime) -> datetime | None:
    return None if manner.never_again else now + timedelta(hours=ctx.settings.tombstone_hours)
