"""The state of each thread of a scope, as one JSON document. Implements `ports.Checkpoints`."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import Any

from ..errors import StoreDamaged
from ..results import Saved
from ..text import clock
from ..text.clock import new_id
from . import rows
from .repository import Shelf


class Checkpoints(Shelf):
    """One row for each thread, replaced when it is saved again."""

    async def save(self, thread: str, data: str, at: datetime) -> Saved:
        now = clock.iso(at)
        async with self._writing() as writing:
            found = await writing.rows(
                "INSERT INTO supervisor_checkpoints "
                "(scope, id, user_id, thread_id, checkpoint_data, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (scope, user_id, thread_id) DO UPDATE SET checkpoint_data = excluded.checkpoint_data, "
                "updated_at = excluded.updated_at RETURNING thread_id, created_at, updated_at",
                (new_id(), self._scope.user, thread, data, now, now),
            )
        return _saved(found[0])

    async def load(self, thread: str) -> str | None:
        found = await self._rows(
            "SELECT checkpoint_data FROM supervisor_checkpoints WHERE scope = ? AND user_id = ? AND thread_id = ?",
            (self._scope.user, thread),
        )
        if found and not isinstance(found[0][0], str):
            raise StoreDamaged(f"The checkpoint of thread {thread!r} is no text: restore a backup")
        return found[0][0] if found else None

    async def list(self, *, limit: int) -> builtins.list[Saved]:
        found = await self._rows(
            "SELECT thread_id, created_at, updated_at FROM supervisor_checkpoints WHERE scope = ? "
            "ORDER BY updated_at DESC, id DESC LIMIT ?",
            (limit,),
        )
        return [_saved(row) for row in found]

    async def delete(self, thread: str) -> bool:
        async with self._writing(new=False) as writing:
            writing.erased()
            gone = await writing.rows(
                "DELETE FROM supervisor_checkpoints WHERE scope = ? AND user_id = ? AND thread_id = ? RETURNING id",
                (self._scope.user, thread),
            )
        return bool(gone)


def _saved(row: tuple[Any, ...]) -> Saved:
    thread, created, updated = row
    return Saved(thread=thread, created_at=rows.moment(created), updated_at=rows.moment(updated))
