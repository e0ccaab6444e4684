"""LlamaIndex: a memory block that remembers what leaves the chat history, and recalls what helps."""

from __future__ import annotations

from typing import Any

from ..errors import MissingExtra
from ..manage.turn_context import BUDGET
from ..types import Message
from . import Adapter, AnyScope, Bridge, on_loop

try:
    import llama_index.core  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra(
        'LlamaIndex is not installed: pip install "memorist[llama-index]"'
    ) from error

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory import BaseMemoryBlock
from pydantic import Field, PrivateAttr

__all__ = ["MemoristMemoryBlock"]


class MemoristMemoryBlock(Adapter, BaseMemoryBlock[str]):
    """The long-term memory of one user, as a block of a LlamaIndex `Memory`.

    What the short-term memory gives up is remembered; before each turn, the block returns what is
    known for the newest message of the user, within `budget` tokens.
    """

    name: str = "long_term_memory"
    description: str | None = "What is remembered of the user from this and other conversations."
    budget: int = Field(BUDGET, ge=1, description="Tokens of memory at most.")
    _loop: Bridge = PrivateAttr()

    def __init__(self, scope: AnyScope, **options: Any) -> None:
        super().__init__(**options)
        self._loop = Bridge(scope)

    @on_loop
    async def _aget(self, /, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        """Return what is known for the newest message of the user; empty if nothing helps."""
        asked = [each.content for each in messages or [] if each.role == MessageRole.USER]
        if not asked or not (asked[-1] or "").strip():
            return ""
        found = await self._loop.scope.context(str(asked[-1]), budget=self.budget)
        text: str = found.text
        return text

    @on_loop
    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Remember what the user and the assistant said."""
        scope = self._loop.scope
        turns: list[Message] = []
        for each in messages:
            is_said = each.role in (MessageRole.USER, MessageRole.ASSISTANT)
            if is_said and (each.content or "").strip():
                session = each.additional_kwargs.get("session_id") or scope.labels.session
                turns.append(
                    Message(role=each.role.value, content=str(each.content), session=session)
                )
        if turns:
            await scope.remember(turns)

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Return the content without its last memories, so that it is that much shorter."""
        count = self._loop.scope.ctx.count_tokens
        *lines, end = content.splitlines() or [""]
        most = count(content) - tokens_to_truncate
        while lines and count("\n".join([*lines, end])) > most:
            lines.pop()
        return "\n".join([*lines, end]) if len(lines) > 1 else None
