"""Which turns of a conversation facts are extracted from: a write queues them, a job reads them
later.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from ..storage.changes import Queue
from ..text import authority
from ..types import Draft, Outcome
from .policies import Policy

EXTRACT = "extract"  # name of the job


def queue(
    drafts: Sequence[Draft],
    outcomes: Sequence[Outcome],
    policy: Policy,
    written: Collection[str],
    now: datetime,
) -> Iterator[Queue]:
    """Yield a task for each turn of a person that is written now."""
    for draft, outcome in zip(drafts, outcomes, strict=True):
        is_new = outcome.status in ("created", "superseded") and outcome.ids[0] in written
        if is_new and is_turn(draft):
            payload = {"ids": list(outcome.ids), "policy": policy.name}
            yield Queue(name=EXTRACT, key=outcome.ids[0], due_at=now, payload=payload)


def is_turn(draft: Draft) -> bool:
    """Whether a person said it in a conversation; what an assistant or tool said, or a job derived,
    is no turn.
    """
    was_said = draft.labels.session is not None or draft.message_id not in (None, draft.id)
    return (
        was_said
        and authority.is_own_role(draft.labels.role)
        and draft.kind in (None, "episodic")
        and not (draft.evidence_ids or draft.compression_source)
    )
