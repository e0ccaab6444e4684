"""OpenAI Agents: a session that keeps the transcript of a conversation and remembers what was said in
it, and instructions that tell an agent what is known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from ..errors import MissingExtra
from ..manage.turn_context import BUDGET
from ..readers.provider_messages import text_of
from . import Adapter, AnyScope, Bridge, ChatSession, Turn, change_on_loop, on_loop

try:
    import agents  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra(
        'OpenAI Agents is not installed: pip install "memorist[openai-agents]"'
    ) from error

from agents import Agent, RunContextWrapper, SessionSettings, TResponseInputItem
from agents.memory.session_settings import coerce_session_settings, resolve_session_limit

__all__ = ["MemoristSession", "with_memory"]

Instructions = Callable[[RunContextWrapper[Any], Agent[Any]], Awaitable[str]]


class MemoristSession(Adapter):
    """The transcript of one conversation, for any number of threads, event loops and processes.

    All items are returned as they were added: messages, tool calls and their results. The texts of
    the user and the assistant are remembered as well, unless `remember` is False.
    Raises InvalidInput for items that are not JSON, StoreUnavailable, Refused in an incognito
    session, and RuntimeError once it is closed.
    """

    def __init__(
        self,
        session_id: str,
        scope: AnyScope,
        *,
        remember: bool = True,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or {})
        self._loop = Bridge(scope)
        self._kept = ChatSession(self._loop.scope, "openai-agents", session_id, remember=remember)

    @on_loop
    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items, or the last `limit` of them, oldest first."""
        limit = resolve_session_limit(limit, self.session_settings)
        if limit is not None and limit < 0:
            limit = None
        found: list[TResponseInputItem] = await self._kept.last(limit)
        return found

    @change_on_loop
    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items to the transcript and remember the texts of the user and the assistant."""
        if items:
            await self._kept.add(items, _turns(items))

    @change_on_loop
    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and return it. What was remembered of it stays."""
        found: TResponseInputItem | None = await self._kept.pop()
        return found

    @change_on_loop
    async def clear_session(self) -> None:
        """Delete the transcript. What was remembered of it stays."""
        await self._kept.transcript.clear()

    def close(self) -> None:
        """Refuse further calls. The memory stays open: whoever opened it closes it."""
        self._loop.close(f"{type(self).__name__} is closed")


def with_memory(
    scope: AnyScope,
    instructions: str = "",
    *,
    budget: int = BUDGET,
) -> Instructions:
    """Return instructions for an agent that end with what is known for the user's message.

    At most `budget` tokens of memory are added; see `context`.
    """
    bridge = Bridge(scope)

    async def add_memory(run: RunContextWrapper[Any], agent: Agent[Any]) -> str:
        asked = [text for role, text in _turns(run.turn_input) if role == "user" and text.strip()]
        if not asked:
            return instructions
        found = await bridge.wait(bridge.scope.context(asked[-1], budget=budget))
        return f"{instructions}\n\n{found.prompt()}".strip()

    return add_memory


def _turns(items: Iterable[Any]) -> list[Turn]:
    """Return who said what among the items of a conversation."""
    known = [item for item in items if isinstance(item, Mapping)]
    said = [item for item in known if item.get("role") in ("user", "assistant")]
    return [(item["role"], text_of(item.get("content"))) for item in said]
