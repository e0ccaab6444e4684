"""Putting one summary in the place of several memories: it names them as its evidence, and they stay behind it.

A language model writes it, if there is one within its budget and what it says rests on what was said; otherwise it is
chosen from the sentences of the memories. What was changed by somebody in the meantime is left as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from ..errors import BadModelAnswer, ModelUnavailable, OverBudget
from ..ingest import transitions
from ..ports import Adviser, Transaction
from ..storage.changes import Change, Happened, Put
from ..text import authority, normalize, summarize
from ..text.clock import new_id
from ..text.summarize import Turn
from ..types import Draft, Labels, Memory, Outcome, Scope, State
from .context import Care

ROLE = "summary"  # of what is no longer anybody's own words
MOST_TAGS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A summary, and how it came about."""

    text: str
    by: Literal["model", "rules"]
    why: str = ""  # the rules did it although there is a model


@dataclass(frozen=True, slots=True, kw_only=True)
class SummedUp:
    """What was summed up, or would be."""

    groups: int = 0  # sessions or topics
    memories: tuple[str, ...] = ()  # that are behind their summaries now
    summaries: tuple[str, ...] = ()
    left: int = 0  # groups that stay as they were: somebody changed them meanwhile, or a guard refused the summary
    dry_run: bool = False

    def with_group(self, memories: Sequence[Memory], summary: str | None) -> SummedUp:
        """And these, under their summary; None if they stay as they were."""
        if summary is None:
            return replace(self, left=self.left + 1)
        ids = (*self.memories, *(memory.id for memory in memories))
        made = (*self.summaries, summary) if summary else self.summaries
        return replace(self, groups=self.groups + 1, memories=ids, summaries=made)


class _Changed(Exception):
    """Somebody was faster."""


async def summarise(
    adviser: Adviser | None,
    scope: Scope,
    turns: Sequence[Turn],
    *,
    longest: int = summarize.LONGEST,
) -> Made:
    """Sum up what was said, by a model if it can and may, otherwise by rules. Empty if nothing was said."""
    why = ""
    if adviser is not None:
        try:
            text = str(
                (await adviser.answer(scope, summarize.ask(turns, longest=longest)))["summary"]
            )
            why = summarize.find_fault(text, turns, longest=longest)
            if not why:
                return Made(text=normalize.one_line(text), by="model")
        except (ModelUnavailable, BadModelAnswer, OverBudget) as error:
            why = type(error).__name__
    return Made(text=summarize.extract(turns, longest=longest), by="rules", why=why)


def turns_of(memories: Sequence[Memory]) -> list[Turn]:
    """What the memories say; with names, unless all of it is the person's own."""
    is_own = all(authority.is_persons(memory) for memory in memories)
    return [Turn(memory.text, None if is_own else _name(memory)) for memory in memories]


def _name(memory: Memory) -> str:
    role = memory.labels.role or "user"
    name = memory.speaker or role
    if name == role and name.lower() in authority.ROLE_WORDS:
        return f"The {name.lower()}"
    return (
        f"{name}{authority.A_NAME}"
        if authority.poses(name) and not name.endswith(authority.A_NAME)
        else name
    )


def in_order(memories: Sequence[Memory]) -> list[Memory]:
    """As they were said, one after the other."""
    return sorted(
        memories, key=lambda m: (m.occurred_at or m.created_at, m.sequence or 0, m.created_at, m.id)
    )


def tags_of(memories: Sequence[Memory]) -> tuple[str, ...]:
    """The tags that most of them have."""
    counts = Counter(tag for memory in memories for tag in memory.tags)
    return tuple(tag for tag, _ in counts.most_common(MOST_TAGS))


async def put_behind(
    sources: Sequence[Memory], care: Care, *, state: State, session: str | None = None
) -> str | None:
    """Sum memories up and give them that state, in one transaction; the id of the summary.

    None if they stay as they were, because one of them was changed meanwhile or the summary was refused.
    """
    said = in_order(sources)
    turns = turns_of(said)
    made = await summarise(care.adviser, said[0].scope, turns)
    kept = await _kept(made, _draft(said, turns, made, session), said, care, state)
    if kept is None and made.by == "model":  # a guard may not like its words
        made = Made(text=summarize.extract(turns), by="rules", why="it was refused")
        kept = await _kept(made, _draft(said, turns, made, session), said, care, state)
    return kept


async def _kept(
    made: Made, draft: Draft, said: Sequence[Memory], care: Care, state: State
) -> str | None:
    now, ids = care.now(), list[str]()

    async def also(tx: Transaction, outcomes: Sequence[Outcome]) -> list[Change]:
        (outcome,) = outcomes
        if outcome.status != "created":
            return [
                Happened(node="worker", op="merge", at=now, status="skipped", category=_how(made))
            ]
        ids.extend(outcome.ids)
        return await _behind(tx, said, made, state=state, summary=ids[0], now=now)

    try:
        await care.remember([draft], said[0].scope, policy=ROLE, now=now, also=also)
    except _Changed:
        return None
    return ids[0] if ids else None


def _how(made: Made) -> str:
    return f"summary by {made.by}" + (f": {made.why}" if made.why else "")


def _draft(said: Sequence[Memory], turns: Sequence[Turn], made: Made, session: str | None) -> Draft:
    is_own = made.by == "rules" and not any(turn.speaker for turn in turns)
    ids = tuple(memory.id for memory in said)
    return Draft(
        text=made.text,
        id=new_id(),
        kind="semantic",
        labels=Labels(role=None if is_own else ROLE),
        at=max((memory.occurred_at for memory in said if memory.occurred_at), default=None),
        tags=tags_of(said),
        source_ids=ids,
        evidence_ids=ids,
        importance=sum(memory.importance for memory in said) / len(said),
        confidence=min(memory.confidence for memory in said),
        source_session_id=session,
        compression_source=True,
    )


async def _behind(
    tx: Transaction,
    said: Sequence[Memory],
    made: Made,
    *,
    state: State,
    summary: str,
    now: datetime,
) -> list[Change]:
    """The memories in their new state, if nobody has touched them. Raises _Changed."""
    there = {
        memory.id: memory for memory in await tx.get(said[0].scope, [memory.id for memory in said])
    }
    if any(
        m.id not in there or there[m.id].revision != m.revision or not there[m.id].is_active
        for m in said
    ):
        raise _Changed
    meta = {"state": state, "reason": "summed up", "summary": summary, "by": made.by}
    meta |= {"why": made.why} if made.why else {}
    puts = [transitions.revise(there[m.id], now, state=state) for m in said]
    event = Happened(node="worker", op="merge", at=now, memory_id=summary, category=_how(made))
    return [*(Put(memory=memory, event="updated", meta=meta) for memory in puts), event]
