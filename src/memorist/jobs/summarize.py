"""Replace several memories with one summary that lists them as its evidence; they are kept,
compressed or archived.

`compress` summarizes the oldest sessions of a scope; `rollup` chooses topics in the same way. A
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

import numpy as np

from ..context import Context, Place
from ..errors import BadModelAnswer, ModelUnavailable, OverBudget
from ..index import Snapshot
from ..ingest import pipeline, transitions, validation
from ..manage import edit
from ..ports import Vectors
from ..retrieve.render import LONG
from ..storage import Change, Event, Save
from ..storage.tasks import Task
from ..storage.transaction import Transaction
from ..text import cues, normalize, prompts, summarize
from ..text.clock import new_id
from ..text.grounding import Turn
from ..types import KINDS, STATES, Draft, Filter, Labels, Memory, Outcome, State, frozen
from . import DAILY, finish, get_unchanged

ROLE = "summary"  # of a text that does not quote one speaker
MAX_TAGS = 12
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
            done = await add_group(ctx, done, turns, "compressed", session)
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


async def add_group(
    ctx: Context,
    report: SummaryReport,
    memories: Sequence[Memory],
    state: State,
    session: str | None = None,
    known: Memory | None = None,
) -> SummaryReport:
    """Replace memories with a summary, unless it is a dry run; return the report with this group.

    With a known summary they are added to it. They are left alone if one of them was changed since
    it was read, or if the summary was refused.
    """
    ids = [memory.id for memory in memories]
    done = replace(report, groups=report.groups + 1, memories=(*report.memories, *ids))
    if report.dry_run:
        return done
    summary = await _replace_by_summary(ctx, in_order(memories), state, session, known)
    if summary is None:
        return replace(report, left=report.left + 1)
    return replace(done, summaries=(*report.summaries, summary))


async def _replace_by_summary(
    ctx: Context,
    sources: Sequence[Memory],
    state: State,
    session: str | None,
    known: Memory | None,
) -> str | None:
    """Summarize memories with a model if possible, otherwise by rules, and set their state; return
    the id of the summary, or None if they were left alone.
    """
    ids = tuple(memory.id for memory in sources)
    earlier = [known] if known is not None else []
    turns = turns_of([*earlier, *sources])
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
                summary = await _save(ctx, sources, by_model, meta | {"by": "model"}, known)
                if summary is not None:
                    return summary
                why = "it was refused"  # by the guard
        except (ModelUnavailable, BadModelAnswer, OverBudget) as error:
            why = type(error).__name__
        meta["why"] = why
    labels = draft.labels if any(turn.speaker for turn in turns) else Labels()
    draft = replace(draft, text=summarize.extract(turns), labels=labels)
    return await _save(ctx, sources, draft, meta | {"by": "rules"}, known)


async def _save(
    ctx: Context,
    sources: Sequence[Memory],
    draft: Draft,
    meta: Mapping[str, str],
    known: Memory | None,
) -> str | None:
    """Store a summary, as a new revision of a known one, and set the state of its sources, in one
    transaction; return its id, or None if it was refused or a memory was changed since it was read.
    """
    now = ctx.clock()
    scope = sources[0].scope
    why = f": {meta['why']}" if "why" in meta else ""
    category = f"summary by {meta['by']}{why}"
    event = Event(node="worker", op="merge", at=now, category=category)
    batch = await pipeline.prepare_derived(ctx, scope, [draft], ROLE, now)
    read = [*sources]
    vectors: dict[str, Vectors] = {}
    if known is not None:
        read.append(known)
        vectors = await edit.encode(ctx, [known.text, draft.text])
    async with ctx.store.transaction(scope) as tx:
        unchanged = await get_unchanged(tx, read)
        if not unchanged:
            return None
        (item,) = batch.items
        if known is None or item.outcome is not None:
            (outcome,) = await pipeline.write(tx, batch)
        else:
            outcome = await _extend(ctx, tx, known, item.draft, vectors)
        if outcome.status not in ("created", "updated"):
            await tx.apply([replace(event, status="skipped")])
            return None
        summary = outcome.ids[0]
        changes: list[Change] = [replace(event, memory_id=summary)]
        for memory in unchanged:
            if memory.id == summary:
                continue
            save = Save(
                memory=transitions.revise(memory, now, state=meta["state"]),
                event="updated",
                meta={**meta, "summary": summary},
            )
            changes.append(save)
        await tx.apply(changes)
    return summary


async def _extend(
    ctx: Context,
    tx: Transaction,
    known: Memory,
    draft: Draft,
    vectors: Mapping[str, Vectors],
) -> Outcome:
    """Give a known summary the text of a draft, and its sources in addition, and keep its earlier
    version.
    """
    now = ctx.clock()
    model = ctx.index.model
    before = transitions.earlier_version(known, now, id=new_id())
    fields = transitions.join(known, draft)
    fields["confidence"] = min(known.confidence, draft.confidence)
    fields["labels"] = known.labels if known.labels.role else draft.labels
    new = edit.reword(transitions.revise(known, now, **fields), draft.text, summary=None)
    about = {"old_ref": before.id, "meta": {"reason": "more was said about its topic"}}
    put = edit.to_save(new, vectors, model, "updated", **about)
    await tx.apply([edit.to_save(before, vectors, model, None), put])
    return Outcome(status="updated", ids=(known.id,))


def turns_of(memories: Sequence[Memory]) -> list[Turn]:
    """Return the texts of memories as turns, with speakers unless all of them are the person's own
    words. What was extracted from another of them, or from what a summary has, is left out.
    """
    is_own = all(map(cues.is_persons, memories))
    told = {memory.id for memory in memories}
    for memory in memories:
        if memory.compression_source:
            told.update(memory.evidence_ids)
    turns = []
    for memory in memories:
        if memory.compression_source:
            turns.append(Turn(memory.text))
            continue
        if not told.isdisjoint(memory.evidence_ids):
            continue
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
