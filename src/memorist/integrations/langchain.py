"""LangChain: a retriever over what is remembered, a chat message history, and a vector store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from ..errors import InvalidInput, MissingExtra, Refused
from ..ingest import validation
from ..manage.recall import UNLIMITED
from ..readers.provider_messages import text_of
from ..retrieve.profiles import Profile
from ..sync import verb
from ..text import normalize
from ..types import Draft, Memory
from . import Adapter, AnyScope, Bridge, ChatSession, change_on_loop, on_loop

try:
    import langchain_core  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra('LangChain is not installed: pip install "memorist[langchain]"') from error

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    message_to_dict,
    messages_from_dict,
)
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStore
from pydantic import PrivateAttr

__all__ = ["MemoristChatMessageHistory", "MemoristRetriever", "MemoristVectorStore"]

DOCUMENT_ID = "langchain_id"  # key in the metadata of a memory that is a document
PAGE = 500  # ids in one filter
DOCUMENTS = Profile(
    name="documents",
    weights={"sparse": 0.7, "semantic": 0.9, "multilingual": 0.6},
    budget=UNLIMITED,
)


class MemoristRetriever(Adapter, BaseRetriever):
    """Returns what is remembered of one user and answers a question, at most `k` documents.

    The metadata of a document is that of the memory, with its `score`, `confidence`, `kind`, `speaker`
    and `at`. `where` is a filter of `recall`; with `min_confidence=0` all that matches is returned.
    """

    k: int = 10
    where: Mapping[str, Any] | None = None
    min_confidence: float | None = None
    _loop: Bridge = PrivateAttr()

    def __init__(self, scope: AnyScope, **options: Any) -> None:
        super().__init__(**options)
        self._loop = Bridge(scope)

    @on_loop
    async def _aget_relevant_documents(
        self, query: str, *, run_manager: Any, k: int | None = None
    ) -> list[Document]:
        found = await self._loop.scope.recall(
            query,
            limit=self.k if k is None else k,
            where=self.where,
            min_confidence=self.min_confidence,
        )
        documents = []
        for hit in found.hits:
            memory = hit.memory
            told = memory.occurred_at or memory.created_at
            metadata = {
                **memory.metadata,
                "score": hit.score,
                "confidence": hit.confidence,
                "kind": memory.kind,
                "speaker": memory.speaker,
                "at": told.isoformat(),
            }
            documents.append(Document(id=memory.id, page_content=memory.text, metadata=metadata))
        return documents

    _get_relevant_documents = verb(_aget_relevant_documents)


class MemoristChatMessageHistory(Adapter, BaseChatMessageHistory):
    """The messages of one conversation, as they were added, for any number of threads and processes.

    What the user and the assistant say is remembered as well, unless `remember` is False.
    Raises StoreUnavailable, and Refused in an incognito session.
    """

    def __init__(self, session_id: str, scope: AnyScope, *, remember: bool = True) -> None:
        self.session_id = session_id
        self._loop = Bridge(scope)
        self._kept = ChatSession(self._loop.scope, "langchain", session_id, remember=remember)

    @on_loop
    async def aget_messages(self) -> list[BaseMessage]:
        """Return all messages, oldest first."""
        return messages_from_dict(await self._kept.last())

    @change_on_loop
    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages, and remember the texts of the user and the assistant."""
        turns = []
        for each in messages:
            if isinstance(each, (HumanMessage, AIMessage)):  # also chunks of a stream
                role = "user" if isinstance(each, HumanMessage) else "assistant"
                turns.append((role, text_of(each.content)))
        await self._kept.add([message_to_dict(each) for each in messages], turns)

    @change_on_loop
    async def aclear(self) -> None:
        """Delete the messages. What was remembered of them stays."""
        await self._kept.transcript.clear()

    messages = property(verb(aget_messages))
    add_messages = verb(aadd_messages)
    clear = verb(aclear)


class MemoristVectorStore(Adapter, VectorStore):
    """Documents of one scope, found by words and by meaning. They are memories, so `recall` finds
    them too; this store returns only its documents.

    The memory computes the vectors: for an embedding model of LangChain, open it with
    `embedder=embeddings.embed_documents`. Raises InvalidInput, Refused, StoreUnavailable.
    """

    def __init__(self, scope: AnyScope) -> None:
        self._loop = Bridge(scope)
        self._scope = self._loop.scope

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        scope: AnyScope | None = None,
        **options: Any,
    ) -> MemoristVectorStore:
        """Return a store over a scope to which the texts were added."""
        store = cls._over(scope, embedding)
        store.add_texts(texts, metadatas, **options)
        return store

    @classmethod
    async def afrom_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        scope: AnyScope | None = None,
        **options: Any,
    ) -> MemoristVectorStore:
        """Return a store over a scope to which the texts were added."""
        store = cls._over(scope, embedding)
        await store.aadd_texts(texts, metadatas, **options)
        return store

    @classmethod
    def _over(cls, scope: Any, embedding: Embeddings | None) -> MemoristVectorStore:
        if embedding is not None:
            raise InvalidInput(
                "The memory computes the vectors: pass embedding=None, and open the memory with"
                " memorist.open(…, embedder=embedding.embed_documents)"
            )
        return cls(scope)

    @on_loop
    async def aadd_texts(
        self,
        /,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Add documents, or replace those with the same id. Return the ids."""
        texts = list(texts)
        named = [str(id or uuid4()) for id in ids or [None] * len(texts)]
        given = metadatas or [{}] * len(texts)
        for name, values in (("ids", named), ("metadatas", given)):
            if len(values) != len(texts):
                raise InvalidInput(f"{len(texts)} texts and {len(values)} {name} were given")
        longest = self._scope.ctx.settings.max_text_chars
        known = await self._find(named)
        drafts: dict[str, Draft] = {}
        for id, text, about in zip(named, texts, given, strict=True):
            validation.text(text, longest)
            metadata = validation.metadata({**about, DOCUMENT_ID: id})
            if id in known:
                old = known[id]
                if (old.text, dict(old.metadata)) != (normalize.clean(text), metadata):
                    await self._scope.edit(old.id, text, metadata=metadata)
                continue
            drafts[id] = Draft(
                text=text,
                metadata=metadata,
                kind="semantic",
                labels=self._scope.labels,
                manually_saved=True,
            )
        receipt = await self._scope.remember_drafts(list(drafts.values()), policy="document")
        for id, outcome in zip(drafts, receipt.outcomes, strict=True):
            if outcome.status not in ("created", "pending"):
                raise Refused(f"The document {id!r} was not stored: {outcome.reason}")
        return named

    @on_loop
    async def adelete(self, /, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Erase documents, or all of them if no ids are given."""
        for where in _select(ids):
            await self._scope.forget_where(where=where, dry_run=False)
        return True

    @on_loop
    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents with these ids, in that order; those that do not exist are left out."""
        known = await self._find(ids)
        return [_to_document(known[id]) for id in ids if id in known]

    async def asimilarity_search(self, /, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the `k` best documents; `filter` is a dict of conditions on the metadata."""
        found = await self.asimilarity_search_with_score(query, k, **kwargs)
        return [document for document, _ in found]

    @on_loop
    async def asimilarity_search_with_score(
        self,
        /,
        query: str,
        k: int = 4,
        filter: Mapping[str, Any] | None = None,
        *,
        diversity: float | None = None,
        **kwargs: Any,
    ) -> list[tuple[Document, float]]:
        """Return the `k` best documents with their scores; a higher score is better.

        `diversity` is the `lambda_mult` of `max_marginal_relevance_search`.
        """
        conditions = {**(filter or {}), DOCUMENT_ID: {"exists": True}}
        found = await self._scope.recall(
            query,
            limit=k,
            where={"metadata": conditions},
            profile=replace(DOCUMENTS, diversity=diversity),
        )
        return [(_to_document(hit.memory), hit.score) for hit in found.hits]

    async def amax_marginal_relevance_search(
        self,
        /,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        filter: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Return good documents that differ from each other: `lambda_mult` 1 is relevance alone."""
        return await self.asimilarity_search(query, k, filter=filter, diversity=lambda_mult)

    add_texts = verb(aadd_texts)
    delete = verb(adelete)
    get_by_ids = verb(aget_by_ids)
    similarity_search = verb(asimilarity_search)
    similarity_search_with_score = verb(asimilarity_search_with_score)
    max_marginal_relevance_search = verb(amax_marginal_relevance_search)

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        total = sum(DOCUMENTS.weights.values())
        return lambda score: min(1.0, max(0.0, score / total))

    async def _find(self, ids: Sequence[str]) -> dict[str, Memory]:
        """Return the memories of documents, by the ids of these."""
        found: dict[str, Memory] = {}
        for where in _select(ids):
            page = await self._scope.list(where, limit=PAGE)
            found |= {memory.metadata[DOCUMENT_ID]: memory for memory in page}
        return found


def _select(ids: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return filters for the documents with these ids, a page each; without ids, one for all."""
    conditions: list[Any] = [{"exists": True}]
    if ids is not None:
        conditions = [list(ids[start : start + PAGE]) for start in range(0, len(ids), PAGE)]
    return [{"metadata": {DOCUMENT_ID: condition}} for condition in conditions]


def _to_document(memory: Memory) -> Document:
    metadata = {name: value for name, value in memory.metadata.items() if name != DOCUMENT_ID}
    return Document(id=memory.metadata[DOCUMENT_ID], page_content=memory.text, metadata=metadata)
