"""Undo in a chat: which operation "undo" means, and what to say about it.

A chat command is one operation, with all that it changed. What a turn of the conversation caused
by itself, such as the end of an outdated statement, is not undone by a mere "undo".
"""

from __future__ import annotations

from collections.abc import Sequence

from ..context import Place
from ..storage import HistoryEntry
from ..text import cues
from ..types import Memory
from .chat_list import number

MOST_HISTORY = 300  # entries in which the last change of a session is looked for
_FORGOTTEN = "I no longer remember"
_TOLD = ("ADD", "MERGE", "LINK")  # events of what was said


async def find_last_undo(place: Place) -> str | None:
    """Return the last undo of a session that was not itself undone."""
    session = place.labels.session
    undone: set[str] = set()
    for entry in await place.ctx.store.history.entries(place.scope, limit=MOST_HISTORY):
        operation = str(entry.meta.get("operation"))
        is_here = session is not None and entry.meta.get("session") == session
        if is_here and "undoes" in entry.meta and operation not in undone:
            return operation
        undone.update(entry.meta.get("undoes", ()))
    return None


async def find_last_change(place: Place, *, with_words: bool) -> str | None:
    """Return the last operation of a session that was asked for and not undone.

    With `with_words`, words of the person that were only stored count too, if nothing was asked for.
    """
    session = place.labels.session
    if session is None:
        return None
    undone = set()
    candidates = []
    store = place.ctx.store
    for entry in await store.history.entries(place.scope, limit=MOST_HISTORY):
        if entry.meta.get("operation") not in undone:
            undone.update(entry.meta.get("undoes", ()))
        is_here = entry.meta.get("session") == session and "undoes" not in entry.meta
        if is_here and entry.meta.get("operation") not in undone:
            candidates.append(entry)
    for entry in candidates:
        if "command" in entry.meta or not _was_caused_by_words(entry):
            return str(entry.meta["operation"])
    for entry in candidates if with_words else ():
        if any(map(cues.is_persons, await store.get(place.scope, [entry.memory_id]))):
            return str(entry.meta["operation"])
    return None


async def find_command(place: Place, memory_id: str) -> str | None:
    """Return the chat command that last changed a memory."""
    for entry in await place.ctx.store.history.entries(place.scope, memory_id):
        if "command" in entry.meta:
            return str(entry.meta["operation"])
    return None


def _was_caused_by_words(entry: HistoryEntry) -> bool:
    """Return whether storing a text caused this change, without a request for it.

    Only a change that a verb makes is without a reason, or names the new state.
    """
    is_explained = "reason" in entry.meta and "state" not in entry.meta
    return entry.event in _TOLD or is_explained


def describe_changes(before: Sequence[Memory], after: Sequence[Memory], *, quotes: bool) -> str:
    """Return what an undo did to memories, by kind of change, with their texts.

    What was forgotten before is left out. Without `quotes`, what was forgotten is only counted.
    """
    then = {memory.id: memory for memory in before}
    kinds: dict[str, list[Memory]] = {}
    for memory in after:
        old = then[memory.id]
        if not old.state == memory.state == "soft_deleted":
            kinds.setdefault(_name_change(old, memory), []).append(memory)
    lines = []
    for kind, found in kinds.items():
        if kind == _FORGOTTEN and not quotes:
            count = "1 memory" if len(found) == 1 else f"{len(found)} memories"
            lines.append(f"Forgotten again: {count}.")
        else:
            lines.append(f"{kind}:\n{number(found)}")
    return "\n".join(lines)


def _name_change(old: Memory, new: Memory) -> str:
    """Return what became of a memory."""
    was_current = old.is_active and old.valid_to is None
    is_current = new.is_active and new.valid_to is None
    if is_current and not was_current:
        return "I remember again"
    if new.state == "soft_deleted":
        return _FORGOTTEN
    if was_current and not is_current:
        return "No longer current"
    if old.pinned != new.pinned:
        return "Pinned again" if new.pinned else "No longer pinned"
    if old.text != new.text:
        return "It says again"
    return "Changed back"
