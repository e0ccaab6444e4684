"""Storing drafts, from top to bottom.

`remember` is the whole way. Jobs that store what they derive take the same way inside a transaction
of their own: `prepare` before it, `write` in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ..context import Context
from ..embedders import encode
from ..errors import ProviderFailed
from ..storage import tasks
from ..storage.changes import Event, SeenMessage
from ..storage.queries import Reader
from ..storage.transaction import Transaction
from ..text import authority, normalize
from ..text.clock import new_id
from ..types import CONTRADICTS, Draft, Message, Outcome, Scope, Status
from . import decide as decisions
from . import guard, links, policies, privacy, trim
from .analyze import Chunk, Item, analyze, to_items
from .decide import FORGOTTEN, Create, Decision, Merge, Skip, Supersede, Update, WriteSession
from .policies import Policy

EXTRACT = "extract"  # the job that extracts facts from a turn
FAILED = "not embedded yet"  # how a problem begins that is a failure, and not a missing model
NO_MODEL = "not embedded: no embedding model is configured"
FULL = "the scope is full of what counts for more; it can be restored"
# Of several chunks, the first of these is the status of the draft.
_ORDER: tuple[Status, ...] = ("created", "updated", "merged", "refused", "skipped")

Seen = dict[str, tuple[str, Outcome]]  # messages by id: the digest of their text, and their outcome


@dataclass(slots=True, kw_only=True)
class Batch:
    """Drafts that are ready to be written in one transaction."""

    ctx: Context
    scope: Scope
    policy: Policy
    now: datetime
    items: Sequence[Item]
    problem: str = ""  # why there are no vectors

    @property
    def chunks(self) -> list[Chunk]:
        return [chunk for item in self.items for chunk in item.chunks]


async def remember(
    ctx: Context, scope: Scope, drafts: Sequence[Draft], policy: Policy, now: datetime
) -> list[Outcome]:
    """Store drafts in one transaction; return their outcomes in the same order."""
    items = to_items(drafts)
    sessions = {draft.labels.session for draft in drafts}
    privacy.refuse(items, await privacy.load(ctx, ctx.store, scope, sessions))
    refusals = guard.refuse(items, policy, scope.user)
    batch = await prepare(ctx, scope, items, policy, now)
    if any(item.outcome is None for item in items):
        async with ctx.store.transaction(scope) as tx:
            privacy.refuse(items, await privacy.load(ctx, tx, scope, sessions))
            await write(tx, batch)
    ctx.access_log.note(scope, refusals)
    return outcomes(items, scope.user)


async def prepare(
    ctx: Context, scope: Scope, items: Sequence[Item], policy: Policy, now: datetime
) -> Batch:
    """Analyze and embed what was not refused, before the write lock is taken."""
    batch = Batch(ctx=ctx, scope=scope, policy=policy, now=now, items=items)
    seen = await load_seen(ctx.store, scope, items)
    for item in items:
        if item.outcome is None and item.draft.message_id not in seen:
            item.chunks = analyze(item.draft, policy)
    batch.problem = await _embed(ctx, batch.chunks, policy)
    return batch


async def prepare_derived(
    ctx: Context, scope: Scope, drafts: Iterable[Draft], policy: str, now: datetime
) -> Batch:
    """Prepare what a job derives; the job writes it in a transaction with its own changes."""
    items = []
    for draft in drafts:
        named = replace(draft, id=draft.id or new_id(), told_at=draft.told_at or now)
        items.append(Item(named, named))
    by = policies.find(ctx.policies, policy)
    guard.refuse(items, by, scope.user)
    return await prepare(ctx, scope, items, by, now)


async def write(tx: Transaction, batch: Batch) -> list[Outcome]:
    """Decide what becomes of each chunk and write it; return the outcomes of all items."""
    ctx, scope, policy, now = batch.ctx, batch.scope, batch.policy, batch.now
    items = [item for item in batch.items if item.outcome is None]
    if not items:
        return outcomes(batch.items, scope.user)
    seen = await load_seen(tx, scope, items)
    snapshot = await ctx.index.current(scope, tx)
    model = "" if ctx.embedder is None else ctx.embedder.model
    known = await decisions.load(
        tx, scope, snapshot, batch.chunks, policy=policy, now=now, model=model
    )
    for item in items:
        _write_item(item, known, seen)
    if batch.problem.startswith(FAILED):
        known.others.append(Event(node="hotpath", op="embed", at=now, status="error"))
    puts = list(known.puts.values())
    await tx.apply([*puts, *known.others])
    await tx.save_messages(known.messages)
    if policy.extract is not None and ctx.settings.extract != "off":
        await tasks.add(tx, *_queue_extraction(items, known))
    if policy.links is not None and any(put.memory.kind == "semantic" for put in puts):
        await links.link(tx, scope, snapshot, puts, policy.links, now)
    if policy.capacity is not None and any(item.is_new for item in items):
        trimmed = await trim.enforce(tx, scope, policy.capacity, now)
        for item in items:
            if item.outcome and item.outcome.ids and set(item.outcome.ids).issubset(trimmed):
                item.outcome = replace(item.outcome, status="skipped", reason=FULL)
    if batch.problem:
        for item in items:
            if item.outcome and item.is_new:
                item.outcome = replace(item.outcome, reason=batch.problem)
    return outcomes(batch.items, scope.user)


def outcomes(items: Iterable[Item], user: str) -> list[Outcome]:
    """Return the outcomes of items that are done."""
    return [outcome for item in items if (outcome := guard.explain(item, user)) is not None]


async def load_seen(reading: Reader, scope: Scope, items: Iterable[Item]) -> Seen:
    """Return which messages were stored earlier, with what became of them then."""
    drafts: dict[str, Draft] = {}
    for item in items:
        if item.outcome is None and item.draft.message_id is not None:
            drafts[item.draft.message_id] = item.draft
    if not drafts:
        return {}
    digests = {id: normalize.digest(draft.text) for id, draft in drafts.items()}
    found = await reading.seen(scope, digests)
    ids = [id for message in found.values() for id in message.outcome.ids]
    there = {memory.id for memory in await reading.get(scope, ids)} if ids else set()
    seen: Seen = {}
    for id, message in found.items():
        if not message.outcome.ids or there.intersection(message.outcome.ids):
            seen[id] = (digests[id] if message.same else "", message.outcome)
        elif not drafts[id].on_purpose:  # what it became was forgotten since
            refused = Outcome(status="refused", reason=FORGOTTEN, message_id=id)
            seen[id] = (digests[id], refused)
    return seen


async def _embed(ctx: Context, chunks: Sequence[Chunk], policy: Policy) -> str:
    """Embed all chunks in one batch, unless that is done later; return why there are no vectors."""
    if not chunks or policy.embed == "deferred":
        return ""
    if ctx.embedder is None:
        return NO_MODEL
    texts = list(dict.fromkeys(chunk.text for chunk in chunks))
    try:
        vectors = await encode(ctx.embedder, texts)
    except ProviderFailed as error:
        return f"{FAILED}: {error}"
    by_text = dict(zip(texts, vectors, strict=True))
    for chunk in chunks:
        chunk.vector = by_text[chunk.text]
    return ""


def _write_item(item: Item, known: WriteSession, seen: Seen) -> None:
    """Decide on the chunks of an item, one after the other."""
    draft, id = item.draft, item.draft.message_id
    if id is not None and id in seen:
        item.outcome = _repeat_outcome(draft, *seen[id])
        return
    results = []
    for chunk in item.chunks:
        decision = decisions.decide(chunk, known)
        known.add(chunk, decision)
        results.append(_to_outcome(decision))
    for chunk, result in zip(item.chunks, results, strict=True):
        known.note(chunk, result.ids)
    item.outcome = outcome = _combine(results, draft)
    if id is not None:
        known.messages.append(_to_message(item, results, outcome))
        seen[id] = (normalize.digest(draft.text), outcome)


def _repeat_outcome(draft: Draft, digest: str, outcome: Outcome) -> Outcome:
    """Return what became of a message earlier; with another text it is a conflict."""
    if digest == normalize.digest(draft.text):
        return outcome
    return Outcome(
        status="conflict",
        ids=outcome.ids,
        message_id=draft.message_id,
        reason=f"message {draft.message_id!r} was remembered with another text: edit the memory"
        " instead",
    )


def _to_outcome(decision: Decision) -> Outcome:
    match decision:
        case Skip(status=status, reason=reason):
            return Outcome(status=status, reason=reason)
        case Create(memory=memory):
            return Outcome(status="created", ids=(memory.id,))
        case Merge(memory=memory):
            return Outcome(status="merged", ids=(memory.id,), reason="said before")
        case Update(memory=memory):
            return Outcome(status="updated", ids=(memory.id,), reason="said before, with less")
        case Supersede(memory=memory, old=old, reason=reason):
            why = f"it takes the place of {old.id}"
            if reason == CONTRADICTS:
                why = f"it contradicts {old.id}: confirm or reject it"
            return Outcome(status="created", ids=(memory.id,), reason=why, supersedes=old.id)


def _combine(results: Sequence[Outcome], draft: Draft) -> Outcome:
    """Return the outcome of a draft from those of its chunks."""
    if not results:
        reason = "there is nothing but blanks in it"
        return Outcome(status="skipped", reason=reason, message_id=draft.message_id)
    best = min(results, key=lambda each: (_ORDER.index(each.status), each.supersedes is None))
    ids = tuple(dict.fromkeys(id for result in results for id in result.ids))
    lost = [result for result in results if not result.ids]
    if lost and ids:
        why = f"{len(lost)} of {len(results)} chunks were {lost[0].status}: {lost[0].reason}"
        best = replace(best, reason=why)
    return replace(best, ids=ids, message_id=draft.message_id)


def _to_message(item: Item, results: Sequence[Outcome], outcome: Outcome) -> SeenMessage:
    """Return the message to store; its text only where the memories do not hold it word for
    word.
    """
    draft, role = item.draft, item.draft.labels.role
    is_verbatim = (
        len(item.chunks) == 1 and item.chunks[0].text == draft.text and outcome.status == "created"
    )
    has_refused = any(result.status == "refused" for result in results)  # forgotten words
    message = Message(
        id=draft.message_id,
        content=draft.text,
        role=role or "user",
        name=draft.speaker if draft.speaker != role else None,
        at=draft.at,
        session=draft.labels.session,
    )
    return SeenMessage(
        id=draft.message_id or "",
        message=message,
        outcome=outcome,
        digest=normalize.digest(draft.text),
        keep_text=not is_verbatim and not has_refused,
    )


def _queue_extraction(items: Iterable[Item], known: WriteSession) -> list[tasks.NewTask]:
    """Queue the extraction of facts from what people said themselves and was written now."""
    queued: list[tasks.NewTask] = []
    for item in items:
        if not item.has_status("created") or not is_source(item.draft):
            continue
        assert item.outcome is not None
        ids = list(item.outcome.ids)
        if ids[0] in known.puts:
            payload = {"ids": ids, "policy": known.policy.name}
            queued.append(
                tasks.NewTask(name=EXTRACT, key=ids[0], due_at=known.now, payload=payload)
            )
    return queued


def is_source(draft: Draft) -> bool:
    """Return whether a person said it in a conversation, and it is not derived itself."""
    was_said = draft.labels.session is not None or draft.message_id not in (None, draft.id)
    if not was_said or draft.kind not in (None, "episodic"):
        return False
    is_derived = bool(draft.evidence_ids or draft.compression_source)
    return authority.is_own_role(draft.labels.role) and not is_derived
