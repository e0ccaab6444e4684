"""What is kept beside memories, and what is told of what was done: history, queues, keys, figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .types import Memory, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the history."""

    id: str
    memory_id: str
    event: str  # ADD · UPDATE · DELETE · MERGE · LINK · TTL · RESTORE
    old_ref: str | None
    new_ref: str | None
    actor: str | None
    meta: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What was forgotten, or would be: its own ids, and those of what rests on it."""

    ids: tuple[str, ...] = ()  # what was asked for
    derived: tuple[
        str, ...
    ] = ()  # what rested on that alone, and earlier statements that it had replaced
    flagged: tuple[
        str, ...
    ] = ()  # what rests on other things too: it stays, marked; a summary is made anew
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """What was taken back, or would be."""

    operations: tuple[str, ...]  # newest first
    memories: tuple[Memory, ...]  # as they stand after it
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One change of a thread."""

    revision: int  # of the thread; each change has one of its own
    memory_id: str
    event: str  # created · updated · merged · deleted · soft_deleted · restored
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Updates:
    """What changed in a thread after a revision."""

    thread: str
    since: int
    revision: int  # up to which these tell: ask again from here
    changes: tuple[Logged, ...]
    text: str  # the header to put before the model; empty if there is nothing to tell
    more: int = 0  # changes that came after these


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How often a part did something on one day."""

    day: str  # 2026-11-16, UTC
    node: str
    op: str
    status: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """What a look at everybody's time limits found."""

    expired: tuple[str, ...] = ()  # put away for a while
    purged: tuple[str, ...] = ()  # erased

    def __add__(self, other: Purged) -> Purged:
        return Purged(expired=self.expired + other.expired, purged=self.purged + other.purged)


@dataclass(frozen=True, slots=True)
class Page:
    """Some memories, newest first, and where the next page begins."""

    memories: tuple[Memory, ...]
    cursor: str | None = None

    def __iter__(self) -> Iterator[Memory]:
        return iter(self.memories)

    def __len__(self) -> int:
        return len(self.memories)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A thread that has a checkpoint."""

    thread: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceSettings:
    """What the person has decided about remembering in a space."""

    memory_enabled: bool = True
    incognito_default: bool = False  # a session is incognito unless that was ended for it
    sharing: bool = (
        False  # the person's other spaces may recall what bears the tag `share:SPACE`, each its own
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A value for a field of the user context, and what the person said to it. Its value never changes."""

    id: str
    field: str
    value: str
    at: datetime
    lapses_at: datetime
    evidence: tuple[str, ...] = ()  # the memories it was inferred from
    decided: str | None = None  # approved · corroborated · told; None while it waits
    decided_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A question to a language model whose answer has a shape."""

    task: (
        str  # extract · same_fact · compose · summarise · reflect · steps: under this it is counted
    )
    system: str  # what the model is to do
    user: str  # what it is to do it with; never an order, whatever it says
    schema: Mapping[str, Any]  # of the answer, as JSON schema
    max_tokens: int  # of the answer
    temperature: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a language model said, as a value that fits the schema, and what it cost."""

    value: Mapping[str, Any]
    model: str
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Who somebody is who shows this key, and what they may do. Its secret is shown once and kept as a digest."""

    id: str
    name: str
    user: str
    created_at: datetime
    tenant: str = "default"
    space: str | None = None  # None: every space of the user
    agent: str | None = None  # as which it asks, where a category has an allowlist
    rights: tuple[str, ...] = ("read", "write")  # read · write · owner · admin
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_good(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What the language model cost somebody on one day."""

    scope: Scope
    day: str  # 2026-11-16, UTC
    task: str
    model: str
    calls: int
    tokens_in: int
    tokens_out: int
    reserved: int = 0  # tokens set aside for calls that are under way, or that never came back


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Work that somebody has claimed: it is theirs until the lease ends."""

    scope: Scope
    name: str
    key: str  # what it is about; empty for a duty that comes round again
    payload: Mapping[
        str, Any
    ]  # ids and numbers, never words: what is forgotten must not wait in a queue
    due_at: datetime
    attempts: int  # how often it was begun, this time included
    lease: str  # names this claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """How much of one kind of work waits."""

    name: str
    waiting: int  # due, and nobody is at it
    running: int  # somebody is at it
    failing: int  # it was begun before and did not come to its end
    oldest: datetime | None  # since when the oldest that waits is due
    set_aside: int = 0  # of the failing: begun too often, so it waits until somebody asks for it (`tend(retry=True)`)
    p95_seconds: float | None = (
        None  # of embedding: from being told to having a vector, of the last thousand
    )
    failure_rate: float | None = None  # of embedding: the share of batches that failed, of the same
