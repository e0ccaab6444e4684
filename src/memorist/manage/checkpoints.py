"""Checkpoints of the threads of a supervisor: one JSON document for each thread of a scope."""

from __future__ import annotations

import asyncio
import builtins
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ..context import Place
from ..errors import InvalidInput, NotFound
from ..ingest import validation
from ..storage.documents import SavedCheckpoint, ThreadCheckpoints
from ..text import normalize
from . import privacy

PARTS: dict[str, type] = {
    "graph_state": dict,
    "memory_context": dict,
    "conversation_history": list,
    "agent_states": dict,
}
_LARGE = re.compile(r"-?\b\d(?:\.\d{1,17})?e\+\d{1,3}")
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # not where its backslash is escaped


class Checkpoints(Place):
    """The checkpoints of one scope. What another user saved is not found."""

    @property
    def _table(self) -> ThreadCheckpoints:
        return ThreadCheckpoints(self.ctx.store, self.scope)

    async def save(self, thread: str, data: Mapping[str, Any]) -> SavedCheckpoint:
        """Save the state of a thread durably, in place of what was saved before.

        `data` holds `graph_state`, `memory_context`, `conversation_history`, `agent_states` (empty
        if left out) and whatever else JSON can hold. Raises InvalidInput if it is not JSON or
        larger than `max_checkpoint_mb`; Refused in an incognito session.
        """
        await privacy.refuse_incognito(self)
        text = await asyncio.to_thread(to_json, data, self.ctx.settings.max_checkpoint_mb)
        return await self._table.save(thread_name(thread), text, self.ctx.clock())

    async def load(self, thread: str) -> dict[str, Any]:
        """Return the state of a thread as it was saved last. Raises NotFound."""
        data: dict[str, Any] = await asyncio.to_thread(json.loads, await self.load_json(thread))
        return data

    async def load_json(self, thread: str) -> str:
        """Return the state of a thread as the JSON text that was saved last. Raises NotFound."""
        text = await self._table.load(thread_name(thread))
        if text is None:
            raise NotFound(f"No checkpoint of thread {thread!r} in this scope")
        return text

    async def list(self, *, limit: int = 50) -> builtins.list[SavedCheckpoint]:
        """Return which threads have a checkpoint, the one saved last first."""
        validation.number("limit", limit)
        return await self._table.list(limit=limit)

    async def delete(self, thread: str) -> None:
        """Delete the checkpoint of a thread for good. Raises NotFound."""
        if not await self._table.delete(thread_name(thread)):
            raise NotFound(f"No checkpoint of thread {thread!r} in this scope")


def thread_name(value: object) -> str:
    """Return the name of a thread. Raises InvalidInput."""
    is_text = isinstance(value, str) and value == normalize.storable(value)
    if not isinstance(value, str) or not is_text or not 1 <= len(value.encode()) <= 500:
        raise InvalidInput(f"A thread is named by a text of 1 to 500 bytes, not {value!r:.60}")
    return value


def to_json(data: Mapping[str, Any], most_mb: int) -> str:
    """Return a checkpoint with all its parts as JSON. Raises InvalidInput.

    Large floats are spelled out: a database that stores numbers and not texts would return them as
    integers.

    >>> '"x": ["1e+16", 10000000000000000.0]' in to_json({"x": ["1e+16", 1e16]}, 1)
    True
    """
    if not isinstance(data, Mapping):
        raise InvalidInput(f"A checkpoint must be a mapping, not {type(data).__name__}")
    whole = {part: kind() for part, kind in PARTS.items()} | dict(data)
    for part, kind in PARTS.items():
        if not isinstance(whole[part], kind):
            given = type(whole[part]).__name__
            raise InvalidInput(f"{part} of a checkpoint is a {kind.__name__}, not {given}")
    try:
        # in pieces: one long call would keep other threads waiting
        text = "".join(map(_spell_out, _ENCODER.iterencode(whole)))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"A checkpoint must be valid JSON: {error}") from error
    if size > most_mb << 20:
        raise InvalidInput(
            f"{size:,} bytes are too many: save less, or raise max_checkpoint_mb ({most_mb})"
        )
    if "\\u0000" in text and _NUL.search(text):
        raise InvalidInput(
            "A checkpoint contains a NUL character, which not every database can store: remove it"
        )
    return text


def _spell_out(piece: str) -> str:
    """Return a piece of JSON with its number in digits; one with a text is left alone."""
    if "e+" not in piece or '"' in piece:
        return piece
    return _LARGE.sub(lambda match: f"{Decimal(match[0]):f}.0", piece)
