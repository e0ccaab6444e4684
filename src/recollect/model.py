"""The values everything else speaks of. Nothing here waits, stores or decides.

Words are those of the glossary in `docs/concepts.md`. Times are timezone-aware UTC.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Kind = Literal["episodic", "semantic", "procedural", "working", "insight"]
State = Literal["active", "compressed", "archived", "superseded", "soft_deleted"]
Role = Literal["user", "assistant", "system"]
Status = Literal["created", "merged", "updated", "superseded", "conflicting", "pending", "skipped", "refused"]
Event = Literal["created", "updated", "merged", "deleted", "soft_deleted", "restored", "superseded", "linked"]
Node = Literal["hotpath", "context", "episodic", "worker"]
Op = Literal[
    "classify", "search", "create", "update", "merge", "delete", "link", "ttl",
    "pin", "unpin", "enable", "disable", "incognito",  # what a person decided
    "use",  # what was recalled went into a reply; skipped: it did not
    "embed",  # and the names of duties, where one failed
]  # fmt: skip

KINDS: tuple[Kind, ...] = ("episodic", "semantic", "procedural", "working", "insight")
NODES: tuple[Node, ...] = ("hotpath", "context", "episodic", "worker")
STATES: tuple[State, ...] = ("active", "compressed", "archived", "superseded", "soft_deleted")
ROLES: tuple[Role, ...] = ("user", "assistant", "system")
GUILD = "__guild__"  # the user of a scope that belongs to a group: its facts name whom they are about
RELATED = "related_to"  # the type of a relation between memories that are about the same
CONTRADICTS = "contradicts"  # of a newer memory to the one whose place it took, until somebody decides
HISTORY_EVENTS = ("ADD", "UPDATE", "DELETE", "MERGE", "LINK", "TTL", "RESTORE")
ITEM_TYPES = ("fact", "preference", "project", "decision", "crumb", "request", "result")


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    def importance_level(self) -> int:
        """The same importance as a level from 1 to 5."""
        return min(5, max(1, math.ceil(round(5 * self.importance, 9))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One thing that was said, by whom and when."""

    content: str
    id: str | None = None
    role: str = "user"
    name: str | None = None
    at: datetime | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a caller wants remembered, before it is cleaned, cut, scored and compared."""

    text: str
    id: str | None = None  # under which it is to be kept; what is cut into several memories gives it to the first
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

    @property
    def on_purpose(self) -> bool:
        """The person wants exactly this kept."""
        return self.pinned or self.manually_saved


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one draft."""

    status: Status
    ids: tuple[str, ...] = ()  # the memories that now hold it
    reason: str = ""
    message_id: str | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which memories count. What is not given does not restrict; times are half-open: after ≤ t < before."""

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
    purge_before: datetime | None = None  # put away, and not to be kept longer than that
    compression_source: bool | None = None
    derived_from: tuple[str, ...] = ()  # those that name one of these as evidence or source
    labels: Labels = Labels()

    @property
    def is_plain(self) -> bool:
        """Nothing but the state is asked for, so an index need not consult the store."""
        return self == Filter(states=self.states)


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A memory that answers, and why: the parts add up to the score."""

    memory: Memory
    score: float
    parts: Mapping[str, float]
    relevance: float = 0.0  # how near it is to the question: the cosine, or the share of the best sparse score
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A memory that was considered and left out, and why."""

    id: str
    reason: str
    score: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """What a question returned."""

    query: Query
    profile: str
    hits: tuple[Hit, ...]
    text: str  # the block to put before the model
    tokens: int  # of that block
    cut: tuple[Cut, ...] = ()
    revision: int | None = None  # of the thread, up to which the text tells what changed
    related: tuple[Memory, ...] = ()  # beside the hits, for what they are about: they stand in the text, too
    legs: Mapping[str, str] = field(default_factory=dict)  # sparse, dense, …: "ok", or why it was down

    @property
    def memories(self) -> tuple[Memory, ...]:
        return tuple(hit.memory for hit in self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    @property
    def degraded(self) -> bool:
        """Something that should have helped to answer was away."""
        return any(state != "ok" for state in self.legs.values())

    def prompt(self) -> str:
        """The block to put before the model; empty if nothing was found."""
        return self.text

    def explain(self) -> str:
        """Why each memory came back, part by part, and why others did not."""
        lines = [f"{self.query.text!r} by {self.profile}: {len(self.hits)} hits, {self.tokens} tokens"]
        lines += [f"  {leg}: {state}" for leg, state in self.legs.items() if state != "ok"]
        for rank, hit in enumerate(self.hits, 1):
            lines.append(f"{rank}. {hit.score:.4f}  {_brief(hit.memory.text)}")
            lines.append("   = " + " ".join(f"{value:+.4f} {name}" for name, value in hit.parts.items()))
        lines += [f"-  {cut.score:.4f}  {cut.id}: {cut.reason}" for cut in self.cut]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Where one memory stands for one question, whether it was returned or not."""

    id: str
    returned: bool
    reason: str
    rank: int | None = None
    score: float | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    """A memory that is about the same as another one, and how near the two are."""

    memory: Memory
    strength: float  # their cosine when they were linked


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a memory rests on, as far as it can still be read."""

    memory: Memory
    messages: tuple[Message, ...] = ()
    memories: tuple[Memory, ...] = ()
    missing: tuple[str, ...] = ()  # references that point outside, or to what is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Two statements that do not go together: the newer one stands, until somebody confirms or rejects it."""

    new: Memory
    old: Memory
    at: datetime

    @property
    def id(self) -> str:
        """The id of the newer memory, by which it is decided."""
        return self.new.id


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
    derived: tuple[str, ...] = ()  # what rested on that alone, and earlier statements that it had replaced
    flagged: tuple[str, ...] = ()  # what rests on other things too: it stays, marked; a summary is made anew
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
    sharing: bool = False  # the person's other spaces may recall what bears the tag `share:SPACE`, each its own


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

    task: str  # extract · same_fact · compose · summarise · reflect · steps: under this it is counted
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
    rights: tuple[str, ...] = ("read", "write")  # read · write · admin
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
    payload: Mapping[str, Any]  # ids and numbers, never words: what is forgotten must not wait in a queue
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
    p95_seconds: float | None = None  # of embedding: from being told to having a vector, of the last thousand
    failure_rate: float | None = None  # of embedding: the share of batches that failed, of the same


# Changes: what a transaction is asked to do, as values.


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
    decision: str  # proposed · supported · approved · corroborated · told · denied · lapsed · withdrawn
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
    Put | Said | Forget | Bury | Embedded | Used | Summary | Relation | Unrelated | Setting
    | Incognito | Decided | Happened | Shown | Entry | Queue | Done | Checked
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What was told while the store was away, waiting to be handed over to it."""

    scope: Scope
    what: Draft | Summary  # a summary holds what is to be added to the newest record of its name
    policy: str = "default"  # of a draft

    @property
    def id(self) -> str:
        return self.what.id or ""


def _brief(text: str, width: int = 100) -> str:
    line = " ".join(text[: 2 * width].split())
    return line if len(line) <= width else line[: width - 1] + "…"


Messages = Sequence[Message | Mapping[str, Any]]
