"""What every vector index keeps to: Chroma in a folder, Chroma as a server, Weaviate against a server of ours."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from chroma_server import running
from memorist.errors import Misconfigured
from memorist.ports import IndexEntry, VectorIndex
from memorist.types import Scope
from memorist.vector_indexes import collection_name
from memorist.vector_indexes import open_index as open_by_name

ANA, BOB = Scope(user="ana"), Scope(user="bob")
Opener = Callable[..., VectorIndex]


def entry(row: int, *vector: float, **about: str | float | bool) -> IndexEntry:
    known = {"session_id": "s1", "memory_type": "episodic", "importance": 0.5, "compressed": False}
    known |= {"created_at": "2026-05-01T10:00:00.000000+00:00"}
    return IndexEntry(row=row, vector=np.array(vector, np.float32), about=known | about)


def towards(*vector: float) -> Any:
    return np.array(vector, np.float32)


@pytest.fixture(scope="module")
def chroma_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("chromadb")
    with running(tmp_path_factory.mktemp("chroma")) as url:
        yield url


@pytest.fixture(params=["chroma-folder", "chroma-server", "weaviate"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where an index is, as a setting names it."""
    if request.param == "weaviate":
        pytest.importorskip("weaviate")
        from weaviate_server import WeaviateServer

        with WeaviateServer() as server:
            yield f"weaviate:{server.url}"
    elif request.param == "chroma-server":
        yield f"chroma:{request.getfixturevalue('chroma_url')}"
    else:
        pytest.importorskip("chromadb")
        yield f"chroma:{tmp_path / 'index'}"


@pytest.fixture
async def open_index(place: str) -> AsyncIterator[Opener]:
    """Opens indexes of one database, and closes them."""
    store, made = uuid4().hex, []

    def make(**other: Any) -> VectorIndex:
        made.append(open_by_name(place, **{"model": "m", "dimensions": 3, "store": store} | other))
        return made[-1]

    yield make
    for index in made:
        await index.close()


@pytest.fixture
def index(open_index: Opener) -> VectorIndex:
    return open_index()


async def test_an_index_is_empty_at_first(index: VectorIndex) -> None:
    assert await index.count() == 0
    assert await index.nearest(ANA, towards(1, 0, 0), limit=5) == []


async def test_the_nearest_by_cosine_come_first(index: VectorIndex) -> None:
    await index.put(
        ANA, [entry(1, 0.1, 0, 0), entry(2, 5, 5, 0), entry(3, 0, 0, 1), entry(4, -1, 0, 0)]
    )
    assert await index.nearest(ANA, towards(2, 1, 0), limit=3) == [2, 1, 3]


async def test_no_more_than_the_limit_and_no_more_than_there_are(index: VectorIndex) -> None:
    await index.put(ANA, [entry(row, 1, row, 0) for row in range(1, 6)])
    assert await index.nearest(ANA, towards(1, 0, 0), limit=2) == [1, 2]
    assert await index.nearest(ANA, towards(1, 0, 0), limit=50) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "other",
    [
        BOB,
        Scope(user="ana", space="work"),
        Scope(user="ana", tenant="acme"),
        Scope(user="Ana"),
        Scope(user=" ana "),
        Scope(user="ana bob"),
        Scope(user="ána"),
        Scope(user="default", space="ana"),
        Scope(user=""),
    ],
    ids=lambda scope: f"{scope.tenant}/{scope.user}/{scope.space}",
)
async def test_another_scope_is_neither_found_nor_deleted(index: VectorIndex, other: Scope) -> None:
    await index.put(ANA, [entry(1, 1, 0, 0)])
    await index.put(other, [entry(2, 1, 0, 0)])
    assert await index.nearest(ANA, towards(1, 0, 0), limit=5) == [1]
    assert await index.nearest(other, towards(1, 0, 0), limit=5) == [2]
    await index.delete(other, [1])
    assert await index.nearest(ANA, towards(1, 0, 0), limit=5) == [1]


async def test_a_number_that_no_row_can_have_is_not_returned(index: VectorIndex) -> None:
    await index.put(ANA, [entry(2**63, 1, 0, 0), entry(2**63 - 1, 1, 1, 0)])
    assert await index.nearest(ANA, towards(1, 0, 0), limit=5) == [2**63 - 1]


async def test_putting_a_row_again_replaces_it(index: VectorIndex) -> None:
    await index.put(ANA, [entry(1, 1, 0, 0), entry(2, 0, 1, 0)])
    await index.put(ANA, [entry(1, 0, 0, 1)])
    assert await index.count() == 2
    assert await index.nearest(ANA, towards(1, 0.5, 0), limit=1) == [2]


async def test_a_deleted_row_is_gone_and_a_missing_one_is_no_error(index: VectorIndex) -> None:
    await index.put(ANA, [entry(1, 1, 0, 0), entry(2, 0, 1, 0)])
    await index.delete(ANA, [1, 77])
    assert await index.count() == 1
    assert await index.nearest(ANA, towards(1, 0, 0), limit=5) == [2]


async def test_nothing_to_put_or_delete_is_nothing_to_do(index: VectorIndex) -> None:
    await index.put(ANA, [])
    await index.delete(ANA, [])
    assert await index.count() == 0


async def test_more_than_one_request_can_carry(index: VectorIndex) -> None:
    angles = np.linspace(0, 1, 600)
    await index.put(
        ANA, [entry(row, np.cos(at), np.sin(at), 0) for row, at in enumerate(angles, 1)]
    )
    assert await index.count() == 600
    await index.delete(ANA, range(1, 501))
    assert await index.count() == 100
    assert await index.nearest(ANA, towards(1, 0, 0), limit=3) == [501, 502, 503]


async def test_a_cleared_index_is_empty_and_can_be_filled_again(index: VectorIndex) -> None:
    await index.clear()
    await index.put(ANA, [entry(1, 1, 0, 0)])
    await index.clear()
    assert await index.count() == 0
    await index.put(ANA, [entry(2, 1, 0, 0)])
    assert await index.nearest(ANA, towards(1, 0, 0), limit=5) == [2]


async def test_one_that_another_process_has_cleared_goes_on(open_index: Opener) -> None:
    index, other = open_index(), open_index()
    await index.put(ANA, [entry(1, 1, 0, 0)])
    await other.clear()
    await index.put(ANA, [entry(2, 1, 0, 0)])
    assert await index.nearest(ANA, towards(1, 0, 0), limit=5) == [2]
    assert await other.count() == 1


async def test_what_was_put_is_there_after_opening_again(open_index: Opener) -> None:
    index = open_index()
    await index.put(ANA, [entry(1, 1, 0, 0)])
    await index.close()
    assert await open_index().nearest(ANA, towards(1, 0, 0), limit=5) == [1]


async def test_databases_and_models_do_not_mix(open_index: Opener) -> None:
    index = open_index()
    await index.put(ANA, [entry(1, 1, 0, 0)])
    for other in (open_index(store="elsewhere"), open_index(model="n"), open_index(dimensions=4)):
        assert other.name != index.name
        assert await other.count() == 0
        await other.clear()
    assert await index.count() == 1


async def test_closing_twice_is_fine(index: VectorIndex) -> None:
    await index.count()
    await index.close()
    await index.close()


@pytest.mark.spec("MLS-38")
async def test_chroma_keeps_what_a_memory_can_be_filtered_by(tmp_path: Path) -> None:
    chromadb = pytest.importorskip("chromadb")
    index = open_by_name(f"chroma:{tmp_path}", model="m", dimensions=3, store="s")
    await index.put(ANA, [entry(7, 1, 0, 0, memory_type="semantic", importance=0.9)])
    await index.close()
    with chromadb.PersistentClient(str(tmp_path)) as client:
        collection = client.get_collection(collection_name("s", "m", 3), embedding_function=None)
        kept = collection.get(where={"$and": [{"user_id": "ana"}, {"memory_type": "semantic"}]})
    assert kept["ids"] == ["7"]
    assert kept["documents"] == [None]
    assert {**kept["metadatas"][0], "scope": ""} == {
        "tenant": "default",
        "user_id": "ana",
        "space": "default",
        "scope": "",
        "session_id": "s1",
        "memory_type": "semantic",
        "importance": 0.9,
        "compressed": False,
        "created_at": "2026-05-01T10:00:00.000000+00:00",
    }


@pytest.mark.spec("MIL-23", "MIL-24")
async def test_weaviate_serves_the_search_from_an_hnsw_index_by_cosine() -> None:
    pytest.importorskip("weaviate")
    from weaviate_server import WeaviateServer

    with WeaviateServer() as server:
        index = open_by_name(f"weaviate:{server.url}", model="m", dimensions=3, store="s")
        await index.put(ANA, [entry(7, 1, 0, 0)])
        assert await index.nearest(ANA, towards(1, 0, 0), limit=5) == [7]
        await index.close()
        (collection,) = server.collections.values()
        (made,) = collection.schema["vectorConfig"].values()
        (kept,) = collection.objects.values()
    assert (made["vectorIndexType"], made["vectorizer"]) == ("hnsw", {"none": {}})
    assert made["vectorIndexConfig"]["distance"] == "cosine"
    assert [request.near_vector.targets.target_vectors for request in server.searched] == [
        ["memory"]
    ]
    assert kept.properties["user_id"] == "ana"
    assert set(kept.properties) == {each["name"] for each in collection.schema["properties"]}


@pytest.mark.parametrize(
    "spec", ["", "chroma", "chroma:", "weaviate:", "weaviate:host:8080", "pinecone:x", "/folder"]
)
def test_a_setting_that_names_no_index_says_which_there_are(spec: str) -> None:
    with pytest.raises(Misconfigured, match="chroma:FOLDER"):
        open_by_name(spec, model="m", dimensions=3, store="s")


@pytest.mark.parametrize(
    ("spec", "module", "extra"),
    [
        ("chroma:/tmp/x", "chromadb", "chroma"),
        ("weaviate:http://localhost", "weaviate", "weaviate"),
    ],
)
def test_without_the_library_it_says_what_to_install(
    spec: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(Misconfigured, match=rf'pip install "memorist\[{extra}\]"'):
        open_by_name(spec, model="m", dimensions=3, store="s")


def test_a_password_in_an_address_is_not_shown() -> None:
    pytest.importorskip("weaviate")
    assert (
        "secret"
        not in open_by_name("weaviate:http://u:secret@h:1", model="m", dimensions=3, store="s").name
    )
