"""OpenAI Agents: a session that keeps the transcript of a conversation and remembers what was said in
it, and instructions that tell an agent what is known.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, cast

from ..errors import InvalidInput, MissingExtra
from ..manage import privacy
from ..manage.checkpoints import thread_name
from ..manage.turn_context import BUDGET
from ..readers.provider_messages import text_of
from ..scoped import ScopedClient
from ..storage.documents import Transcript
from ..sync import BlockingScope
from . import Bridge

try:
    import agents  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra(
        'OpenAI Agents is not installed: pip install "memorist[openai-agents]"'
    ) from error

from agents import Agent, RunContextWrapper, SessionSettings, TResponseInputItem
from agents.memory.session_settings import resolve_session_limit

__all__ = ["MemoristSession", "with_memory"]

Instructions = Callable[[RunContextWrapper[Any], Agent[Any]], Awaitable[str]]


class MemoristSession:
    """The transcript of one conversation, for any number of threads, event loops and processes.

    All items are returned as they were added: messages, tool calls and their results. The texts of
    the user and the assistant are remembered as well, unless `remember` is False.
    Raises InvalidInput for items that are not JSON, StoreUnavailable, and Refused in an incognito
    session.
    """

    def __init__(
        self,
        session_id: str,
        scope: ScopedClient | BlockingScope,
        *,
        remember: bool = True,
        session_settings: SessionSettings | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings or SessionSettings()
        self._bridge = Bridge(scope)
        inner = self._bridge.scope
        labels = replace(inner.labels, session=thread_name(session_id))
        self._scope = ScopedClient(inner.ctx, inner.scope, labels, inner.offline)
        self._remembers = remember
        namespace = f"openai-agents.{session_id}"
        self._transcript = Transcript(inner.ctx.store, inner.scope, namespace)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items, or the last `limit` of them, oldest first."""
        limit = resolve_session_limit(limit, self.session_settings)
        if limit is not None and limit < 0:
            limit = None
        found = await self._bridge.wait(self._transcript.last(limit))
        return [json.loads(item) for item in found]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items to the transcript and remember the texts of the user and the assistant."""
        if items:
            await self._bridge.wait(self._add(items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item and return it. What was remembered of it stays."""
        found = await self._bridge.wait(self._transcript.pop())
        return None if found is None else cast(TResponseInputItem, json.loads(found))

    async def clear_session(self) -> None:
        """Delete the transcript. What was remembered of it stays."""
        await self._bridge.wait(self._transcript.clear())

    async def _add(self, items: list[TResponseInputItem]) -> None:
        await privacy.refuse_incognito(self._scope)
        try:
            values = [json.dumps(item) for item in items]
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"An item of a session must be JSON: {error}") from error
        await self._transcript.append(values, self._scope.ctx.clock())
        longest = self._scope.ctx.settings.max_text_chars
        turns = [turn for turn in _turns(items) if len(turn["content"]) <= longest]
        if turns and self._remembers:
            await self._scope.remember(turns)


def with_memory(
    scope: ScopedClient | BlockingScope,
    instructions: str = "",
    *,
    budget: int = BUDGET,
) -> Instructions:
    """Return instructions for an agent that end with what is known for the user's message.

    At most `budget` tokens of memory are added; see `context`.
    """
    bridge = Bridge(scope)

    async def add_memory(run: RunContextWrapper[Any], agent: Agent[Any]) -> str:
        asked = [turn["content"] for turn in _turns(run.turn_input) if turn["role"] == "user"]
        if not asked:
            return instructions
        found = await bridge.wait(bridge.scope.context(asked[-1], budget=budget))
        return f"{instructions}\n\n{found.prompt()}".strip()

    return add_memory


def _turns(items: Iterable[Any]) -> list[dict[str, str]]:
    """Return the texts of the user and the assistant among the items of a conversation.

    Ids are left out: models that are not OpenAI's give the same id to all messages.
    """
    turns = []
    for item in items:
        role = item.get("role")
        text = text_of(item.get("content"))
        if role in ("user", "assistant") and text.strip():
            turns.append({"role": role, "content": text})
    return turns
