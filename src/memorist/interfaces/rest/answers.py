"""What is answered where the engine has no value of that shape. What a changing request answers holds no words."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from ...types import Memory


class Listed(BaseModel):
    """Some memories, and where the next page begins."""

    entries: list[Memory]
    cursor: str | None


class Summed(BaseModel):
    """What is remembered in a space."""

    space: str
    summary: str
    counts: dict[str, Any]


class Taken(BaseModel):
    """What was taken back, or would be."""

    operations: list[str]
    ids: list[str]
    dry_run: bool


class Privacy(BaseModel):
    """What holds in a space or session."""

    space: str
    memory_enabled: bool
    incognito_default: bool
    sharing: bool
    on: bool
    reason: str


class Decision(BaseModel):
    """What was decided about a proposal; its value is not repeated."""

    id: str
    field: str
    decided: str


class Withdrawn(BaseModel):
    """How many values of a field were erased."""

    field: str
    values: int


class Spoken(BaseModel):
    """What came of a command; `command` is empty if it was none."""

    command: str
    say: str
    done: bool
    ids: list[str]


class Markdown(BaseModel):
    """The snapshot."""

    markdown: str


class Refreshed(BaseModel):
    """The snapshot, made anew."""

    ok: bool
    markdown: str


class Found(BaseModel):
    """Facts that answer."""

    results: list[Memory]
    queryText: str  # noqa: N815
    guildId: str  # noqa: N815
    channelId: str | None  # noqa: N815
    limit: int
