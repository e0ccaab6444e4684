"""Replace several memories with one summary that lists them as its evidence; they are kept,
compressed or archived.

`compress` summarizes the oldest sessions of a scope, `roll_up` old memories about the same topic. A
language model writes the summary if one is configured, its budget allows it and the result is
grounded in the sources; otherwise sentences of the sources are selected. Sources that were changed
during the run are left alone.

`run_shorten` gives a long memory a summary of its own, which lists of memories show instead of the
text. It is derived from the text like a vector, so it is not a change of the memory: its revision,
its history and the time of its last change stay.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np

from ..context import Context, Place
from ..errors import BadModelAnswer, ModelUnavailable, OverBudget
from ..index import Snapshot
from ..index.arrays import products
from ..ingest import pipeline, transitions, validation
from ..ports import Vectors
from ..retrieve.render import LONG
from ..storage import Change, Event, Save
from ..storage.tasks import Task
from ..text import cues, normalize, prompts, summarize
from ..text.grounding import Turn
from ..types import KINDS, STATES, Draft, Filter, Labels, Memory, State, frozen
from . import DAILY, WEEKLY, finish, get_unchanged

ROLE = "summary"  # of a text that does not quote one speaker
MAX_TAGS = 12
DAYS = 90.0  # without use before a memory is rolled up
NEAR = 0.35  # lowest mean cosine between the memories of a topic
FEWEST = 3  # memories of a topic
MOST = 12
MAX_MEMORIES = 2000  # per roll-up, oldest first
APART = -2.0  # in place of a cosine: these groups are not joined
PAGE = 100  # long memories in one transaction


@frozen
class SummaryReport:
    """What was summarized, or would be."""

    groups: int = 0  # sessions or topics
    memories: tuple[str, ...] = ()  # ids of the memories that were summarized
    summaries: tuple[str, ...] = ()
    left: int = 0  # groups left alone: changed during the run, or the guard refused the summary
    dry_run: bool = False

    @property
    def changed(self) -> int:
        return len(self.memories) + len(self.summaries)


async def run_compress(ctx: Context, task: Task) -> int:
    """Compress the oldest sessions of a scope; return the number of changed memories."""
    done = await compress(Place(ctx, task.scope, Labels()))
    await finish(ctx, task, DAILY)
    return done.changed


async def run_roll_up(ctx: Context, task: Task) -> int:
    """Roll up the topics of a scope; return the number of changed memories."""
    place = Place(ctx, task.scope, Labels())
    done = await roll_up(place, days=ctx.settings.rollup_days)
    await finish(ctx, task, WEEKLY)
    return done.changed


async def run_shorten(ctx: Context, task: Task) -> int:
    """Summarize the long memories of a scope that have no summary; return how many."""
    scope = task.scope
    last = ""
    count = 0
    while ids := await ctx.store.find_long(scope, LONG, after=last, limit=PAGE):
        last = ids[-1]
        summaries: dict[str, str] = {}  # by text
        for memory in await ctx.store.get(scope, ids):
            turn = Turn(memory.text)
            made = await asyncio.to_thread(summarize.extract, [turn], longest=LONG)
            summaries[memory.text] = made
        changes = []
        async with ctx.store.transaction(scope) as tx:
            for memory in await tx.get(scope, ids):
                summary = summaries.get(memory.text)  # None: it was changed meanwhile
                if summary and memory.summary is None:
                    changes.append(Save(memory=replace(memory, summary=summary), event=None))
            await tx.apply(changes)
        count += len(changes)
    await finish(ctx, task, DAILY)
    return count


async def compress(
    place: Place,
    *,
    threshold: int | None = None,
    sessions: int | None = None,
    dry_run: bool = False,
) -> SummaryReport:
    """Summarize the oldest sessions, each in one memory, if there are more than the threshold.

    The originals are kept as evidence of the summary; `include_compressed` recalls them and
    `restore` brings them back. With `dry_run` nothing is changed. Raises InvalidInput.
    """
    ctx, scope, _ = place.parts
    if threshold is None:
        threshold = ctx.settings.compression_threshold
    validation.number("threshold", threshold)
    if sessions is not None:
        validation.number("sessions", sessions)
    done = SummaryReport(dry_run=dry_run)
    snapshot = await ctx.index.current(scope, ctx.store)
    candidates = _oldest_sessions(snapshot)
    most = max(1, threshold // 2) if sessions is None else sessions
    if len(candidates) <= threshold:
        return done
    where = Filter(
        kinds=("episodic",),
        none_of=(transitions.EXPIRING,),
        pinned=False,
        manually_saved=False,
    )
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
    occurred = snapshot.occurred[is_open]
    created = snapshot.created[is_open]
    order = np.lexsort((codes, occurred, created))
    names = {code: name for name, code in snapshot.codes["session"].items()}
    oldest = dict.fromkeys(codes[order].tolist())
    return [names[code] for code in oldest]


async def roll_up(
    place: Place,
    *,
    days: float = DAYS,
    dry_run: bool = False,
) -> SummaryReport:
    """Merge memories that were not used for a number of days into one memory per topic.

    The originals are archived and can be restored. With `dry_run` nothing is changed.
    Raises InvalidInput.
    """
    # Half the days after which a memory would expire are enough. Questions and courtesies, memories
    # without a vector, pinned and manually saved ones, workflows and summaries are not changed.
    ctx, scope, _ = place.parts
    settings = ctx.settings
    if days != settings.rollup_days:
        validation.days(days)
    now = ctx.clock()
    limits = [days, *(kept / 2 for kept in settings.ttl_days.values() if kept > 0)]
    where = Filter(
        kinds=("episodic", "semantic"),
        used_before=now - timedelta(days=min(limits)),
        pinned=False,
        manually_saved=False,
        compression_source=False,
        none_of=(transitions.EXPIRING,),
    )
    unused = await ctx.store.rows_where(scope, where)
    rows = sorted(unused)[:MAX_MEMORIES]
    vectors = await ctx.store.vectors(scope, rows, model=ctx.index.model)
    found = await ctx.store.at_rows(scope, list(vectors))
    row_of = {memory.id: row for row, memory in found.items()}
    memories = []
    for memory in in_order(found.values()):
        kept = settings.days_kept(memory)
        least = min(days, kept / 2) if kept else days
        is_unused = memory.last_used < now - timedelta(days=least)
        if is_unused and summarize.is_telling(memory.text):
            memories.append(memory)
    data = b"".join(vectors[row_of[memory.id]] for memory in memories)
    matrix = np.frombuffer(data, "<f4").reshape(-1, ctx.index.dimensions)
    done = SummaryReport(dry_run=dry_run)
    for topic in await asyncio.to_thread(find_topics, matrix):
        group = [memories[position] for position in topic]
        done = await _add_group(ctx, done, group, "archived")
    return done


def find_topics(vectors: Vectors) -> list[list[int]]:
    """Return the positions of each topic: the most similar vectors are joined first, then groups
    whose vectors are similar on average.

    >>> find_topics(np.asarray([[1, 0], [0, 1], [1, 0], [0.8, 0.6]], np.float32))
    [[0, 2, 3]]
    """
    count = len(vectors)
    cosines = products(vectors, vectors.T)
    np.fill_diagonal(cosines, APART)
    every = np.arange(count)
    groups = [[position] for position in range(count)]
    nearest = cosines.argmax(axis=1) if count else every
    while count:
        best = cosines[every, nearest]
        a = int(best.argmax())
        b = int(nearest[a])
        if best[a] < NEAR:
            break
        stale = (nearest == a) | (nearest == b)
        stale[[a, b]] = True
        size = len(groups[a])
        total = size + len(groups[b])
        if total > MOST:
            cosines[a, b] = cosines[b, a] = APART
        else:
            mean = (size * cosines[a] + (total - size) * cosines[b]) / total
            mean[(cosines[a] == APART) | (cosines[b] == APART)] = APART
            cosines[a] = cosines[:, a] = mean
            cosines[b] = cosines[:, b] = APART
            groups[a] += groups[b]
            groups[b] = []
        nearest[stale] = cosines[stale].argmax(axis=1)
    return sorted(sorted(group) for group in groups if len(group) >= FEWEST)


async def _add_group(
    ctx: Context,
    report: SummaryReport,
    memories: Sequence[Memory],
    state: State,
    session: str | None = None,
) -> SummaryReport:
    """Replace memories with a summary, unless it is a dry run; return the report with this group.

    They are left alone if one of them was changed since it was read, or if the summary was refused.
    """
    ids = [memory.id for memory in memories]
    done = replace(report, groups=report.groups + 1, memories=(*report.memories, *ids))
    if report.dry_run:
        return done
    summary = await _replace_by_summary(ctx, in_order(memories), state, session)
    if summary is None:
        return replace(report, left=report.left + 1)
    return replace(done, summaries=(*report.summaries, summary))


async def _replace_by_summary(
    ctx: Context,
    sources: Sequence[Memory],
    state: State,
    session: str | None,
) -> str | None:
    """Summarize memories with a model if possible, otherwise by rules, and set their state; return
    the id of the summary, or None if they were left alone.
    """
    ids = tuple(memory.id for memory in sources)
    turns = turns_of(sources)
    times = [memory.occurred_at for memory in sources if memory.occurred_at]
    importance = sum(memory.importance for memory in sources)
    draft = Draft(
        text="",
        kind="semantic",
        labels=Labels(role=ROLE),
        at=max(times, default=None),
        tags=tags_of(sources),
        source_ids=ids,
        evidence_ids=ids,
        importance=importance / len(sources),
        confidence=min(memory.confidence for memory in sources),
        source_session_id=session,
        compression_source=True,
    )
    meta = {"state": state, "reason": "summarized"}
    if ctx.llm is not None:
        try:
            as_episode = ctx.policy.episodes and session is not None
            ask = summarize.ask(turns, as_episode=as_episode)
            answer = await ctx.llm.answer(sources[0].scope, ask)
            text = str(answer["summary"])
            if as_episode:
                text = prompts.trim(text)
            why = summarize.find_fault(text, turns, as_episode=as_episode)
            if not why:
                by_model = replace(draft, text=normalize.one_line(text))
                summary = await _save(ctx, sources, by_model, meta | {"by": "model"})
                if summary is not None:
                    return summary
                why = "it was refused"  # by the guard
        except (ModelUnavailable, BadModelAnswer, OverBudget) as error:
            why = type(error).__name__
        meta["why"] = why
    labels = draft.labels if any(turn.speaker for turn in turns) else Labels()
    draft = replace(draft, text=summarize.extract(turns), labels=labels)
    return await _save(ctx, sources, draft, meta | {"by": "rules"})


async def _save(
    ctx: Context,
    sources: Sequence[Memory],
    draft: Draft,
    meta: Mapping[str, str],
) -> str | None:
    """Store a summary and set the state of its sources, in one transaction; return its id, or None
    if it was refused or a source was changed since it was read.
    """
    now = ctx.clock()
    scope = sources[0].scope
    why = f": {meta['why']}" if "why" in meta else ""
    category = f"summary by {meta['by']}{why}"
    event = Event(node="worker", op="merge", at=now, category=category)
    batch = await pipeline.prepare_derived(ctx, scope, [draft], ROLE, now)
    async with ctx.store.transaction(scope) as tx:
        unchanged = await get_unchanged(tx, sources)
        if not unchanged:
            return None
        (outcome,) = await pipeline.write(tx, batch)
        if outcome.status != "created":
            await tx.apply([replace(event, status="skipped")])
            return None
        summary = outcome.ids[0]
        changes: list[Change] = [replace(event, memory_id=summary)]
        for memory in unchanged:
            save = Save(
                memory=transitions.revise(memory, now, state=meta["state"]),
                event="updated",
                meta={**meta, "summary": summary},
            )
            changes.append(save)
        await tx.apply(changes)
    return summary


def turns_of(memories: Sequence[Memory]) -> list[Turn]:
    """Return the texts of memories as turns, with speakers unless all of them are the person's own
    words.
    """
    is_own = all(map(cues.is_persons, memories))
    turns = []
    for memory in memories:
        role = memory.labels.role or "user"
        name = memory.speaker or role
        if name == role and name.lower() in cues.ROLE_WORDS:
            name = f"The {name.lower()}"
        elif cues.poses(name) and not name.endswith(cues.A_NAME):
            name = f"{name}{cues.A_NAME}"
        turns.append(Turn(memory.text, "" if is_own else name))
    return turns


def in_order(memories: Iterable[Memory]) -> list[Memory]:
    """Return memories in the order in which they were said."""
    return sorted(
        memories,
        key=lambda memory: (
            memory.occurred_at or memory.created_at,
            memory.sequence or 0,
            memory.created_at,
            memory.id,
        ),
    )


def tags_of(memories: Sequence[Memory]) -> tuple[str, ...]:
    """Return the most common tags, most common first, apart from those that share a memory."""
    counts: Counter[str] = Counter()
    for memory in memories:
        counts.update(transitions.unshare(memory).tags)
    return tuple(dict(counts.most_common(MAX_TAGS)))
