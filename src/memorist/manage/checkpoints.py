"""Where each thread of a supervisor stood, kept for the next start: one JSON document for each thread of a scope."""

from __future__ import annotations

import builtins
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ..context import Context
from ..errors import InvalidInput, NotFound
from ..ingest import validation
from ..storage.documents import SavedCheckpoint, ThreadCheckpoints
from ..text import normalize
from ..types import Labels, Scope
from . import privacy

PARTS: dict[str, type] = {
    "graph_state": dict,
    "memory_context": dict,
    "conversation_history": list,
    "agent_states": dict,
}
_LARGE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|-?[\d.]+e\+\d+')  # texts too, to leave them alone
_NUL = re.compile(
    r"(?<!\\)(?:\\\\)*\\u0000"
)  # not one that is spelled out, with its backslash escaped


class Checkpoints:
    """The verbs for checkpoints, for one scope. What another user saved is not found, whatever its thread is called."""

    def __init__(self, ctx: Context, scope: Scope, labels: Labels) -> None:
        self._ctx, self._scope, self._labels = ctx, scope, labels

    @property
    def _kept(self) -> ThreadCheckpoints:
        return ThreadCheckpoints(self._ctx.store, self._scope)

    async def save(self, thread: str, data: Mapping[str, Any]) -> SavedCheckpoint:
        """Keep where a thread stands, in place of what was saved before; when it returns, it is on disk.

        `data` holds `graph_state`, `memory_context`, `conversation_history`, `agent_states` (empty if left out) and
        whatever else JSON knows. Raises InvalidInput if it is no JSON, or larger than `max_checkpoint_mb`; Refused in
        an incognito session.
        """
        await privacy.refuse_incognito(self._ctx, self._scope, self._labels.session)
        text = self._text(data)
        return await self._kept.save(thread_name(thread), text, self._ctx.clock())

    async def load(self, thread: str) -> dict[str, Any]:
        """Where a thread stood when it was last saved. Raises NotFound."""
        text = await self._kept.load(thread_name(thread))
        if text is None:
            raise NotFound(f"No checkpoint of thread {thread!r} in this scope")
        data: dict[str, Any] = json.loads(text)
        return data

    async def list(self, *, limit: int = 50) -> builtins.list[SavedCheckpoint]:
        """Which threads have a checkpoint, the one saved last first."""
        validation.number("limit", limit)
        return await self._kept.list(limit=limit)

    async def delete(self, thread: str) -> None:
        """Remove the checkpoint of a thread for good. Raises NotFound."""
        if not await self._kept.delete(thread_name(thread)):
            raise NotFound(f"No checkpoint of thread {thread!r} in this scope")

    def _text(self, data: Mapping[str, Any]) -> str:
        try:
            text = _spelled_out(json.dumps(_whole(data), ensure_ascii=False, allow_nan=False))
            size = len(text.encode())
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"A checkpoint holds what JSON knows: {error}") from error
        most = self._ctx.settings.max_checkpoint_mb
        if size > most << 20:
            raise InvalidInput(
                f"{size:,} bytes are too many: save less, or raise max_checkpoint_mb ({most})"
            )
        if "\\u0000" in text and _NUL.search(text):
            raise InvalidInput(
                "A checkpoint holds a NUL character, which not every database can keep: take it out"
            )
        return text


def thread_name(value: object) -> str:
    """The name of a thread. Raises InvalidInput."""
    if (
        not isinstance(value, str)
        or value != normalize.storable(value)
        or not 1 <= len(value.encode()) <= 500
    ):
        raise InvalidInput(f"A thread is named by a text of 1 to 500 bytes, not {value!r:.60}")
    return value


def _spelled_out(text: str) -> str:
    """JSON with large floats in full: a database that keeps numbers, not texts, would give them back as whole ones.

    >>> _spelled_out('["1e+16", 1e+16]')
    '["1e+16", 10000000000000000.0]'
    """
    return (
        _LARGE.sub(lambda m: m[0] if m[0][0] == '"' else f"{Decimal(m[0]):f}.0", text)
        if "e+" in text
        else text
    )


def _whole(data: Mapping[str, Any]) -> dict[str, Any]:
    """All four parts, and what else was given."""
    if not isinstance(data, Mapping):
        raise InvalidInput(f"A checkpoint is a mapping, not {type(data).__name__}")
    whole = {part: kind() for part, kind in PARTS.items()} | dict(data)
    for part, kind in PARTS.items():
        if not isinstance(whole[part], kind):
            raise InvalidInput(
                f"{part} of a checkpoint is a {kind.__name__}, not {type(whole[part]).__name__}"
            )
    return whole
