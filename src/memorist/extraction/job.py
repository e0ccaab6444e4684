"""Extract facts from stored messages; the turn stays, and is the evidence of the facts.

A turn of a person is queued in the transaction that stores it, and processed later: by rules, and
by a language model if one is configured and within its budget, which adds to what the rules find.
The facts are stored like any other write, in the transaction that finishes the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from ..context import Context
from ..errors import BadModelAnswer, ModelUnavailable, OverBudget, RevisionConflict
from ..ingest import guard, pipeline, policies, validation
from ..ingest.policies import Facts, Policy
from ..storage import Event, tasks
from ..storage.queries import Reader
from ..storage.tasks import Task
from ..text import authority, compare, normalize
from ..text.statements import parse
from ..types import STATES, Draft, Filter, Labels, Memory, Outcome, Receipt, Scope, frozen

if TYPE_CHECKING:
    from .rules import Fact

NAME = pipeline.EXTRACT
TAG = "extracted"  # of facts extracted from a turn


@frozen
class Extracted:
    """What was extracted from a turn, and how."""

    by: Literal["model", "rules", "nobody"]
    why: str = ""  # why only rules were used and no model, or why nothing was extracted
    outcomes: tuple[Outcome, ...] = ()  # of the stored facts
    dropped: tuple[str, ...] = ()  # why each of the other facts was not stored

    @property
    def ids(self) -> tuple[str, ...]:
        return Receipt(self.outcomes).ids


async def run(ctx: Context, task: Task) -> int:
    """Extract facts from the turn of a task. Return how many memories were created or changed.

    A turn that was forgotten or hidden since has none. Raises RevisionConflict if another worker
    has the task, or the turn changed.
    """
    name = str(task.payload.get("policy"))
    policy = ctx.policies.get(name, policies.DEFAULT)
    ids = list(map(str, task.payload.get("ids", ())))
    found = await draw(
        ids,
        task.scope,
        ctx,
        policy=policy,
        task=task,
    )
    return len(found.ids)


async def draw(
    ids: Sequence[str],
    scope: Scope,
    ctx: Context,
    *,
    policy: Policy,
    task: Task | None = None,
) -> Extracted:
    """Extract facts from the turn that was stored under these ids.

    Raises RevisionConflict if the turn changed concurrently. If the model is unavailable, over its
    budget or gives a bad answer, only rules are used.
    """
    limits = policy.extract or Facts(policy=policy.name)
    now = ctx.clock()
    turn = await _load_turn(ctx.store, scope, ids)
    found, facts = await _read(ctx, scope, turn, limits)
    left = await _count_left(ctx.store, scope, limits, now)
    drafts, dropped = _choose(ctx, facts, turn, limits, left)
    batch = await pipeline.prepare_derived(ctx, scope, drafts, limits.policy, now)
    async with ctx.store.transaction(scope) as tx:
        outcomes = await pipeline.write(tx, batch)
        latest = await _load_turn(tx, scope, ids)
        is_same = _texts(latest) == _texts(turn)
        if not is_same or await _count_left(tx, scope, limits, now) < 0:
            raise RevisionConflict("This turn or the daily limit changed concurrently: try again")
        category = f"{NAME} by {found.by}"
        if found.why:
            category += f": {found.why}"
        event = Event(
            node="worker",
            op="classify",
            at=now,
            status="error" if found.by == "rules" and found.why else "ok",
            memory_id=ids[0] if ids else None,
            category=category,
        )
        await tx.apply([event])
        if task is not None:
            await tasks.finish(tx, task)
    return replace(
        found,
        outcomes=tuple(outcomes),
        dropped=(*found.dropped, *dropped),
    )


async def _load_turn(reading: Reader, scope: Scope, ids: Sequence[str]) -> list[Memory]:
    """Return the chunks of a turn; empty if one is missing or hidden, or the session incognito."""
    found = await reading.get(scope, ids)
    sessions = {memory.labels.session for memory in found}
    checks = await reading.checks(scope, sessions=sessions)
    if len(found) < len(ids) or not checks.incognito.isdisjoint(sessions):
        return []
    is_whole = all(memory.is_active for memory in found)
    return found if is_whole else []


def _texts(turn: Sequence[Memory]) -> list[str]:
    return [memory.text for memory in turn]


async def _read(
    ctx: Context,
    scope: Scope,
    turn: Sequence[Memory],
    limits: Facts,
) -> tuple[Extracted, Sequence[Fact]]:
    """Find the facts of a turn by rules, and further ones with a model if possible and allowed.

    The facts of the rules come first, each group with the most important one first.
    """
    from . import languages, llm, rules  # compiling their patterns takes 100 ms

    if not turn:
        return Extracted(by="nobody", why="the turn no longer exists"), ()
    first = turn[0]
    if not authority.is_own_role(first.labels.role) or first.evidence_ids:
        why = "facts are extracted only from what people say themselves"
        return Extracted(by="nobody", why=why), ()
    text = "\n".join(_texts(turn))
    is_own = authority.is_persons(first)
    who = rules.name_speaker(first.speaker, is_own=is_own)
    at = first.occurred_at or first.created_at
    most = limits.found
    facts = _rank(languages.find_facts(text, who=who, at=at, most=most))
    is_sure = any(fact.confidence >= rules.CONFIDENT for fact in facts)
    if len(text) <= limits.longer and not is_sure:
        return Extracted(by="nobody", why="the turn is short and contains no lasting fact"), ()
    if ctx.settings.extract != "model" or ctx.llm is None:
        return Extracted(by="rules"), facts
    try:
        found, dropped = await llm.find_facts(
            ctx.llm,
            scope,
            text,
            who=who,
            at=at,
            most=most,
        )
    except (ModelUnavailable, BadModelAnswer, OverBudget) as error:
        return Extracted(by="rules", why=type(error).__name__), facts
    for fact in _rank(found):
        if any(_repeats(fact.text, known.text) for known in facts):
            dropped.append("it is a duplicate")
        else:
            facts.append(fact)
    return Extracted(by="model", dropped=tuple(dropped)), facts


def _rank(facts: Sequence[Fact]) -> list[Fact]:
    return sorted(facts, key=lambda fact: (-fact.importance, -fact.confidence))


def _repeats(text: str, known: str) -> bool:
    """Return whether a fact says only what a known fact says.

    >>> _repeats("Ana moved to Porto.", "Ana moved to Porto on 2026-05-07.")
    True
    >>> _repeats("Ana moved to Porto in 2019.", "Ana moved to Porto.")
    False
    """
    new = parse(text)
    old = parse(known)
    if not new.marks <= old.marks or compare.invents(new, old):
        return False
    has_same_negations = new.values.negations == old.values.negations
    return has_same_negations and set(new.words) <= set(old.words)


async def _count_left(
    reading: Reader,
    scope: Scope,
    limits: Facts,
    now: datetime,
) -> int:
    """Return how many facts may still be extracted today."""
    if not limits.daily:
        return limits.kept
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    today = Filter(tags=(TAG,), states=STATES, created_after=midnight)
    extracted = await reading.rows_where(scope, today)
    return limits.daily - len(extracted)


def _choose(
    ctx: Context,
    facts: Sequence[Fact],
    turn: Sequence[Memory],
    limits: Facts,
    left: int,
) -> tuple[list[Draft], list[str]]:
    """Return the facts that may be stored, as drafts, and why each of the others may not.

    A draft has the authority of the speaker, and the turn as its evidence.
    """
    dropped: list[str] = []
    drafts: list[Draft] = []
    if not facts:
        return drafts, dropped
    policy = validation.policy(ctx.policies, limits.policy)
    said = {normalize.wording(each.text) for each in turn}
    first = turn[0]
    speaker = first.speaker
    labels = replace(first.labels, session=None)
    if limits.of_subject:
        labels = Labels(subject=labels.subject or speaker, channel=labels.channel)
        speaker = None
    for fact in facts:
        is_instruction = limits.of_subject and fact.type == "preference"
        draft = Draft(
            text=fact.text,
            labels=labels,
            speaker=speaker,
            at=first.occurred_at,
            kind="procedural" if is_instruction else "semantic",
            fact_type=guard.to_fact_type(fact.type),
            category=fact.category,
            tags=(TAG,),
            evidence_ids=tuple(memory.id for memory in turn),
            evidence_text=fact.evidence,
            importance=fact.importance,
            confidence=fact.confidence,
        )
        if normalize.wording(fact.text) in said:
            dropped.append("it repeats the whole turn")
        elif len(fact.text) > limits.longest:
            dropped.append(f"it is longer than {limits.longest} characters")
        elif why := guard.find_refusal(draft, policy, first.scope.user):
            dropped.append(why)
        elif len(drafts) >= limits.kept:
            dropped.append(f"the turn has more than {limits.kept} facts")
        elif len(drafts) >= left:
            dropped.append(f"the daily limit of {limits.daily} is reached")
        else:
            drafts.append(draft)
    return drafts, dropped
