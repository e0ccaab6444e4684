"""Extract facts from stored messages; the turn stays, and is the evidence of the facts.

The turns of people are queued in the transaction that stores them, and processed later: by rules,
and by a language model if one is configured and within its budget, which adds to what the rules
find. The facts are stored like any other write, in the transaction that finishes the task.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from ..context import Context, compute
from ..errors import BadModelAnswer, ModelUnavailable, OverBudget, RevisionConflict
from ..ingest import guard, pipeline, policies, validation
from ..ingest.policies import Facts, Policy
from ..storage import Event, Relation, tasks
from ..storage.person import count_of_user
from ..storage.queries import Reader
from ..storage.tasks import NewTask, Task
from ..text import compare, cues, normalize
from ..text.cues import read
from ..text.endings import ends_fact
from ..text.repeats import LEAST_SHARED, count_shared
from ..text.statements import parse, says_more
from ..types import REPLACES, STATES, Draft, Filter, Labels, Memory, Outcome, Receipt, Scope, frozen

if TYPE_CHECKING:
    from .rules import Fact

NAME = pipeline.EXTRACT
TAG = "extracted"  # of facts extracted from a turn
BY_MODEL = "extracted:model"  # of those that a language model found
_METHODS = ("none", "rules", "model")


@frozen
class Extracted:
    """What was extracted from some turns, and how."""

    by: Literal["model", "rules", "none"]
    why: str = ""  # why only rules were used and no model, or why nothing was extracted
    outcomes: tuple[Outcome, ...] = ()  # of the stored facts
    dropped: tuple[str, ...] = ()  # why each of the other facts was not stored

    @property
    def ids(self) -> tuple[str, ...]:
        return Receipt(self.outcomes).ids


async def run(ctx: Context, task: Task) -> int:
    """Extract facts from the turns of a task. Return how many memories were created or changed.

    A turn that was forgotten or hidden since has none. Raises RevisionConflict if another worker
    has the task, or a turn changed.
    """
    name = str(task.payload.get("policy"))
    policy = ctx.policies.get(name, policies.DEFAULT)
    turns = task.payload.get("turns")
    if turns is None:  # a task of version 0.1 has one turn
        turns = [task.payload.get("ids", ())]
    found = await draw(
        turns,
        task.scope,
        ctx,
        policy=policy,
        task=task,
    )
    return len(found.ids)


async def draw(
    turns: Sequence[Sequence[str]],
    scope: Scope,
    ctx: Context,
    *,
    policy: Policy,
    task: Task | None = None,
    rest: NewTask | None = None,
) -> Extracted:
    """Extract facts from turns, each given by the ids of its chunks, and store them together.

    This finishes the task and queues the `rest` of its work.

    Raises RevisionConflict if a turn changed concurrently. If the model is unavailable, over its
    budget or gives a bad answer, only rules are used.
    """
    from . import repeats  # compiling the patterns of rules takes 100 ms

    limits = policy.extract or Facts(policy=policy.name)
    now = ctx.clock()
    ids = [id for turn in turns for id in turn]
    loaded = await _load_turns(ctx.store, scope, turns)
    is_capped = limits.daily > 0 and (limits.caps_rules or ctx.settings.extract == "model")
    left = await _count_left(ctx.store, scope, limits, now) if is_capped else sys.maxsize
    drafts: list[Draft] = []
    results: list[Extracted] = []
    newer = await _find_newer(ctx.store, scope, loaded)
    said = [turn[0] for turn in loaded if len(turn) == 1 and _may_have_facts(turn[0])]
    repeated: dict[str, list[Memory]] = {}
    if not limits.caps_rules:
        repeated = await repeats.find_repeated(ctx, scope, said)
    for turn in loaded:
        found, by_rules, by_model = await _read(ctx, scope, turn, limits)
        if older := repeated.get(turn[0].id) if turn else None:
            again, first = await repeats.restate(ctx.store, turn[0], older, drafts)
            drafts += _choose(ctx, first, (), older[:1], limits, sys.maxsize, newer)[0]
            by_rules = [again, *_find_other(by_rules, again, older)]
            by_model = _find_other(by_model, again, older)
            if found.by == "none":
                found = Extracted(by="rules")
        counted = [draft for draft in drafts if limits.caps_rules or BY_MODEL in draft.tags]
        room = left - len(counted)
        chosen, dropped = _choose(ctx, by_rules, by_model, turn, limits, room, newer)
        drafts += chosen
        results.append(replace(found, dropped=(*found.dropped, *dropped)))
    read.cache_clear()
    whole = _combine(results)
    batch = await pipeline.prepare_derived(ctx, scope, drafts, limits.policy, now)
    async with ctx.store.transaction(scope) as tx:
        outcomes = await pipeline.write(tx, batch)
        latest = await _load_turns(tx, scope, turns)
        is_same = list(map(_identify, latest)) == list(map(_identify, loaded))
        used = {memory.id for older in repeated.values() for memory in older}
        still = [memory for memory in await tx.get(scope, list(used)) if memory.is_active]
        is_same &= len(still) == len(used)
        is_over = is_capped and await _count_left(tx, scope, limits, now) < 0
        if not is_same or is_over:
            raise RevisionConflict("A turn or the daily limit changed concurrently: try again")
        category = f"{NAME} by {whole.by}"
        if whole.why:
            category += f": {whole.why}"
        event = Event(
            node="worker",
            op="classify",
            at=now,
            status="error" if whole.by == "rules" and whole.why else "ok",
            memory_id=ids[0] if ids else None,
            category=category,
        )
        await tx.apply([event, *_relate(drafts, outcomes, newer, now)])
        if task is not None:
            await tasks.finish(tx, task)
            await tasks.add(tx, *filter(None, [rest]))
        elif ids:
            await tasks.discard(tx, pipeline.make_task(turns, policy, now))
    return replace(whole, outcomes=tuple(outcomes))


def _combine(results: Sequence[Extracted]) -> Extracted:
    """Return the result of several turns: that of the best method, with everything dropped."""
    best = Extracted(by="none", why="there is no turn")
    for found in results:
        is_better = _METHODS.index(found.by) > _METHODS.index(best.by)
        if found is results[0] or is_better or (found.by == best.by == "rules" and found.why):
            best = found
    dropped = [reason for found in results for reason in found.dropped]
    return replace(best, dropped=tuple(dropped))


async def _load_turns(
    reading: Reader,
    scope: Scope,
    turns: Sequence[Sequence[str]],
) -> list[list[Memory]]:
    """Return the chunks of each turn; none if one is missing or hidden, or its session incognito."""
    ids = [id for turn in turns for id in turn]
    found = {memory.id: memory for memory in await reading.get(scope, ids)}
    sessions = {memory.labels.session for memory in found.values()}
    checks = await reading.checks(scope, sessions=sessions)
    loaded = []
    for turn in turns:
        chunks = [found[id] for id in turn if id in found and found[id].is_active]
        is_hidden = any(chunk.labels.session in checks.incognito for chunk in chunks)
        loaded.append(chunks if len(chunks) == len(turn) and not is_hidden else [])
    return loaded


def _texts(turn: Sequence[Memory]) -> list[str]:
    return [memory.text for memory in turn]


def _identify(turn: Sequence[Memory]) -> list[tuple[str, datetime | None]]:
    return [(memory.text, memory.valid_to) for memory in turn]


async def _find_newer(
    reading: Reader,
    scope: Scope,
    loaded: Sequence[Sequence[Memory]],
) -> dict[str, Memory]:
    """Return, by the id of each turn that is outdated, what replaces it."""
    outdated = [turn[0].id for turn in loaded if turn and turn[0].valid_to is not None]
    pairs = await reading.links(scope, outdated, REPLACES) if outdated else []
    by_id = {memory.id: memory for memory in await reading.get(scope, [p.from_id for p in pairs])}
    pairs.reverse()  # the strongest counts
    return {pair.to_id: by_id[pair.from_id] for pair in pairs if pair.from_id in by_id}


def _relate(
    drafts: Sequence[Draft],
    outcomes: Sequence[Outcome],
    newer: Mapping[str, Memory],
    now: datetime,
) -> Iterator[Relation]:
    """Yield what replaces the outdated facts, so that they are restored if it is rejected."""
    for draft, outcome in zip(drafts, outcomes, strict=True):
        replacing = newer.get(draft.evidence_ids[0]) if draft.valid_to else None
        if replacing is not None and outcome.status == "created":
            for id in outcome.ids:
                yield Relation(from_id=replacing.id, to_id=id, type=REPLACES, at=now)


async def _read(
    ctx: Context,
    scope: Scope,
    turn: Sequence[Memory],
    limits: Facts,
) -> tuple[Extracted, Sequence[Fact], Sequence[Fact]]:
    """Find the facts of a turn by rules, and further ones with a model if possible and allowed.

    Both groups have the most important fact first.
    """
    from . import languages, llm, rules

    if not turn:
        return Extracted(by="none", why="the turn no longer exists"), (), ()
    first = turn[0]
    if not _may_have_facts(first):
        why = "facts are extracted only from what people say themselves"
        return Extracted(by="none", why=why), (), ()
    text = "\n".join(_texts(turn))
    is_own = cues.is_persons(first)
    who = rules.name_speaker(first.speaker, is_own=is_own)
    at = first.occurred_at or first.created_at
    most = limits.found
    stated = await compute(len(text), languages.find_facts, text, who=who, at=at, most=most)
    facts = _rank(stated)
    is_sure = any(fact.confidence >= rules.CONFIDENT for fact in facts)
    is_short = len(text) <= limits.longer and not is_sure
    if is_short and limits.caps_rules:
        why = "the turn is short and contains no lasting fact"
        return Extracted(by="none", why=why), (), ()
    if ctx.settings.extract != "model" or ctx.llm is None or is_short:
        if facts:
            return Extracted(by="rules"), facts, ()
        return Extracted(by="none", why="the turn contains no lasting fact"), (), ()
    try:
        found, dropped = await llm.find_facts(
            ctx.llm,
            scope,
            text,
            who=who,
            at=at,
            most=most,
            by_words=limits.trusts_model,
            verifier=ctx.verifier,
        )
    except (ModelUnavailable, BadModelAnswer, OverBudget) as error:
        return Extracted(by="rules", why=type(error).__name__), facts, ()
    if limits.trusts_model:
        facts = []
    added = []
    for fact in _rank(found):
        if any(_repeats(fact.text, known.text) for known in facts):
            dropped.append("it is a duplicate")
        else:
            added.append(fact)
    return Extracted(by="model", dropped=tuple(dropped)), facts, added


def _may_have_facts(turn: Memory) -> bool:
    return cues.is_own_role(turn.labels.role) and not turn.evidence_ids


def _find_other(facts: Sequence[Fact], again: Fact, older: Sequence[Memory]) -> list[Fact]:
    """Return the facts that say something else than what is repeated."""
    known = [again.text, *_texts(older)]
    return [
        fact
        for fact in facts
        if max(count_shared(fact.text, text) for text in known) < LEAST_SHARED
    ]


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
    """Return how many facts of this person, in all spaces, may still be extracted today."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    tag = TAG if limits.caps_rules else BY_MODEL
    today = Filter(tags=(tag,), states=STATES, created_after=midnight)
    return limits.daily - await count_of_user(reading, scope, today)


def _choose(
    ctx: Context,
    by_rules: Sequence[Fact],
    by_model: Sequence[Fact],
    turn: Sequence[Memory],
    limits: Facts,
    left: int,
    newer: Mapping[str, Memory],
) -> tuple[list[Draft], list[str]]:
    """Return the facts that may be stored, as drafts, and why each of the others may not.

    A draft has the authority of the speaker, and the turn as its evidence. It is outdated if the
    turn is, by what says something else in its place.
    """
    dropped: list[str] = []
    drafts: list[Draft] = []
    facts = [*by_rules, *by_model]
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
    is_own = cues.is_own(labels.role, speaker, first.scope.user)
    for number, fact in enumerate(facts):
        is_by_model = number >= len(by_rules)
        is_capped = is_by_model or limits.caps_rules
        is_outdated = not says_more(first.text)
        if replacing := newer.get(first.id):
            is_outdated = ends_fact(replacing.text, first.text, fact.text)
        is_instruction = limits.of_subject and fact.type == "preference"
        draft = Draft(
            text=fact.text,
            labels=labels,
            speaker=speaker,
            at=first.occurred_at,
            valid_to=first.valid_to if is_outdated else None,
            kind="procedural" if is_instruction else "semantic",
            fact_type=guard.to_fact_type(fact.type),
            category=fact.category,
            tags=(TAG, BY_MODEL) if is_by_model else (TAG,),
            evidence_ids=tuple(memory.id for memory in turn),
            evidence_text=fact.evidence,
            importance=fact.importance,
            confidence=fact.confidence,
            metadata=first.metadata,
            expires_at=first.expires_at,
        )
        if normalize.wording(fact.text) in said:
            dropped.append("it repeats the whole turn")
        elif len(fact.text) > limits.longest:
            dropped.append(f"it is longer than {limits.longest} characters")
        elif why := guard.find_refusal(draft, policy, is_own=is_own):
            dropped.append(why)
        elif is_capped and len(drafts) >= limits.kept:
            dropped.append(f"the turn has more than {limits.kept} facts")
        elif is_capped and len(drafts) >= left:
            dropped.append(f"the daily limit of {limits.daily} is reached")
        else:
            drafts.append(draft)
    return drafts, dropped
