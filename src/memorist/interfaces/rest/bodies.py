"""What requests say, as schemas: unknown fields are refused, and a number is a number."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Path, Request
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from ...client import Client
from ...dialects import catalog
from ...scoped import ScopedClient
from ...text import clock
from ...types import Filter, Labels
from .auth import Caller

# To JSON, 3.0 is a whole number.
whole = BeforeValidator(
    lambda given: int(given) if isinstance(given, float) and given.is_integer() else given
)
_SEEN = r"[^\s\u0000-\u0020\u0085\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
_NAMED, _PLAIN, _ID = (
    rf"^[^\u0000]*{_SEEN}[^\u0000]*$",
    r"^[^\u0000]*$",
    r"^[0-9A-Za-z_.:~-]{1,200}$",
)
WHY = {  # what is wrong with what does not fit a pattern
    _SEEN: "There is nothing to read in it",
    _NAMED: "It needs something to read, without U+0000",
    _PLAIN: "It holds U+0000",
    _ID: "An id has 1 to 200 letters, digits and . : ~ _ -",
}
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_NAMED)]
Text = Annotated[str, StringConstraints(min_length=1, pattern=_SEEN)]
Word = Annotated[str, StringConstraints(max_length=200, pattern=_PLAIN)]
Id = Annotated[str, Path(pattern=_ID)]
IdText = Annotated[str, StringConstraints(pattern=_ID)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1000), whole]
Tokens = Annotated[int, Field(ge=1, le=1_000_000), whole]
Days = Annotated[float, Field(ge=0, le=36_500, allow_inf_nan=False)]
Revision = Annotated[int, Field(ge=0, lt=2**31), whole]
Profile = Annotated[str, WithJsonSchema({"type": "string", "enum": sorted(catalog.PROFILES)})]
Policy = Annotated[str, WithJsonSchema({"type": "string", "enum": sorted(catalog.POLICIES)})]


def _moment(given: object) -> object:
    return clock.utc(clock.parse(given)) if isinstance(given, str) else None


def _time(*forms: str) -> WithJsonSchema:
    some = [{"type": "string", "format": form, "maxLength": 40} for form in forms]
    return WithJsonSchema(some[0] if len(some) == 1 else {"anyOf": some})


Moment = Annotated[datetime, BeforeValidator(_moment), _time("date-time")]
Day = Annotated[datetime, BeforeValidator(_moment), _time("date", "date-time")]


class Body(BaseModel):
    """What a request says, and nothing else."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Place(BaseModel):
    """Where in the caller's memory."""

    model_config = ConfigDict(extra="forbid")
    space: Name | None = None
    session: Name | None = None


class Told(Body):
    """Where in the caller's memory, with everything that can be said about it."""

    space: Name | None = None
    session: Name | None = None
    thread: Name | None = None
    channel: Name | None = None
    run: Name | None = None
    agent: Name | None = None
    actor: Name | None = None


class Where(Body):
    """Which memories count: what is not given does not restrict."""

    ids: list[IdText] = []
    kinds: list[Literal["episodic", "semantic", "procedural", "working", "insight"]] = []
    states: list[Literal["active", "compressed", "archived", "superseded", "soft_deleted"]] = [
        "active"
    ]
    categories: list[Word] = []
    tags: list[Word] = []
    subjects: list[Word] = []
    pinned: bool | None = None
    manually_saved: bool | None = None
    importance_min: Share | None = None
    importance_max: Share | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None
    updated_after: Moment | None = None
    updated_before: Moment | None = None
    occurred_after: Moment | None = None
    occurred_before: Moment | None = None
    speaker: Word | None = None
    session: Word | None = None
    thread: Word | None = None

    def filter(self) -> Filter:
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self
            if name not in ("session", "thread")
        }
        return Filter(**given, labels=Labels(session=self.session, thread=self.thread))


class Said(Body):
    """One thing that was said."""

    content: Annotated[str, StringConstraints(min_length=1)]
    id: Name | None = None
    role: Literal["user", "assistant", "system"] = "user"
    name: Name | None = None
    at: Moment | None = None
    session: Name | None = None


class _New(Told):
    policy: Policy | None = None
    kind: Literal["episodic", "semantic", "procedural", "working", "insight"] | None = None
    category: Word | None = None
    tags: list[Word] = []
    source_ids: list[Word] = []
    evidence: list[Word] = []
    importance: Share | None = None
    confidence: Share = 1.0
    pinned: bool = False
    manually_saved: bool = False

    def fields(self) -> dict[str, Any]:
        return self.model_dump(exclude={*Told.model_fields, "text", "messages", "at"})


class NewEntry(_New):
    """A text to remember."""

    text: Text
    at: Moment | None = None


class NewMessages(_New):
    """A conversation to remember."""

    messages: Annotated[list[Said], Field(min_length=1, max_length=1000)]


class Edit(Body):
    """What to change of a memory: at least one thing."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})
    text: Text | None = None
    summary: Annotated[str, StringConstraints(max_length=280)] | None = None
    category: Word | None = None
    tags: list[Word] | None = None
    importance: Share | None = None

    @model_validator(mode="after")
    def _something(self) -> Edit:
        if all(value is None for _, value in self):
            raise ValueError("say what to change")
        return self


class Question(Told):
    """What to recall."""

    query: str
    limit: Count | None = None
    budget: Tokens | None = None
    max_chars: Tokens | None = None
    profile: Profile | None = None
    where: Where | None = None
    as_of: Moment | None = None
    include_compressed: bool = False
    rerank: bool | None = None


_Level = Annotated[int, Field(ge=1, le=5), whole]


class QueryFilters(Body):
    """What narrows a question of an agent."""

    user_id: Word | None = None
    agent_id: Word | None = None
    run_id: Word | None = None
    actor_id: Word | None = None
    role: Word | None = None
    category: Word | None = None
    pinned: bool | None = None
    importance_min: _Level | None = None
    importance_max: _Level | None = None
    updated_after: Day | None = None
    updated_before: Day | None = None


class AgentQuestion(Body):
    """What an agent asks: it sees what its allowlist names."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)
    agent: Name | None = None
    query: str
    categories: list[Word] | None = None
    filters: QueryFilters | None = None
    top_k: Count = 3
    shape: Annotated[Literal["bullets", "full"], Field(alias="return")] = "bullets"
    budget_tokens: Tokens = 512
    threshold: Share | None = None
    space: Name | None = None
    session: Name | None = None


class ForgetWhere(Body):
    """What to forget, by a question or a filter; by default it is only told."""

    space: Name | None = None
    query: Text | None = None
    where: Where | None = None
    dry_run: bool = True
    reason: Word = ""
    keep_days: Days = 0
    never_again: bool = False


class UndoOperation(Body):
    """Take back an operation of the history."""

    operation: IdText
    space: Name | None = None
    dry_run: bool = False


class UndoSession(Body):
    """Take back everything that a session did."""

    session: Name
    space: Name | None = None
    dry_run: bool = False


class Say(Told):
    """What a person says to the memory itself."""

    text: Annotated[str, StringConstraints(max_length=10_000)]
    about: list[IdText] = []


class Feedback(Told):
    """What was recalled for a turn and what was replied, or in its place which memories were used."""

    recalled: Annotated[list[IdText], Field(max_length=1000)] = []
    reply: Annotated[str, StringConstraints(max_length=100_000)] = ""
    used: Annotated[list[IdText], Field(max_length=1000)] | None = None


class SpaceChoice(Body):
    """What a person decides for a space."""

    space: Name | None = None
    memory_enabled: bool | None = None
    incognito_default: bool | None = None
    sharing: bool | None = None


class Session(Body):
    """A session, by its name."""

    session: Name
    space: Name | None = None


class Value(Body):
    """What the person says of themselves."""

    value: Annotated[Text, StringConstraints(max_length=200)]


class Checkpoint(BaseModel):
    """Where a thread stands, with whatever else JSON knows."""

    model_config = ConfigDict(extra="allow", strict=True)
    graph_state: dict[str, Any] = {}
    memory_context: dict[str, Any] = {}
    conversation_history: list[Any] = []
    agent_states: dict[str, Any] = {}


class Shared(Body):
    """What to recall of other spaces."""

    query: str
    limit: Count | None = None
    budget: Tokens | None = None
    space: Name | None = None


class Upkeep(Body):
    """Where something is done to all that is there; or only told what would be."""

    space: Name | None = None
    dry_run: bool = False


class Compress(Upkeep):
    """Which sessions to sum up."""

    threshold: Count | None = None
    sessions: Count | None = None


class RollUp(Upkeep):
    """What to roll up."""

    days: Days = 90


class Records(Body):
    """Exported records, or messages, to take in."""

    space: Name | None = None
    records: Annotated[list[dict[str, Any]], Field(max_length=10_000)]
    restore: bool = False


def engine_of(request: Request) -> Client:
    found: Client = request.app.state.engine
    return found


def scoped(request: Request, caller: Caller, told: Place | Body) -> ScopedClient:
    """The part of the memory that a request is about."""
    names = ("space", "session", "thread", "channel", "run", "agent", "actor")
    given = {name: getattr(told, name, None) for name in names}
    return caller.scope(engine_of(request), **given)
