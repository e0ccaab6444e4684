"""Replacing several memories by one summary, which names them as its evidence; they stay,
compressed or archived.

`compress` summarizes the oldest sessions of a scope, `roll_up` old memories about the same topic. A
language model writes the summary if one is configured, its budget allows it and the result is
grounded in the sources; otherwise sentences of the sources are selected. Sources that were changed
in the meantime are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np

from ..context import Context
from ..errors import BadModelAnswer, ModelUnavailable, OverBudget
from ..index import Snapshot
from ..ingest import pipeline, transitions
from ..ports import Vectors
from ..storage import Change, Event, Save
from ..storage.tasks import Task
from ..text import authority, normalize, summarize
from ..text.summarize import Turn
from ..types import KINDS, STATES, Draft, Filter, Labels, Memory, Scope, State, frozen
from . import DAILY, WEEKLY, finish, get_unchanged

ROLE = "summary"  # of a text that is nobody's own words any more
MAX_TAGS = 12
DAYS = 90.0  # without use, before a memory is rolled up
NEAR = 0.6  # cosine to the first memory of a topic
FEWEST = 3  # memories of a topic
MOST = 12
MAX_MEMORIES = 2000  # per roll-up, the oldest ones


@frozen
class SummaryReport:
    """What was summarized, or would be."""

    groups: int = 0  # sessions or topics
    memories: tuple[str, ...] = ()  # that are replaced by their summaries now
    summaries: tuple[str, ...] = ()
    left: int = 0  # groups left alone: changed in the meantime, or the guard refused the summary
    dry_run: bool = False

    @property
    def changed(self) -> int:
        return len(self.memories) + len(self.summaries)


async def run_compress(ctx: Context, task: Task) -> int:
    """Compress the sessions that are due in a scope; return the number of changed memories."""
    done = await compress(ctx, task.scope, threshold=ctx.settings.compression_threshold)
    await finish(ctx, task, DAILY)
    return done.changed


async def run_roll_up(ctx: Context, task: Task) -> int:
    """Roll up the topics of a scope; return the number of changed memories."""
    done = await roll_up(ctx, task.scope, days=ctx.settings.rollup_days)
    await finish(ctx, task, WEEKLY)
    return done.changed


async def compress(
    ctx: Context,
    scope: Scope,
    *,
    threshold: int,
    sessions: int | None = None,
    dry_run: bool = False,
) -> SummaryReport:
    """Summarize the oldest sessions if there are more than the threshold: half as many, or
    `sessions` of them.

    Pinned and manually saved memories stay as they are. Each session is one transaction.
    """
    done = SummaryReport(dry_run=dry_run)
    candidates = _oldest_sessions(await ctx.index.current(scope, ctx.store))
    most = max(1, threshold // 2) if sessions is None else sessions
    if len(candidates) <= threshold:
        return done
    where = Filter(kinds=("episodic",), pinned=False, manually_saved=False)
    for session in candidates:
        if done.groups == most:
            break
        labels = Labels(session=session)
        turns = await ctx.store.find_all(scope, replace(where, labels=labels))
        if turns:
            done = await _add_group(ctx, done, turns, "compressed", session)
    return done


def _oldest_sessions(snapshot: Snapshot) -> list[str]:
    """Return the sessions with uncompressed turns, in the order in which they began."""
    is_open = snapshot.present & (snapshot.state == STATES.index("active"))
    is_open &= snapshot.kind == KINDS.index("episodic")
    is_open &= (snapshot.session >= 0) & ~snapshot.pinned
    codes = snapshot.session[is_open]
    order = np.lexsort((codes, snapshot.occurred[is_open], snapshot.created[is_open]))
    names = {code: name for name, code in snapshot.codes["session"].items()}
    return [names[code] for code in dict.fromkeys(codes[order].tolist())]


async def roll_up(
    ctx: Context,
    scope: Scope,
    *,
    days: float = DAYS,
    dry_run: bool = False,
) -> SummaryReport:
    """Make one memory of each topic among the memories that were not used for so many days.

    Memories without a vector, pinned and manually saved ones, workflows and summaries stay as they
    are. Each topic is one transaction.
    """
    where = Filter(
        kinds=("episodic", "semantic"),
        used_before=ctx.clock() - timedelta(days=days),
        pinned=False,
        manually_saved=False,
        compression_source=False,
    )
    rows = sorted(await ctx.store.rows_where(scope, where))[:MAX_MEMORIES]
    vectors = await ctx.store.vectors(scope, rows, model=ctx.index.model)
    found = await ctx.store.at_rows(scope, list(vectors))
    row_of = {memory.id: row for row, memory in found.items()}
    memories = in_order(found.values())
    data = b"".join(vectors[row_of[memory.id]] for memory in memories)
    matrix = np.frombuffer(data, "<f4").reshape(-1, ctx.index.dimensions)
    done = SummaryReport(dry_run=dry_run)
    for topic in find_topics(matrix):
        group = [memories[position] for position in topic]
        done = await _add_group(ctx, done, group, "archived")
    return done


def find_topics(vectors: Vectors) -> list[list[int]]:
    """Return positions that belong together: each with the nearest later ones that are near and
    still free.

    >>> find_topics(np.asarray([[1, 0], [0, 1], [1, 0], [0.8, 0.6]], np.float32))
    [[0, 2, 3]]
    """
    free = np.ones(len(vectors), np.bool_)
    topics: list[list[int]] = []
    for first in range(len(vectors)):
        if not free[first]:
            continue
        cosines = vectors @ vectors[first]
        nearest = np.argsort(-cosines, kind="stable")
        near = nearest[free[nearest] & (cosines[nearest] >= NEAR)]
        if len(near) >= FEWEST:
            topics.append(sorted(near[:MOST].tolist()))
            free[topics[-1]] = False
    return topics


async def _add_group(
    ctx: Context,
    report: SummaryReport,
    memories: Sequence[Memory],
    state: State,
    session: str | None = None,
) -> SummaryReport:
    """Replace memories by a summary, unless it is a dry run; return the report with this group.

    They are left alone if one of them was changed in the meantime, or if the summary was refused.
    """
    if not report.dry_run:
        summary = await _replace_by_summary(ctx, in_order(memories), state, session)
        if summary is None:
            return replace(report, left=report.left + 1)
        report = replace(report, summaries=(*report.summaries, summary))
    ids = [memory.id for memory in memories]
    return replace(report, groups=report.groups + 1, memories=(*report.memories, *ids))


async def _replace_by_summary(
    ctx: Context,
    sources: Sequence[Memory],
    state: State,
    session: str | None,
) -> str | None:
    """Summarize memories by a model if possible, otherwise by rules, and set their state; return
    the id of the summary, None if they were left alone.
    """
    ids = tuple(memory.id for memory in sources)
    turns = turns_of(sources)
    draft = Draft(
        text="",
        kind="semantic",
        labels=Labels(role=ROLE),
        at=max((each.occurred_at for each in sources if each.occurred_at), default=None),
        tags=tags_of(sources),
        source_ids=ids,
        evidence_ids=ids,
        importance=sum(memory.importance for memory in sources) / len(sources),
        confidence=min(memory.confidence for memory in sources),
        source_session_id=session,
        compression_source=True,
    )
    meta = {"state": state, "reason": "summarized"}
    if ctx.llm is not None:
        try:
            answer = await ctx.llm.answer(sources[0].scope, summarize.ask(turns))
            text = str(answer["summary"])
            why = summarize.find_fault(text, turns)
            if not why:
                by_model = replace(draft, text=normalize.one_line(text))
                summary = await _save(ctx, sources, by_model, meta | {"by": "model"})
                if summary is not None:
                    return summary
                why = "it was refused"  # by the guard
        except (ModelUnavailable, BadModelAnswer, OverBudget) as error:
            why = type(error).__name__
        meta["why"] = why
    is_own = not any(turn.speaker for turn in turns)
    labels = Labels() if is_own else draft.labels
    draft = replace(draft, text=summarize.extract(turns), labels=labels)
    return await _save(ctx, sources, draft, meta | {"by": "rules"})


async def _save(
    ctx: Context,
    sources: Sequence[Memory],
    draft: Draft,
    meta: Mapping[str, str],
) -> str | None:
    """Store a summary and set the state of its sources, in one transaction; None if it was refused,
    or if a source was changed in the meantime.
    """
    now = ctx.clock()
    scope = sources[0].scope
    why = f": {meta['why']}" if "why" in meta else ""
    event = Event(
        node="worker",
        op="merge",
        at=now,
        category=f"summary by {meta['by']}{why}",
    )
    batch = await pipeline.prepare_derived(ctx, scope, [draft], ROLE, now)
    async with ctx.store.transaction(scope) as tx:
        there = await get_unchanged(tx, sources)
        if not there:
            return None
        (outcome,) = await pipeline.write(tx, batch)
        if outcome.status != "created":
            await tx.apply([replace(event, status="skipped")])
            return None
        summary = outcome.ids[0]
        changes: list[Change] = [replace(event, memory_id=summary)]
        for memory in there:
            behind = transitions.revise(memory, now, state=meta["state"])
            about = {**meta, "summary": summary}
            changes.append(Save(memory=behind, event="updated", meta=about))
        await tx.apply(changes)
    return summary


def turns_of(memories: Sequence[Memory]) -> list[Turn]:
    """Return the texts of memories as turns; with speakers, unless all of them are the person's own
    words.
    """
    is_own = all(authority.is_persons(memory) for memory in memories)
    turns: list[Turn] = []
    for memory in memories:
        role = memory.labels.role or "user"
        name = memory.speaker or role
        if name == role and name.lower() in authority.ROLE_WORDS:
            name = f"The {name.lower()}"
        elif authority.poses(name) and not name.endswith(authority.A_NAME):
            name = f"{name}{authority.A_NAME}"
        turns.append(Turn(memory.text, None if is_own else name))
    return turns


def in_order(memories: Iterable[Memory]) -> list[Memory]:
    """Return memories in the order in which they were said."""
    return sorted(
        memories, key=lambda m: (m.occurred_at or m.created_at, m.sequence or 0, m.created_at, m.id)
    )


def tags_of(memories: Sequence[Memory]) -> tuple[str, ...]:
    """Return the most common tags."""
    counts = Counter(tag for memory in memories for tag in memory.tags)
    return tuple(tag for tag, _ in counts.most_common(MAX_TAGS))
