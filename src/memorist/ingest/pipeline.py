"""The write pipeline, from top to bottom.

`remember` runs all of it. Jobs that store derived memories run the same steps with their own
transaction: `prepare` before it, `write` inside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Literal

from ..context import Context, compute, compute_each
from ..embedders import encode_by_both
from ..errors import ProviderFailed, StoreUnavailable
from ..ports import EntityDetector, FindNames, Forgetful
from ..storage import Event, SeenMessage, tasks
from ..storage.queries import Reader
from ..storage.transaction import Transaction
from ..text import clock, cues, normalize
from ..text.clock import new_id
from ..text.cues import read
from ..types import Draft, Message, Outcome, Scope, Status
from . import current, guard, known_changes, links, relate, trim, validation
from .analyze import Chunk, analyze, split
from .candidates import Batch, load, load_scope
from .decide import EXPIRED, FORGOTTEN, decide
from .guard import Item
from .policies import Policy

EXTRACT = "extract"  # the job that extracts facts from turns
TOGETHER = 32  # turns that one task processes
FAILED = "not embedded yet"  # prefix of a problem that is a failure, not a missing model
NO_MODEL = "not embedded: no embedding model is configured"
FULL = "the scope is full of memories that rank higher; it can be restored"
# The status of a draft is the first of these that one of its chunks has.
_ORDER: tuple[Status, ...] = ("created", "updated", "merged", "refused", "skipped")

Seen = dict[str, tuple[str, Outcome]]  # by message id: the digest of its text, and its outcome


async def remember(
    ctx: Context,
    scope: Scope,
    drafts: Sequence[Draft],
    policy: Policy,
    now: datetime,
    *,
    command: str | None = None,
    analyzed: Batch | None = None,
) -> list[Outcome]:
    """Store drafts in one transaction. Return their outcomes in the same order.

    `analyzed` is what `check_and_analyze` returned for them before.
    """
    batch = analyzed or await check_and_analyze(ctx, scope, drafts, policy, now, command=command)
    items = batch.items
    done = outcomes(items)
    if len(done) < len(items):
        async with ctx.store.transaction(scope, command=command) as tx:
            batch.checks = await guard.refuse_disabled(ctx, tx, scope, items)
            done = await write(tx, batch)
        if late := find_late(batch):
            with suppress(StoreUnavailable):  # they are stored; a backfill relates them later
                async with ctx.store.transaction(scope) as tx:
                    await relate.relate_late(tx, batch, late)
    if batch.refusals:
        ctx.access_log.note(scope, batch.refusals)
    return done


async def check_and_analyze(
    ctx: Context,
    scope: Scope,
    drafts: Sequence[Draft],
    policy: Policy,
    now: datetime,
    *,
    command: str | None = None,
) -> Batch:
    """Refuse drafts that may not be stored, and prepare the others.

    What a command stores is not skipped because the same was said before.
    """
    items = [Item(draft) for draft in drafts]
    checks = await guard.refuse_disabled(ctx, ctx.store, scope, items)
    if checks is not None and command is None:
        guard.note_obeyed(ctx, items, checks)
    size = sum(len(draft.text) for draft in drafts)
    checked = await compute_each(size, guard.check, items, policy, scope.user)
    batch = await prepare(ctx, scope, [item for item, _ in checked], policy, now)
    batch.refusals = [event for _, events in checked for event in events]
    return batch


async def prepare(
    ctx: Context,
    scope: Scope,
    items: Sequence[Item],
    policy: Policy,
    now: datetime,
) -> Batch:
    """Analyze and embed the items that were not refused, before the write lock is taken."""
    size = sum(len(item.draft.text) for item in items)
    batch = Batch(ctx=ctx, scope=scope, policy=policy, now=now, items=items, size=size)
    seen = await load_seen(ctx.store, scope, items)
    new = [item for item in items if item.outcome is None and item.draft.message_id not in seen]
    drafts = [item.draft for item in new]
    if ctx.entities is None:
        analyzed = await compute_each(size, analyze, drafts, policy)
    else:
        finders = [await _find_names(ctx.entities, item, policy) for item in new]
        pairs = list(zip(drafts, finders, strict=True))
        analyzed = await compute(size, lambda: [analyze(it, policy, find) for it, find in pairs])
    for item, chunks in zip(new, analyzed, strict=True):
        item.chunks = chunks
        batch.chunks += chunks
    if not batch.chunks or policy.embed == "deferred":
        return batch
    if ctx.embedder is None:
        batch.problem = NO_MODEL
        return batch
    texts = list(dict.fromkeys(chunk.text for chunk in batch.chunks))
    try:
        vectors, others, _ = await encode_by_both(ctx.embedder, ctx.multilingual, texts)
    except ProviderFailed as error:
        batch.problem = f"{FAILED}: {error}"
        return batch
    by_text = dict(zip(texts, vectors, strict=True))
    for chunk in batch.chunks:
        chunk.vector = by_text[chunk.text]
    if ctx.multilingual is not None and others is not None:  # else a job adds them later
        for text, vector in zip(texts, others, strict=True):
            batch.second[text] = (ctx.multilingual.model, vector)
    return batch


async def _find_names(detector: EntityDetector, item: Item, policy: Policy) -> FindNames | None:
    """Return what the caller's detector finds in each chunk; None if it fails, for rules to do it."""
    texts = split(item.draft.text, policy)
    try:
        found = await detector.detect(texts)
    except ProviderFailed as error:
        item.note = item.note or f"names were found by rules: {error}"
        return None
    return dict(zip(texts, found, strict=True)).__getitem__


async def prepare_derived(
    ctx: Context,
    scope: Scope,
    drafts: Iterable[Draft],
    policy: str,
    now: datetime,
) -> Batch:
    """Prepare the drafts of a job, which writes them in a transaction with its other changes."""
    items = []
    for draft in drafts:
        named = replace(draft, id=draft.id or new_id(), told_at=draft.told_at or now)
        items.append(Item(named))
    by = validation.policy(ctx.policies, policy)
    guard.refuse(items, by, scope.user)
    return await prepare(ctx, scope, items, by, now)


async def write(tx: Transaction, batch: Batch) -> list[Outcome]:
    """Decide on each chunk and write the result. Return the outcomes of all items."""
    ctx = batch.ctx
    policy = batch.policy
    items = [item for item in batch.items if item.outcome is None]
    if not items:
        return outcomes(batch.items)
    seen = await load_seen(tx, batch.scope, items)
    await load_scope(tx, batch)
    await load(tx, batch)
    sources = {id for chunk in batch.chunks for id in chunk.draft.evidence_ids}
    if sources and policy.conflicts:
        batch.changes = await known_changes.load(tx, batch.scope, sources)
    done = await compute(batch.size, lambda: [_decide_item(item, batch, seen) for item in items])
    for item, outcome in zip(items, done, strict=True):
        item.outcome = outcome
    if batch.replaced:
        await current.end_repeats(tx, batch)
    read.cache_clear()
    if batch.problem.startswith(FAILED):
        failure = Event(node="hotpath", op="embed", at=batch.now, status="error")
        batch.others.append(failure)
    if isinstance(ctx.embedder, Forgetful):  # what is refused, skipped or merged leaves no vector
        stored = {put.memory.text for put in batch.puts.values()}
        unused = {chunk.text for chunk in batch.chunks if chunk.vector is not None} - stored
        if unused:
            await ctx.embedder.forget(unused)
    puts = [replace(put, second=batch.second.get(put.memory.text)) for put in batch.puts.values()]
    await tx.apply([*puts, *batch.others])
    if policy.extract is not None and ctx.settings.extract != "off":
        await queue_turns(tx, find_turns(items, batch), ctx, policy, batch.now)
    if policy.job is not None:
        task = tasks.NewTask(name=policy.job, due_at=batch.now)
        await tasks.add(tx, task, once=True)
    if policy.links is not None and any(put.memory.kind == "semantic" for put in puts):
        await links.link(tx, batch.snapshot, puts, policy.links, batch.now)
    are_new = [each.status == "created" and each.supersedes is None for each in done]
    trimmed: set[str] = set()
    if policy.capacity is not None and any(are_new):
        ids = await trim.enforce(tx, batch.scope, policy.capacity, batch.now)
        trimmed.update(ids)
    for item, outcome, is_new in zip(items, done, are_new, strict=True):
        if outcome.ids and trimmed.issuperset(outcome.ids):
            item.outcome = replace(outcome, status="skipped", reason=FULL)
        elif is_new:
            reason = batch.problem or outcome.reason or item.note
            if outcome.reason == EXPIRED:
                reason = EXPIRED
            item.outcome = replace(outcome, reason=reason)
    final: dict[str | None, Outcome] = {}
    for outcome in outcomes(items):
        final.setdefault(outcome.message_id, outcome)
    if batch.messages:
        await tx.save_messages([replace(each, outcome=final[each.id]) for each in batch.messages])
    return outcomes(batch.items)


def find_late(batch: Batch) -> list[str]:
    """Return the ids of new statements that were said before others which were stored first."""
    snapshot = batch.snapshot
    if snapshot.matrix is None or not batch.policy.conflicts:
        return []
    latest = int(snapshot.said[batch.statements].max(initial=clock.NO_TIME))
    late = []
    for chunk in batch.chunks:
        if chunk.vector is None or not cues.is_own_role(chunk.draft.labels.role):
            continue
        since = clock.micros(batch.valid_since(chunk))
        if chunk.id is not None and since < latest:
            late.append(chunk.id)
        latest = max(latest, since)
    return late


def outcomes(items: Iterable[Item]) -> list[Outcome]:
    """Return the outcomes of the items that have one."""
    return [item.outcome for item in items if item.outcome is not None]


async def load_seen(reading: Reader, scope: Scope, items: Iterable[Item]) -> Seen:
    """Return the messages that were stored before, with their outcomes."""
    drafts: dict[str, Draft] = {}
    for item in items:
        if item.outcome is None and item.draft.message_id is not None:
            drafts[item.draft.message_id] = item.draft
    if not drafts:
        return {}
    digests = {id: normalize.digest(draft.text) for id, draft in drafts.items()}
    checks = await reading.checks(scope, messages=digests)
    found = checks.seen
    ids: list[str] = []
    for message in found.values():
        ids += message.outcome.ids
    memories = await reading.get(scope, ids) if ids else []
    there = {memory.id for memory in memories}
    seen: Seen = {}
    for id, message in found.items():
        outcome = message.outcome
        if not outcome.ids or there.intersection(outcome.ids):
            seen[id] = (digests[id] if message.same else "", outcome)
        elif not guard.is_on_purpose(drafts[id]):  # its memories were forgotten since
            refused = Outcome(status="refused", reason=FORGOTTEN, message_id=id)
            seen[id] = (digests[id], refused)
    return seen


def _decide_item(item: Item, batch: Batch, seen: Seen) -> Outcome:
    """Decide on the chunks of an item in order, and record its message. Return its outcome."""
    draft = item.draft
    id = draft.message_id
    digest = normalize.digest(draft.text) if id is not None else ""
    if id is not None and id in seen:
        then, before = seen[id]
        if then == digest:
            return before
        reason = f"message {id!r} was stored with another text: edit the memory instead"
        return replace(before, status="conflict", reason=reason, message_id=id, supersedes=None)
    results = [decide(chunk, batch) for chunk in item.chunks]
    for chunk, result in zip(item.chunks, results, strict=True):
        batch.others += _make_events(chunk, result, batch)
    outcome = combine(results, id)
    if id is None:
        return outcome
    seen[id] = (digest, outcome)
    role = draft.labels.role
    message = Message(
        id=id,
        content=draft.text,
        role=role or "user",
        name=draft.speaker if draft.speaker != role else None,
        at=draft.at,
        session=draft.labels.session,
    )
    texts = [chunk.text for chunk in item.chunks]
    is_verbatim = outcome.status == "created" and texts == [draft.text]
    has_forgotten = any(result.status == "refused" for result in results)
    keeps = bool(outcome.ids) and not is_verbatim and not has_forgotten
    batch.messages.append(
        SeenMessage(id=id, message=message, outcome=outcome, digest=digest, keep_text=keeps)
    )
    return outcome


def _make_events(chunk: Chunk, result: Outcome, batch: Batch) -> list[Event]:
    """Return two events: whether the chunk was kept, and the cosine of the nearest memory.

    Turns of a conversation have none.
    """
    written = [batch.puts[id].memory for id in result.ids if id in batch.puts]
    if written and written[0].kind == "episodic":
        return []
    labels = chunk.draft.labels
    event = Event(
        node="hotpath",
        op="classify",
        at=batch.now,
        thread=labels.thread or labels.session,
        memory_id=written[0].id if written else None,
        category=written[0].category if written else None,
        status="ok" if result.ids else "skipped",
    )
    near = batch.near.get(chunk.text, {})
    status: Literal["skipped", "ok"] = "skipped" if chunk.vector is None else "ok"
    sim = max(near.values(), default=None)
    search = replace(event, op="search", sim=sim, memory_id=None, category=None, status=status)
    return [event, search]


def combine(results: Sequence[Outcome], message_id: str | None) -> Outcome:
    """Return the outcome of a draft from those of its chunks."""
    if not results:
        reason = "it is blank"
        return Outcome(status="skipped", reason=reason, message_id=message_id)
    best = min(results, key=lambda each: (_ORDER.index(each.status), each.supersedes is None))
    ids: dict[str, None] = {}
    lost = []
    for result in results:
        ids |= dict.fromkeys(result.ids)
        if not result.ids:
            lost.append(result)
    if lost and ids:
        first = lost[0]
        why = f"{len(lost)} of {len(results)} chunks were {first.status}: {first.reason}"
        best = replace(best, reason=why)
    return replace(best, ids=tuple(ids), message_id=message_id)


def find_turns(items: Iterable[Item], batch: Batch) -> Iterator[tuple[str, ...]]:
    """Yield the ids of the chunks of each turn of a person that was created in a batch."""
    for item in items:
        draft = item.draft
        outcome = item.outcome
        was_said = draft.labels.session is not None or draft.message_id not in (None, draft.id)
        is_derived = draft.evidence_ids or draft.compression_source
        if not was_said or is_derived or draft.kind not in (None, "episodic"):
            continue
        if outcome is None or outcome.status != "created" or outcome.ids[0] not in batch.puts:
            continue
        if cues.is_own_role(draft.labels.role):
            yield outcome.ids


async def queue_turns(
    tx: Transaction,
    turns: Iterable[Sequence[str]],
    ctx: Context,
    policy: Policy,
    now: datetime,
) -> None:
    """Queue turns, each given by the ids of its chunks, to extract facts from them."""
    waiting = list(turns)
    # A model is asked about one turn at a time, and what it finds is stored at once.
    size = 1 if ctx.settings.extract == "model" else TOGETHER
    for start in range(0, len(waiting), size):
        task = make_task(waiting[start : start + size], policy, now)
        await tasks.add(tx, task)


def make_task(turns: Sequence[Sequence[str]], policy: Policy, now: datetime) -> tasks.NewTask:
    """Return the task to extract facts from some turns."""
    payload = {"turns": turns, "policy": policy.name}
    return tasks.NewTask(name=EXTRACT, key=turns[0][0], due_at=now, payload=payload)
