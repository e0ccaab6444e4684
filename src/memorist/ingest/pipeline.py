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
from ..text.ids import new_id
from ..types import Draft, Memory, Message, Outcome, Scope, Status
from . import decide as desks
from . import importance, links, policies, trim
from .chunk import Piece, pieces
from .classify import Weighed, weigh
from .decide import Desk
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
    cut = [[] if draft.message_id in before else pieces(draft, parts.policy) for draft in drafts]
    every = [piece for each in cut for piece in each]
    made, problem = await _embedded(every, parts)
    async with parts.store.transaction(scope) as tx:
        before = await _told_before(drafts, scope, tx)
        corpus = await parts.corpora.current(scope, tx)
        keys = [_key(piece) for piece in every] if parts.policy.keyed_preferences else []
        desk = await desks.opened(
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
            _outcome(draft, each, desk, made, before, parts)
            for draft, each in zip(drafts, cut, strict=True)
        ]
        if problem.startswith(FAILED):
            desk.extra.append(Happened(node="hotpath", op="embed", at=now, status="error"))
        if parts.extract and parts.policy.extract is not None:
            desk.extra += job.queued(drafts, outcomes, parts.policy, desk.puts, now)
        await tx.apply(desk.changes)
        if parts.policy.links is not None:
            await links.link(tx, scope, corpus, list(desk.puts.values()), parts.policy.links, now)
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


async def _embedded(every: Sequence[Piece], parts: Ingest) -> tuple[dict[str, Vectors], str]:
    """One batch for all the pieces, or none where vectors are made later; and why there are none."""
    if not every or parts.policy.embed == "deferred":
        return {}, ""
    if parts.embedder is None:
        return {}, "not embedded: no embedding model is configured"
    texts = list(dict.fromkeys(piece.text for piece in every))
    try:
        made = await checked.encode(parts.embedder, texts)
    except ProviderFailed as error:
        return {}, f"{FAILED}: {error}"
    return dict(zip(texts, made, strict=True)), ""


def _outcome(
    draft: Draft,
    cut: Sequence[Piece],
    desk: Desk,
    made: dict[str, Vectors],
    before: Before,
    parts: Ingest,
) -> Outcome:
    if draft.message_id in before:
        return _again(draft, before)
    results = [_placed(piece, desk, made.get(piece.text), parts) for piece in cut]
    outcome = _summed_up(results, draft)
    for piece, result in zip(cut, results, strict=True):
        desk.note(piece, result, made.get(piece.text))
    if draft.message_id is not None:
        verbatim = (
            len(cut) == 1
            and cut[0].text == draft.text
            and outcome.status in ("created", "superseded")
        )
        refused = any(
            result.status == "refused" for result in results
        )  # forgotten words are not kept as evidence
        desk.extra.append(_said(draft, outcome, keep_text=not verbatim and not refused))
        before[draft.message_id] = normalize.digest(draft.text), outcome
    return outcome


def _placed(piece: Piece, desk: Desk, vector: Vectors | None, parts: Ingest) -> Outcome:
    """One piece, through the steps of the policy."""
    policy = parts.policy
    if desk.is_forgotten(piece):
        return Outcome(status="refused", reason=FORGOTTEN)
    twin = desk.twin(piece, vector)
    model = parts.embedder.model if parts.embedder is not None else ""
    if twin is not None and not desk.renews(twin, piece):
        return Outcome(
            status="merged", ids=(desk.merge(twin.memory, piece).id,), reason="said before"
        )
    weighed = weigh(piece, policy, vector, desk.corpus.centroid)
    if twin is not None:
        return _renewed(twin.memory, piece, desk, weighed, vector, model)
    if not importance.is_kept(weighed.importance, policy.gate, on_purpose=piece.draft.on_purpose):
        return Outcome(
            status="skipped", reason=f"importance {weighed.importance:.2f} is below {policy.gate}"
        )
    key = _key(piece) if policy.keyed_preferences and weighed.kind == "procedural" else None
    if key is not None and key in desk.keyed:
        return Outcome(
            status="merged", ids=(desk.merge(desk.keyed[key], piece).id,), reason="said before"
        )
    rival = desk.rival(piece, vector)
    if rival is not None:
        new = desk.contradict(rival, piece, weighed, vector, model)
        return Outcome(
            status="superseded",
            ids=(new.id,),
            reason=f"it contradicts {rival.id}: confirm or reject it",
        )
    return Outcome(status="created", ids=(desk.create(piece, weighed, vector, model, key).id,))


def _renewed(
    old: Memory, piece: Piece, desk: Desk, weighed: Weighed, vector: Vectors | None, model: str
) -> Outcome:
    """The same and more was said, or the policy keeps the newer wording."""
    if desk.policy.merge == "update":
        return Outcome(
            status="updated",
            ids=(desk.update(old, piece, vector, model).id,),
            reason="said before, with less",
        )
    new = desk.recreate(old, piece, weighed, vector, model)
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
            reason=f"{len(lost)} of {len(results)} pieces were {lost[0].status}: {lost[0].reason}",
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


def _key(piece: Piece) -> str:
    folded = normalize.one_line(piece.text).lower()
    return "preference_" + hashlib.sha256(folded.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _with_problem(outcome: Outcome, problem: str) -> Outcome:
    return replace(outcome, reason=problem) if problem and outcome.status == "created" else outcome
