"""Consolidation: merge memories that state the same fact in different words, some time after they
were stored.

Rules decide first. If a language model is configured, it is asked about the nearest remaining
pairs: several pairs per question, then again about each pair that it considers the same fact. Its
answer never overrides the values in the texts or a change that a person made during the run. A pair
that the model was asked about is skipped for two weeks, so an interrupted run continues where it
stopped.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from ..context import Context
from ..errors import BadModelAnswer, ModelUnavailable, OverBudget
from ..ingest import known_changes
from ..ingest import links as relations
from ..ingest.policies import Bands, Policy
from ..manage import edit
from ..ports import BudgetedModel
from ..storage import Change, Event, Save
from ..storage.tasks import Task
from ..text import compare, normalize, prompts
from ..text.contradictions import contradicts
from ..types import Memory, Scope
from . import DAILY, finish, get_unchanged
from . import consolidate_pairs as pairs
from .consolidate_pairs import Pair

T = TypeVar("T")
ASK_AGAIN = timedelta(days=14)  # before the model is asked about the same pair again
MAX_PER_MEMORY = 5  # pairs of one memory that the model is asked about
BATCH = 10  # pairs in one question
MAX_CHARS = 500  # of a text in a question


async def run(ctx: Context, task: Task) -> int:
    """Merge memories that state the same fact; return the number of merged pairs."""
    policy = ctx.policy
    assert policy.bands is not None
    run = _Run(ctx, task.scope, policy, policy.bands, ctx.clock())
    changes = []
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
    count: int = 0  # of merged pairs

    async def join_by_rules(self) -> list[Pair]:
        """Merge the pairs that are the same fact by rules; return the others, nearest first."""
        undecided = []
        rows = set()
        near = await pairs.find_near(self.ctx, self.scope, self.bands, self.now)
        for a, b, _ in near:
            rows |= {a, b}
        read = await self.ctx.store.at_rows(self.scope, sorted(rows))
        for memory in read.values():
            self.known[memory.id] = memory
        for a, b, cosine in near:
            old = read.get(a)
            new = read.get(b)
            if old is None or new is None:  # erased since the vectors were compared
                continue
            pair = self.current(Pair(old=old, new=new, cosine=cosine))
            if pair is None:
                continue
            is_same = await asyncio.to_thread(pairs.is_same, pair, self.bands)
            if not is_same:
                undecided.append(pair)
            elif not await self.was_undone(pair):
                await self.write(pair, pairs.merge(pair, self.now))
        return undecided

    async def join_by_model(self, model: BudgetedModel, undecided: Sequence[Pair]) -> None:
        """Ask about the pairs for which an answer can matter: nearest first, a few of each memory,
        and of each person, in all spaces, no more a day than the settings allow.

        Raises ModelUnavailable, OverBudget.
        """
        store = self.ctx.store
        asked = await store.compared_since(self.scope, self.now - ASK_AGAIN)
        most = await self.count_left()
        chosen: list[Pair] = []
        counts: Counter[str] = Counter()
        for each in undecided:
            if len(chosen) >= most:
                break
            pair = self.current(each)
            if pair is None or pair.fingerprint in asked or pair.cosine >= self.bands.ask_below:
                continue
            ids = pair.old.id, pair.new.id
            if max(counts[id] for id in ids) >= MAX_PER_MEMORY:
                continue
            if await asyncio.to_thread(self.matters, pair):
                counts.update(ids)
                chosen.append(pair)
        for batch in batches(chosen):
            left = await self.count_left()  # another space may have been consolidated meanwhile
            if left <= 0:
                break
            allowed = batch[:left]
            try:
                await self.ask(model, allowed)
            except BadModelAnswer:
                await self.write(None, compared=allowed)

    async def count_left(self) -> int:
        """Return how many pairs of this person's memories the model may still be asked about."""
        today = await self.ctx.store.count_compared(self.scope, self.now - DAILY)
        return self.ctx.settings.consolidate_pairs - today

    def matters(self, pair: Pair) -> bool:
        """Return whether the model's answer could lead to a change."""
        old, new = pair.statements
        longest = max(len(old.text), len(new.text))
        if longest > MAX_CHARS or pairs.choose(pair) is None:
            return False
        if not compare.overlaps(old, new):
            return False
        if compare.may_be_same(old, new):
            is_near = pair.cosine >= self.bands.auto_update
            return not compare.is_contrast(old, new, near=is_near)
        return self.policy.conflicts and pair.is_automatic and contradicts(new, old)

    async def ask(self, model: BudgetedModel, batch: Sequence[Pair]) -> None:
        """Ask about a batch of pairs, then again about each pair that was affirmed."""
        notes = [{"pair": n} | pair.texts for n, pair in enumerate(batch, 1)]
        answer = await model.answer(self.scope, prompts.build("same_facts", notes))
        found = verdicts(answer, len(batch))
        rejected = [batch[index] for index in sorted(found) if not found[index]]
        await self.write(None, compared=rejected)
        for index in sorted(found):
            pair = batch[index]
            if not found[index] or self.current(pair) != pair:  # merged a moment ago
                continue
            changes: Sequence[Change] = ()
            prompt = prompts.build("same_fact", pair.texts)
            answer = await model.answer(self.scope, prompt)
            if answer["same_fact"] is True and not await self.was_undone(pair):
                changes = await self.join(model, pair)
            await self.write(pair, changes, compared=[pair])

    async def join(self, model: BudgetedModel, pair: Pair) -> Sequence[Change]:
        """Return the changes for a pair that the model considers the same fact, limited to what the
        texts support.
        """
        old, new = pair.statements
        if not compare.may_be_same(new, old):
            return [] if await self.is_known(pair) else pairs.supersede(pair, self.now)
        if self.policy.merge == "update" or not pair.is_automatic:
            return pairs.merge(pair, self.now)
        text = compare.pick_containing(new, old)
        if not text:
            prompt = prompts.build("compose", pair.texts)
            with suppress(ModelUnavailable, BadModelAnswer, OverBudget):
                answer = await model.answer(self.scope, prompt)
                text = normalize.clean(str(answer["text"]))
            if not text or not compare.is_grounded(text, old, new):
                text = compare.join(old, new)
        is_forgotten = await self.ctx.store.tombstones(self.scope, [text], self.now)
        if text in (old.text, new.text) or is_forgotten:
            return pairs.merge(pair, self.now)
        vectors = await edit.encode(self.ctx, [text])
        return pairs.recreate(pair, text, self.now, vectors, self.ctx.index.model)

    async def is_known(self, pair: Pair) -> bool:
        """Return whether the change is known, or was decided, between the two or their turns."""
        ids = [(memory.id, *memory.evidence_ids) for memory in (pair.new, pair.old)]
        changes = await known_changes.load(self.ctx.store, self.scope, ids[0])
        return known_changes.find_change(changes, *ids) is not None

    async def was_undone(self, pair: Pair) -> bool:
        """Return whether a change to either memory was undone; then they are not merged."""
        history = self.ctx.store.history
        for memory in (pair.old, pair.new):
            entries = await history.entries(self.scope, memory.id)
            if any("undoes" in entry.meta for entry in entries):
                return True
        return False

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
        links = self.policy.links
        fingerprints = [each.fingerprint for each in compared]
        saves = [change for change in changes if isinstance(change, Save)]
        async with self.ctx.store.transaction(self.scope) as tx:
            if pair is not None and not await get_unchanged(tx, (pair.old, pair.new)):
                return
            snapshot = await self.ctx.index.current(self.scope, tx)
            await tx.apply(changes)
            await tx.record_comparisons(fingerprints, self.now)
            if links is not None and any(save.event == "created" for save in saves):
                await relations.link(tx, snapshot, saves, links, self.now)
        for save in saves:
            self.known[save.memory.id] = save.memory
        self.count += bool(saves)

    def current(self, pair: Pair) -> Pair | None:
        """Return the pair as this run left it; None if the two are no longer a pair."""
        old = self.known[pair.old.id]
        new = self.known[pair.new.id]
        return pairs.make_pair(old, new, pair.cosine)


def model_failure(error: Exception, now: datetime) -> Event:
    """Return the event for a language model that failed or whose budget is used up."""
    is_over_budget = isinstance(error, OverBudget)
    return Event(
        node="worker",
        op="classify",
        at=now,
        status="skipped" if is_over_budget else "error",
    )


def batches(chosen: Sequence[T]) -> list[Sequence[T]]:
    """Split into groups of five to ten, in order; a smaller group only if there are no more."""
    groups = []
    count = -(-len(chosen) // BATCH)
    start = 0
    for number in range(1, count + 1):
        end = number * len(chosen) // count
        groups.append(chosen[start:end])
        start = end
    return groups


def verdicts(answer: Mapping[str, Any], count: int) -> dict[int, bool]:
    """Return the answer for each pair by its index. Pairs that were not asked about are left out;
    contradictory answers mean no.

    >>> given = [(1, True), (2, True), (2, False), (9, True)]
    >>> verdicts({"verdicts": [{"pair": n, "same_fact": same} for n, same in given]}, 3)
    {0: True, 1: False}
    """
    found: dict[int, bool] = {}
    for each in answer["verdicts"]:
        index = each["pair"] - 1
        is_same = each["same_fact"] is True
        if 0 <= index < count:
            found[index] = found.get(index, True) and is_same
    return found
