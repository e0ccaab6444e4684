"""What was acknowledged, and whether it is there: the question that every fault ends with."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import memorist
from memorist.types import Filter

CHILDREN = Path(__file__).with_name("children.py")
GONE = object()
UNKNOWN = object()  # a write was under way when the fault came: before or after, both are right


@dataclass
class Told:
    """What was acknowledged so far: the text of each memory, or that it is gone."""

    texts: dict[str, Any] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    acks: int = 0

    def hear(self, kind: str, *what: Any) -> None:
        self.acks += kind in ("kept", "said", "gone")
        if kind in ("kept", "said"):
            self.texts[what[0]] = what[1]
        if kind == "said":
            self.messages[what[2]] = what[0]
        if kind in ("begin", "gone"):
            self.texts[what[0]] = GONE if kind == "gone" else UNKNOWN


def whole_lines(said: str) -> Iterable[list[Any]]:
    """What a process told; a line that a kill cut short was not told."""
    return (json.loads(line) for line in said.splitlines(keepends=True) if line.endswith("\n"))


def lost(told: Told, ana: Any) -> list[str]:
    """The acknowledged writes that are not there; what was unknown is known afterwards."""
    now: dict[str, Any] = {each.id: each.text for each in everything(ana)}
    wrong = [
        id for id, text in told.texts.items() if text is not UNKNOWN and now.get(id, GONE) != text
    ]
    told.texts.update({id: now.get(id, GONE) for id in told.texts})
    again = ana.remember([{"id": id, "content": "?"} for id in told.messages]).outcomes
    firsts = [() if told.texts[first] is GONE else (first,) for first in told.messages.values()]
    return wrong + [a.message_id for a, first in zip(again, firsts, strict=True) if a.ids != first]


def half_written(memory: Any, ana: Any) -> list[str]:
    """Whatever holds only together and stands alone: index and row, row and history, version and memory."""
    versions = {each.id: each for each in everything(ana, "superseded")}
    lines = ana.history(limit=100_000)
    edits = {line.old_ref for line in lines if line.old_ref is not None}
    gone = {line.memory_id for line in lines if line.event == "DELETE"}
    alone = [id for id in versions if id not in edits]
    erased = {line.old_ref for line in lines if line.memory_id in gone}
    missing = [id for id in edits - erased if id not in versions]
    back = gone & {each.id for each in everything(ana)}
    return [*memory.check(), *alone, *missing, *back]


def seen(path: Path | str, told: Told) -> tuple[list[str], list[str]]:
    """Open a memory after a fault: what was lost, what is half written."""
    with memorist.open(path, embedder="hashing", spool=False) as memory:
        ana = memory.scope("ana")
        return lost(told, ana), half_written(memory, ana)


def everything(ana: Any, *states: str) -> list[Any]:
    found, cursor = [], None
    while True:
        page = ana.list(Filter(states=states or ("active",)), limit=1000, cursor=cursor)
        found += page.memories
        if (cursor := page.cursor) is None:
            return found
