"""Replacing several memories by one summary, which names them as its evidence; they stay,
compressed or archived.

A language model writes the summary if one is configured, its budget allows it and the result is
grounded in the sources; otherwise sentences of the sources are selected. Sources that were changed
in the meantime are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..context import Context
from ..errors import BadModelAnswer, ModelUnavailable, OverBudget
from ..ingest import pipeline, transitions
from ..ports import BudgetedModel
from ..storage.changes import Change, Event, Save
from ..text import authority, normalize, summarize
from ..text.clock import new_id
from ..text.summarize import Turn
from ..types import Draft, Labels, Memory, Scope, State

ROLE = "summary"  # of a text that is nobody's own words any more
MAX_TAGS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryText:
    """The text of a summary, and how it was made."""

    text: str
    by: Literal["model", "rules"]
    why: str = ""  # why rules made it although there is a model

    @property
    def origin(self) -> str:
        return f"summary by {self.by}" + (f": {self.why}" if self.why else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryReport:
    """What was summarized, or would be."""

    groups: int = 0  # sessions or topics
    memories: tuple[str, ...] = ()  # that are replaced by their summaries now
    summaries: tuple[str, ...] = ()
    left: int = 0  # groups left alone: changed in the meantime, or the guard refused the summary
    dry_run: bool = False

    def with_group(self, memories: Sequence[Memory], summary: str | None) -> SummaryReport:
        """Return the report with another group; `summary` is None if the group was left alone."""
        if summary is None:
            return replace(self, left=self.left + 1)
        ids = (*self.memories, *(memory.id for memory in memories))
        made = (*self.summaries, summary) if summary else self.summaries
        return replace(self, groups=self.groups + 1, memories=ids, summaries=made)


class SourceChanged(Exception):
    """A source was changed in the meantime."""


async def write_summary(
    llm: BudgetedModel | None,
    scope: Scope,
    turns: Sequence[Turn],
    *,
    longest: int = summarize.LONGEST,
) -> SummaryText:
    """Summarize turns by a model if possible, otherwise by rules; the text is empty if there are no
    words in them.
    """
    why = ""
    if llm is not None:
        try:
            answer = await llm.answer(scope, summarize.ask(turns, longest=longest))
            text = str(answer["summary"])
            why = summarize.find_fault(text, turns, longest=longest)
            if not why:
                return SummaryText(text=normalize.one_line(text), by="model")
        except (ModelUnavailable, BadModelAnswer, OverBudget) as error:
            why = type(error).__name__
    return SummaryText(text=summarize.extract(turns, longest=longest), by="rules", why=why)


def turns_of(memories: Sequence[Memory]) -> list[Turn]:
    """Return the texts of memories as turns; with speakers, unless all of them are the person's own
    words.
    """
    is_own = all(authority.is_persons(memory) for memory in memories)
    return [Turn(memory.text, None if is_own else _speaker(memory)) for memory in memories]


def _speaker(memory: Memory) -> str:
    role = memory.labels.role or "user"
    name = memory.speaker or role
    if name == role and name.lower() in authority.ROLE_WORDS:
        return f"The {name.lower()}"
    if authority.poses(name) and not name.endswith(authority.A_NAME):
        return f"{name}{authority.A_NAME}"
    return name


def in_order(memories: Sequence[Memory]) -> list[Memory]:
    """Return memories in the order in which they were said."""
    return sorted(
        memories, key=lambda m: (m.occurred_at or m.created_at, m.sequence or 0, m.created_at, m.id)
    )


def versions(memories: Sequence[Memory]) -> list[tuple[str, int, State]]:
    """Return what tells whether memories were changed since they were read."""
    return [(memory.id, memory.revision, memory.state) for memory in memories]


def tags_of(memories: Sequence[Memory]) -> tuple[str, ...]:
    """Return the most common tags."""
    counts = Counter(tag for memory in memories for tag in memory.tags)
    return tuple(tag for tag, _ in counts.most_common(MAX_TAGS))


async def replace_by_summary(
    ctx: Context, memories: Sequence[Memory], *, state: State, session: str | None = None
) -> str | None:
    """Summarize memories and set their state, in one transaction; return the id of the summary.

    None if they were left alone, because one of them was changed in the meantime or the summary was
    refused.
    """
    sources = in_order(memories)
    turns = turns_of(sources)
    made = await write_summary(ctx.llm, sources[0].scope, turns)
    try:
        saved = await _save(ctx, sources, turns, made, state, session)
        if saved is None and made.by == "model":  # the guard may refuse its words
            made = SummaryText(text=summarize.extract(turns), by="rules", why="it was refused")
            saved = await _save(ctx, sources, turns, made, state, session)
    except SourceChanged:
        return None
    return saved


async def _save(
    ctx: Context,
    sources: Sequence[Memory],
    turns: Sequence[Turn],
    made: SummaryText,
    state: State,
    session: str | None,
) -> str | None:
    now, scope = ctx.clock(), sources[0].scope
    ids = tuple(memory.id for memory in sources)
    is_own = made.by == "rules" and not any(turn.speaker for turn in turns)
    draft = Draft(
        text=made.text,
        id=new_id(),
        kind="semantic",
        labels=Labels(role=None if is_own else ROLE),
        at=max((each.occurred_at for each in sources if each.occurred_at), default=None),
        tags=tags_of(sources),
        source_ids=ids,
        evidence_ids=ids,
        importance=sum(memory.importance for memory in sources) / len(sources),
        confidence=min(memory.confidence for memory in sources),
        source_session_id=session,
        compression_source=True,
    )
    event = Event(node="worker", op="merge", at=now, category=made.origin)
    batch = await pipeline.prepare_derived(ctx, scope, [draft], ROLE, now)
    async with ctx.store.transaction(scope) as tx:
        there = await tx.get(scope, ids)
        (outcome,) = await pipeline.write(tx, batch)
        if outcome.status != "created":
            await tx.apply([replace(event, status="skipped")])
            return None
        if versions(there) != versions(sources):
            raise SourceChanged
        summary = outcome.ids[0]
        meta = {"state": state, "reason": "summarized", "summary": summary, "by": made.by}
        if made.why:
            meta["why"] = made.why
        changes: list[Change] = []
        for memory in there:
            behind = transitions.revise(memory, now, state=state)
            changes.append(Save(memory=behind, event="updated", meta=meta))
        await tx.apply([*changes, replace(event, memory_id=summary)])
    return summary
