"""Request bodies of Mem0, and the filters in them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import BaseModel, Field

from ...errors import InvalidInput
from ...ingest import validation
from ...types import Filter, Labels
from .. import Json
from .bodies import Count, Id, Name, OptionalName, Share, Text, Word, whole

LABELS = {"agent_id": "agent", "run_id": "run", "app_id": "channel"}
_DEEPEST = 5  # levels of a filter
_SUPPORTED = (
    "Filters are user_id, agent_id, run_id, app_id, categories, created_at, updated_at, metadata"
    " and memory_ids, and AND, OR and NOT of these"
)


class Mem0Names(BaseModel):
    """Whose memories. Routes for all memories require at least one."""

    user_id: OptionalName = None
    agent_id: OptionalName = None
    run_id: OptionalName = None
    app_id: OptionalName = None

    def add_names(self, names: dict[str, str]) -> None:
        """Add the ids that are given to others. Raises InvalidInput."""
        for name in Mem0Names.model_fields:
            if (value := getattr(self, name)) is not None:
                add_name(names, name, value)


class Mem0Body(BaseModel, strict=True):
    """A body. Unknown fields are ignored, because other client versions may send more."""

    filters: Json | None = None


class Mem0Message(BaseModel, strict=True):
    """One message."""

    role: Name = "user"
    content: Text
    name: OptionalName = None


class Mem0Add(Mem0Names, Mem0Body):
    """Messages to remember, and whose they are: here, or in `filters`."""

    messages: Annotated[list[Mem0Message], Field(min_length=1, max_length=1000)]
    metadata: Json | None = None
    timestamp: Annotated[int, Field(ge=0, lt=2**33), whole] | None = None
    expiration_date: Annotated[str, Field(max_length=40)] | None = None


class Mem0List(Mem0Body):
    """Which memories to list."""

    categories: list[Word] | None = None
    start_date: Annotated[str, Field(max_length=40)] | None = None
    end_date: Annotated[str, Field(max_length=40)] | None = None

    def read(self) -> tuple[dict[str, str], Filter]:
        """Return the ids that all memories must have, and a filter of the other conditions."""
        names: dict[str, str] = {}
        parts = [read_filter(self.filters or {}, names)]
        if self.categories:
            parts.append(Filter(categories=tuple(self.categories)))
        limits = {"gte": self.start_date, "lte": self.end_date}
        bounds = {name: value for name, value in limits.items() if value is not None}
        if bounds:
            parts.append(read_times("created", bounds))
        return names, Filter(all_of=tuple(parts))


class Mem0Search(Mem0List):
    """What to search for."""

    query: str
    top_k: Count = 10
    threshold: Share | None = None
    rerank: bool | None = None


class Mem0Update(BaseModel, strict=True, json_schema_extra={"minProperties": 1}):
    """The new text, metadata or end of a memory; an end of None removes it."""

    text: Text | None = None
    metadata: Json | None = None
    expiration_date: Annotated[str, Field(max_length=40)] | None = None

    def changes(self) -> Json:
        """Return the arguments of `edit`. Raises InvalidInput if there are none."""
        given: Json = self.model_dump(include={"text", "metadata"}, exclude_none=True)
        if "expiration_date" in self.model_fields_set:
            given["expires_at"] = end_of(self.expiration_date) or validation.NEVER
        if not given:
            raise InvalidInput("Give `text`, `metadata` or `expiration_date`")
        return given


class Mem0Item(Mem0Update):
    """A memory of a batch."""

    memory_id: Id


class Mem0Batch(BaseModel, strict=True):
    """Memories to change or to delete."""

    memories: Annotated[list[Mem0Item], Field(min_length=1, max_length=1000)]


def read_filter(given: Any, names: dict[str, str] | None, depth: int = 0) -> Filter:
    """Return conditions of Mem0 as a filter, without the ids that all must have: they are put into
    `names`. Raises InvalidInput for a condition that would be left out.
    """
    if depth > _DEEPEST or not isinstance(given, Mapping):
        raise InvalidInput(f"{_SUPPORTED}, at most {_DEEPEST} levels deep")
    parts: list[Filter] = []
    for name, value in given.items():
        if name in ("AND", "OR", "NOT"):
            listed = value if isinstance(value, list) else [value]
            below = names if name == "AND" else None
            few = tuple(read_filter(each, below, depth + 1) for each in listed)
            if not few:
                raise InvalidInput(f"{name} needs at least one condition")
            if name == "AND":
                parts += [each for each in few if each != Filter()]
            else:
                parts.append(Filter(any_of=few) if name == "OR" else Filter(none_of=few))
        elif name not in Mem0Names.model_fields:
            parts.append(_read_condition(name, value))
        elif names is not None:
            add_name(names, name, value)
        elif name == "user_id":
            raise InvalidInput("`user_id` cannot be in OR or NOT: send one request for each user")
        else:
            add_name({}, name, value)
            parts.append(Filter(labels=Labels(**{LABELS[name]: value})))
    return Filter(all_of=tuple(parts))


def add_name(names: dict[str, str], name: str, value: Any) -> None:
    """Add an id to others. Raises InvalidInput if it is not one id, or contradicts another."""
    if not isinstance(value, str) or not value or value == "*":
        raise InvalidInput(f"`{name}` is one id, not {value!r:.60}: send one request for each")
    if names.setdefault(name, value) != value:
        raise InvalidInput(f"`{name}` has several values: send one request for each of them")


def _read_condition(name: str, value: Any) -> Filter:
    """Return one condition on a field of Mem0 as a filter. Raises InvalidInput."""
    if name in ("created_at", "updated_at"):
        return read_times(name.removesuffix("_at"), value)
    if name == "metadata" and isinstance(value, Mapping):
        conditions: Json = {}
        for key, each in value.items():
            conditions[key] = {"exists": True} if each == "*" else each
            if isinstance(each, Mapping) and not {"contains", "icontains"}.isdisjoint(each):
                raise InvalidInput("`contains` and `icontains` are not supported in metadata")
        return Filter(metadata=conditions)
    if name not in ("categories", "memory_ids"):
        raise InvalidInput(f"{_SUPPORTED}; {name!r:.60} is not supported")
    if isinstance(value, Mapping) and len(value) == 1:
        (operator,) = value
        value = value[operator] if operator in ("in", "contains", "eq") else None
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not listed or not all(isinstance(x, str) for x in listed):
        raise InvalidInput(f"`{name}` is text, a list of texts, or one of them with `in`")
    if name == "memory_ids":
        listed = [each.partition("~")[0] for each in listed]
    wanted = tuple(listed)
    return Filter(ids=wanted) if name == "memory_ids" else Filter(categories=wanted)


def read_times(prefix: str, bounds: Any) -> Filter:
    """Return the bounds of a time, each an operator and a time, as a filter. Raises InvalidInput."""
    limits: Json = {}
    for operator, text in bounds.items() if isinstance(bounds, Mapping) else [("", bounds)]:
        if operator not in ("gt", "gte", "lt", "lte"):
            raise InvalidInput("A time takes gt, gte, lt and lte")
        at = validation.moment(text)
        if operator in ("gt", "lte"):
            at = end_of(text)
        if at is not None:
            limits[f"{prefix}_{'after' if operator.startswith('g') else 'before'}"] = at
    return Filter(**limits)


def end_of(text: str | None) -> datetime | None:
    """Return the first moment after a day or a time. Raises InvalidInput."""
    at = validation.moment(text)
    if at is None or text is None:
        return None
    try:
        return at + (timedelta(days=1) if len(text) == 10 else timedelta(microseconds=1))
    except OverflowError as error:
        raise InvalidInput(f"{text!r} is too late") from error
