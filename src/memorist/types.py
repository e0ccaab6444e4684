"""The values that everything else works with. Times are timezone-aware UTC."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeVar, dataclass_transform, get_args

Kind = Literal["episodic", "semantic", "procedural", "working", "insight"]
State = Literal["active", "compressed", "archived", "superseded", "soft_deleted"]
Status = Literal["created", "merged", "updated", "conflict", "pending", "skipped", "refused"]
HistoryEvent = Literal[
    "created", "updated", "merged", "deleted", "soft_deleted", "restored", "superseded", "linked"
]
Node = Literal["hotpath", "context", "episodic", "worker"]
Op = Literal[
    "classify",
    "search",
    "create",
    "update",
    "merge",
    "delete",
    "link",
    "ttl",
    "pin",
    "unpin",
    "enable",
    "disable",
    "incognito",
    "use",
    "embed",
]  # use: a recalled memory went into a reply (skipped: it did not)
KINDS: tuple[Kind, ...] = get_args(Kind)
NODES: tuple[Node, ...] = get_args(Node)
STATES: tuple[State, ...] = get_args(State)
GUILD = "__guild__"  # the user of a scope that belongs to a group: its facts name their subject
RELATED = "related_to"  # the type of a relation between memories that are about the same
CONTRADICTS = "contradicts"  # from a newer memory to the one it replaced, until it is decided
HISTORY_EVENTS = ("ADD", "UPDATE", "DELETE", "MERGE", "LINK", "TTL", "RESTORE")
ITEM_TYPES = ("fact", "preference", "project", "decision", "crumb", "request", "result")


T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a class a value: a dataclass that never changes, whose fields are given by name."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@frozen
class Scope:
    """The wall: what is remembered in one scope is never seen from another."""

    user: str
    space: str = "default"
    tenant: str = "default"


@dataclass(frozen=True, slots=True)
class Labels:
    """Finer marks inside a scope: they can be filtered by, and they bias; they are no wall."""

    session: str | None = None
    thread: str | None = None
    run: str | None = None
    channel: str | None = None
    agent: str | None = None
    actor: str | None = None
    subject: str | None = None
    role: str | None = None


@frozen
class Memory:
    """One remembered thing, as it stands now."""

    id: str  # UUIDv7
    scope: Scope
    text: str  # what was said; a change makes a new revision, never a new text in the old one
    kind: Kind
    created_at: datetime
    updated_at: datetime
    labels: Labels = Labels()
    summary: str | None = None  # at most 280 characters
    steps_text: str | None = None
    item_type: str | None = None
    fact_type: str | None = None
    category: str | None = None
    procedural_form: str | None = None  # preference · workflow
    tier: Literal["short", "long"] = "short"
    key: str | None = None  # the name under which a newer value replaces an older one
    importance: float = 0.0  # 0 forgettable … 1 vital
    base_importance: float = 0.0  # before repetition
    importance_parts: Mapping[str, float] = field(default_factory=dict)
    confidence: float = 1.0
    metadata_confidence: float = 0.0
    tags: tuple[str, ...] = ()
    source_ids: tuple[str, ...] = ()  # messages and outside references it rests on
    evidence: tuple[str, ...] = ()  # paths and URLs
    evidence_ids: tuple[str, ...] = ()  # memories it was derived from
    evidence_text: str | None = None  # the words themselves, where they differ from the text
    source_message_id: str | None = None
    source_session_id: str | None = None
    pinned: bool = False
    manually_saved: bool = False
    repeat_count: int = 0
    simhash: int = 0  # unsigned 64 bits
    content_hash: str = ""
    sequence: int | None = None  # place in the session
    speaker: str | None = None
    occurred_at: datetime | None = None  # when it happened or was said
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    last_accessed: datetime | None = None
    access_count: int = 0
    state: State = "active"
    compression_source: bool = False  # it is the summary of compressed memories
    superseded_by: str | None = None
    purge_at: datetime | None = None
    needs_embedding: bool = True
    last_scores: Mapping[str, Any] | None = None
    revision: int = 1

    @property
    def compressed(self) -> bool:
        return self.state == "compressed"

    @property
    def is_active(self) -> bool:
        return self.state == "active"

    @property
    def on_purpose(self) -> bool:
        """The person wants exactly this kept: it is never trimmed or expired."""
        return self.pinned or self.manually_saved

    @property
    def importance_level(self) -> int:
        """The same importance as a level from 1 to 5."""
        return min(5, max(1, math.ceil(round(5 * self.importance, 9))))


@frozen
class Message:
    """One thing that was said, by whom and when."""

    content: str
    id: str | None = None
    role: str = "user"
    name: str | None = None
    at: datetime | None = None
    session: str | None = None


@frozen
class Draft:
    """What a caller wants remembered, before it is cleaned, cut, scored and compared."""

    text: str
    id: str | None = None  # of the memory; if there are several chunks, of the first
    told_at: datetime | None = None  # when it was handed over, if that is not now
    labels: Labels = Labels()
    message_id: str | None = None
    speaker: str | None = None
    at: datetime | None = None
    kind: Kind | None = None
    item_type: str | None = None
    fact_type: str | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    source_ids: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    evidence_ids: tuple[str, ...] = ()
    evidence_text: str | None = None
    steps_text: str | None = None  # what makes a procedural memory a how-to, and not a preference
    importance: float | None = None
    confidence: float = 1.0
    pinned: bool = False
    manually_saved: bool = False
    source_session_id: str | None = None  # of a summary: the session
    compression_source: bool = False  # it is a summary of its evidence


@frozen
class Outcome:
    """What became of one draft."""

    status: Status
    ids: tuple[str, ...] = ()  # the memories that now hold it
    reason: str = ""
    message_id: str | None = None
    supersedes: str | None = None  # the older memory that a created one replaces


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of each draft, in the order they were given."""

    outcomes: tuple[Outcome, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """The memories that hold what was said, each once, in order."""
        return tuple(dict.fromkeys(id for outcome in self.outcomes for id in outcome.ids))

    def count(self, status: Status) -> int:
        return sum(outcome.status == status for outcome in self.outcomes)


@frozen
class Filter:
    """Which memories count. What is not given does not restrict; times are after ≤ t < before."""

    ids: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    states: tuple[str, ...] = ("active",)
    categories: tuple[str, ...] = ()
    item_types: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()  # any of them, in any case
    pinned: bool | None = None
    manually_saved: bool | None = None
    needs_embedding: bool | None = None
    importance_min: float | None = None
    importance_max: float | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    updated_after: datetime | None = None
    updated_before: datetime | None = None
    occurred_after: datetime | None = None
    occurred_before: datetime | None = None
    speaker: str | None = None
    source_id: str | None = None
    procedural_form: str | None = None
    content_hash: str | None = None
    versions_of: str | None = None  # earlier versions of that memory; they are superseded
    used_before: datetime | None = None  # not recalled or changed since
    purge_before: datetime | None = None  # hidden, and to be erased by then
    compression_source: bool | None = None
    derived_from: tuple[str, ...] = ()  # those that name one of these as evidence or source
    labels: Labels = Labels()

    @property
    def is_plain(self) -> bool:
        """Nothing but the state is asked for, so an index need not consult the store."""
        return self == Filter(states=self.states)


@frozen
class Query:
    """One question, with everything that decides its answer."""

    text: str
    scope: Scope
    limit: int
    budget: int | None = None  # tokens of the rendered text
    max_chars: int | None = None
    where: Filter = Filter()
    as_of: datetime | None = None  # what held then
    labels: Labels = Labels()  # where the question is asked: session and channel bias or restrict
    include_compressed: bool = False


@frozen
class Hit:
    """A memory that answers, and why: the parts add up to the score."""

    memory: Memory
    score: float
    parts: Mapping[str, float]
    relevance: float = 0.0  # the cosine, or the share of the best sparse score
    tokens: int = 0


@frozen
class Cut:
    """A memory that was considered and left out, and why."""

    id: str
    reason: str
    score: float = 0.0


@frozen
class Recall:
    """What a question returned."""

    query: Query
    profile: str
    hits: tuple[Hit, ...] = ()
    text: str = ""  # the block to put before the model
    tokens: int = 0  # of that block
    cut: tuple[Cut, ...] = ()
    revision: int | None = None  # of the thread, up to which the text tells what changed
    related: tuple[Memory, ...] = ()  # on the same topics as the hits; they are in the text, too
    legs: Mapping[str, str] = field(default_factory=dict)  # "ok", or why the leg was down

    @property
    def memories(self) -> tuple[Memory, ...]:
        return tuple(hit.memory for hit in self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    @property
    def degraded(self) -> bool:
        """A part that should have helped to answer was unavailable."""
        return any(state != "ok" for state in self.legs.values())

    def prompt(self) -> str:
        """The block to put before the model; empty if nothing was found."""
        return self.text

    def explain(self) -> str:
        """Why each memory came back, part by part, and why others did not."""
        lines = [
            f"{self.query.text!r} by {self.profile}: {len(self.hits)} hits, {self.tokens} tokens"
        ]
        lines += [f"  {leg}: {state}" for leg, state in self.legs.items() if state != "ok"]
        for rank, hit in enumerate(self.hits, 1):
            lines.append(f"{rank}. {hit.score:.4f}  {_brief(hit.memory.text)}")
            parts = " ".join(f"{value:+.4f} {name}" for name, value in hit.parts.items())
            lines.append(f"   = {parts}")
        lines += [f"-  {cut.score:.4f}  {cut.id}: {cut.reason}" for cut in self.cut]
        return "\n".join(lines)


@frozen
class Reason:
    """Where one memory stands for one question, whether it was returned or not."""

    id: str
    returned: bool
    reason: str
    rank: int | None = None
    score: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


@frozen
class Related:
    """A memory that is about the same as another one, and how near the two are."""

    memory: Memory
    strength: float  # their cosine when they were linked


@frozen
class Evidence:
    """What a memory rests on, as far as it can still be read."""

    memory: Memory
    messages: tuple[Message, ...] = ()
    memories: tuple[Memory, ...] = ()
    missing: tuple[str, ...] = ()  # references that point outside, or to what is gone


@frozen
class Conflict:
    """Two contradicting statements: the newer one stands until it is confirmed or rejected."""

    new: Memory
    old: Memory
    at: datetime

    @property
    def id(self) -> str:
        """The id of the newer memory."""
        return self.new.id


def _brief(text: str, width: int = 100) -> str:
    line = " ".join(text[: 2 * width].split())
    return line if len(line) <= width else line[: width - 1] + "…"


@dataclass(frozen=True, slots=True)
class Page:
    """Some memories, newest first, and where the next page begins."""

    memories: tuple[Memory, ...]
    cursor: str | None = None

    def __iter__(self) -> Iterator[Memory]:
        return iter(self.memories)

    def __len__(self) -> int:
        return len(self.memories)


Messages = Sequence[Message | Mapping[str, Any]]
