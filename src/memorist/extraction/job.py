"""Drawing facts out of what was said, after it was taken in: the turn stays, the facts rest on it.

A turn of a person is noted in the transaction that keeps it, and read later, by a language model if
there is one within its budget, otherwise by rules. The facts take the ordinary way in, in one
transaction with the end of the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from ..context import Context
from ..errors import BadModelAnswer, ModelUnavailable, OverBudget, RevisionConflict
from ..ingest import derive, guard, policies
from ..ingest.pipeline import EXTRACT
from ..ingest.policies import Facts, Policy
from ..ports import Reading
from ..results import Task
from ..storage.changes import Done, Happened
from ..text import authority, normalize
from ..types import STATES, Draft, Filter, Labels, Memory, Outcome, Scope

if TYPE_CHECKING:
    from .facts import Fact

NAME = EXTRACT
TAG = "extracted"  # of a fact that was drawn out of a turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """What was drawn out of a turn, and how."""

    by: Literal["model", "rules", "nobody"]
    why: str = ""  # why the rules did it although a model was to, or why nobody did
    outcomes: tuple[Outcome, ...] = ()  # of the facts that were taken in
    dropped: tuple[str, ...] = ()  # why each other fact was not

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(id for outcome in self.outcomes for id in outcome.ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    by: Literal["model", "rules", "nobody"]
    why: str = ""
    facts: Sequence[Fact] = ()
    dropped: list[str] = field(default_factory=list)


async def run(ctx: Context, task: Task) -> int:
    """Extract facts from the turn of a task; return how many memories that created or changed.

    Raises RevisionConflict if another worker has the task, or the turn was changed.
    """
    policy = ctx.policies.get(str(task.payload.get("policy")), policies.DEFAULT)
    ids = [str(id) for id in task.payload.get("ids", ())]
    done = await draw(ids, task.scope, ctx, policy=policy, task=task)
    return len(done.ids)


async def draw(
    ids: Sequence[str], scope: Scope, ctx: Context, *, policy: Policy, task: Task | None = None
) -> Extracted:
    """Extract facts from a turn that is stored under these ids.

    Raises RevisionConflict if it was changed meanwhile. If the model fails or its budget is used up, rules
    do it.
    """
    limits, now = policy.extract or Facts(policy=policy.name), ctx.clock()
    said = await _said(ctx.store, scope, ids)
    found = await _found(said, scope, ctx, limits)
    left = await _left(ctx.store, scope, limits, now)
    drafts, dropped = _admitted(ctx, found, said, scope, limits, left)
    event = Happened(
        node="worker",
        op="classify",
        at=now,
        status="error" if found.by == "rules" and found.why else "ok",
        memory_id=ids[0] if ids else None,
        category=f"{NAME} by {found.by}" + (f": {found.why}" if found.why else ""),
    )
    batch = await derive.prepare(ctx, scope, drafts, limits.policy, now)
    async with ctx.store.transaction(scope) as tx:
        outcomes = await derive.write(tx, batch)
        is_changed = _words(await _said(tx, scope, ids)) != _words(said)
        if is_changed or await _left(tx, scope, limits, now) < 0:
            raise RevisionConflict(
                "This turn, or what else was drawn out today, changed in the meantime: try again"
            )
        await tx.apply([event] if task is None else [event, Done(task=task)])
    return Extracted(by=found.by, why=found.why, outcomes=tuple(outcomes), dropped=tuple(dropped))


async def _said(reading: Reading, scope: Scope, ids: Sequence[str]) -> list[Memory]:
    """The turn, piece by piece; nothing if a part of it is gone or put away, or its session is to
    leave no trace.
    """
    found = await reading.get(scope, ids)
    _, hidden = await reading.space_settings(scope, {memory.labels.session for memory in found})
    if len(found) < len(ids) or any(not m.is_active or m.labels.session in hidden for m in found):
        return []
    return found


def _words(said: Sequence[Memory]) -> list[str]:
    return [memory.text for memory in said]


async def _found(said: Sequence[Memory], scope: Scope, ctx: Context, limits: Facts) -> _Found:
    """The facts of a turn, by a model if it can and may, otherwise by rules."""
    from . import advise  # a tenth of a second of patterns, which only those need who draw facts
    from . import facts as extract

    if not said:
        return _Found(by="nobody", why="it is not there any more")
    if not authority.is_own_role(said[0].labels.role) or said[0].evidence_ids:
        return _Found(by="nobody", why="only what people say themselves is drawn from")
    text, who = (
        "\n".join(_words(said)),
        extract.named(said[0].speaker, is_own=authority.is_persons(said[0])),
    )
    at, most = said[0].occurred_at or said[0].created_at, limits.found
    by_rules = extract.facts(text, who=who, at=at, most=most)
    if len(text) <= limits.longer and all(fact.confidence < extract.CONFIDENT for fact in by_rules):
        return _Found(by="nobody", why="it is short and holds nothing that lasts")
    if ctx.settings.extract != "model" or ctx.llm is None:
        return _Found(by="rules", facts=by_rules)
    try:
        facts, dropped = await advise.facts(ctx.llm, scope, text, who=who, at=at, most=most)
        return _Found(by="model", facts=facts, dropped=dropped)
    except (ModelUnavailable, BadModelAnswer, OverBudget) as error:
        return _Found(by="rules", facts=by_rules, why=type(error).__name__)


async def _left(reading: Reading, scope: Scope, limits: Facts, now: datetime) -> int:
    """How many facts may still be drawn out today."""
    if limits.daily is None:
        return limits.kept
    today = Filter(
        tags=(TAG,),
        states=STATES,
        created_after=now.replace(hour=0, minute=0, second=0, microsecond=0),
    )
    return limits.daily - len(await reading.rows_where(scope, today))


def _admitted(
    ctx: Context, found: _Found, said: Sequence[Memory], scope: Scope, limits: Facts, left: int
) -> tuple[list[Draft], list[str]]:
    """The facts that may be kept, as drafts, and why each other one may not."""
    dropped, drafts = list(found.dropped), list[Draft]()
    best = sorted(found.facts, key=lambda fact: (-fact.importance, -fact.confidence))
    for fact in best:
        draft = _draft(fact, said, limits)
        why = guard.find_refusal(draft, policies.find(ctx.policies, limits.policy), scope.user)
        if any(normalize.wording(fact.text) == normalize.wording(memory.text) for memory in said):
            why = "it is the turn itself"
        elif len(fact.text) > limits.longest:
            why = f"it is longer than {limits.longest} characters"
        if not why and len(drafts) >= limits.kept:
            why = f"there are more than {limits.kept} in one turn"
        elif not why and len(drafts) >= left:
            why = f"there were {limits.daily} today"
        if why:
            dropped.append(why)
        else:
            drafts.append(draft)
    return drafts, dropped


def _draft(fact: Fact, said: Sequence[Memory], limits: Facts) -> Draft:
    """A fact with the authority of who said it, resting on the turn alone."""
    turn = said[0]
    labels, speaker = replace(turn.labels, session=None), turn.speaker
    if limits.of_subject:
        labels, speaker = Labels(subject=labels.subject or speaker, channel=labels.channel), None
    return Draft(
        text=fact.text,
        labels=labels,
        speaker=speaker,
        at=turn.occurred_at,
        kind="procedural" if limits.of_subject and fact.type == "preference" else "semantic",
        fact_type=guard.to_fact_type(fact.type),
        category=fact.category,
        tags=(TAG,),
        evidence_ids=tuple(memory.id for memory in said),
        evidence_text=fact.evidence,
        importance=fact.importance,
        confidence=fact.confidence,
    )
