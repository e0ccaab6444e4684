"""Checkpoints of threads: one JSON document for each thread of a scope."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..errors import StoreDamaged
from ..text import clock
from ..text.clock import new_id
from ..types import Scope
from . import rows
from .store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedCheckpoint:
    """A thread that has a checkpoint."""

    thread: str
    created_at: datetime
    updated_at: datetime


class ThreadCheckpoints:
    """The checkpoints of one scope. What another scope saved is not found."""

    def __init__(self, store: Store, scope: Scope) -> None:
        self._store = store
        self._scope = scope

    async def save(self, thread: str, data: str, at: datetime) -> SavedCheckpoint:
        """Store the document durably, in place of the one before."""
        now = clock.iso(at)
        async with self._store.transaction(self._scope) as tx:
            await tx.create_scope()
            found = await tx.rows(
                self._scope,
                "INSERT INTO supervisor_checkpoints "
                "(scope, id, user_id, thread_id, checkpoint_data, created_at, updated_at) VALUES "
                "(?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (scope, user_id, thread_id) DO UPDATE SET checkpoint_data = "
                "excluded.checkpoint_data, "
                "updated_at = excluded.updated_at RETURNING thread_id, created_at, updated_at",
                (new_id(), self._scope.user, thread, data, now, now),
            )
        return _saved(found[0])

    async def load(self, thread: str) -> str | None:
        """Return a document equal to the one that was saved last."""
        found = await self._store.rows(
            self._scope,
            "SELECT checkpoint_data FROM supervisor_checkpoints WHERE scope = ? AND user_id = ? "
            "AND thread_id = ?",
            (self._scope.user, thread),
        )
        if found and not isinstance(found[0][0], str):
            raise StoreDamaged(f"The checkpoint of thread {thread!r} is not text: restore a backup")
        return found[0][0] if found else None

    async def list(self, *, limit: int) -> builtins.list[SavedCheckpoint]:
        """Return which threads have a checkpoint, the one saved last first."""
        found = await self._store.rows(
            self._scope,
            "SELECT thread_id, created_at, updated_at FROM supervisor_checkpoints WHERE scope = ? "
            "ORDER BY updated_at DESC, id DESC LIMIT ?",
            (limit,),
        )
        return [_saved(row) for row in found]

    async def delete(self, thread: str) -> bool:
        """Delete a checkpoint; False if there was none."""
        async with self._store.transaction(self._scope) as tx:
            tx.connection.wipe_after_commit()
            gone = await tx.rows(
                self._scope,
                "DELETE FROM supervisor_checkpoints WHERE scope = ? AND user_id = ? AND thread_id "
                "= ? RETURNING id",
                (self._scope.user, thread),
            )
        return bool(gone)


def _saved(row: tuple[Any, ...]) -> SavedCheckpoint:
    thread, created, updated = row
    return SavedCheckpoint(
        thread=thread, created_at=rows.moment(created), updated_at=rows.moment(updated)
    )
