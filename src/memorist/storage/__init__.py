"""Values that the store reads and writes, among them the changes of a transaction, and their
conversion to and from JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypeVar

from ..errors import InvalidInput
from ..types import HistoryEvent, Memory, Message, Node, Op, Outcome, frozen

Value = TypeVar("Value")
HEADS = ("memorist", "recollect")  # the first record of an export; version 0.1 wrote "recollect"
_adapters: dict[type[Any], Any] = {}


@frozen
class Save:
    """Store a new or changed memory."""

    memory: Memory
    event: HistoryEvent | None  # None: not a change (an earlier version)
    vector: Any = None  # float32
    model: str | None = None  # that computed the vector
    second: tuple[str, Any] | None = None  # the second model, and its vector
    old_ref: str | None = None  # where the previous version is stored
    actor: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    merged: tuple[str, ...] = ()  # other wordings that were merged; only the history has them


@frozen
class Forget:
    """Erase a memory's content everywhere; a tombstone prevents automatic re-creation before
    `until`."""

    memory_id: str
    at: datetime
    until: datetime | None
    reason: str = ""
    actor: str | None = None
    purged: bool = False  # it had expired, so it leaves no tombstone


@frozen
class Tombstone:
    """The keyed digest of a text that was forgotten before it could be stored."""

    id: str
    digest: str
    until: datetime | None


@frozen
class Relation:
    """One memory is related to another."""

    from_id: str
    to_id: str
    type: str
    at: datetime
    strength: float = 1.0


@frozen
class Unrelated:
    """One memory is no longer related to another."""

    from_id: str
    to_id: str
    type: str


@frozen
class Event:
    """One operation of a part of the system: its kind, time and status, never any content."""

    node: Node
    op: Op  # use: a recalled memory went into a reply, or (skipped) did not
    at: datetime
    status: Literal["ok", "error", "skipped"] = "ok"
    thread: str | None = None
    memory_id: str | None = None
    category: str | None = None
    sim: float | None = None  # cosine of the nearest memory


@frozen
class HistoryEntry:
    """One entry of the history."""

    id: str
    memory_id: str
    event: str  # ADD · UPDATE · DELETE · MERGE · LINK · TTL · RESTORE
    old_ref: str | None
    new_ref: str | None
    actor: str | None
    meta: Mapping[str, Any]
    at: datetime


Change: TypeAlias = Save | Forget | Relation | Unrelated | Event


@frozen
class SeenMessage:
    """A message and its outcome, stored so that repeating the message returns the same outcome."""

    id: str
    message: Message
    outcome: Outcome
    digest: str  # of the content; the store keeps only a keyed digest of it
    keep_text: bool  # the memories do not contain the exact text


@frozen
class SeenBefore:
    """A message that was stored earlier."""

    same: bool  # with the same content
    outcome: Outcome


@frozen
class SpaceSettings:
    """The person's settings for a space."""

    memory_enabled: bool = True
    incognito_default: bool = False  # sessions are incognito unless turned off for one
    sharing: bool = False  # the person's other spaces may recall memories tagged `share:SPACE`


@frozen
class Checks:
    """What is read, in one statement, to decide whether something may be stored."""

    settings: SpaceSettings = SpaceSettings()
    stored: Mapping[str, str] = field(default_factory=dict)  # settings, and what chats left
    incognito: frozenset[str | None] = frozenset()  # of the given sessions
    tombstones: frozenset[str] = frozenset()  # of the given texts, those that were forgotten
    seen: Mapping[str, SeenBefore] = field(default_factory=dict)  # messages, by id
    same: frozenset[str] = frozenset()  # of the given content hashes, those that a memory has
    sequences: Mapping[str, int] = field(default_factory=dict)  # highest number by session
    revision: int = 0  # of the scope; increases with each committed change


def _adapter(kind: type[Any]) -> Any:
    if kind not in _adapters:
        from pydantic import TypeAdapter  # slow to import, and needed only for conversion

        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def dump(value: Any, *, strict: bool = False) -> dict[str, Any]:
    """Return a value as JSON data: times as ISO 8601 text, tuples as lists.

    A field of the wrong type causes a warning, or a ValueError if `strict`.
    """
    warnings = "error" if strict else "warn"
    plain: dict[str, Any] = _adapter(type(value)).dump_python(value, mode="json", warnings=warnings)
    return plain


def load(kind: type[Value], data: Mapping[str, Any]) -> Value:
    """Return the value for data from `dump`. Raises InvalidInput, naming the field."""
    from pydantic import ValidationError

    try:
        made: Value = _adapter(kind).validate_python(data)
        return made
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or kind.__name__
        raise InvalidInput(f"Invalid {kind.__name__.lower()}: {where}: {first['msg']}") from error
