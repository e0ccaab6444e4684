"""The retriever, the chat history and the vector store in LangChain, and LangChain's own suites."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import memorist
from memorist.errors import InvalidInput, Refused

adapter = pytest.importorskip("memorist.integrations.langchain", exc_type=ImportError)
suites = pytest.importorskip("langchain_tests.integration_tests")

from langchain_core.documents import Document  # noqa: E402
from langchain_core.messages import (  # noqa: E402
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    url = str(tmp_path / "m.db")
    if request.param == "postgres":
        url = request.getfixturevalue("ready_database")
    with memorist.open(url, state_dir=tmp_path, extract="off") as opened:
        yield opened


@pytest.fixture
def ana(memory: Any) -> Any:
    return memory.scope("ana")


def test_the_example_runs(run_example: Callable[..., str]) -> None:
    printed = run_example("langchain_example")
    assert "history of monday: 4 messages" in printed
    assert "ana: I moved to Lisbon in May." in printed
    assert "ben knows nothing" in printed
    assert "documents: The flat has a balcony" in printed


# -- LangChain's own suites


class TestVectorStore(suites.VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, ana: Any) -> Any:
        return adapter.MemoristVectorStore(ana)


class TestRetriever(suites.RetrieversIntegrationTests):
    @pytest.fixture(autouse=True)
    def fill(self, ana: Any) -> None:
        for month in ("January", "March", "May", "July"):
            ana.remember(f"In {month} I moved to another city.")
        self._ana = ana

    @property
    def retriever_constructor(self) -> Any:
        return adapter.MemoristRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"scope": self._ana, "min_confidence": 0}

    @property
    def retriever_query_example(self) -> str:
        return "When did I move to another city?"


# -- the retriever


def test_a_document_says_where_it_comes_from(ana: Any, memory: Any) -> None:
    ana.remember("I moved to Lisbon in May.", metadata={"topic": "home"})
    (found,) = adapter.MemoristRetriever(ana).invoke("Where do I live?")
    assert found.page_content == "I moved to Lisbon in May."
    assert found.id == ana.recall("Where do I live?").hits[0].memory.id
    assert found.metadata["topic"] == "home"
    assert 0 < found.metadata["confidence"] < 1
    assert adapter.MemoristRetriever(memory.scope("ben")).invoke("Where do I live?") == []
    elsewhere = {"metadata": {"topic": "work"}}
    assert adapter.MemoristRetriever(ana, where=elsewhere).invoke("Where do I live?") == []


# -- the chat history

TALK = [
    SystemMessage("You are a helpful assistant."),
    HumanMessage("My cat is called Mochi.", id="h1"),
    AIMessage("", tool_calls=[{"name": "note", "args": {"cat": "Mochi"}, "id": "c1"}]),
    ToolMessage("tool output 12345", tool_call_id="c1"),
    AIMessage([{"type": "text", "text": "Mochi is a lovely name!"}], id="a1"),
]


def test_a_history_returns_what_was_added(ana: Any) -> None:
    history = adapter.MemoristChatMessageHistory("s1", ana)
    history.add_messages(TALK[:2])
    history.add_messages(TALK[2:])
    assert history.messages == TALK
    assert adapter.MemoristChatMessageHistory("s1", ana).messages == TALK
    assert adapter.MemoristChatMessageHistory("s2", ana).messages == []


async def test_a_history_works_from_another_loop(ana: Any) -> None:
    history = adapter.MemoristChatMessageHistory("s1", ana)
    await history.aadd_messages(TALK)
    assert await history.aget_messages() == TALK
    await history.aclear()
    assert await history.aget_messages() == []


def test_what_was_said_is_remembered_and_stays(ana: Any, memory: Any) -> None:
    history = adapter.MemoristChatMessageHistory("s1", ana)
    history.add_messages(TALK)
    stored = {(each.text, each.labels.role) for each in ana.list()}
    assert stored == {
        ("My cat is called Mochi.", "user"),
        ("Mochi is a lovely name!", "assistant"),
    }
    assert {each.labels.session for each in ana.list()} == {"s1"}
    history.clear()
    assert history.messages == []
    assert "Mochi" in ana.recall("What is my cat called?").text
    assert adapter.MemoristChatMessageHistory("s1", memory.scope("ben")).messages == []


def test_a_reply_that_was_streamed_is_remembered(ana: Any) -> None:
    history = adapter.MemoristChatMessageHistory("s1", ana)
    history.add_messages([AIMessageChunk("Mochi is ") + AIMessageChunk("a lovely name!")])
    assert [(each.text, each.labels.role) for each in ana.list()] == [
        ("Mochi is a lovely name!", "assistant")
    ]


def test_a_history_need_not_remember(ana: Any) -> None:
    history = adapter.MemoristChatMessageHistory("s1", ana, remember=False)
    history.add_messages(TALK)
    assert len(history.messages) == 5
    assert list(ana.list()) == []


def test_an_incognito_session_keeps_nothing(ana: Any) -> None:
    ana.privacy.start_incognito("s1")
    history = adapter.MemoristChatMessageHistory("s1", ana)
    with pytest.raises(Refused):
        history.add_messages(TALK)
    assert history.messages == []


# -- the vector store

FLAT = [
    Document("The flat has a balcony that faces south.", metadata={"part": "flat", "page": 1}),
    Document("The rent is due on the first of the month.", metadata={"part": "rent", "page": 2}),
    Document(
        "Pets are allowed in the flat if they are small.", metadata={"part": "flat", "page": 3}
    ),
]


def test_documents_are_filtered_by_their_metadata(ana: Any) -> None:
    store = adapter.MemoristVectorStore(ana)
    store.add_documents(FLAT, ids=["a", "b", "c"])

    def pages(**conditions: Any) -> set[int]:
        found = store.similarity_search("the flat and its rent", k=9, filter=conditions)
        return {document.metadata["page"] for document in found}

    assert pages() == {1, 2, 3}
    assert pages(part="flat") == {1, 3}
    assert pages(page={"$gte": 2}) == {2, 3}
    assert pages(part=["rent", "garage"]) == {2}
    assert pages(part="garage") == set()


def test_documents_and_memories_of_a_scope_are_apart_but_recall_finds_both(ana: Any) -> None:
    store = adapter.MemoristVectorStore(ana)
    store.add_documents(FLAT)
    ana.remember("My cat is small and likes balconies.")
    found = store.similarity_search("balcony", k=9)
    assert {document.page_content for document in found} == {each.page_content for each in FLAT}
    recalled = {hit.memory.text for hit in ana.recall("balcony", min_confidence=0).hits}
    assert {"My cat is small and likes balconies.", FLAT[0].page_content} <= recalled


def test_users_do_not_see_each_others_documents(memory: Any) -> None:
    ana = adapter.MemoristVectorStore(memory.scope("ana"))
    ben = adapter.MemoristVectorStore(memory.scope("ben"))
    (id,) = ana.add_documents(FLAT[:1])
    assert ben.similarity_search("balcony") == []
    assert ben.get_by_ids([id]) == []
    ben.delete([id])
    assert ana.get_by_ids([id])[0].metadata == FLAT[0].metadata


def test_the_same_text_twice_is_two_documents(ana: Any) -> None:
    store = adapter.MemoristVectorStore(ana)
    store.add_texts(["The same words."] * 2, [{"n": 1}, {"n": 2}], ids=["a", "b"])
    assert [each.metadata["n"] for each in store.get_by_ids(["b", "a"])] == [2, 1]


def test_what_was_deleted_can_be_added_again(ana: Any) -> None:
    store = adapter.MemoristVectorStore(ana)
    store.add_documents(FLAT, ids=["a", "b", "c"])
    store.delete()
    assert store.similarity_search("balcony") == []
    assert store.add_documents(FLAT[:1], ids=["a"]) == ["a"]
    assert store.similarity_search("balcony")[0].id == "a"


def test_many_documents_are_added_and_erased_at_once(tmp_path: Path) -> None:
    with memorist.open(":memory:", state_dir=tmp_path, embedder="hashing") as memory:
        store = adapter.MemoristVectorStore(memory.scope("ana"))
        ids = [f"d{number}" for number in range(1_100)]
        store.add_texts([f"This is the document {id}." for id in ids], ids=ids)
        assert [each.id for each in store.get_by_ids(ids)] == ids
        store.delete(ids[:1_050])
        assert [each.id for each in store.get_by_ids(ids)] == ids[1_050:]


def test_adding_the_same_again_changes_nothing_and_another_text_replaces(ana: Any) -> None:
    store = adapter.MemoristVectorStore(ana)
    store.add_documents(FLAT, ids=["a", "b", "c"])
    before = [(each.id, each.revision) for each in ana.list()]
    store.add_documents(FLAT, ids=["a", "b", "c"])
    assert [(each.id, each.revision) for each in ana.list()] == before
    store.add_texts(["The flat has two balconies."], [{"page": 9}], ids=["a"])
    (found,) = store.get_by_ids(["a"])
    assert (found.page_content, found.metadata) == ("The flat has two balconies.", {"page": 9})
    assert len(store.similarity_search("balcony", k=9)) == 3


def test_a_long_document_stays_in_one_piece(ana: Any) -> None:
    text = "\n\n".join(
        f"Section {number}. {'The lease goes on. ' * 40}".strip() for number in range(9)
    )
    store = adapter.MemoristVectorStore(ana)
    store.add_texts([text], ids=["lease"])
    assert store.get_by_ids(["lease"])[0].page_content == text
    assert store.similarity_search("Which section is about the lease?")[0].page_content == text


def test_scores_are_from_0_to_1_and_a_store_is_a_retriever(ana: Any) -> None:
    store = adapter.MemoristVectorStore.from_documents(FLAT, None, scope=ana)
    scored = store.similarity_search_with_relevance_scores("May I keep a small pet?", k=3)
    assert scored[0][0].metadata["page"] == 3
    assert all(0 <= score <= 1 for _, score in scored)
    assert scored == sorted(scored, key=lambda each: -each[1])
    for kind in ("similarity", "mmr"):
        retriever = store.as_retriever(search_type=kind, search_kwargs={"k": 2})
        assert retriever.invoke("May I keep a small pet?")[0].metadata["page"] == 3


def test_diverse_results_do_not_repeat_each_other(ana: Any) -> None:
    texts = ["Pets are allowed.", "Pets are allowed!", "Pets, allowed.", "The rent is 900 euros."]
    store = adapter.MemoristVectorStore.from_texts(texts, scope=ana)
    plain = store.similarity_search("Are pets allowed?", k=2)
    diverse = store.max_marginal_relevance_search("Are pets allowed?", k=2, lambda_mult=0.1)
    assert "The rent is 900 euros." not in {each.page_content for each in plain}
    assert "The rent is 900 euros." in {each.page_content for each in diverse}


def test_wrong_input_is_refused(ana: Any) -> None:
    store = adapter.MemoristVectorStore(ana)
    with pytest.raises(InvalidInput, match="2 texts and 1 metadatas"):
        store.add_texts(["a", "b"], [{}])
    with pytest.raises(InvalidInput, match=r"embedder=embedding\.embed_documents"):
        adapter.MemoristVectorStore.from_texts(["a"], object(), scope=ana)
    with pytest.raises(InvalidInput, match="takes a scope"):
        adapter.MemoristVectorStore.from_texts(["a"])
    with pytest.raises(InvalidInput):
        store.add_texts(["a"], [{"set": {1, 2}}])


def test_an_embedding_model_of_langchain_is_used(tmp_path: Path) -> None:
    from langchain_core.embeddings import DeterministicFakeEmbedding

    model = DeterministicFakeEmbedding(size=32)
    with memorist.open(":memory:", state_dir=tmp_path, embedder=model.embed_documents) as memory:
        store = adapter.MemoristVectorStore(memory.scope("ana"))
        store.add_documents(FLAT)
        assert "-32-" in memory.stats()["model"]
        assert memory.stats()["without_embeddings"] == 0
        assert json.dumps(store.similarity_search("balcony", k=1)[0].metadata)
