"""Google ADK: a memory service. What people and agents say in a session is remembered, and found from
all sessions of the same user in the same application.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from ..client import Client
from ..errors import InvalidInput, MissingExtra
from ..sync import Blocking
from ..text import clock
from ..types import Message
from . import Adapter, Bridge, on_loop

try:
    import google.adk  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra('Google ADK is not installed: pip install "memorist[google-adk]"') from error

from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai.types import Content, Part

__all__ = ["MemoristMemoryService"]


class MemoristMemoryService(Adapter, BaseMemoryService):
    """The memories of all users of ADK applications: a user is a user, an application is a space.

    A search returns at most `limit` memories, and none if nothing answers the query;
    `min_confidence=0` returns all that matches. Raises InvalidInput, StoreUnavailable.
    """

    def __init__(
        self,
        memory: Client | Blocking,
        *,
        limit: int = 10,
        min_confidence: float | None = None,
    ) -> None:
        self._memory = memory._inner if isinstance(memory, Blocking) else memory
        self._loop = Bridge(memory.scope("google-adk"))  # the same event loop for all users
        self._limit = limit
        self._min_confidence = min_confidence

    async def add_session_to_memory(self, session: Session) -> None:
        """Remember what was said in a session. Adding it again adds only what is new."""
        await self.add_events_to_memory(
            app_name=session.app_name,
            user_id=session.user_id,
            events=session.events,
            session_id=session.id,
        )

    @on_loop
    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember the texts of events, with the metadata. An event counts once in a session.

        Drafts, and texts that are too long to be stored, are left out.
        """
        messages = []
        for event in events:
            text = _to_text(event.content)
            if event.partial or not 0 < len(text) <= self._memory.settings.max_text_chars:
                continue
            is_user = event.author == "user"
            message = Message(
                content=text,
                role="user" if is_user else "assistant",
                name=None if is_user else event.author,
                id=f"{session_id or ''}/{event.id}" if event.id else None,
                at=datetime.fromtimestamp(event.timestamp, UTC),
            )
            messages.append(message)
        if messages:
            scope = self._memory.scope(user_id, app_name, session=session_id)
            await scope.remember(messages, metadata=custom_metadata)

    @on_loop
    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store texts as memories, with their metadata."""
        scope = self._memory.scope(user_id, app_name)
        for each in memories:
            text = _to_text(each.content)
            if not text:
                raise InvalidInput("A memory must have text: images and files are not stored")
            metadata = {**each.custom_metadata, **(custom_metadata or {})}
            await scope.remember(text, at=each.timestamp, metadata=metadata or None)

    @on_loop
    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        """Return the memories that answer a query, best first."""
        if not query.strip():
            return SearchMemoryResponse()
        scope = self._memory.scope(user_id, app_name)
        found = await scope.recall(query, limit=self._limit, min_confidence=self._min_confidence)
        entries = []
        for memory in found.memories:
            role = "user" if memory.labels.role in (None, "user") else "model"
            entry = MemoryEntry(
                id=memory.id,
                content=Content(role=role, parts=[Part(text=memory.text)]),
                author=memory.speaker,
                timestamp=clock.iso(memory.occurred_at or memory.created_at),
                custom_metadata=dict(memory.metadata),
            )
            entries.append(entry)
        return SearchMemoryResponse(memories=entries)

    @on_loop
    async def delete_memory(
        self, *, app_name: str, user_id: str, memory_id: str | None = None
    ) -> None:
        """Erase a memory. Adding its session again does not bring it back. Raises NotFound."""
        if memory_id is None:
            raise InvalidInput("Deleting a memory needs its id, as `search_memory` returns it")
        scope = self._memory.scope(user_id, app_name)
        await scope.forget(memory_id)


def _to_text(content: Content | None) -> str:
    """Return the texts of a content, but not calls of functions or thoughts."""
    parts = [] if content is None else content.parts or []
    texts = [part.text for part in parts if part.text and not part.thought]
    return "\n".join(texts).strip()
