"""Vault, the Memory Logic Specification: ingest, recall, compress, and the block for the prompt."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ..client import Client
from ..errors import InvalidInput
from ..readers.provider_messages import ROLES
from ..retrieve import render
from ..types import Filter, Memory, Message, frozen

_ROLE = re.compile(r"(?im)^[ \t#*]{0,9}(user|human|assistant|ai|system)[ \t*]{0,4}:[ \t*]{0,4}")


class MemoryType(StrEnum):
    EPISODIC = "episodic"
    SEMANTIC = "semantic"
    WORKING = "working"
    PROCEDURAL = "procedural"


@frozen
class MemoryChunk:
    """One stored chunk of a text."""

    id: str  # mem_ and 12 hexadecimal digits
    content: str
    memory_type: MemoryType
    user_id: str
    session_id: str | None
    importance: float  # 0 skip … 1 high
    compressed: bool
    created_at: datetime
    memory_id: str  # of the memory that it comes from
    told_by: str = ""  # who said it, if not the user


@dataclass(frozen=True, slots=True)
class RecallResult:
    """What fits into the budget, best first, preferences before everything else."""

    memories: list[MemoryChunk]
    total_tokens: int
    budget_used: float  # share of the budget


class Vault:
    """The specification's API over a client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def ingest(
        self,
        text: str,
        user_id: str,
        session_id: str,
        memory_type_hint: MemoryType | None = None,
    ) -> list[MemoryChunk]:
        """Chunk, embed, score and store a text, without unimportant chunks. Raises InvalidInput.

        A pasted transcript is stored message by message, each as said by its role.
        """
        scope = self._client.scope(user=user_id, session=session_id)
        hint = None if memory_type_hint is None else _check_type(memory_type_hint)
        what = split_transcript(text) or text
        receipt = await scope.remember(what, policy="vault", kind=hint)
        return [chunk_of(await scope.get(id)) for id in receipt.ids]

    async def recall(
        self,
        query: str,
        user_id: str,
        top_k: int = 5,
        token_budget: int = 2000,
        memory_types: list[MemoryType] | None = None,
        *,
        include_compressed: bool = False,
        session_id: str | None = None,
        reranker_enabled: bool = False,
    ) -> RecallResult:
        """Return the memories that answer, within the budget. Raises InvalidInput.

        With `session_id`, working memories of other sessions are left out.
        """
        if memory_types is not None and not memory_types:
            return RecallResult([], 0, 0.0)
        kinds = tuple(map(_check_type, memory_types or ()))
        scope = self._client.scope(user=user_id, session=session_id)
        answer = await scope.recall(
            query,
            limit=top_k,
            budget=token_budget,
            profile="mls.recall",
            where=Filter(kinds=kinds),
            include_compressed=include_compressed,
            rerank=reranker_enabled,
        )
        chunks = list(map(chunk_of, answer.memories))
        used = sum(max(1, hit.tokens) for hit in answer.hits)
        return RecallResult(chunks, used, used / token_budget)

    async def compress(
        self,
        user_id: str,
        compression_threshold: int | None = None,
        sessions_to_compress: int | None = None,
    ) -> list[MemoryChunk]:
        """Summarize the oldest sessions if there are more than the threshold; return the summaries.

        The turns stay, marked as compressed. Raises InvalidInput.
        """
        scope = self._client.scope(user=user_id)
        done = await scope.compress(threshold=compression_threshold, sessions=sessions_to_compress)
        summaries = await self._client.ctx.store.get(scope.scope, done.summaries)
        return list(map(chunk_of, summaries))


def split_transcript(text: str) -> list[Message]:
    r"""Return the messages of a transcript whose lines begin with roles; empty if it is none.

    >>> [(m.role, m.content) for m in split_transcript("User: Hi.\nAI: Hello,\nUser!")]
    [('user', 'Hi.'), ('assistant', 'Hello,\nUser!')]
    """
    parts = _ROLE.split(text)
    if len(parts) < 5 or parts[0].strip():  # what precedes, then role and content of each message
        return []
    found = []
    for role, content in zip(parts[1::2], parts[2::2], strict=True):
        if content.strip():
            role = ROLES.get(role.lower(), role.lower())
            found.append(Message(content=content.strip(), role=role))
    return found


def to_prompt(result: RecallResult) -> str:
    """Return the block for the prompt, byte for byte as specified; empty without memories.

    The format is frozen: to change it, change the specification first.
    """
    return render.labelled(
        (chunk.memory_type.value, chunk.content, chunk.told_by) for chunk in result.memories
    )


def chunk_of(memory: Memory) -> MemoryChunk:
    """Return a memory as a chunk."""
    return MemoryChunk(
        id="mem_" + hashlib.sha256(memory.id.encode()).hexdigest()[:12],
        content=memory.text,
        memory_type=MemoryType.SEMANTIC if memory.kind == "insight" else MemoryType(memory.kind),
        user_id=memory.scope.user,
        session_id=memory.labels.session or memory.source_session_id,
        importance=memory.importance,
        compressed=memory.compressed,
        created_at=memory.created_at,
        memory_id=memory.id,
        told_by=render.credit(memory),
    )


def _check_type(given: MemoryType | str) -> str:
    try:
        return MemoryType(given).value
    except ValueError as error:
        raise InvalidInput(
            f"Unknown memory type {given!r}: use one of {', '.join(MemoryType)}"
        ) from error
