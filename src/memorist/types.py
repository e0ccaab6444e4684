"""The values that all parts of the package share. Times are timezone-aware and in UTC."""

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
ChangeOp = Literal["create", "update", "merge", "delete", "link", "ttl", "pin", "unpin"]
Op = Literal[ChangeOp, "classify", "search", "enable", "disable", "incognito", "use", "embed"]
KINDS: tuple[Kind, ...] = get_args(Kind)
NODES: tuple[Node, ...] = get_args(Node)
STATES: tuple[State, ...] = get_args(State)
GUILD = "__guild__"  # user of a scope that belongs to a group, whose facts name their subject
RELATED = "related_to"  # type of a relation between memories about the same topic
REPLACES = "replaces"  # from a turn to an earlier statement that it makes outdated
CONTRADICTS = "contradicts"  # from a newer memory to the one it replaced, until resolved
HISTORY_EVENTS = ("ADD", "UPDATE", "DELETE", "MERGE", "LINK", "TTL", "RESTORE")
ITEM_TYPES = ("fact", "preference", "project", "decision", "crumb", "request", "result")
NO_ANSWER = "No stored memory answers this question."  # what an empty answer says
NEAREST = 3  # memories that an explanation of an empty answer lists
T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Turn a class into an immutable dataclass with keyword-only fields."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@frozen
class Scope:
    """An isolated set of memories: nothing stored in one scope is visible from another."""

    user: str
    space: str = "default"
    tenant: str = "default"


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels inside a scope. They can be filtered by and affect ranking, but do not isolate."""

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
    """A stored memory in its current revision."""

    id: str  # UUIDv7
    scope: Scope
    text: str  # as it was said; an edit creates a new revision
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
    source_ids: tuple[str, ...] = ()  # messages and external references it is based on
    evidence: tuple[str, ...] = ()  # paths and URLs
    evidence_ids: tuple[str, ...] = ()  # memories it was derived from
    evidence_text: str | None = None  # the original wording, where it differs from the text
    source_message_id: str | None = None
    source_session_id: str | None = None
    pinned: bool = False
    manually_saved: bool = False
    repeat_count: int = 0
    simhash: int = 0  # unsigned 64 bits
    content_hash: str = ""
    sequence: int | None = None  # position in the session
    speaker: str | None = None
    occurred_at: datetime | None = None  # when it happened or was said
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    last_accessed: datetime | None = None
    access_count: int = 0
    state: State = "active"
    compression_source: bool = False  # it is a summary of compressed memories
    superseded_by: str | None = None
    purge_at: datetime | None = None
    needs_embedding: bool = True
    last_scores: Mapping[str, Any] | None = None
    revision: int = 1
    metadata: Mapping[str, Any] = field(default_factory=dict)  # JSON of the caller's own
    expires_at: datetime | None = None  # not recalled from then on, and erased by the next purge

    @property
    def compressed(self) -> bool:
        return self.state == "compressed"

    @property
    def is_active(self) -> bool:
        return self.state == "active"

    @property
    def on_purpose(self) -> bool:
        """Whether the person pinned or saved it: such a memory is never trimmed and never expires."""
        return self.pinned or self.manually_saved

    @property
    def last_used(self) -> datetime:
        return max(self.updated_at, self.last_accessed or self.updated_at)

    @property
    def importance_level(self) -> int:
        """The importance as a level from 1 to 5."""
        return min(5, max(1, math.ceil(round(5 * self.importance, 9))))


FAKE_ID = "__fake_id__"  # OpenAI Agents gives it to every item of some models: it is none


@frozen
class Message:
    """One message of a conversation: what was said, by whom and when."""

    content: str
    id: str | None = None
    role: str = "user"
    name: str | None = None
    at: datetime | None = None
    session: str | None = None


@frozen
class Draft:
    """A text to store, before it is cleaned, chunked, scored and compared."""

    text: str
    id: str | None = None  # of the memory, or of the first chunk if there are several
    told_at: datetime | None = None  # when it was submitted, if not now
    labels: Labels = Labels()
    message_id: str | None = None
    speaker: str | None = None
    at: datetime | None = None
    valid_to: datetime | None = None  # when it ended, if it is outdated already
    kind: Kind | None = None
    item_type: str | None = None
    fact_type: str | None = None
    category: str | None = None
    tags: tuple[str, ...] = ()
    source_ids: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    evidence_ids: tuple[str, ...] = ()
    evidence_text: str | None = None
    steps_text: str | None = None  # makes a procedural memory a workflow instead of a preference
    importance: float | None = None
    confidence: float = 1.0
    pinned: bool = False
    manually_saved: bool = False
    source_session_id: str | None = None  # of a summary: the session
    compression_source: bool = False  # it is a summary of its evidence
    metadata: Mapping[str, Any] = field(default_factory=dict)
    expires_at: datetime | None = None


@frozen
class Outcome:
    """The outcome of one draft."""

    status: Status
    ids: tuple[str, ...] = ()  # the memories that now hold it
    reason: str = ""
    message_id: str | None = None
    supersedes: str | None = None  # the older memory that a created one replaces


@dataclass(frozen=True, slots=True)
class Receipt:
    """The outcome of each draft, in the order they were given."""

    outcomes: tuple[Outcome, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the memories that hold the drafts, without duplicates, in order."""
        return tuple(dict.fromkeys(id for outcome in self.outcomes for id in outcome.ids))

    def count(self, status: Status) -> int:
        return sum(outcome.status == status for outcome in self.outcomes)


@frozen
class Filter:
    """Selects memories. Unset fields do not restrict; time ranges mean after ≤ t < before."""

    ids: tuple[str, ...] = ()
    id_part: str | None = None  # how an id begins or ends
    kinds: tuple[str, ...] = ()
    states: tuple[str, ...] = ("active",)
    categories: tuple[str, ...] = ()
    item_types: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()  # any of them, case-insensitive
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
    purge_before: datetime | None = None  # soft-deleted and due to be erased by then
    compression_source: bool | None = None
    derived_from: tuple[str, ...] = ()  # has one of these as evidence or source
    labels: Labels = Labels()
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)  # conditions by key
    expired_by: datetime | None = None
    unexpired_at: datetime | None = None
    all_of: tuple[Filter, ...] = ()  # the states of these filters are ignored
    any_of: tuple[Filter, ...] = ()
    none_of: tuple[Filter, ...] = ()


@frozen
class Query:
    """A question with all options that affect the answer."""

    text: str
    scope: Scope
    limit: int
    budget: int | None = None  # tokens of the rendered text
    max_chars: int | None = None
    where: Filter = Filter()
    as_of: datetime | None = None  # answer from what was valid at this time
    labels: Labels = Labels()  # of the caller: session and channel boost or restrict results
    include_compressed: bool = False
    min_confidence: float | None = None  # None: as the profile says


@frozen
class Hit:
    """A returned memory and its score, which is the sum of the parts."""

    memory: Memory
    score: float
    parts: Mapping[str, float]
    relevance: float = 0.0  # the cosine, or the share of the best sparse score
    confidence: float | None = None  # that it is what was asked for
    tokens: int = 0


@frozen
class Cut:
    """A memory that was considered and left out, and why."""

    id: str
    reason: str
    score: float = 0.0
    fits: bool = True  # False: it was found, but is beyond the limit or the budget


@frozen
class Recall:
    """The result of a query."""

    query: Query
    profile: str
    hits: tuple[Hit, ...]
    text: str  # the rendered block for the prompt
    tokens: int  # of that block
    cut: tuple[Cut, ...] = ()
    confidence: float | None = None  # that the hits contain the answer; None if it is not known
    revision: int | None = None  # of the thread, up to which the text reports changes
    related: tuple[Memory, ...] = ()  # on the same topics as the hits; also part of the text
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
        """Whether a component that should have contributed was unavailable."""
        return any(state != "ok" for state in self.legs.values())

    @property
    def is_unanswered(self) -> bool:
        """Whether nothing stored answers the question; False if there is only no room for it."""
        was_asked = bool(self.query.text.strip()) and "memory" not in self.legs
        return was_asked and not self.hits and all(cut.fits for cut in self.cut)

    def prompt(self) -> str:
        """Return the block for the prompt, or that no memory answers this; empty if memory is off."""
        if not self.is_unanswered:
            return self.text
        return "\n".join(filter(None, (self.text, NO_ANSWER)))

    def explain(self) -> str:
        """Return why each memory was returned, and the others not; the best three if none was."""
        sure = "" if self.confidence is None else f", confidence {self.confidence:.2f}"
        found = f"{len(self.hits)} hits, {self.tokens} tokens{sure}"
        lines = [f"{self.query.text!r} by {self.profile}: {found}"]
        lines += [f"  {leg}: {state}" for leg, state in self.legs.items() if state != "ok"]
        for rank, hit in enumerate(self.hits, 1):
            text = " ".join(hit.memory.text[:200].split())
            brief = text if len(text) <= 100 else text[:99] + "…"
            parts = " ".join(f"{value:+.4f} {name}" for name, value in hit.parts.items())
            lines += [f"{rank}. {hit.score:.4f}  {brief}", f"   = {parts}"]
        left_out = self.cut[:NEAREST] if self.is_unanswered else self.cut
        lines += [f"-  {cut.score:.4f}  {cut.id}: {cut.reason}" for cut in left_out]
        return "\n".join(lines)


@frozen
class Reason:
    """The rank and score of one memory for a query, whether it was returned or not."""

    id: str
    returned: bool
    reason: str
    rank: int | None = None
    score: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


@frozen
class Evidence:
    """The sources of a memory, as far as they still exist."""

    memory: Memory
    messages: tuple[Message, ...] = ()
    memories: tuple[Memory, ...] = ()
    missing: tuple[str, ...] = ()  # references that are external or whose target was erased


@frozen
class Conflict:
    """Two contradicting statements: the newer one is valid until it is confirmed or rejected."""

    new: Memory
    old: Memory
    at: datetime

    @property
    def id(self) -> str:
        """The id of the newer memory."""
        return self.new.id


@dataclass(frozen=True, slots=True)
class Page:
    """A page of memories, newest first, and the cursor of the next page."""

    memories: tuple[Memory, ...]
    cursor: str | None = None

    def __iter__(self) -> Iterator[Memory]:
        return iter(self.memories)

    def __len__(self) -> int:
        return len(self.memories)


Messages = Sequence[Message | Mapping[str, Any]]
