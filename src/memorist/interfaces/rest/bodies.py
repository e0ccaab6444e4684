"""Request bodies and results, and the types of their fields. Unknown fields are rejected."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from ... import dialects
from ...manage.privacy import FIELDS
from ...text import clock
from ...types import Filter, Hit, Kind, Labels, Memory, Node, State, frozen
from .. import Json

# In JSON, 3.0 is an integer.
whole = BeforeValidator(
    lambda given: int(given) if isinstance(given, float) and given.is_integer() else given
)
_VISIBLE = r"[^\s\u0000-\u0020\u0085\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
_NAME = rf"^[^\u0000]*{_VISIBLE}[^\u0000]*$"
_WORD = r"^[^\u0000]*$"
_ID = r"^[0-9A-Za-z_.:~-]{1,200}$"
PATTERN_ERRORS = {  # readable messages for patterns
    _VISIBLE: "Must contain a visible character",
    _NAME: "Must contain a visible character and no U+0000",
    _WORD: "Must not contain U+0000",
    _ID: "An id consists of 1 to 200 letters, digits and . : ~ _ -",
}
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=_NAME)]
OptionalName = Name | None
Text = Annotated[str, StringConstraints(min_length=1, pattern=_VISIBLE)]
Word = Annotated[str, StringConstraints(max_length=200, pattern=_WORD)]
Id = Annotated[str, StringConstraints(pattern=_ID)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1000), whole]
Tokens = Annotated[int, Field(ge=1, le=1_000_000), whole]
Revision = Annotated[int, Field(ge=0, lt=2**31), whole]
RoleName = Literal["user", "human", "assistant", "ai", "system", "developer", "tool", "function"]
_TIME = {"type": "string", "format": "date-time", "maxLength": 40}
_DATE = {**_TIME, "format": "date"}
parsed_time = BeforeValidator(
    lambda given: clock.utc(clock.parse(given)) if isinstance(given, str) else None
)
Moment = Annotated[datetime, parsed_time, WithJsonSchema(_TIME)]
Day = Annotated[datetime, parsed_time, WithJsonSchema({"anyOf": [_DATE, _TIME]})]


class Body(BaseModel, extra="forbid", strict=True):
    """A request body."""


class ScopeQuery(Body, strict=False):
    """Query parameters that select a part of the caller's memory."""

    space: OptionalName = None
    user: OptionalName = None  # for keys that act for many users
    session: OptionalName = None


ScopeParams = Annotated[ScopeQuery, Query()]


class SpaceBody(Body):
    """A request body that names a space."""

    space: OptionalName = None
    user: OptionalName = None  # for keys that act for many users


class LabeledBody(SpaceBody):
    """A request body that selects a part of the caller's memory, with all labels."""

    session: OptionalName = None
    thread: OptionalName = None
    channel: OptionalName = None
    run: OptionalName = None
    agent: OptionalName = None
    actor: OptionalName = None


class FilterBody(Body):
    """Selects memories. Unset fields do not restrict."""

    ids: list[Id] = []
    id_part: Word | None = None
    kinds: list[Kind] = []
    states: list[State] = ["active"]
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
    metadata: Json = {}
    all_of: list[FilterBody] = []
    any_of: list[FilterBody] = []
    none_of: list[FilterBody] = []

    def filter(self) -> Filter:
        given: dict[str, Any] = {}
        for name, value in self:
            if name in ("all_of", "any_of", "none_of"):
                value = [each.filter() for each in value]
            given[name] = tuple(value) if isinstance(value, list) else value
        labels = Labels(session=given.pop("session"), thread=given.pop("thread"))
        return Filter(**given, labels=labels)


Where = Annotated[FilterBody, AfterValidator(FilterBody.filter)]


class MessageBody(BaseModel, extra="allow", strict=True):
    """One message of a conversation, also in the formats of OpenAI, Anthropic and LangChain.

    Text parts are stored. Tool calls and system prompts are skipped, and further fields ignored.
    """

    content: str | list[str | Json] | Json | None = None
    id: OptionalName = None
    role: RoleName = "user"
    name: OptionalName = None
    at: Moment | None = None
    session: OptionalName = None


Message = Annotated[MessageBody, AfterValidator(lambda given: given.model_dump(exclude_unset=True))]


class EditBody(Body, json_schema_extra={"minProperties": 1}):
    """The fields of a memory to change: at least one."""

    text: Text | None = None
    summary: Annotated[str, StringConstraints(max_length=280)] | None = None
    category: Word | None = None
    tags: list[Word] | None = None
    importance: Share | None = None
    metadata: Json | None = None
    expires_at: Moment | Literal["never"] | None = None
    valid_from: Moment | None = None
    valid_to: Moment | Literal["never"] | None = None

    @model_validator(mode="after")
    def _has_a_change(self) -> EditBody:
        if all(value is None for _, value in self):
            raise ValueError("name at least one field to change")
        return self


_Level = Annotated[int, Field(ge=1, le=5), whole]


class QueryFilters(Body):
    """Filters for the question of an agent."""

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


class QueryBody(Body, validate_by_name=True, validate_by_alias=True):
    """The question of an agent, which reads only what its allowlist names."""

    agent: OptionalName = None
    query: str
    categories: list[Word] | None = None
    filters: Annotated[QueryFilters, AfterValidator(QueryFilters.model_dump)] | None = None
    top_k: Count = 3
    shape: Annotated[Literal["bullets", "full"], Field(alias="return")] = "bullets"
    budget_tokens: Tokens = 512
    threshold: Share | None = None
    since: Revision | None = None
    space: OptionalName = None
    user: OptionalName = None  # for keys that act for many users
    session: OptionalName = None


class UndoOperationBody(Body):
    """An operation of the history to undo."""

    operation: Id
    space: OptionalName = None
    user: OptionalName = None  # for keys that act for many users
    dry_run: bool = False


class SessionBody(Body):
    """A session."""

    session: Name
    space: OptionalName = None
    user: OptionalName = None  # for keys that act for many users


class UndoSessionBody(SessionBody):
    """A session to undo."""

    dry_run: bool = False


class SayBody(LabeledBody):
    """A chat command."""

    text: Annotated[str, StringConstraints(max_length=10_000)]
    about: list[Id] = []


class CheckpointBody(BaseModel, extra="allow", strict=True):
    """The state of a thread, with any further JSON."""

    graph_state: Json = {}
    memory_context: Json = {}
    conversation_history: list[Any] = []
    agent_states: Json = {}


class MemoryPage(BaseModel):
    """One page of memories and the cursor of the next."""

    entries: list[Memory]
    cursor: str | None


class SpaceSummary(BaseModel):
    """What is stored in a space."""

    space: str
    summary: str
    counts: Json


class UndoResult(BaseModel):
    """What was undone, or would be."""

    operations: list[str]
    ids: list[str]
    dry_run: bool


class CommandResult(BaseModel):
    """The result of a chat command; `command` is empty if the text is not a command."""

    command: str
    say: str
    done: bool
    ids: list[str]
    intent: str


class PrivacyStatus(BaseModel):
    """The privacy settings of a space or session."""

    space: str
    memory_enabled: bool
    incognito_default: bool
    sharing: bool
    on: bool
    reason: str


class Withdrawal(BaseModel):
    """How many values of a field were erased."""

    field: str
    values: int


class Decision(BaseModel):
    """The decision about a proposal, without its value."""

    id: str
    field: str
    decided: str


class MarkdownSnapshot(BaseModel):
    """The Markdown snapshot."""

    markdown: str


class RefreshedSnapshot(BaseModel):
    """The regenerated Markdown snapshot."""

    ok: bool
    markdown: str


@frozen
class GuildFact(Memory):
    """A durable fact of a guild, with its score."""

    fact: str
    subject: str
    score: float

    @staticmethod
    def of(hit: Hit) -> GuildFact:
        """Return a hit as a fact."""
        memory = hit.memory
        columns: dict[str, Any] = {each.name: getattr(memory, each.name) for each in fields(memory)}
        subject = memory.labels.subject or ""
        return GuildFact(**columns, fact=memory.text, subject=subject, score=hit.score)


class GuildFacts(BaseModel):
    """Durable facts of a guild that match a query."""

    results: list[GuildFact]
    queryText: str  # noqa: N815
    guildId: str  # noqa: N815
    channelId: str | None  # noqa: N815
    limit: int


class GuildQuery(BaseModel, extra="forbid"):
    """What to search for in the durable facts of a guild."""

    q: str = ""
    guildId: OptionalName = None  # noqa: N815
    channelId: OptionalName = None  # noqa: N815
    limit: int = 10  # from 1 to 24; another one is clamped


# The types of arguments of verbs, by their kind.
KINDS: dict[str, Any] = {
    "id": Id,
    "proposal": Id,
    "name": Name,
    "word": Word,
    "text": str,
    "value": Annotated[Text, StringConstraints(max_length=200)],
    "count": Count,
    "tokens": Tokens,
    "days": Annotated[float, Field(ge=0, le=36_500, allow_inf_nan=False)],
    "revision": Revision,
    "flag": bool,
    "node": Node,
    "field": Literal[FIELDS],
    "topic": Text,
    "entry": Annotated[Text, Field(alias="text")],
    "messages": Annotated[list[Message], Field(alias="messages", min_length=1, max_length=1000)],
    "records": Annotated[list[Json], Field(max_length=10_000)],
    "words": list[Word],
    "share": Share,
    "moment": Moment,
    "where": Where,
    "metadata": Json,
    "state": State,
    "cursor": Annotated[str, Field(max_length=100)],
    "ids": Annotated[list[Id], Field(max_length=1000)],
    "reply": Annotated[str, StringConstraints(max_length=100_000)],
    "memory_kind": Kind,
    "policy": Annotated[str, WithJsonSchema({"type": "string", "enum": sorted(dialects.POLICIES)})],
    "profile": Annotated[
        str, WithJsonSchema({"type": "string", "enum": sorted(dialects.PROFILES)})
    ],
}
