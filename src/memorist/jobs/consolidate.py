"""Consolidation: memories that state the same fact in other words become one, some time after they
were stored.

Rules decide first. If a language model is configured, it is asked about the nearest pairs that are
left: several pairs per question, and once more about each pair that it takes for the same fact. Its
answer never overrides the values in the texts, nor a change that a person made in the meantime. A
pair it was asked about is left alone for two weeks, so an interrupted run continues where it
stopped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Literal, TypeVar

from ..context import Context
from ..embedders import encode
from ..errors import BadModelAnswer, ModelUnavailable, OverBudget, ProviderFailed
from ..ingest import links as relations
from ..ingest import validation
from ..ingest.policies import Bands, Policy
from ..ports import BudgetedModel
from ..storage import Change, Event, HistoryEntry, Save
from ..storage.tasks import Task
from ..text import compare, normalize, prompts
from ..text.contradictions import contradicts
from ..text.prompts import Prompt
from ..types import Memory, Scope
from . import DAILY, finish, get_unchanged
from . import consolidate_pairs as pairs
from .consolidate_pairs import Pair

T = TypeVar("T")
ASK_AGAIN = timedelta(days=14)  # until the model is asked about a pair once more
MAX_PER_MEMORY = 5  # pairs of one memory that it is asked about
BATCH = 10  # pairs in one question
MAX_CHARS = 500  # of a text that it is asked about


async def run(ctx: Context, task: Task) -> int:
    """Join memories that state the same fact; return the number of joined pairs."""
    policy = validation.policy(ctx.policies, ctx.settings.policy)
    assert policy.bands is not None
    run = _Run(ctx, task.scope, policy, policy.bands, ctx.clock())
    changes: list[Change] = []
    undecided = await run.join_by_rules()
    if ctx.llm is not None:
        try:
            await run.join_by_model(ctx.llm, undecided)
        except (ModelUnavailable, OverBudget) as error:
            changes.append(model_failure(error, run.now))
    await finish(ctx, task, DAILY, changes)
    return run.count


@dataclass
class _Run:
    """One run in one scope."""

    ctx: Context
    scope: Scope
    policy: Policy
    bands: Bands
    now: datetime
    known: dict[str, Memory] = field(default_factory=dict)  # by id, as this run last saw them
    count: int = 0  # of joined pairs

    async def join_by_rules(self) -> list[Pair]:
        """Join what rules find to be the same; return the other pairs, nearest first."""
        left: list[Pair] = []
        near = await pairs.find_near(self.ctx, self.scope, self.bands, self.now)
        rows = {row for a, b, _ in near for row in (a, b)}
        read = await self.ctx.store.at_rows(self.scope, sorted(rows))
        self.known = {memory.id: memory for memory in read.values()}
        for a, b, cosine in near:
            if a not in read or b not in read:  # erased in the meantime
                continue
            pair = self.current(Pair(old=read[a], new=read[b], cosine=cosine))
            if pair is None:
                continue
            if not await asyncio.to_thread(pairs.is_same, pair, self.bands):
                left.append(pair)
            elif not await self.was_undone(pair):
                await self.write(pair, pairs.merge(pair, self.now))
        return left

    async def join_by_model(self, model: BudgetedModel, left: Sequence[Pair]) -> None:
        """Ask about the pairs for which an answer can matter: nearest first, a few of each memory.

        Raises ModelUnavailable, OverBudget.
        """
        store = self.ctx.store
        asked = await store.compared_since(self.scope, self.now - ASK_AGAIN)
        today = await store.compared_since(self.scope, self.now - DAILY)
        most = self.ctx.settings.consolidate_pairs - len(today)
        chosen: list[Pair] = []
        counts: Counter[str] = Counter()
        for each in left:
            if len(chosen) >= most:
                break
            pair = self.current(each)
            if pair is None or pair.fingerprint in asked:
                continue
            ids = (pair.old.id, pair.new.id)
            is_frequent = max(counts[id] for id in ids) >= MAX_PER_MEMORY
            if not is_frequent and await asyncio.to_thread(self.matters, pair):
                counts.update(ids)
                chosen.append(pair)
        for batch in batches(chosen):
            try:
                await self.ask(model, batch)
            except BadModelAnswer:
                await self.write(None, compared=batch)

    def matters(self, pair: Pair) -> bool:
        """Whether anything can follow from the model's answer."""
        old, new = pair.statements
        is_long = max(len(old.text), len(new.text)) > MAX_CHARS
        if is_long or pairs.choose(pair) is None or not compare.overlaps(old, new):
            return False
        if compare.may_be_same(old, new):
            return not compare.is_contrast(old, new, near=pair.cosine >= self.bands.auto_update)
        return self.policy.conflicts and pair.is_automatic and contradicts(new, old)

    async def ask(self, model: BudgetedModel, batch: Sequence[Pair]) -> None:
        answers = verdicts(await model.answer(self.scope, question(batch)), len(batch))
        rejected = [pair for n, pair in enumerate(batch) if answers.get(n) is False]
        await self.write(None, compared=rejected)
        for n, pair in enumerate(batch):
            if not answers.get(n) or self.current(pair) != pair:  # or joined a moment ago
                continue
            changes: Sequence[Change] = ()
            answer = await model.answer(self.scope, prompts.build("same_fact", pair.texts))
            if answer["same_fact"] is True and not await self.was_undone(pair):
                changes = await self.join(model, pair)
            await self.write(pair, changes, compared=[pair])

    async def join(self, model: BudgetedModel, pair: Pair) -> Sequence[Change]:
        """Return what follows from the model's answer that both state the same fact, as far as it
        can be trusted.
        """
        embedder = self.ctx.embedder
        old, new = pair.statements
        if not compare.may_be_same(new, old):
            return pairs.supersede(pair, self.now)
        if self.policy.merge == "update" or not pair.is_automatic:
            return pairs.merge(pair, self.now)
        text = compare.pick_containing(new, old)
        if not text:
            with suppress(ModelUnavailable, BadModelAnswer, OverBudget):
                answer = await model.answer(self.scope, prompts.build("compose", pair.texts))
                text = normalize.clean(str(answer["text"]))
            if not text or not compare.is_grounded(text, old, new):
                text = compare.join(old, new)
        wording = normalize.wording(text)
        is_forgotten = await self.ctx.store.tombstones(self.scope, [wording], self.now)
        if text in (old.text, new.text) or is_forgotten:
            return pairs.merge(pair, self.now)
        if embedder is not None:
            with suppress(ProviderFailed):  # then the vector is made later
                (vector,) = await encode(embedder, [text])
                return pairs.recreate(pair, text, self.now, vector, embedder.model)
        return pairs.recreate(pair, text, self.now)

    async def was_undone(self, pair: Pair) -> bool:
        """Whether a change of one of them was undone: then people decide."""
        entries: list[HistoryEntry] = []
        for memory in (pair.old, pair.new):
            entries += await self.ctx.store.history.entries(self.scope, memory.id)
        return any("undoes" in entry.meta for entry in entries)

    async def write(
        self,
        pair: Pair | None,
        changes: Sequence[Change] = (),
        *,
        compared: Sequence[Pair] = (),
    ) -> None:
        """Apply changes in one transaction, unless the pair was changed since it was read."""
        if not changes and not compared:
            return
        scope = self.scope
        links = self.policy.links
        saves = [change for change in changes if isinstance(change, Save)]
        async with self.ctx.store.transaction(scope) as tx:
            if pair is not None and not await get_unchanged(tx, (pair.old, pair.new)):
                return
            snapshot = await self.ctx.index.current(scope, tx)
            await tx.apply(changes)
            await tx.record_comparisons([each.fingerprint for each in compared], self.now)
            if links is not None and any(save.event == "created" for save in saves):
                await relations.link(tx, snapshot, saves, links, self.now)
        self.known |= {save.memory.id: save.memory for save in saves}
        self.count += bool(saves)

    def current(self, pair: Pair) -> Pair | None:
        """Return the pair as this run left it; None if it is no pair any more."""
        return pairs.make_pair(self.known[pair.old.id], self.known[pair.new.id], pair.cosine)


def model_failure(error: Exception, now: datetime) -> Event:
    """Return the event for a language model that failed or whose budget is used up."""
    status: Literal["skipped", "error"] = "skipped" if isinstance(error, OverBudget) else "error"
    return Event(
        node="worker",
        op="classify",
        at=now,
        status=status,
    )


def batches(chosen: Sequence[T]) -> list[Sequence[T]]:
    """Split into groups of five to ten, in order; a smaller group only if there are no more."""
    count = -(-len(chosen) // BATCH)
    edges = [n * len(chosen) // count for n in range(count + 1)] if count else []
    return [chosen[start:end] for start, end in pairwise(edges)]


def question(batch: Sequence[Pair]) -> Prompt:
    """Return the question which of several pairs state the same fact."""
    notes = [{"pair": n} | pair.texts for n, pair in enumerate(batch, 1)]
    return prompts.build("same_facts", notes)


def verdicts(answer: Mapping[str, Any], count: int) -> dict[int, bool]:
    """Return the answer for each pair by its index, without pairs that were not asked about;
    contradictions mean no.

    >>> given = [(1, True), (2, True), (2, False), (9, True)]
    >>> verdicts({"verdicts": [{"pair": n, "same_fact": same} for n, same in given]}, 3)
    {0: True, 1: False}
    """
    found: dict[int, bool] = {}
    for each in answer["verdicts"]:
        index = each["pair"] - 1
        if 0 <= index < count:
            found[index] = found.get(index, True) and each["same_fact"] is True
    return found
