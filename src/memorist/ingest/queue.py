"""The queue of turns from which facts are to be extracted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from ..context import Context
from ..storage import tasks
from ..storage.transaction import Transaction
from ..text import authority
from .batch import Batch
from .guard import Item
from .policies import Policy

EXTRACT = "extract"  # the job that extracts facts from turns
TOGETHER = 32  # turns that one task processes


def find_turns(items: Iterable[Item], batch: Batch) -> Iterator[tuple[str, ...]]:
    """Yield the ids of the chunks of each turn of a person that was created in a batch."""
    for item in items:
        draft = item.draft
        outcome = item.outcome
        was_said = draft.labels.session is not None or draft.message_id not in (None, draft.id)
        is_derived = draft.evidence_ids or draft.compression_source
        if not was_said or is_derived or draft.kind not in (None, "episodic"):
            continue
        if outcome is None or outcome.status != "created" or outcome.ids[0] not in batch.puts:
            continue
        if authority.is_own_role(draft.labels.role):
            yield outcome.ids


async def add(
    tx: Transaction,
    turns: Iterable[Sequence[str]],
    ctx: Context,
    policy: Policy,
    now: datetime,
) -> None:
    """Queue turns, each given by the ids of its chunks."""
    waiting = list(turns)
    # A model is asked about one turn at a time, and what it finds is stored at once.
    size = 1 if ctx.settings.extract == "model" else TOGETHER
    for start in range(0, len(waiting), size):
        task = make_task(waiting[start : start + size], policy, now)
        await tasks.add(tx, task)


def make_task(turns: Sequence[Sequence[str]], policy: Policy, now: datetime) -> tasks.NewTask:
    """Return the task to extract facts from some turns."""
    payload = {"turns": turns, "policy": policy.name}
    return tasks.NewTask(name=EXTRACT, key=turns[0][0], due_at=now, payload=payload)
