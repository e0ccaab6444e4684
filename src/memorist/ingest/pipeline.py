"""Remembering, from top to bottom."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from ..context import Context
from ..embedders import checked
from ..errors import ProviderFailed
from ..extraction import job
from ..index import Corpora
from ..jobs.context import Also
from ..ports import Embedder, Reading, Store, Vectors
from ..storage.changes import Happened, Said
from ..text import normalize
from ..text.clock import new_id
from ..types import Draft, Memory, Message, Outcome, Scope, Status
from . import decide, importance, links, policies, trim
from .chunk import Chunk, chunks
from .classify import Classification, classify
from .decide import WriteSession
from .policies import Policy

FORGOTTEN = "it was forgotten on request: save it on purpose to keep it again"
FAILED = "not embedded yet"  # how a problem begins that is a failure, and no want of a model
Before = dict[
    str | None, tuple[str, Outcome]
]  # messages by id: the digest of their text, what became of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingest:
    """What remembering needs beside the drafts."""

    store: Store
    corpora: Corpora
    embedder: Embedder | None
    policy: Policy
    new_id: Callable[[], str]
    extract: bool = (
        False  # note the turns that facts are to be drawn from, where the policy has that
    )


def parts_of(ctx: Context, policy: str | None = None) -> Ingest:
    """Return what remembering needs, under a policy or that of the settings."""
    settings = ctx.settings
    return Ingest(
        store=ctx.store,
        corpora=ctx.index,
        embedder=ctx.embedder,
        policy=policies.named(policy or settings.policy, settings.capacity),
        new_id=new_id,
        extract=settings.extract != "off",
    )


async def remember(
    drafts: Sequence[Draft], scope: Scope, parts: Ingest, now: datetime, also: Also | None = None
) -> list[Outcome]:
    """Take drafts in, in one transaction; the outcomes stand in the order of the drafts.

    What `also` gives, when it has seen the outcomes, is changed in the same transaction.
    """
    before = await _told_before(drafts, scope, parts.store)
    cut = [[] if draft.message_id in before else chunks(draft, parts.policy) for draft in drafts]
    every = [chunk for each in cut for chunk in each]
    made, problem = await _embedded(every, parts)
    async with parts.store.transaction(scope) as tx:
        before = await _told_before(drafts, scope, tx)
        corpus = await parts.corpora.current(scope, tx)
        keys = [_key(chunk) for chunk in every] if parts.policy.keyed_preferences else []
        writes = await decide.opened(
            tx,
            scope,
            corpus,
            every,
            policy=parts.policy,
            keys=keys,
            vectors=made,
            now=now,
            new_id=parts.new_id,
        )
        outcomes = [
            _outcome(draft, each, writes, made, before, parts)
            for draft, each in zip(drafts, cut, strict=True)
        ]
        if problem.startswith(FAILED):
            writes.extra.append(Happened(node="hotpath", op="embed", at=now, status="error"))
        if parts.extract and parts.policy.extract is not None:
            writes.extra += job.queued(drafts, outcomes, parts.policy, writes.puts, now)
        await tx.apply(writes.changes)
        if parts.policy.links is not None:
            await links.link(tx, scope, corpus, list(writes.puts.values()), parts.policy.links, now)
        if parts.policy.capacity is not None and any(
            outcome.status == "created" for outcome in outcomes
        ):
            trimmed = await trim.enforce(tx, scope, parts.policy.capacity, now)
            outcomes = [_without(outcome, trimmed) for outcome in outcomes]
        if also is not None:
            await tx.apply(await also(tx, outcomes))
    return [_with_problem(outcome, problem) for outcome in outcomes]


async def _told_before(drafts: Sequence[Draft], scope: Scope, reading: Reading) -> Before:
    """Messages that were remembered earlier, with what became of them then."""
    by_id = {draft.message_id: draft for draft in drafts if draft.message_id is not None}
    digests = {id: normalize.digest(draft.text) for id, draft in by_id.items()}
    said = await reading.said(scope, digests) if by_id else {}
    there = {
        m.id
        for m in await reading.get(scope, [id for seen in said.values() for id in seen.outcome.ids])
    }
    before: Before = {}
    for id, seen in said.items():
        if not seen.outcome.ids or there.intersection(seen.outcome.ids):
            before[id] = (digests[id] if seen.same else ""), seen.outcome
        elif not by_id[id].on_purpose:  # what it became was forgotten since
            before[id] = digests[id], Outcome(status="refused", reason=FORGOTTEN, message_id=id)
    return before


def _again(draft: Draft, before: Before) -> Outcome:
    """What became of a message that was remembered earlier; with another text it is a conflict, and not taken in."""
    digest, outcome = before[draft.message_id]
    if digest == normalize.digest(draft.text):
        return outcome
    return Outcome(
        status="conflicting",
        ids=outcome.ids,
        message_id=draft.message_id,
        reason=f"message {draft.message_id!r} was remembered with another text: edit the memory instead",
    )


async def _embedded(every: Sequence[Chunk], parts: Ingest) -> tuple[dict[str, Vectors], str]:
    """One batch for all the chunks, or none where vectors are made later; and why there are none."""
    if not every or parts.policy.embed == "deferred":
        return {}, ""
    if parts.embedder is None:
        return {}, "not embedded: no embedding model is configured"
    texts = list(dict.fromkeys(chunk.text for chunk in every))
    try:
        made = await checked.encode(parts.embedder, texts)
    except ProviderFailed as error:
        return {}, f"{FAILED}: {error}"
    return dict(zip(texts, made, strict=True)), ""


def _outcome(
    draft: Draft,
    cut: Sequence[Chunk],
    writes: WriteSession,
    made: dict[str, Vectors],
    before: Before,
    parts: Ingest,
) -> Outcome:
    if draft.message_id in before:
        return _again(draft, before)
    results = [_placed(chunk, writes, made.get(chunk.text), parts) for chunk in cut]
    outcome = _summed_up(results, draft)
    for chunk, result in zip(cut, results, strict=True):
        writes.note(chunk, result, made.get(chunk.text))
    if draft.message_id is not None:
        verbatim = (
            len(cut) == 1
            and cut[0].text == draft.text
            and outcome.status in ("created", "superseded")
        )
        refused = any(
            result.status == "refused" for result in results
        )  # forgotten words are not kept as evidence
        writes.extra.append(_said(draft, outcome, keep_text=not verbatim and not refused))
        before[draft.message_id] = normalize.digest(draft.text), outcome
    return outcome


def _placed(chunk: Chunk, writes: WriteSession, vector: Vectors | None, parts: Ingest) -> Outcome:
    """One chunk, through the steps of the policy."""
    policy = parts.policy
    if writes.is_forgotten(chunk):
        return Outcome(status="refused", reason=FORGOTTEN)
    duplicate = writes.duplicate(chunk, vector)
    model = parts.embedder.model if parts.embedder is not None else ""
    if duplicate is not None and not writes.renews(duplicate, chunk):
        return Outcome(
            status="merged", ids=(writes.merge(duplicate.memory, chunk).id,), reason="said before"
        )
    classified = classify(chunk, policy, vector, writes.corpus.centroid)
    if duplicate is not None:
        return _renewed(duplicate.memory, chunk, writes, classified, vector, model)
    if not importance.is_kept(
        classified.importance, policy.gate, on_purpose=chunk.draft.on_purpose
    ):
        return Outcome(
            status="skipped",
            reason=f"importance {classified.importance:.2f} is below {policy.gate}",
        )
    key = _key(chunk) if policy.keyed_preferences and classified.kind == "procedural" else None
    if key is not None and key in writes.keyed:
        return Outcome(
            status="merged", ids=(writes.merge(writes.keyed[key], chunk).id,), reason="said before"
        )
    rival = writes.rival(chunk, vector)
    if rival is not None:
        new = writes.contradict(rival, chunk, classified, vector, model)
        return Outcome(
            status="superseded",
            ids=(new.id,),
            reason=f"it contradicts {rival.id}: confirm or reject it",
        )
    return Outcome(status="created", ids=(writes.create(chunk, classified, vector, model, key).id,))


def _renewed(
    old: Memory,
    chunk: Chunk,
    writes: WriteSession,
    classified: Classification,
    vector: Vectors | None,
    model: str,
) -> Outcome:
    """The same and more was said, or the policy keeps the newer wording."""
    if writes.policy.merge == "update":
        return Outcome(
            status="updated",
            ids=(writes.update(old, chunk, vector, model).id,),
            reason="said before, with less",
        )
    new = writes.recreate(old, chunk, classified, vector, model)
    return Outcome(status="superseded", ids=(new.id,), reason=f"it takes the place of {old.id}")


def _summed_up(results: Sequence[Outcome], draft: Draft) -> Outcome:
    if not results:
        return Outcome(
            status="skipped",
            reason="there is nothing but blanks in it",
            message_id=draft.message_id,
        )
    order: tuple[Status, ...] = ("superseded", "created", "updated", "merged", "refused", "skipped")
    best = min(results, key=lambda result: order.index(result.status))
    ids = tuple(dict.fromkeys(id for result in results for id in result.ids))
    lost = [result for result in results if not result.ids]
    if lost and ids:
        best = replace(
            best,
            reason=f"{len(lost)} of {len(results)} chunks were {lost[0].status}: {lost[0].reason}",
        )
    return replace(best, ids=ids, message_id=draft.message_id)


def _without(outcome: Outcome, trimmed: Sequence[str]) -> Outcome:
    """The outcome where a full scope gave a new memory up again at once."""
    if not outcome.ids or not set(outcome.ids) <= set(trimmed):
        return outcome
    return replace(
        outcome,
        status="skipped",
        reason="the scope is full of what counts for more; it can be restored",
    )


def _said(draft: Draft, outcome: Outcome, *, keep_text: bool) -> Said:
    name = draft.speaker if draft.speaker != draft.labels.role else None
    message = Message(
        id=draft.message_id,
        content=draft.text,
        role=draft.labels.role or "user",
        name=name,
        at=draft.at,
        session=draft.labels.session,
    )
    return Said(
        id=draft.message_id or "",
        message=message,
        outcome=outcome,
        digest=normalize.digest(draft.text),
        keep_text=keep_text,
    )


def _key(chunk: Chunk) -> str:
    folded = normalize.one_line(chunk.text).lower()
    return "preference_" + hashlib.sha256(folded.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _with_problem(outcome: Outcome, problem: str) -> Outcome:
    return replace(outcome, reason=problem) if problem and outcome.status == "created" else outcome
