"""What a transaction is asked to do, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from ..results import Entry, Proposal, Task
from ..types import Draft, Event, Memory, Message, Node, Op, Outcome, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Keep this memory as it now stands, new or changed."""

    memory: Memory
    event: Event | None  # None: it is kept, but nothing happened to it (an earlier version)
    vector: Any = None  # float32, of the model the store was opened for
    model: str | None = None
    old_ref: str | None = None  # where the version before this one is kept
    actor: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message, and what became of it: asked again, the answer is the same."""

    id: str
    message: Message
    outcome: Outcome
    digest: str  # of the content; the store keeps only a keyed digest of it
    keep_text: bool  # the memories do not hold it word for word


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Remove a memory's content everywhere; leave a digest that stops automatic re-creation until `until`."""

    memory_id: str
    at: datetime
    until: datetime | None
    reason: str = ""
    actor: str | None = None
    purged: bool = False  # its time was up: nobody asked for it, so it leaves no digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Bury:
    """Leave a digest of these texts that stops automatic re-creation until `until`, or for ever."""

    texts: tuple[str, ...]
    until: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """The vector of a memory, made after the memory was kept."""

    memory_id: str
    model: str
    vector: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """A memory was recalled: no new revision, no history."""

    memory_id: str
    at: datetime
    scores: Mapping[str, Any]
    accessed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A long-term record made from memories: a profile of the person, or of a project."""

    id: str
    record_type: Literal["user_profile", "project_memory"]
    name: str
    data: Mapping[str, Any]
    evidence_ids: tuple[str, ...]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """One memory stands in a relation to another."""

    from_id: str
    to_id: str
    type: str
    at: datetime
    strength: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrelated:
    """A relation ends."""

    from_id: str
    to_id: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting of the space from now on."""

    name: str
    value: bool
    at: datetime
    actor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incognito:
    """Whether a session leaves no trace from now on. The store keeps only a keyed digest of its name."""

    session: str
    is_on: bool
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A proposal as it now stands: it waits, is in force, or is gone with its words; the history says which."""

    proposal: Proposal
    decision: (
        str  # proposed · supported · approved · corroborated · told · denied · lapsed · withdrawn
    )
    at: datetime
    actor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """One line about what a part did: enough to count it and to see when, never what was said."""

    node: Node
    op: Op
    at: datetime
    status: Literal["ok", "error", "skipped"] = "ok"
    thread: str | None = None
    memory_id: str | None = None
    category: str | None = None
    sim: float | None = None  # how near the nearest memory was


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """The changes of a thread were told up to a revision."""

    thread: str
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Work to be done in this scope at some time. If the same waits already, the earlier time counts."""

    name: str
    due_at: datetime
    key: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Claimed work is done with this transaction: over, or due again."""

    task: Task
    again_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A model was asked about two memories, which are left alone for a while; `a` is the smaller id."""

    a: str
    b: str
    score: float  # their cosine, rounded to two places
    at: datetime


Change = (
    Put
    | Said
    | Forget
    | Bury
    | Embedded
    | Used
    | Summary
    | Relation
    | Unrelated
    | Setting
    | Incognito
    | Decided
    | Happened
    | Shown
    | Entry
    | Queue
    | Done
    | Checked
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What was told while the store was away, waiting to be handed over to it."""

    scope: Scope
    what: Draft | Summary  # a summary holds what is to be added to the newest record of its name
    policy: str = "default"  # of a draft

    @property
    def id(self) -> str:
        return self.what.id or ""
