"""What a transaction is asked to do, as values; and values as plain data for files and wires, and
back, checked on the way in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any, Literal, TypeAlias, TypeVar

from ..errors import InvalidInput
from ..types import HistoryEvent, Memory, Message, Node, Op, Outcome, frozen

Value = TypeVar("Value")
_adapters: dict[type[Any], Any] = {}


@frozen
class Save:
    """Store this memory as it now is, new or changed."""

    memory: Memory
    event: HistoryEvent | None  # None: nothing happened to it (an earlier version)
    vector: Any = None  # float32
    model: str | None = None  # that made the vector
    old_ref: str | None = None  # where the version before this one is stored
    actor: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)


@frozen
class Forget:
    """Erase a memory's content everywhere; a tombstone prevents automatic re-creation until
    `until`."""

    memory_id: str
    at: datetime
    until: datetime | None
    reason: str = ""
    actor: str | None = None
    purged: bool = False  # it had expired: it leaves no tombstone


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
    """One memory is not related to another any more."""

    from_id: str
    to_id: str
    type: str


@frozen
class Event:
    """One thing that a part of the system did: enough to count it and to see when, never any
    content."""

    node: Node
    op: Op
    at: datetime
    status: Literal["ok", "error", "skipped"] = "ok"
    thread: str | None = None
    memory_id: str | None = None
    category: str | None = None
    sim: float | None = None  # cosine of the nearest memory


@frozen
class HistoryEntry:
    """One line of the history."""

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
    """A message and its outcome, stored so that the same message again gets the same answer."""

    id: str
    message: Message
    outcome: Outcome
    digest: str  # of the content; the store keeps only a keyed digest of it
    keep_text: bool  # the memories do not hold it word for word


def _adapter(kind: type[Any]) -> Any:
    if kind not in _adapters:
        from pydantic import TypeAdapter  # slow to import, and only needed at the edges

        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def dump(value: Any, *, strict: bool = False) -> dict[str, Any]:
    """Return a value as JSON: times as ISO 8601 text, tuples as lists.

    A field of the wrong type is a warning, or a ValueError if `strict`.
    """
    warnings = "error" if strict else "warn"
    plain: dict[str, Any] = _adapter(type(value)).dump_python(value, mode="json", warnings=warnings)
    return plain


def load(kind: type[Value], data: Mapping[str, Any]) -> Value:
    """Return the value that `dump` was given. Raises InvalidInput, naming the field."""
    from pydantic import ValidationError

    try:
        made: Value = _adapter(kind).validate_python(data)
        return made
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or kind.__name__
        raise InvalidInput(f"Invalid {kind.__name__.lower()}: {where}: {first['msg']}") from error
