"""Pydantic AI: a capability that gives an agent a memory, and a message history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..errors import MissingExtra
from ..manage.turn_context import BUDGET
from ..readers.provider_messages import text_of
from ..scoped import ScopedClient
from . import (
    Adapter,
    AnyScope,
    Bridge,
    ChatSession,
    Turn,
    change_on_loop,
    on_loop,
    remember_turns,
    with_session,
)

try:
    import pydantic_ai  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra(
        'Pydantic AI is not installed: pip install "memorist[pydantic-ai]"'
    ) from error

from pydantic_ai import FunctionToolset, RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.run import AgentRunResult

__all__ = ["MemoristCapability", "MemoristHistory"]


class MemoristCapability(AbstractCapability[Any]):
    """The memory of a user, for `Agent(capabilities=[…])`.

    The instructions end with what is known for the user's prompt, at most `budget` tokens. With
    `tools`, the agent can search the memory and save something itself. After a run, the texts of
    the user and the agent are remembered, unless `remember` is False. An agent for many users gets
    a function that returns the scope of a run, for example from its `deps`.
    """

    def __init__(
        self,
        scope: AnyScope | Callable[[RunContext[Any]], AnyScope],
        *,
        budget: int = BUDGET,
        tools: bool = True,
        remember: bool = True,
    ) -> None:
        self._scope = scope if callable(scope) else Bridge(scope)
        self._budget = budget
        self._has_tools = tools
        self._remembers = remember

    def get_instructions(self) -> Any:
        """Return a function that adds what is known for the prompt."""

        async def recall_for_prompt(ctx: RunContext[Any]) -> str:
            asked = text_of(ctx.prompt)
            if not asked.strip():
                return ""
            bridge, scope = self._open(ctx)
            found = await bridge.wait(scope.context(asked, budget=self._budget))
            return found.prompt()

        return recall_for_prompt

    def get_toolset(self) -> Any:
        """Return the tools of the agent: to search the memory and to save something in it."""
        return FunctionToolset([self.recall, self.save]) if self._has_tools else None

    async def after_run(
        self, ctx: RunContext[Any], *, result: AgentRunResult[Any]
    ) -> AgentRunResult[Any]:
        """Remember what the user and the agent said."""
        if self._remembers:
            bridge, scope = self._open(ctx)
            await bridge.wait(remember_turns(scope, _turns(result.new_messages())))
        return result

    async def recall(self, ctx: RunContext[Any], query: str) -> str:
        """Search what is remembered of the user from this and earlier conversations.

        Args:
            query: What to look for, as a question or in a few words.
        """
        bridge, scope = self._open(ctx)
        found = await bridge.wait(scope.recall(query, budget=self._budget))
        return found.text or "Nothing that is remembered answers this."

    async def save(self, ctx: RunContext[Any], text: str) -> str:
        """Save something about the user that will be useful in later conversations.

        Args:
            text: One self-contained statement.
        """
        bridge, scope = self._open(ctx)
        receipt = await bridge.wait(scope.remember({"role": "assistant", "content": text}))
        return "; ".join(outcome.reason or outcome.status for outcome in receipt.outcomes)

    def _open(self, ctx: RunContext[Any]) -> tuple[Bridge, ScopedClient]:
        """Return the scope of a run; its session is the conversation if the scope names none."""
        found = self._scope
        bridge = found if isinstance(found, Bridge) else Bridge(found(ctx))
        session = bridge.scope.labels.session or ctx.conversation_id
        return bridge, with_session(bridge.scope, session)


class MemoristHistory(Adapter):
    """The messages of one conversation, for `message_history`. Nothing is remembered of them:
    `MemoristCapability` does that.

    For any number of threads, event loops and processes. Raises Refused in an incognito session.
    """

    def __init__(self, session_id: str, scope: AnyScope) -> None:
        self._loop = Bridge(scope)
        self._kept = ChatSession(self._loop.scope, "pydantic-ai", session_id, remember=False)

    @on_loop
    async def load(self, limit: int | None = None) -> list[ModelMessage]:
        """Return the messages, or the last `limit` of them, oldest first."""
        messages: list[ModelMessage] = ModelMessagesTypeAdapter.validate_python(
            await self._kept.last(limit)
        )
        return messages

    @change_on_loop
    async def add(self, messages: Sequence[ModelMessage]) -> None:
        """Append messages, as `result.new_messages()` returns them."""
        items = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")
        await self._kept.add(items, ())

    @change_on_loop
    async def clear(self) -> None:
        """Delete the messages."""
        await self._kept.transcript.clear()


def _turns(messages: Iterable[ModelMessage]) -> list[Turn]:
    """Return who said what: prompts and texts, but not calls of tools or system prompts."""
    turns = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, UserPromptPart):
                turns.append(("user", text_of(part.content)))
            elif isinstance(part, TextPart):
                turns.append(("assistant", part.content))
    return turns
